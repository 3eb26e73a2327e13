"""Cumulative learning: nothing is ever thrown away.

Trains m + n epochs on all data seen so far, D₁ to Dₜ, at every experience t (named so by Lomonaco et al. 2021). Each
step minimises

    L(batch of D₁ ∪ … ∪ Dₜ)        L: cross-entropy

The network goes on from where it was. It has no hyper-parameters of its own. Where this differs from Avalanche's
`Cumulative`: the optimizer starts afresh in every experience, as for every method here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from continual_crust.data.samples import Samples
from continual_crust.strategies.base import Strategy


class Cumulative(Strategy):
    """All data so far."""

    name = "cumulative"
    summary = "Cumulative: all data so far at every experience; an upper bound for bounded memory"
    remembers = False

    _seen: Samples | None = None

    def _own_state(self) -> dict[str, Any]:
        return {} if self._seen is None else vars(self._seen)

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        self._seen = Samples(**own).to(self.network.device) if own else None

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        self._seen = new if self._seen is None else Samples.concatenate([self._seen, new])
        self._train(self._seen)
