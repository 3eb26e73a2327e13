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
    judge    of either number, two normal distributions are fitted to the samples of a class. Where their means lie well
             apart, what passes is of the upper kind; where both numbers tell, of both. (Of classes that come together,
             crowding is not asked.) Once noise was found, no more pass than did on average before, best first by the
             sum of the ranks of both numbers; and as many where neither number tells. Before, everything passes. How
             noisy D is comes out of the fits; nobody has to say.
    unlearn  the scout's weights are forgotten.
    learn    a few epochs on everything that passed and the memories, by cross-entropy. Then what the learner itself,
             by the margin over these epochs, clearly doubts is out; k of the rest, by any selector and at random unless
             another is asked for, become the new class's memory; and all epochs that are left are spent on the
             memories alone.

Sift trains m + n epochs in all, as every other method does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.selection.two_kinds import TwoKinds, crowding, two_kinds
from continual_crust.strategies.base import Strategy
from continual_crust.strategies.training import Trainable

NEIGHBOURS = 0.1
"""The share of a class that a sample's neighbours are."""
FEW = 8.0
"""Times 1/√n, how much farther apart two kinds must lie among n samples: a few seem to be two kinds by chance."""


@dataclass(frozen=True)
class SiftOptions:
    """Hyper-parameters of Sift, and what can be left out to see what it brings."""

    scout_epochs: int = 3
    """Epochs of the scout."""
    trusted_epochs: int = 7
    """Epochs on everything that passed."""
    apart: float = 2.1
    """How many spreads two kinds must lie apart for noise to be found, among very many samples; of n, 8/√n more."""
    margin: bool = True
    """Judge by the scout's margin."""
    crowding: bool = True
    """Judge a class that comes alone by its crowding, too."""
    second_look: bool = True
    """Let the learner itself judge what passed, by its margin, before it chooses what to remember."""
    unlearn: bool = True
    """Forget what the scout learned; without it the learner goes on from the scout."""

    def __post_init__(self) -> None:
        if self.scout_epochs < 1 or self.trusted_epochs < 0 or self.apart < 0:
            raise InputError("sift needs scout_epochs of 1 or more, trusted_epochs and apart of 0 or more.")


class Sift(Strategy):
    """Learn from nothing but samples that a scout trusts."""

    name = "sift"
    summary = "Sift (ours): a scout that learns everything briefly judges labels; only what passes is learned"
    default_selector = SelectorConfig("random")
    options_type = SiftOptions
    options: SiftOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shares: list[float] = []
        """Of the classes whose noise could be told, the share that passed."""

    def _own_state(self) -> dict[str, Any]:
        return {"shares": self._shares}

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        self._shares = list(own["shares"])

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        seen = [*self.memory, *classes]
        own = {label: new.of_class(label) for label in classes}
        scouting = min(self.options.scout_epochs, self.training.epochs)
        trusting = min(self.options.trusted_epochs, self.training.epochs - scouting)
        before = copy.deepcopy(self.network.model.state_dict())
        margins = self._trained("scouting", scouting, self._with_memory(new), own, seen)
        with self._timed_selection():
            trusted = self._sifted(own, margins)
        if self.options.unlearn:
            self.network.model.load_state_dict(before)
        self.memory.update(trusted)
        margins = self._trained("everything trusted", trusting, self.remembered(), trusted, seen)
        with self._timed_selection():
            for label, samples in trusted.items():
                if not len(samples):
                    continue  # possible under heavy noise: no image at all was given this label
                kinds = two_kinds(margins[label])
                if self.options.second_look and trusting and self._tells(kinds):
                    samples = self._trusted(samples, kinds.upper)
                coreset = self._select(samples)
                self.memory[label] = self._weighted(samples[coreset.indices], coreset)
        self._trained("memories", self.training.epochs - scouting - trusting, self.remembered(), {}, seen)

    def _sifted(self, own: dict[int, Samples], margins: dict[int, Tensor]) -> dict[int, Samples]:
        """What passes of each class, in the eyes of the network as it is."""
        numbers = {label: self._numbers(samples, margins[label], len(own)) for label, samples in own.items()}
        usual = sum(self._shares) / len(self._shares) if self._shares else 1.0
        trusts: dict[int, Tensor] = {}
        for label in own:
            telling = [kinds for kinds in map(two_kinds, numbers[label]) if self._tells(kinds)]
            if telling:
                upper = torch.stack([kinds.upper for kinds in telling]).amin(dim=0) > 0.5
                trusts[label] = upper & _best(numbers[label], usual, among=upper)
                self._shares.append(float(trusts[label].double().mean()))
        if not self._shares:
            return own
        usual = sum(self._shares) / len(self._shares)
        unclear = [label for label in own if label not in trusts and numbers[label]]
        trusts |= {label: _best(numbers[label], usual) for label in unclear}
        return {**own, **{label: self._trusted(own[label], trust.double()) for label, trust in trusts.items()}}

    def _tells(self, kinds: TwoKinds) -> bool:
        return kinds.apart >= self.options.apart + FEW / math.sqrt(max(1, len(kinds.upper)))

    def _numbers(self, samples: Samples, margin: Tensor, classes: int) -> list[Tensor]:
        """What a class is judged by."""
        numbers = [margin] if self.options.margin else []
        if self.options.crowding and classes == 1 and len(samples):
            features = functional.normalize(self.network.evaluate(samples.images)[0], dim=1)
            numbers.append(crowding(features, NEIGHBOURS))
        return numbers

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

    def _trusted(self, samples: Samples, trust: Tensor) -> Samples:
        """What passed; where that is less than a memory, the most trusted."""
        passed = (trust > 0.5).nonzero().squeeze(1)
        if len(passed) < self.training.memory_per_class:
            passed = trust.argsort(descending=True, stable=True)[: self.training.memory_per_class]
        return samples[passed.to(samples.labels.device)]


def _best(numbers: list[Tensor], share: float, among: Tensor | None = None) -> Tensor:
    """Which samples are the best `share` of all by the sum of their ranks; those that `among` names come first."""
    ranks = torch.stack([number.cpu().argsort().argsort() for number in numbers]).sum(dim=0)
    if among is not None:
        ranks = torch.where(among, ranks, -1)
    best = torch.zeros(len(ranks), dtype=torch.bool)
    best[ranks.argsort(descending=True)[: math.ceil(share * len(ranks))]] = True
    return best
