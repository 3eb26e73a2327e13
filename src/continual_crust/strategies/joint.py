"""Joint learning: all classes at once, the upper bound without continual learning.

Trains m + n epochs on the whole noisy training set, given as one experience; each step minimises the cross-entropy of
a batch of it. Known from multi-task learning (Caruana 1997); Avalanche's `JointTraining`. It has no earlier experiences
to forget, so there is no forgetting value, and no hyper-parameters of its own. It does not differ from the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.strategies.naive import Naive


class Joint(Naive):
    """All data at once: it learns one experience, `Stream.joined()`."""

    name = "joint"
    summary = "Joint: all data at once, no forgetting to measure; the upper bound"
    learns_everything_at_once = True
    _is_taught = False

    def _own_state(self) -> dict[str, Any]:
        return {"is_taught": True} if self._is_taught else {}

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        self._is_taught = bool(own.get("is_taught"))  # states did not always tell

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        if self._is_taught:
            raise InputError("joint learns everything at once, and has learned; give it stream.joined() and no more.")
        super()._learn(classes, new)
        self._is_taught = True
