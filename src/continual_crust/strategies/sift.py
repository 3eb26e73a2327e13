"""Sift: a scout looks first, then the learner learns, and only from what passed. Our own method.

Gradients tell noise of *past* classes, for which the network has an output of its own, and are blind to noise of
*future* ones. And every epoch on noisy data teaches the noise. So an experience with the new samples D goes like this:

    scout    the learner is trained a few epochs on D and the memories: too few to memorise.
    judge    three numbers are taken of each sample of D.
             Its margin, z(y) - log Σ exp z(other classes), on average over these epochs, tells the noise of past
             classes. Of two new classes whose noise is alike it tells all: what belongs to neither gets no label for
             certain.
             The size of its crowd tells the noise of future classes: the class itself is one large crowd, everything
             else many small ones. Crowds are looked for among D in the network's eyes and in coarse pixels together.
             Its crowding, the nearness of its neighbours there, says more about samples within a crowd.
             Of each number, two normal distributions are fitted to the samples of a class, which gives odds that a
             sample is of the upper kind; odds multiply. Where the two kinds of margin or size lie well apart, noise is
             found, and what is of the upper kind by both is what seems clean. That share, on average over the classes
             in which noise was found so far, is what passes of any class, the best odds first. Where noise was never
             found, everything does. How noisy D is comes out of the fits; nobody has to say. (Of classes that come
             together, only the margin is asked.)
    unlearn  the scout's weights are forgotten.
    learn    a few epochs on what passed, only the better part of it, and the memories, by cross-entropy. Whatever the
             learner is taught is moved a little, anew in every epoch, so that it is hard to learn by heart; for large
             networks each image is also laid over another.
             Where data are few it may never lift the output of the new class, which it was taught to keep low for so
             long, and makes the features of its images vanish instead. So if after a third of these epochs it still
             gives most of what passed another name, that output is cleared.
    judge    again, all of D, as the learner sees it now: no longer taught by noise, it sees better. Its odds multiply
             the scout's, and of the shares that seem clean to both the smaller counts. k of what passes, by any
             selector and at random unless another is asked for, become the new class's memory.
    review   the memories of all classes, as soon as noise was found: a sample among whose ten nearest neighbours eight
             or more are of one other class is forgotten. Noise of classes that were still to come shows now.
    learn    all epochs that are left, on the memories alone. The learner's weights are averaged over the last of them.

Sift trains m + n epochs in all, as every other method does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.models import last_linear
from continual_crust.selection.crowds import crowd_size, crowding, nearest
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.selection.two_kinds import TwoKinds, two_kinds
from continual_crust.strategies.augmentation import mixed, moved
from continual_crust.strategies.base import Strategy

NEIGHBOURS = 0.1
"""The share of a class that a sample's neighbours are, when its crowding is taken."""
COARSE = 8
"""Rows and columns of the coarse picture in which crowds are looked for, beside the features."""
SURE = 4.0
"""The logarithm of the highest odds that one number can give."""
VOTERS, ENOUGH = 10, 8
"""Neighbours that are asked about a memory, and how many of one other class make it be forgotten."""
FEW = 8.0
"""Times 1/√n, how much farther apart two kinds must lie among n samples: a few seem to be two kinds by chance."""


@dataclass(frozen=True)
class SiftOptions:
    """Hyper-parameters of Sift, and what can be left out to see what it brings."""

    scout_epochs: int = 3
    """Epochs of the scout."""
    trusted_epochs: int = 20
    """Epochs on the better part of what passed, at most a third of all."""
    apart: float = 2.1
    """How many spreads two kinds must lie apart for noise to be found, among very many samples; of n, 8/√n more."""
    margin: bool = True
    """Judge by the scout's margin."""
    crowd_size: bool = True
    """Judge a class that comes alone by the size of crowds, too."""
    crowding: bool = True
    """Ask for its crowding, too."""
    better_part: float = 0.8
    """Once noise was found, the share of what passed the scout, best first, that the learner is taught."""
    second_look: bool = True
    """Let the learner judge again before it chooses what to remember; without it the scout's word is final."""
    fresh_scout: bool = False
    """Let the scout start from the weights the learner had at first, and not from those it has."""
    unlearn: bool = True
    """Forget what the scout learned; without it the learner goes on from the scout."""
    shift: float = 0.1
    """How far the learner's images are moved in every epoch, at most, as a share of their height and width."""
    mirror: bool = False
    """Also mirror every other one of them, left to right. Only where a mirrored image is of the same class."""
    mixed: bool = False
    """Also lay each of them over another, with the label of either: for networks so large that they learn by heart."""
    wake: bool = True
    """Clear the output of a new class that is not recognised after a third of the epochs on what passed."""
    review: bool = True
    """Forget memories among whose neighbours nearly all are of one other class."""
    averaged: float = 0.5
    """The share of the learner's last epochs over which its weights are averaged."""

    def __post_init__(self) -> None:
        if self.scout_epochs < 1 or self.trusted_epochs < 1 or self.apart < 0 or not 0 < self.better_part <= 1:
            raise InputError(
                "sift needs scout_epochs and trusted_epochs of 1 or more, apart of 0 or more, a better_part in (0, 1]."
            )
        if not 0 <= self.shift < 1 or not 0 <= self.averaged <= 1:
            raise InputError("sift needs a shift from 0 to below 1 and averaged from 0 to 1.")


