"""Naive sequential learning: the lower bound (named so by Lomonaco et al. 2021; its failure: McCloskey and Cohen 1989).

Trains m + n epochs on each experience's samples D alone, and remembers nothing. Each step minimises

    L(batch of D)        L: cross-entropy

It has no hyper-parameters of its own. Where this differs from Avalanche's `Naive`: the optimizer starts afresh in every
experience, as for every method here.
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
