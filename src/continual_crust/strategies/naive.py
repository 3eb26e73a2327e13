"""Naive sequential learning: the lower bound.

Trains m + n epochs on each experience alone, under cross-entropy, and remembers nothing.
"""

from __future__ import annotations

from continual_crust.data.samples import Samples
from continual_crust.strategies.base import Strategy


class Naive(Strategy):
    """Each experience alone."""

    name = "naive"
    summary = "Naive: each experience alone, nothing remembered; the lower bound"
    remembers = False

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        self._train(new)
