"""Sift: a scout looks first, then the learner learns, and only from what passed. Our own method, still being measured.

Gradients tell noise of *past* classes, for which the network has an output of its own, and are blind to noise of
*future* ones. And every epoch on noisy data teaches the noise. So an experience with the new samples D goes like this:

    scout    the learner is trained a few epochs on D and the memories: too few to memorise. Three numbers are taken of
             each sample of D.
             Its margin, z(y) - log Σ exp z(other classes), on average over these epochs, tells the noise of past
             classes. Of two new classes whose noise is alike it tells all: what belongs to neither gets no label for
             certain.
             The size of its crowd tells the noise of future classes: the class itself is one large crowd, everything
             else many small ones. Crowds are looked for among D in the scout's eyes and in coarse pixels together.
             Its crowding, the nearness of its neighbours there, is asked only who comes first.
    judge    of margin and size, two normal distributions are fitted to the samples of a class. Where their means lie
             well apart, what passes is of the upper kind; where both numbers tell, of both. (Of classes that come
             together, crowds are not asked.) Once noise was found, no more pass than did on average before, best first
             by the sum of the ranks of all numbers; and as many where no number tells. Before, everything passes. How
             noisy D is comes out of the fits; nobody has to say.
    unlearn  the scout's weights are forgotten.
    learn    a few epochs on everything that passed and the memories, by cross-entropy. Then what the learner itself,
             by the margin over these epochs, clearly doubts is out; k of the best of the rest, by any selector and at
             random unless another is asked for, become the new class's memory; and all epochs that are left are spent
             on the memories alone.

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
from continual_crust.selection.crowds import crowd_size, crowding
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.selection.two_kinds import TwoKinds, two_kinds
from continual_crust.strategies.base import Strategy
from continual_crust.strategies.training import Trainable

NEIGHBOURS = 0.1
"""The share of a class that a sample's neighbours are, when its crowding is taken."""
COARSE = 8
"""Rows and columns of the coarse picture in which crowds are looked for, beside the features."""
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
    crowd_size: bool = True
    """Judge a class that comes alone by the size of crowds, too."""
    crowding: bool = True
    """Rank by crowding, too."""
    choice: float = 1.0
    """Once noise was found, the share of what passed, best first, that is chosen from for the memory."""
    second_look: bool = True
    """Let the learner itself judge what passed, by its margin, before it chooses what to remember."""
    unlearn: bool = True
    """Forget what the scout learned; without it the learner goes on from the scout."""

    def __post_init__(self) -> None:
        if self.scout_epochs < 1 or self.trusted_epochs < 0 or self.apart < 0 or not 0 < self.choice <= 1:
            raise InputError(
                "sift needs scout_epochs of 1 or more, trusted_epochs and apart of 0 or more, and a choice in (0, 1]."
            )


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
            judged = {
                label: self._looked_at(samples, margins[label], len(own) == 1)
                for label, samples in own.items()
                if len(samples)  # under heavy noise it may be that no image at all was given this label
            }
            self._judge(judged)
        if self.options.unlearn:
            self.network.model.load_state_dict(before)
        trusted = {label: one.passed(self.training.memory_per_class) for label, one in judged.items()}
        self.memory.update({label: samples for label, (samples, _) in trusted.items()})
        watched = {label: samples for label, (samples, _) in trusted.items()}
        margins = self._trained("everything trusted", trusting, self.remembered(), watched, seen)
        with self._timed_selection():
            for label, (samples, ranks) in trusted.items():
                chosen = samples[self._choice(ranks, margins[label]).to(samples.labels.device)]
                coreset = self._select(chosen)
                self.memory[label] = self._weighted(chosen[coreset.indices], coreset)
        for label in classes:
            self.memory.setdefault(label, own[label])
        self._trained("memories", self.training.epochs - scouting - trusting, self.remembered(), {}, seen)

    def _judge(self, judged: dict[int, _Judged]) -> None:
        """Decide what passes of each class."""
        usual = sum(self._shares) / len(self._shares) if self._shares else 1.0
        for one in judged.values():
            telling = [kinds for kinds in map(two_kinds, one.telling) if self._tells(kinds)]
            if telling:
                upper = torch.stack([kinds.upper for kinds in telling]).amin(dim=0) > 0.5
                one.passes = upper & one.best(usual, among=upper)
                self._shares.append(float(one.passes.double().mean()))
        if not self._shares:
            return
        usual = sum(self._shares) / len(self._shares)
        for one in judged.values():
            if one.passes is None:
                one.passes = one.best(usual)

    def _tells(self, kinds: TwoKinds) -> bool:
        return kinds.apart >= self.options.apart + FEW / math.sqrt(max(1, len(kinds.upper)))

    def _looked_at(self, samples: Samples, margin: Tensor, alone: bool) -> _Judged:
        """A class with its numbers, in the eyes of the network as it is."""
        telling, ranking = [margin.cpu()] if self.options.margin else [], []
        if alone and (self.options.crowd_size or self.options.crowding):
            features = functional.normalize(self.network.evaluate(samples.images)[0], dim=1)
            pixels = functional.adaptive_avg_pool2d(samples.images.float(), COARSE).flatten(1)
            points = torch.cat([_of_spread_one(features), _of_spread_one(pixels)], dim=1)
            if self.options.crowd_size:
                telling.append(crowd_size(points, self._generator))
            if self.options.crowding:
                ranking.append(crowding(points, NEIGHBOURS).cpu())
        return _Judged(samples, telling, ranking)

    def _choice(self, ranks: Tensor, margin: Tensor) -> Tensor:
        """Which of a class's trusted samples its memory is chosen from, never fewer than it holds."""
        kinds, few = two_kinds(margin), self.training.memory_per_class
        looks = self.options.second_look and self.options.trusted_epochs > 0 and self._tells(kinds)
        stays = kinds.upper > 0.5 if looks else torch.ones(len(ranks), dtype=torch.bool)
        count = math.ceil(self.options.choice * int(stays.sum())) if self._shares else int(stays.sum())
        return _first(ranks, stays)[: max(few, count)]

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


