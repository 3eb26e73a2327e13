"""Random replay: the memory is a uniform draw from each class's given samples.

Trains m + n epochs on the new samples together with the memory of old classes, under cross-entropy, then draws the new
classes' memory. Every other choice of memory can be put in its place by the selector.
"""

from __future__ import annotations

from continual_crust.data.samples import Samples
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies.base import Strategy


class Replay(Strategy):
    """Train on new samples and remembered old ones; remember a random choice."""

    name = "replay"
    summary = "Random replay: a uniform draw from each class, mixed into training"
    default_selector = SelectorConfig("random")

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        old = self.remembered()
        everything = new if old is None else Samples.concatenate([new, old])
        phase = self._phase()
        for _ in self._epochs("training", self.training.epochs):
            if len(everything):
                phase.epoch(everything)
        self._remember(classes, new)
