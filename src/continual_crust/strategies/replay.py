"""Experience replay with a memory for each class (Rolnick et al. 2019; Avalanche's `Replay`).

Trains m + n epochs on the new samples D together with the memory M of old classes, under cross-entropy L, then draws
the new classes' memory, uniformly unless another selector is asked for:

    concatenate:  every epoch visits D and M once, in one random order; each step minimises L(batch of D and M)
    equal:        every step minimises L(batch of D and an equal batch of M), walking through M as often as D lasts,
                  which is what Avalanche does; old classes weigh as much as new ones from the first step

Where this differs from Avalanche's `Replay`: the memory is a number for each class and not a total that is divided
anew; concatenation is the default; the optimizer starts afresh in every experience.
"""

from __future__ import annotations

from dataclasses import dataclass

from continual_crust.data.samples import Samples
from continual_crust.errors import unknown_name
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies.base import Strategy
from continual_crust.strategies.losses import Loss

MIXINGS = ("concatenate", "equal")


@dataclass(frozen=True)
class ReplayOptions:
    """Hyper-parameters of replay."""

    mixing: str = "concatenate"
    """How memory enters training: ``concatenate`` or ``equal``."""

    def __post_init__(self) -> None:
        if self.mixing not in MIXINGS:
            raise unknown_name("mixing", self.mixing, MIXINGS)


class Replay(Strategy):
    """Train on new samples and remembered old ones; remember a random choice."""

    name = "replay"
    summary = "Random replay: a uniform draw from each class, mixed into training"
    default_selector = SelectorConfig("random")
    options_type = ReplayOptions
    options: ReplayOptions

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        if self.options.mixing == "concatenate":
            self._train(self._with_memory(new), self._loss())
        else:
            self._train(new, self._loss(), beside=self.remembered())
        self._remember(classes, new)

    def _loss(self) -> Loss:
        return self._cross_entropy
