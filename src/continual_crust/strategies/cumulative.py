"""Cumulative learning: nothing is ever thrown away.

Trains m + n epochs on all data seen so far, D₁ to Dₜ, at every experience t (named so by Lomonaco et al. 2021). Each
step minimises

    L(batch of D₁ ∪ … ∪ Dₜ)        L: cross-entropy

The network goes on from where it was, as in Avalanche's `Cumulative`, from which this differs in one thing: the
optimizer starts afresh in every experience, as for every method here. Under label noise going on is costly: images of
classes to come are learned under wrong names, again and again, before their own arrives. With `restart` the network
starts from its first weights in every experience, so that the last one is joint learning.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.strategies.base import Strategy


@dataclass(frozen=True)
class CumulativeOptions:
    """Hyper-parameters of cumulative learning."""

    restart: bool = False
    """Start from the first weights in every experience."""


class Cumulative(Strategy):
    """All data so far."""

    name = "cumulative"
    summary = "Cumulative: all data so far at every experience; an upper bound for bounded memory"
    options_type = CumulativeOptions
    options: CumulativeOptions
    remembers = False

    _seen: Samples | None = None
    _first_weights: dict[str, Tensor] | None = None

    def _own_state(self) -> dict[str, Any]:
        if self._seen is None:
            return {}
        return {**vars(self._seen), **({"first_weights": self._first_weights} if self._first_weights else {})}

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        seen = dict(own)
        self._first_weights = seen.pop("first_weights", None)
        self._seen = Samples(**seen).to(self.network.device) if seen else None

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        self._seen = new if self._seen is None else Samples.concatenate([self._seen, new])
        if self.options.restart:
            self._first_weights = self._first_weights or copy.deepcopy(self.network.model.state_dict())
            self.network.model.load_state_dict(self._first_weights)
        self._train(self._seen)