@dataclass
class _Judged:
    """The samples of a class and what is thought of them; all but the samples on the CPU."""

    samples: Samples
    telling: list[Tensor]
    """Numbers whose two kinds tell whether there is noise; the higher, the better."""
    ranking: list[Tensor]
    """Numbers that count only where samples are ranked."""
    passes: Tensor | None = None
    """Which samples pass; all, if nothing is said."""

    @property
    def ranks(self) -> Tensor:
        """The sum of each sample's ranks by all numbers."""
        return sum(
            (number.argsort().argsort() for number in (*self.telling, *self.ranking)),
            start=torch.zeros(len(self.samples), dtype=torch.int64),
        )

    def best(self, share: float, among: Tensor | None = None) -> Tensor:
        """Which samples are the best `share` of all by their ranks; those that `among` names come first."""
        best = torch.zeros(len(self.samples), dtype=torch.bool)
        best[_first(self.ranks, among)[: math.ceil(share * len(best))]] = True
        return best

    def passed(self, least: int) -> tuple[Samples, Tensor]:
        """What passed, and its ranks; where that is less than `least`, the best of the others as well."""
        count = len(self.samples) if self.passes is None else max(least, int(self.passes.sum()))
        places = _first(self.ranks, self.passes)[:count].sort().values
        return self.samples[places.to(self.samples.labels.device)], self.ranks[places]


def _first(ranks: Tensor, among: Tensor | None) -> Tensor:
    """Positions by falling rank; those that `among` names come first."""
    if among is not None:
        ranks = torch.where(among, ranks, ranks - ranks.max() - 1)
    return ranks.argsort(descending=True, stable=True)


def _of_spread_one(points: Tensor) -> Tensor:
    """Points scaled so that their mean squared distance from their centre is one."""
    return points / (points - points.mean(dim=0)).square().sum(dim=1).mean().sqrt().clamp(min=1e-12)