class Sift(Strategy):
    """Learn from nothing but samples that a scout trusts."""

    name = "sift"
    summary = "Sift (ours): a scout that learns everything briefly judges labels; only what passes is learned"
    default_selector = SelectorConfig("random")
    options_type = SiftOptions
    options: SiftOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shares: dict[str, list[float]] = {"scout": [], "learner": []}
        """Of the classes in which they found noise, the share that seemed clean to either judge."""
        self._first_weights: dict[str, Tensor] = {}

    def _own_state(self) -> dict[str, Any]:
        return {"shares": self._shares, "first_weights": self._first_weights}

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        self._shares = {name: list(shares) for name, shares in own["shares"].items()}
        self._first_weights = dict(own["first_weights"])

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        seen = [*self.memory, *classes]
        own = {label: new.of_class(label) for label in classes}
        scouting = min(self.options.scout_epochs, self.training.epochs)
        third = math.ceil(self.training.epochs / 3)
        trusting = min(self.options.trusted_epochs, third, self.training.epochs - scouting)
        before = copy.deepcopy(self.network.model.state_dict())
        if self.options.fresh_scout:
            self._first_weights = self._first_weights or before
            self.network.model.load_state_dict(self._first_weights)
        margins = _MeanMargins(own, scouting, self.network.device)
        for _ in self._trained("scouting", scouting, self._with_memory(new), augmented=False):
            margins.add(self._margins(own, seen))
        with self._timed_selection():
            looks = self._looks(own, margins.mean)
            self._note(looks, "scout")
            odds = {label: look.odds for label, look in looks.items()}
            self.memory.update(self._passed(own, odds, self.options.better_part))
        if self.options.unlearn:
            self.network.model.load_state_dict(before)
        margins = _MeanMargins(own, trusting, self.network.device)
        for epoch in self._trained("what passed", trusting, self.remembered()):
            if self.options.wake and epoch == trusting // 3:
                self._wake(own)
            margins.add(self._margins(own, seen))
        with self._timed_selection():
            if self.options.second_look and trusting:
                looks = self._looks(own, margins.mean)
                self._note(looks, "learner")
                odds = {label: odds[label] + look.odds for label, look in looks.items()}
            for label, samples in self._passed(own, odds, 1.0).items():
                self.memory[label] = samples
                if len(samples):  # under heavy noise it may be that no image was given this label
                    coreset = self._select(samples)
                    self.memory[label] = self._weighted(samples[coreset.indices], coreset)
            self._review()
        self._learn_memories(self.training.epochs - scouting - trusting)

    def _passed(self, own: dict[int, Samples], odds: dict[int, Tensor], part: float) -> dict[int, Samples]:
        """The share of each class that is clean as far as is known, best odds first; of that, the better part."""
        if not any(self._shares.values()):
            return own
        share = part * min(map(_mean, self._shares.values()))
        passed = {}
        for label, samples in own.items():
            count = max(self.training.memory_per_class, math.ceil(share * len(samples)))
            best = odds[label].argsort(descending=True, stable=True)[:count]
            passed[label] = samples[best.sort().values.to(samples.labels.device)]
        return passed

    def _note(self, looks: dict[int, _Look], judge: str) -> None:
        """Remember how many samples seemed clean to a judge."""
        shares = self._shares[judge]
        if judge == "learner" and not self._shares["scout"]:
            return  # where the scout saw none, noise that the learner sees is of its own making
        for look in looks.values():
            if look.clean_share is not None:
                shares.append(min(look.clean_share, _mean(shares)) if look.at_most else look.clean_share)

    def _looks(self, own: dict[int, Samples], margins: dict[int, Tensor]) -> dict[int, _Look]:
        return {label: self._look(samples, margins[label], len(own) == 1) for label, samples in own.items()}

    def _look(self, samples: Samples, margin: Tensor, alone: bool) -> _Look:
        """What is to be thought of the samples of one class."""
        numbers = {"margin": margin.cpu()} if self.options.margin else {}
        if alone and len(samples) and (self.options.crowd_size or self.options.crowding):
            points = self._points(samples)
            if self.options.crowd_size:
                numbers["size"] = crowd_size(points, self._generator)
            if self.options.crowding:
                numbers["crowding"] = crowding(points, NEIGHBOURS).cpu()
        odds, upper = torch.zeros(len(samples), dtype=torch.float64), {}
        for name, number in numbers.items():
            kinds = two_kinds(number)
            # The ranks decide between samples whose odds are the same, as all far from the boundary have.
            odds += kinds.upper.logit(1e-6).clamp(-SURE, SURE) + number.argsort().argsort() / (1000 * len(number))
            if name != "crowding" and self._tells(kinds):
                upper[name] = kinds.upper > 0.5
        if not upper:
            return _Look(odds, None)
        share = float(torch.stack(list(upper.values())).all(dim=0).double().mean())
        return _Look(odds, share, at_most=alone and self.options.crowd_size and "size" not in upper)

    def _tells(self, kinds: TwoKinds) -> bool:
        return kinds.apart >= self.options.apart + FEW / math.sqrt(max(1, len(kinds.upper)))

    def _trained(self, name: str, epochs: int, samples: Samples | None, augmented: bool = True) -> Iterator[int]:
        """Train some epochs, if there is anything to train on; gives the number of each that is over."""
        if samples is None or not len(samples):
            return
        phase = self._phase()
        for epoch in self._epochs(name, epochs):
            phase.epoch(self._augmented(samples) if augmented else samples)
            yield epoch

    def _learn_memories(self, epochs: int) -> None:
        """Train on nothing else, and let the weights be the mean of those that the last epochs ended with."""
        samples = self.remembered()
        mean = AveragedModel(self.network.model)
        first_of_last = epochs - round(self.options.averaged * epochs)
        for epoch in self._trained("memories", epochs, samples):
            if epoch >= first_of_last:
                mean.update_parameters(self.network.model)
        if samples is not None and first_of_last < epochs:
            self.network.model.load_state_dict(mean.module.state_dict())
            self.network.measure_batch_statistics(samples.images)

    @torch.no_grad()
    def _wake(self, classes: Iterable[int]) -> None:
        """Clear the outputs of classes that are not recognised."""
        for label in classes:
            given = self.memory[label].images
            if len(given) and float((self.predict(given) == label).double().mean()) < 0.5:
                for parameter in last_linear(self.network.model).parameters():
                    parameter[label] = 0

    def _augmented(self, samples: Samples) -> Samples:
        """As the learner sees them in one epoch."""
        if self.options.shift or self.options.mirror:
            samples = moved(samples, self.options.shift, self.options.mirror, self._generator)
        return mixed(samples, self._generator) if self.options.mixed else samples

    def _review(self) -> None:
        """Forget what lies among the memories of one other class, once noise was found."""
        everything = self.remembered()
        if not self.options.review or everything is None or not any(self._shares.values()):
            return
        voters = everything.labels[nearest(self._points(everything), VOTERS + 1)[1][:, 1:]]
        votes = functional.one_hot(voters, self.network.head_weight.shape[0]).sum(dim=1)
        votes.scatter_(1, everything.labels[:, None], 0)
        kept = everything[votes.amax(dim=1) < ENOUGH]
        self.memory = {label: kept.of_class(label) for label in self.memory}

    def _points(self, samples: Samples) -> Tensor:
        """What crowds and neighbours are looked for among: features and coarse pixels side by side."""
        features = functional.normalize(self.network.evaluate(samples.images)[0], dim=1)
        pixels = functional.adaptive_avg_pool2d(samples.images.float(), COARSE).flatten(1)
        return torch.cat([_of_spread_one(features), _of_spread_one(pixels)], dim=1)

    def _margins(self, own: dict[int, Samples], seen: list[int]) -> dict[int, Tensor]:
        """How far each sample's label is ahead of the other classes."""
        return {label: self._margin(samples, label, seen) for label, samples in own.items() if len(samples)}

    def _margin(self, samples: Samples, label: int, seen: list[int]) -> Tensor:
        logits = self.network.evaluate(samples.images)[1]
        others = [other for other in seen if other != label]
        return logits[:, label] - (logits[:, others].logsumexp(dim=1) if others else 0)


class _MeanMargins:
    """Margins on average over some epochs."""

    def __init__(self, own: dict[int, Samples], epochs: int, device: torch.device) -> None:
        self.mean = {label: torch.zeros(len(samples), device=device) for label, samples in own.items()}
        self._epochs = epochs

    def add(self, margins: dict[int, Tensor]) -> None:
        """Those after one of these epochs."""
        for label, values in margins.items():
            self.mean[label] += values / self._epochs


@dataclass(frozen=True)
class _Look:
    """What a look at the samples of a class showed."""

    odds: Tensor
    """That each is clean, as logarithms; the higher the better. On the CPU."""
    clean_share: float | None
    """How many seem clean, if noise was found."""
    at_most: bool = False
    """Whether noise was found by the margin alone, which is blind to future classes, so that fewer may be clean."""


def _mean(shares: list[float]) -> float:
    """The mean, or all."""
    return sum(shares) / len(shares) if shares else 1.0


def _of_spread_one(points: Tensor) -> Tensor:
    """Points scaled so that their mean squared distance from their centre is one."""
    return points / (points - points.mean(dim=0)).square().sum(dim=1).mean().sqrt().clamp(min=1e-12)
