"""The one way to reach the last layer of any network."""

from __future__ import annotations

from torch import Tensor, nn

from continual_crust.errors import InputError


def last_linear(model: nn.Module) -> nn.Linear:
    """The linear layer a classifier ends in."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise InputError(
            f"{type(model).__name__} has no linear layer; last-layer gradients need a network that ends in nn.Linear."
        )
    return layers[-1]


def features_and_logits(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Run the network and return what enters its last layer along with what leaves it."""
    layer = last_linear(model)
    seen: list[tuple[Tensor, Tensor]] = []
    hook = layer.register_forward_hook(lambda _, entering, leaving: seen.append((entering[0], leaving)))
    try:
        logits = model(inputs)
    finally:
        hook.remove()
    if len(seen) != 1 or seen[0][1].data_ptr() != logits.data_ptr() or seen[0][1].shape != logits.shape:
        raise InputError(
            f"{type(model).__name__} does not end in its last linear layer; give a network whose output is the output "
            "of one nn.Linear, without softmax or other layers behind it."
        )
    return seen[0][0], logits
