"""How to learn: one file for each method."""

from collections.abc import Mapping
from typing import Any

from continual_crust.errors import unknown_name
from continual_crust.strategies.base import Observer, Strategy
from continual_crust.strategies.crust import ContinualCosineCrust, ContinualCrust
from continual_crust.strategies.cumulative import Cumulative
from continual_crust.strategies.cumulative_crust import CumulativeCosineCrust, CumulativeCrust
from continual_crust.strategies.der import DarkExperienceReplay
from continual_crust.strategies.icarl import Icarl
from continual_crust.strategies.joint import Joint
from continual_crust.strategies.naive import Naive
from continual_crust.strategies.options import build_options
from continual_crust.strategies.oracle import Oracle, SiftOracle, Told
from continual_crust.strategies.replay import Replay
from continual_crust.strategies.replay_ewc import ReplayEwc
from continual_crust.strategies.sift import Sift
from continual_crust.strategies.training import Training

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy
    for strategy in (
        Naive,
        Joint,
        Cumulative,
        Replay,
        ReplayEwc,
        DarkExperienceReplay,
        Icarl,
        ContinualCrust,
        ContinualCosineCrust,
        CumulativeCrust,
        CumulativeCosineCrust,
        Sift,
        Oracle,
        SiftOracle,
    )
}
"""All methods by name, in the order of the paper's tables, its second reading, then ours."""


def strategy_named(name: str) -> type[Strategy]:
    """Look a method up by its name on the command line."""
    if name not in STRATEGIES:
        raise unknown_name("method", name, STRATEGIES)
    return STRATEGIES[name]


def options_of(method: str, given: Mapping[str, Any]) -> Any:
    """A method's own hyper-parameters, its defaults where none are given."""
    return build_options(method, strategy_named(method).options_type, given)


__all__ = [
    "STRATEGIES",
    "ContinualCosineCrust",
    "ContinualCrust",
    "Cumulative",
    "CumulativeCosineCrust",
    "CumulativeCrust",
    "DarkExperienceReplay",
    "Icarl",
    "Joint",
    "Naive",
    "Observer",
    "Oracle",
    "Replay",
    "ReplayEwc",
    "Sift",
    "SiftOracle",
    "Strategy",
    "Told",
    "Training",
    "options_of",
    "strategy_named",
]
