"""Continual CRUST and CosineCRUST whose first phase has all data of all classes so far.

Algorithm 1 of the paper trains its first phase on the new samples and the coresets of old classes. Its supplement, on
MNIST with 100 samples for each class, has that phase train on all data of the old classes beside that of the new one.
With D₁ to Dₜ the samples of all experiences so far, an experience then goes

    m times:  one epoch on D₁ ∪ … ∪ Dₜ
    n times:  S[new] <- select k of Dₜ by their last-layer gradients;
              one epoch on all of S

Nothing is ever thrown away, so these are no methods for a bounded memory, and are not compared as such. They are here
to find out which of the two the paper's numbers belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from continual_crust.data.samples import Samples
from continual_crust.strategies.crust import ContinualCosineCrust, ContinualCrust


class CumulativeCrust(ContinualCrust):
    """CRUST that keeps everything for its first phase."""

    name = "cumulative_crust"
    summary = "CRUST with all data so far in phase 1: another reading of the paper; its memory is not bounded"

    _seen: Samples | None = None

    def _own_state(self) -> dict[str, Any]:
        return {} if self._seen is None else vars(self._seen)

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        self._seen = Samples(**own).to(self.network.device) if own else None

    def _with_their_memory(self, classes: Sequence[int], new: Samples) -> Samples:
        # Here, where the new samples are still alone: what is remembered was seen before.
        self._seen = new if self._seen is None else Samples.concatenate([self._seen, new])
        return super()._with_their_memory(classes, new)

    def _of_phase_1(self) -> Samples | None:
        return self._seen


class CumulativeCosineCrust(CumulativeCrust):
    """CosineCRUST that keeps everything for its first phase."""

    name = "cumulative_cosine_crust"
    summary = "CosineCRUST with all data so far in phase 1: another reading of the paper; its memory is not bounded"
    default_selector = ContinualCosineCrust.default_selector
