"""Sift: a scout looks first, then the learner learns, and only from what passed. Our own method, still being measured.

Gradients tell noise of *past* classes, for which the network has an output of its own, and are blind to noise of
*future* ones. And every epoch on noisy data teaches the noise. So an experience with the new samples D goes like this:

    scout    the learner is trained a few epochs on D and the memories: too few to memorise. Two numbers are taken of
             each sample of D.
             Its margin, z(y) - log Σ exp z(other classes), on average over these epochs, tells the noise of past
             classes. Of two new classes whose noise is alike it tells all: what belongs to neither gets no label for
             certain.
             Its crowding, the nearness of its neighbours among D in the scout's eyes, tells the noise of future
             classes: the class itself is the one crowd, everything else are many small ones.
    judge    of either number, two normal distributions are fitted to D. What passes is of the upper kind by its margin
             and, where a new class comes alone, by its crowding. How noisy D is comes out of the fit; nobody has to
             say.
    unlearn  the scout's weights are forgotten.
    learn    Continual CRUST's two phases, on what passed in place of D, by cross-entropy: m epochs on all of it and
             the memories. Then whatever the learner itself, by the margin over these epochs, doubts is out; k of the
             rest, by any selector and at random unless another is asked for, become the new class's memory; and n
             epochs are spent on the memories alone.

The scout's epochs are taken from m, so Sift trains no longer than Continual CRUST.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.selection.two_kinds import crowding, upper_kind
from continual_crust.strategies.base import Strategy
from continual_crust.strategies.training import Trainable

NEIGHBOURS = 0.1
"""The share of a class that a sample's neighbours are."""


@dataclass(frozen=True)
class SiftOptions:
    """Hyper-parameters of Sift, and what can be left out to see what it brings."""

    scout_epochs: int = 3
    """Epochs of the scout."""
    margin: bool = True
    """Judge by the scout's margin."""
    crowding: bool = True
    """Judge a class that comes alone by its crowding, too."""
    second_look: bool = True
    """Let the learner itself judge what passed, by its margin, before it chooses what to remember."""
    unlearn: bool = True
    """Forget what the scout learned; without it the learner goes on from the scout."""

    def __post_init__(self) -> None:
        if self.scout_epochs < 1:
            raise InputError(f"sift needs scout_epochs of 1 or more, not {self.scout_epochs}.")


class Sift(Strategy):
    """Learn from nothing but samples that a scout trusts."""

    name = "sift"
    summary = "Sift (ours): a scout that learns everything briefly judges labels; only what passes is learned"
    default_selector = SelectorConfig("random")
    options_type = SiftOptions
    options: SiftOptions

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        seen = [*self.memory, *classes]
        own = {label: new.of_class(label) for label in classes}
        before = copy.deepcopy(self.network.model.state_dict())
        margins = self._trained("scouting", self.options.scout_epochs, self._with_memory(new), own, seen)
        with self._timed_selection():
            trusts = {label: self._judged(samples, margins[label], len(own)) for label, samples in own.items()}
        if self.options.unlearn:
            self.network.model.load_state_dict(before)
        trusted = {label: self._trusted(samples, trusts[label]) for label, samples in own.items()}
        self.memory.update(trusted)
        epochs = max(0, self.training.phase1_epochs - self.options.scout_epochs)
        margins = self._trained("everything trusted", epochs, self.remembered(), trusted, seen)
        with self._timed_selection():
            for label, samples in trusted.items():
                if self.options.second_look and epochs:
                    samples = self._trusted(samples, upper_kind(margins[label]))
                coreset = self._select(samples)
                self.memory[label] = self._weighted(samples[coreset.indices], coreset)
        self._trained("memories", self.training.phase2_epochs, self.remembered(), {}, seen)

    def _trained(
        self, name: str, epochs: int, samples: Trainable | None, watched: dict[int, Samples], seen: list[int]
    ) -> dict[int, Tensor]:
        """Train some epochs; gives the margin of each watched sample, on average over them."""
        margins = {label: torch.zeros(len(part), device=self.network.device) for label, part in watched.items()}
        phase = self._phase()
        for _ in self._epochs(name, epochs):
            if samples is not None and len(samples):
                phase.epoch(samples)
            for label, part in watched.items():
                if len(part):
                    margins[label] += self._margin(part, label, seen) / epochs
        return margins

    def _margin(self, samples: Samples, label: int, seen: list[int]) -> Tensor:
        logits = self.network.evaluate(samples.images)[1]
        others = [other for other in seen if other != label]
        return logits[:, label] - (logits[:, others].logsumexp(dim=1) if others else 0)

    def _judged(self, samples: Samples, margin: Tensor, classes: int) -> Tensor:
        """The probability that each label of a class is right, in the eyes of the network as it is."""
        verdicts = [torch.ones_like(margin, dtype=torch.float64)]
        if self.options.margin:
            verdicts.append(upper_kind(margin))
        if self.options.crowding and classes == 1 and len(samples):
            features = functional.normalize(self.network.evaluate(samples.images)[0], dim=1)
            verdicts.append(upper_kind(crowding(features, NEIGHBOURS)))
        return torch.stack(verdicts).amin(dim=0)

    def _trusted(self, samples: Samples, trust: Tensor) -> Samples:
        """What passed; where that is less than a memory, the most trusted."""
        passed = (trust > 0.5).nonzero().squeeze(1)
        if len(passed) < self.training.memory_per_class:
            passed = trust.argsort(descending=True, stable=True)[: self.training.memory_per_class]
        return samples[passed.to(samples.labels.device)]
