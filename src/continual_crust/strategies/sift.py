"""Sift: a scout looks first, then the learner learns, and only from what passed. Our own method.

Gradients tell noise of *past* classes, for which the network has an output of its own, and are blind to noise of
*future* ones. And every epoch on noisy data teaches the noise. So an experience with the new samples D goes like this:

    scout    the learner is trained a few epochs on D and the memories: too few to memorise.
    judge    two numbers are taken of each sample of D.
             Its margin, z(y) - log Σ exp z(other classes), on average over these epochs, tells the noise of past
             classes, and of two new classes that come together.
             Its crowding, how near its neighbours among D are in the network's eyes and in coarse pixels, tells the
             noise of future classes: the class itself is one large crowd, everything else many small ones. If asked
             to, it also looks at how much detail the coarse pixels leave out, and where.
             In units of their spreads and the margin twice, they are added up to what there is to be said for a sample.
    unlearn  the scout's weights are forgotten, if all epochs of the next phase can be had. Else the learner goes on
             from them: to have learned a little noise costs it less than to learn too little of anything.
    learn    a few epochs on the better part of D, for which most is to be said, and the memories, by cross-entropy.
             Whatever the learner is taught is moved a little, anew in every epoch, so that it is hard to learn by
             heart; for large networks each image is also laid over another.
             Where data are few it may never lift the output of the new class, which it was taught to keep low for so
             long, and makes the features of its images vanish instead. So if after a third of these epochs it still
             gives most of what passed another name, that output is cleared.
    ask      whether there is noise at all. What was held back came last, and the learner never saw it. If it is of the
             class all the same, the learner recognises most of it (by a margin above 0, in the second half of these
             epochs); if it is something else, it does not. How much it recognises of that, as a share of what it
             recognises of what it was taught, is known for all classes so far, but for those that it did not learn or
             of which next to nothing was held back; where that is little on average, there is noise.
    judge    again, all of D, as the learner saw it in these epochs: taught by less noise, it sees better. What it has
             to say is added to what the scout said. If there is noise, only a share of D passes, the best first. How
             large, nobody has to say. What is of the upper kind by both of the scout's numbers, when two normal
             distributions are fitted to each, is too little; what the learner recognises is too much, as it may have
             been taught some noise. So it is the geometric mean of both, on average over the classes so far. k of what
             passes, or all if it is less, become the new class's memory: by any selector, at random unless another is
             asked for.
    review   the memories of all classes, if there is noise: a sample among whose ten nearest neighbours eight or more
             are of one other class is forgotten, unless its class has no more than ten. Noise of classes that were
             still to come shows now.
    learn    all epochs that are left, on the memories alone. The learner's weights are averaged over the last of them.

Once noise is known, the better part is taken of what passes the scout, and not of all. Sift trains m + n epochs in all,
as every other method does; with fewer than three nothing is sifted.

All this takes noise for a mixture. Where it is all of one other class, as with labels that are flipped in one direction
only, that class is a crowd too, and what is held back of it looks like what was taught. A `wary` learner therefore

    learns   only the better half as long as no noise is known, so that less of the second crowd is taught,
    asks     about the worst fifth of the class alone, where most of it is,
    reviews  more: it also forgets old memories that it gave another name, on average over the second half of the epochs
             on what passed, if no fewer of their neighbours are of one other class than of their own.
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
from continual_crust.selection.crowds import crowding, votes
from continual_crust.selection.look import coarse_pixels, detail, side_by_side
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.selection.two_kinds import upper_kind
from continual_crust.strategies.augmentation import mixed, moved
from continual_crust.strategies.base import Strategy

NEIGHBOURS = 0.1
"""The share of a class that a sample's neighbours are, when its crowding is taken."""
MARGIN_COUNTS = 2.0
"""How much more the margin counts than the crowding."""
FEWEST, LEARNED = 5, 0.5
"""Samples held back, and the share recognised of those taught, with which the learner can be asked; and of every class
so many samples pass, whatever is to be said against them."""
VOTERS, ENOUGH = 10, 8
"""Neighbours that are asked about a memory, and how many of one other class make it be forgotten."""
WARY_PART, WARY_ASKED = 0.5, 0.2
"""Of a class, the share that a wary learner is taught while no noise is known, and the share that it is asked about."""


