"""How to learn: one file for each method."""

from continual_crust.errors import unknown_name
from continual_crust.strategies.base import Observer, Strategy
from continual_crust.strategies.crust import ContinualCosineCrust, ContinualCrust
from continual_crust.strategies.replay import Replay
from continual_crust.strategies.training import Training

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy for strategy in (ContinualCrust, ContinualCosineCrust, Replay)
}


def strategy_named(name: str) -> type[Strategy]:
    """Look a method up by its name on the command line."""
    if name not in STRATEGIES:
        raise unknown_name("method", name, STRATEGIES)
    return STRATEGIES[name]


__all__ = [
    "STRATEGIES",
    "ContinualCosineCrust",
    "ContinualCrust",
    "Observer",
    "Replay",
    "Strategy",
    "Training",
    "strategy_named",
]
