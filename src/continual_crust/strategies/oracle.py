"""The ceilings: learners that are told which samples are truly clean. No methods, but yardsticks.

`oracle` is Continual CRUST with a choice that cannot be had, random among the clean samples: m epochs on the new ones
as they come, noise and all, then n on the memories. It says how much of a gap is due to the memory and how much to the
training. `sift_oracle` is Sift with a judge that is never wrong: it says what Sift's own judgement costs.

They are the only learners that are ever told (:meth:`Told.reveal`).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.selection.coreset import Coreset
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies.base import Strategy
from continual_crust.strategies.crust import ContinualCrust
from continual_crust.strategies.sift import Sift


class Told(Strategy):
    """A strategy that is told which samples are clean."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clean: Tensor | None = None

    def reveal(self, clean: Tensor) -> None:
        """Tell whether each image is clean, by its id."""
        self._clean = clean.to(self.network.device)

    def _clean_of(self, samples: Samples) -> Tensor:
        """Positions of the clean samples."""
        if self._clean is None:
            raise InputError("the oracle was not told which samples are clean; call reveal() first.")
        return self._clean[samples.ids].nonzero().squeeze(1)


class Oracle(Told, ContinualCrust):
    """Remember random samples among the truly clean ones."""

    name = "oracle"
    summary = "Oracle: random among the truly clean; no method, but the ceiling for one"
    default_selector = SelectorConfig("random")

    def _select(self, samples: Samples) -> Coreset:
        clean = self._clean_of(samples)
        coreset = super()._select(samples[clean])
        return Coreset(clean[coreset.indices], coreset.weights, coreset.gains)


class SiftOracle(Told, Sift):
    """Learn from nothing but samples that are truly clean."""

    name = "sift_oracle"
    summary = "Sift's oracle: Sift with a judge that is never wrong; no method, but the ceiling for Sift"

    def _best(self, own: dict[int, Samples], scores: dict[int, Tensor], part: float) -> dict[int, Tensor]:
        return {label: self._clean_of(samples) for label, samples in own.items()}

    def _review(self, standing: dict[int, Tensor]) -> None:
        """There is nothing to forget."""
