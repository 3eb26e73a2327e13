"""The selectors of this package as parts of Avalanche 0.6: exemplar selection, buffer and plugin.

Three lines are enough to give Avalanche's own replay a memory that stays clean:

    from continual_crust.integrations.avalanche import CoresetReplayPlugin
    plugin = CoresetReplayPlugin(selector="crust")
    learner = Replay(model=model, optimizer=optimizer, criterion=criterion, mem_size=250, plugins=[plugin])

Any network that ends in a linear layer will do, Avalanche's growing and multi-head classifiers among them.
"""

from continual_crust.torchvision_remedy import import_torchvision

try:
    import_torchvision()  # Avalanche imports it, and cannot where torchvision needs the remedy
    from continual_crust.integrations.avalanche.buffer import CoresetBuffer
    from continual_crust.integrations.avalanche.plugin import CoresetReplayPlugin
    from continual_crust.integrations.avalanche.selection import CoresetSelection
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "avalanche":
        raise
    raise ModuleNotFoundError(
        "continual_crust.integrations.avalanche needs Avalanche, which is not installed; "
        "run: pip install 'continual-crust[avalanche]'.",
        name="avalanche",
    ) from None

__all__ = ["CoresetBuffer", "CoresetReplayPlugin", "CoresetSelection"]
