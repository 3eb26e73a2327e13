"""The ceiling: Continual CRUST with a choice that cannot be had, random among the samples that are truly clean.

Everything but the choice is Continual CRUST: m epochs on the new samples as they come, noise and all, then n on the
memories. It is not a method but a yardstick, and the only learner that is ever told which samples are clean
(:meth:`Oracle.reveal`); it says how much of a gap is due to the memory and how much to the training.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.selection.coreset import Coreset
from continual_crust.selection.selectors import Candidates, SelectorConfig, select
from continual_crust.strategies.crust import ContinualCrust


class Oracle(ContinualCrust):
    """Remember random samples among the truly clean ones."""

    name = "oracle"
    summary = "Oracle: random among the truly clean; no method, but the ceiling for one"
    default_selector = SelectorConfig("random")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clean: Tensor | None = None

    def reveal(self, clean: Tensor) -> None:
        """Tell whether each image is clean, by its id."""
        self._clean = clean.to(self.network.device)

    def _select(self, samples: Samples) -> Coreset:
        if self._clean is None:
            raise InputError("the oracle was not told which samples are clean; call reveal() first.")
        clean = self._clean[samples.ids].nonzero().squeeze(1)
        features, logits = self.network.evaluate(samples.images[clean])
        candidates = Candidates(features, logits, samples.labels[clean], self.network.head_weight.detach())
        coreset = select(self.selector, candidates, self.training.memory_per_class, self._generator)
        return Coreset(clean[coreset.indices], coreset.weights, coreset.gains)