@dataclass(frozen=True)
class SiftOptions:
    """Hyper-parameters of Sift, and what can be left out to see what it brings."""

    scout_epochs: int = 3
    """Epochs of the scout, if these have scout_steps steps, else more; at most a third of all."""
    scout_steps: int = 400
    """Steps that a scout needs to see anything."""
    trusted_epochs: int = 20
    """Epochs on the better part of what passed, at most a third of all."""
    better_part: float = 0.8
    """The share of what passed the scout, best first, that the learner is taught; of the rest it is asked."""
    recognised: float = 0.65
    """Noise is found where less of what was held back is recognised, as a share of what was taught."""
    margin: bool = True
    """Judge by the margin."""
    capped: bool = False
    """Let no margin count for more than the middle one of its class: it speaks against noise of past classes, and for
    whatever is least like these, which with few of them is noise of others."""
    crowding: bool = True
    """Judge by the crowding, too."""
    detail: bool = False
    """Let detail count in it, beside features and coarse pixels: for large images that differ in little else."""
    second_look: bool = True
    """Let the learner judge again before it chooses what to remember; without it the scout's word is final."""
    fresh_scout: bool = False
    """Let the scout start from the weights the learner had at first, and not from those it has."""
    unlearn: bool = True
    """Forget what the scout learned, if it was a fresh one or there is time for trusted_epochs; else go on from it."""
    shift: float = 0.1
    """How far the learner's images are moved in every epoch, at most, as a share of their height and width."""
    wary: bool = False
    """Expect noise that is all of one class; see above."""
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
        if self.scout_epochs < 1 or self.scout_steps < 0 or self.trusted_epochs < 1 or not 0 < self.better_part <= 1:
            raise InputError(
                "sift needs scout_epochs and trusted_epochs of 1 or more, scout_steps of 0 or more and a better_part "
                "in (0, 1]."
            )
        if not 0 <= self.shift < 1 or not 0 <= self.averaged <= 1 or not 0 <= self.recognised <= 1:
            raise InputError("sift needs a shift from 0 to below 1, and averaged and recognised from 0 to 1.")


