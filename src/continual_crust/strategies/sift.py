"""Sift: judge first, learn afterwards, and only from what passed. Our own method, still being measured.

Gradients tell noise of *past* classes, for which the network has an output of its own, and are blind to noise of
*future* ones. And every epoch on noisy data teaches the noise. So an experience with the new samples D goes like this:

    judge    every sample of D gets the probability q that its label is right, from a network that was not taught D's
             labels: the learner as it is. It comes from a mixture of clouds (`selection.trust`): the class itself, each
             old class by its memory, and an unknown, which is where future classes go. How noisy D is comes out of the
             fit; nobody has to say.
    learn    Continual CRUST's two phases, on what passed (q above 1/2) in place of D, by cross-entropy:
             m epochs on all of it and the memories; then k of it, by any selector and at random unless another is asked
             for, become the new class's memory, and n epochs are spent on the memories alone

The first experience has no earlier network. A copy of the learner, the scout, is trained a few epochs on D and then
forgotten; q is the mean of the mixture's verdict in its eyes and of p(y), averaged over those epochs. With two classes
whose noise is alike, what belongs to neither gets no label for certain, and that is seen before it can be memorised.

The scout's epochs are taken from m, so Sift trains no longer than Continual CRUST.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.selection.trust import View, assess_whole, image_view, network_view
from continual_crust.strategies.base import Strategy

MOST_OTHERS = 300
"""Samples of another class that a class is compared with."""


@dataclass(frozen=True)
class SiftOptions:
    """Hyper-parameters of Sift, and what can be left out to see what it brings."""

    scout_epochs: int = 3
    """Epochs of the scout, which has only the first experience to see."""
    mixture: bool = True
    """Judge by the mixture of clouds; without it, later experiences go unjudged."""
    dynamics: bool = True
    """Judge the first experience by the scout's p(y) over its epochs, too."""
    unlearn: bool = True
    """Forget what the scout learned; without it the learner goes on from the scout."""

    def __post_init__(self) -> None:
        if self.scout_epochs < 1:
            raise InputError(f"sift needs scout_epochs of 1 or more, not {self.scout_epochs}.")


class Sift(Strategy):
    """Learn from nothing but samples that an unspoilt network trusts."""

    name = "sift"
    summary = "Sift (ours): labels are judged by a network that was not taught them; only what passes is learned"
    default_selector = SelectorConfig("random")
    options_type = SiftOptions
    options: SiftOptions

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        own = {label: new.of_class(label) for label in classes}
        is_first = self.remembered() is None
        if is_first:
            trusts = self._scouted(own, new)
        else:
            trusts = {label: self._judged(label, samples, own) for label, samples in own.items()}
        trusted = {label: self._trusted(samples, trusts[label]) for label, samples in own.items()}
        spent = self.options.scout_epochs if is_first else 0
        self.memory.update(trusted)
        self._train_on_memory("everything trusted", max(0, self.training.phase1_epochs - spent))
        with self._timed_selection():
            for label, samples in trusted.items():
                coreset = self._select(samples)
                self.memory[label] = self._weighted(samples[coreset.indices], coreset)
        self._train_on_memory("memories", self.training.phase2_epochs)

    def _train_on_memory(self, name: str, epochs: int) -> None:
        samples = self.remembered()
        phase = self._phase()
        for _ in self._epochs(name, epochs):
            if samples is not None:
                phase.epoch(samples)

    def _scouted(self, own: dict[int, Samples], new: Samples) -> dict[int, Tensor]:
        """Trust in the samples of the first experience, from a network that sees them but briefly."""
        before = copy.deepcopy(self.network.model.state_dict())
        phase = self._phase()
        certainties = {label: torch.zeros(len(samples)) for label, samples in own.items()}
        for _ in self._epochs("scouting", self.options.scout_epochs):
            if len(new):
                phase.epoch(new)
            for label, samples in own.items():
                if len(samples):
                    certainties[label] += self.network.evaluate(samples.images)[1].softmax(dim=1)[:, label].cpu()
        trusts = {}
        for label, samples in own.items():
            verdicts = []
            if self.options.dynamics or not self.options.mixture:
                verdicts.append(certainties[label] / self.options.scout_epochs)
            if self.options.mixture:
                verdicts.append(self._judged(label, samples, own))
            trusts[label] = torch.stack(verdicts).mean(dim=0)
        if self.options.unlearn:
            self.network.model.load_state_dict(before)
        return trusts

    def _judged(self, label: int, samples: Samples, own: dict[int, Samples]) -> Tensor:
        """The probability that each label is right, in the eyes of the network as it is."""
        if not self.options.mixture or not len(samples):
            return torch.ones(len(samples))
        known = {**self.memory, **own}
        others = [part for other, part in known.items() if other != label and len(part) > 1]
        views = self._views([samples, *(part[_evenly(len(part), part.labels.device)] for part in others)])
        return torch.from_numpy(assess_whole(views).right)

    def _views(self, parts: Sequence[Samples]) -> list[View]:
        """The network's view and the image's view of a class and of the others."""
        network = [network_view(self.network.evaluate(part.images)[0]) for part in parts]
        image = [image_view(part.images) for part in parts]
        return [View(points[0], points[1:]) for points in (network, image)]

    def _trusted(self, samples: Samples, trust: Tensor) -> Samples:
        """What passed; where that is less than a memory, the most trusted."""
        passed = (trust > 0.5).nonzero().squeeze(1)
        if len(passed) < self.training.memory_per_class:
            passed = trust.argsort(descending=True, stable=True)[: self.training.memory_per_class]
        return samples[passed.to(samples.labels.device)]


def _evenly(count: int, device: torch.device) -> Tensor:
    """Positions of at most `MOST_OTHERS` of so many samples."""
    return torch.arange(0, count, -(-count // MOST_OTHERS), device=device)
