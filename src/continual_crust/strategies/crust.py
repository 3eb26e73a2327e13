"""Continual CRUST and Continual CosineCRUST (Algorithm 1 of the paper).

An experience brings the noisy samples D of new classes; S holds a coreset for every class.

    S[new] <- D
    m times:  one epoch on all of S                                      (phase 1: learn the new classes)
    n times:  S[new] <- select k of D by their last-layer gradients;     (phase 2: refine their coreset)
              one epoch on all of S

Coresets of old classes never change. The loss is cross-entropy, over S alone. Each phase has a fresh optimizer.

Where this differs from the paper: CRUST's rule is `centrality`, as CRUST was released, and not facility location, as
the paper writes it; see `continual_crust.selection`.
"""

from __future__ import annotations

from continual_crust.data.samples import Samples
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies.base import Strategy


class ContinualCrust(Strategy):
    """Remember the samples of a class whose gradients lie in the middle of the class."""

    name = "crust"
    summary = "Continual CRUST: a coreset for each class by the geometry of last-layer gradients"
    default_selector = SelectorConfig("crust")

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        self.memory.update({label: new.of_class(label) for label in classes})
        self._phase_1()
        self._phase_2(classes, new)

    def _phase_1(self) -> None:
        phase = self._phase()
        everything = self._of_phase_1()
        for _ in self._epochs("phase 1", self.training.phase1_epochs):
            if everything is not None and len(everything):
                phase.epoch(everything)

    def _of_phase_1(self) -> Samples | None:
        """What phase 1 trains on: the new samples, which are their classes' coresets for now, and the old coresets."""
        return self.remembered()

    def _phase_2(self, classes: tuple[int, ...], new: Samples) -> None:
        phase = self._phase()
        for _ in self._epochs("phase 2", self.training.phase2_epochs):
            self._remember(classes, new)
            coresets = self.remembered()
            if coresets is not None:
                phase.epoch(coresets)
        if self.training.phase2_epochs == 0:
            self._remember(classes, new)


class ContinualCosineCrust(ContinualCrust):
    """Continual CRUST that chooses inside clusters of gradients by direction, and drops small clusters."""

    name = "cosine_crust"
    summary = "Continual CosineCRUST: the same inside clusters of gradients by direction, small clusters dropped"
    default_selector = SelectorConfig("cosine_crust")