class Sift(Strategy):
    """Learn from nothing but samples that a scout trusts."""

    name = "sift"
    summary = "Sift (ours): a scout that learns everything briefly judges labels; only what passes is learned"
    default_selector = SelectorConfig("random")
    moves_images = True
    options_type = SiftOptions
    options: SiftOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clean_shares: list[float] = []
        """Of each class, the share that seemed clean."""
        self._recognised: list[float] = []
        """Of each class, how much of what was held back was recognised, as a share of what was taught."""
        self._first_weights: dict[str, Tensor] = {}

    def _own_state(self) -> dict[str, Any]:
        return {
            "clean_shares": self._clean_shares,
            "recognised": self._recognised,
            "first_weights": self._first_weights,
        }

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        self._clean_shares, self._recognised = list(own["clean_shares"]), list(own["recognised"])
        self._first_weights = dict(own["first_weights"])

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        seen = list(dict.fromkeys([*self.memory, *classes]))  # a class that comes again is still one
        old = {label: samples for label, samples in self.memory.items() if label not in classes}
        own = {label: new.of_class(label) for label in classes}
        everything = self._with_memory(new)
        third = self.training.epochs // 3
        enough = math.ceil(self.options.scout_steps * self.training.batch_size / max(1, len(everything)))
        scouting = min(max(self.options.scout_epochs, enough), third)
        trusting = min(self.options.trusted_epochs, third)
        before = copy.deepcopy(self.network.model.state_dict())
        if self.options.fresh_scout:
            self._first_weights = self._first_weights or before
            self.network.model.load_state_dict(self._first_weights)
        margins = _Means(own, scouting, self.network.device)
        for _ in self._trained("scouting", scouting, everything, augmented=False):
            margins.add(self._margins(own, seen))
        with self._timed_selection():
            scores, clean = self._judged(own, margins.values)
            taught = self._best(own, scores, self._taught_part())
            self.memory.update({label: samples[taught[label]] for label, samples in own.items()})
        if self.options.unlearn and (trusting == self.options.trusted_epochs or self.options.fresh_scout):
            self.network.model.load_state_dict(before)
        margins = _Means(own, trusting, self.network.device)
        recognised = _Means(own, trusting - trusting // 2, self.network.device)
        standing = _Means(old, trusting - trusting // 2, self.network.device)
        for epoch in self._trained("what passed", trusting, self.remembered()):
            if self.options.wake and epoch == trusting // 3:
                self._wake(own)
            now = self._margins(own, seen)
            margins.add(now)
            if epoch >= trusting // 2:
                recognised.add({label: (margin > 0).float() for label, margin in now.items()})
                if self.options.wary:
                    standing.add(self._margins(old, seen))
        with self._timed_selection():
            if trusting:
                self._ask(recognised.values, taught, clean, scores)
                if self.options.second_look:
                    again, _ = self._judged(own, margins.values)
                    scores = {label: scores[label] + again[label] for label in own}
            best = self._best(own, scores, 1.0)
            for label, samples in own.items():
                passed = samples[best[label]]
                self.memory[label] = passed
                if len(passed):  # under heavy noise it may be that no image was given this label
                    coreset = self._select(passed)
                    self.memory[label] = self._weighted(passed[coreset.indices], coreset)
            self._review(standing.values)
        self._learn_memories(self.training.epochs - scouting - trusting)

    def _taught_part(self) -> float:
        """The share of what passed the scout that the learner is taught."""
        is_wary = self.options.wary and not self._noise_is_found()
        return WARY_PART if is_wary else self.options.better_part

    def _best(self, own: dict[int, Samples], scores: dict[int, Tensor], part: float) -> dict[int, Tensor]:
        """Positions of the best part of each class; of what is thought to be clean only, once noise is known."""
        share = part * (_mean(self._clean_shares) if self._noise_is_found() else 1.0)
        found = {}
        for label, samples in own.items():
            count = max(FEWEST, math.ceil(share * len(samples)))
            best = scores[label].argsort(descending=True, stable=True)[:count]
            found[label] = best.sort().values.to(samples.labels.device)
        return found

    def _judged(
        self, own: dict[int, Samples], margins: dict[int, Tensor]
    ) -> tuple[dict[int, Tensor], dict[int, float]]:
        """How much there is to be said for each sample, on the CPU, and what share of each class seems clean."""
        looks = {label: self._look(samples, margins[label]) for label, samples in own.items()}
        return {label: look[0] for label, look in looks.items()}, {label: look[1] for label, look in looks.items()}

    def _look(self, samples: Samples, margin: Tensor) -> tuple[Tensor, float]:
        """What :meth:`_judged` finds out about one class."""
        if not len(samples):
            return torch.zeros(0), 1.0
        numbers = [(MARGIN_COUNTS, margin.cpu(), self.options.capped)] if self.options.margin else []
        if self.options.crowding:
            numbers.append((1.0, crowding(self._points(samples), NEIGHBOURS).cpu(), False))
        score, clean = torch.zeros(len(samples), dtype=torch.float64), torch.ones(len(samples), dtype=torch.bool)
        for weight, number, capped in numbers:
            counted = number.clamp(max=float(number.median())) if capped else number
            score += weight * standardised(counted.double())
            clean &= upper_kind(number) > 0.5
        return score, float(clean.double().mean())

    def _ask(
        self,
        recognised: dict[int, Tensor],
        taught: dict[int, Tensor],
        clean: dict[int, float],
        scores: dict[int, Tensor],
    ) -> None:
        """Remember how much the learner recognises of what was held back, and how much of a class seems clean."""
        for label, share in recognised.items():
            known = share[taught[label]].mean()
            if not known >= LEARNED:  # of no samples the mean is not a number
                continue
            self._clean_shares = [*self._clean_shares, math.sqrt(clean[label] * float(share.mean()))]
            held_back = torch.ones_like(share, dtype=torch.bool).index_fill_(0, taught[label], False)
            if self.options.wary:
                better = scores[label].argsort(stable=True)[math.ceil(WARY_ASKED * len(share)) :]
                held_back.index_fill_(0, better.to(held_back.device), False)
            if int(held_back.sum()) >= FEWEST:
                self._recognised = [*self._recognised, float(share[held_back].mean() / known)]

    def _noise_is_found(self) -> bool:
        return bool(self._recognised) and _mean(self._recognised) < self.options.recognised

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
            self._become(mean.module.state_dict(), samples.images)

    @torch.no_grad()
    def _wake(self, classes: Iterable[int]) -> None:
        """Clear the outputs of classes that are not recognised."""
        for label in classes:
            given = self.memory[label].images
            if len(given) and float((self.predict(given) == label).double().mean()) < 0.5:
                for parameter in last_linear(self.network.model).parameters():
                    parameter[label] = 0

    def _augmented(self, samples: Samples) -> Samples:
        """The samples as one epoch shows them: moved, mirrored and mixed, as the options say."""
        if self.options.shift or self.options.mirror:
            samples = moved(samples, self.options.shift, self.options.mirror, self._generator)
        return mixed(samples, self._generator) if self.options.mixed else samples

    def _review(self, standing: dict[int, Tensor]) -> None:
        """Forget what lies among the memories of one other class, if there is noise.

        `standing` are old memories' margins.
        """
        everything = self.remembered()
        if not self.options.review or everything is None or not self._noise_is_found():
            return
        labels = everything.labels
        for_it, against_it = votes(self._points(everything), labels, VOTERS)
        forgotten = against_it >= ENOUGH
        if self.options.wary:
            parts = [standing.get(label, torch.zeros(len(kept))) for label, kept in self.memory.items() if len(kept)]
            doubted = (torch.cat([part.to(labels.device) for part in parts]) < 0) & (against_it >= for_it)
            left = labels[~doubted].bincount(minlength=int(labels.max()) + 1)
            forgotten |= doubted & (left[labels] >= FEWEST)
        rare = labels.bincount()[labels] <= VOTERS
        kept = everything[rare | ~forgotten]
        self.memory = {label: kept.of_class(label) for label in self.memory}

    def _points(self, samples: Samples) -> Tensor:
        """What neighbours are looked for among: features, coarse pixels and perhaps detail, side by side."""
        views = [functional.normalize(self.network.evaluate(samples.images)[0], dim=1), coarse_pixels(samples.images)]
        if self.options.detail:
            views.append(detail(samples.images))
        return side_by_side(views)

    def _margins(self, own: dict[int, Samples], seen: list[int]) -> dict[int, Tensor]:
        """How far each sample's label is ahead of the other classes."""
        return {label: self._margin(samples, label, seen) for label, samples in own.items() if len(samples)}

    def _margin(self, samples: Samples, label: int, seen: list[int]) -> Tensor:
        return margins_of(self.network.evaluate(samples.images)[1], label, seen)


class _Means:
    """A number for each sample, averaged over some epochs."""

    def __init__(self, own: dict[int, Samples], epochs: int, device: torch.device) -> None:
        self.values = {label: torch.zeros(len(samples), device=device) for label, samples in own.items()}
        self._epochs = epochs

    def add(self, seen: dict[int, Tensor]) -> None:
        """Count in the numbers of one of these epochs."""
        for label, values in seen.items():
            self.values[label] += values / self._epochs


def _mean(shares: list[float]) -> float:
    """The mean, or nothing."""
    return sum(shares) / len(shares) if shares else 0.0


def standardised(numbers: Tensor) -> Tensor:
    """The numbers scaled to mean 0 and spread 1."""
    return (numbers - numbers.mean()) / numbers.std(correction=0).clamp(min=1e-12)


def margins_of(logits: Tensor, label: int, classes: Iterable[int]) -> Tensor:
    """How far a label is ahead of all other classes, by the logits of each sample."""
    others = [other for other in classes if other != label]
    return logits[:, label] - (logits[:, others].logsumexp(dim=1) if others else 0)
