"""Sift for batches that come when they come, one epoch at a time.

The algorithm is that of `continual_crust.strategies.sift`: a scout learns everything briefly, the learner then learns
only what looks right, judges again what it sees, and ends on what it keeps. What a learner in the field needs on top:

- Every image is judged by a model of the batch (`trust`), which says how likely its label is right and how noisy the
  batch is: each batch has a noise of its own here. It looks twice. First through the network as it was before the
  batch, which cannot have memorised wrong labels (one that has never told classes apart is taught by stage 1 first);
  then through the network that has learned what looked right. Both looks count alike, in log odds; how noisy the batch
  is, the first look says alone.
- Stage 2 learns the best of what looks right, as large a share of a class as seems to be right. What is kept is chosen
  among the best of what still looks right, the square of that share, if these are enough to choose from: the more is
  wrong, the less the order of the others can be trusted. The best are those with the highest odds and, once it is
  known, the widest margin over other classes during stage 2, in units of their spreads.
- Images that a person vouched for are always learned and, if there is room, kept.
- A batch may bring more images of known classes. Such a class is chosen anew, among what was kept of it and what is
  new; all other memories stay as they are, but for what the review forgets: where a class is certainly noisy, what
  lies among the memories of one other class.
- Images are fetched batch by batch, so a batch may be larger than memory.
- Between any two epochs everything can be saved and taken up again, to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.field.judge import Judge, both_looks, log_odds
from continual_crust.field.lesson import Batch, Lesson
from continual_crust.field.rows import ArrayRows, ChosenRows, Rows, RowSamples, StackedRows, chunks
from continual_crust.progress import Count, OnProgress
from continual_crust.randomness import seed_for
from continual_crust.selection.crowds import votes
from continual_crust.selection.selectors import select
from continual_crust.selection.trust import Assessment
from continual_crust.strategies.augmentation import moved
from continual_crust.strategies.sift import ENOUGH, VOTERS, Sift, margins_of, standardised
from continual_crust.strategies.training import Phase, Trainable

CANDIDATES = 4000
"""Images of a class that are looked at when its memory is selected: enough to choose some hundred from."""
MEASURED = 2048
"""Images that brightness and contrast are measured on."""
SCOUTING = 0.2
"""The share of the epochs on new images that is spent on all of them, the first ones."""
FEWEST = 5
"""So many of a class's images that look right are learned at least, however noisy it seems."""
MOVED = 0.1
"""How far images are moved in every epoch, at most, as a share of their height and width."""
AVERAGED = 0.5
"""The share of the epochs on what is kept, the last ones, over which weights are averaged."""


class FieldSift(Sift):
    """Sift that can be stopped between epochs, and that listens to people."""

    name = "field_sift"
    summary = "Sift for batches of any size and order"

    @property
    def judge(self) -> Judge:
        """What it thinks of images now."""
        return Judge(self.network, self.memory)

    def lesson(self, batch: Batch, lesson: Lesson, on_progress: OnProgress, seed: int) -> Iterator[None]:
        """Learn a batch, pausing after every epoch; `lesson` tells then how far it has come.

        A lesson that was saved goes on where it stood, if the network was brought back too.
        """
        if self._has_learned() and not lesson.assessments:
            lesson.assessments = self.judge.assessments(batch, on_progress, seed)
        if lesson.stage == 1:
            yield from self._scouted(batch, lesson, on_progress)
            if not lesson.assessments:
                lesson.assessments = self.judge.assessments(batch, on_progress, seed)
            lesson.begin(2)
        if lesson.stage == 2:
            yield from self._learned_what_looks_right(batch, lesson, on_progress)
            if lesson.margins:
                again = self.judge.assessments(batch, on_progress, seed, with_noise=False)
                lesson.assessments = {label: both_looks(lesson.assessments[label], again[label]) for label in again}
            lesson.chosen = {label: self._choice(batch, lesson, label, seed) for label in batch.classes}
            self._remember_chosen(batch, lesson)
            lesson.forgotten = self._out_of_place(batch, lesson)
            lesson.begin(3)
        self._remember_chosen(batch, lesson)
        yield from self._learned_what_is_kept(lesson, on_progress)

    def _scouted(self, batch: Batch, lesson: Lesson, on_progress: OnProgress) -> Iterator[None]:
        """Stage 1: a few epochs on everything."""
        count = self._scouting()
        everything = torch.arange(len(batch.labels))
        images = len(everything) + sum(map(len, self._others(batch)))
        fetched = Count(on_progress, "training on everything", images * count, images * lesson.epochs)
        samples = self._with_others(batch, everything, fetched)
        phase = self._resumed_phase(lesson)
        for epoch in range(lesson.epochs, count):
            if len(samples):
                phase.epoch(samples)
            lesson.epochs = epoch + 1
            yield
        self._check_converged()

    def _learned_what_looks_right(self, batch: Batch, lesson: Lesson, on_progress: OnProgress) -> Iterator[None]:
        """Stage 2: the best of what looks right at first, moved; and how the learner judges all images meanwhile."""
        count = self.training.phase1_epochs - self._scouting()
        best = [
            self._best_of_class(batch, label, lesson.assessments[label], None, 1, FEWEST) for label in batch.classes
        ]
        taught = torch.cat(best).sort().values
        images = len(taught) + sum(map(len, self._others(batch))) + len(batch.labels)
        fetched = Count(on_progress, "training on what looks right", images * count, images * lesson.epochs)
        samples = self._with_others(batch, taught, fetched, moves=True)
        phase = self._resumed_phase(lesson)
        for epoch in range(lesson.epochs, count):
            if len(samples):
                phase.epoch(samples)
                for label, margins in self._margins_of_classes(batch, fetched).items():
                    lesson.margins[label] = lesson.margins.get(label, torch.zeros(())) + margins
            lesson.epochs = epoch + 1
            yield
        self._check_converged()

    def _learned_what_is_kept(self, lesson: Lesson, on_progress: OnProgress) -> Iterator[None]:
        """Stage 3: the memories of all classes, moved; weights are averaged over the last epochs."""
        phase, count = self._resumed_phase(lesson), self.training.phase2_epochs
        for epoch in range(lesson.epochs, count):
            kept = self.remembered()
            if kept is not None:
                phase.epoch(self._moved(kept))
            lesson.epochs = epoch + 1
            self._average(lesson)
            on_progress("training on what is kept", lesson.epochs, count)
            yield
        self._end_phase()
        self._settle(lesson)
        self._check_converged()

    def _scouting(self) -> int:
        """How many epochs stage 1 has."""
        return math.ceil(SCOUTING * self.training.phase1_epochs)

    def _moved(self, samples: Samples) -> Samples:
        return moved(samples, MOVED, False, self._generator)

    def _margins_of_classes(self, batch: Batch, fetched: Count) -> dict[int, Tensor]:
        """By class, how far each image's label is ahead of all other classes now."""
        found = {}
        for label in batch.classes:
            logits = self.judge.logits(batch.rows, batch.of_class(label), fetched)
            found[label] = margins_of(logits, label, range(logits.shape[1]))
        return found

    def _best_of_class(
        self, batch: Batch, label: int, found: Assessment, margins: Tensor | None, power: int, least: int
    ) -> Tensor:
        """Positions of the best of a class's images that look right, if any do, and of all that people vouched for.

        How many is the share of the new ones that seems right, to this power, and all others; or `least`, if that is
        more.
        """
        own = batch.of_class(label)
        if not len(own):
            return own
        standing = standardised(log_odds(found.right))
        if margins is not None:
            standing += standardised(margins.double())
        looks_right = torch.from_numpy(found.right >= 0.5)
        if bool(looks_right.any()):
            standing[~looks_right] = -math.inf
        share = 1.0 if found.noise is None else (1 - found.noise.estimate) ** power
        new = int(batch.new[own].sum())
        count = min(max(least, len(own) - new + math.ceil(share * new)), int(looks_right.sum()) or len(own))
        passes = torch.zeros(len(own), dtype=torch.bool)
        passes[standing.argsort(descending=True, stable=True)[:count]] = True
        return own[passes | batch.pinned[own]]

    def _remember_chosen(self, batch: Batch, lesson: Lesson) -> None:
        """Set the memory to what was chosen, and forget what is to be forgotten."""
        for label, chosen in lesson.chosen.items():
            samples = Samples.of(batch.rows.take(chosen), batch.labels[chosen], batch.ids[chosen])
            self.memory[label] = samples.to(self.network.device)
        for label, ids in lesson.forgotten.items():
            kept = self.memory[label]
            self.memory[label] = kept[~torch.isin(kept.ids, ids.to(kept.ids.device))]

    def _out_of_place(self, batch: Batch, lesson: Lesson) -> dict[int, Tensor]:
        """By class, `ids` of the memories among whose neighbours nearly all are of one other class.

        They are looked for in classes that are certainly noisy, and not in very small ones or where they are many.
        """
        doubtable = dict(batch.doubtable)
        for label, chosen in lesson.chosen.items():
            noise = lesson.assessments[label].noise
            if noise is not None and noise.is_certain:
                doubtable[label] = ~batch.pinned[chosen]
        kept = self.remembered()
        if kept is None or not doubtable:
            return {}
        _, against = votes(self._points(kept), kept.labels, VOTERS)
        found = {}
        for label, may_be_forgotten in doubtable.items():
            own = kept.labels == label
            ids = kept.ids[own][(against[own] >= ENOUGH) & may_be_forgotten.to(own.device)].cpu()
            # Of two classes that are hard to tell apart, the smaller one would be gone.
            if len(ids) and int(own.sum()) - len(ids) >= max(VOTERS, len(ids)):
                found[label] = ids
        return found

    def _average(self, lesson: Lesson) -> None:
        """Have the epoch that has just ended count, if it is one of the last."""
        epochs = self.training.phase2_epochs
        number = lesson.epochs - (epochs - round(AVERAGED * epochs))
        if number < 1:
            return
        for name, value in self.network.model.state_dict().items():
            mean = lesson.mean.get(name)
            if mean is None or not value.is_floating_point():
                lesson.mean[name] = value.clone()
            else:
                lesson.mean[name] = torch.lerp(mean.to(value.device), value, 1 / number)

    def _settle(self, lesson: Lesson) -> None:
        """Give the network the average of its last weights."""
        coresets = self.remembered()
        if lesson.mean and coresets is not None:
            self._become(lesson.mean, coresets.images)

    def optimizer_state(self) -> dict[str, Tensor]:
        """Where the optimizer of the phase under way stands."""
        return {} if self._current_phase is None else self._current_phase.state()

    def _others(self, batch: Batch) -> list[Samples]:
        """The memory of all other classes."""
        return [samples for label, samples in self.memory.items() if label not in batch.classes and len(samples)]

    def _with_others(self, batch: Batch, positions: Tensor, fetched: Count, moves: bool = False) -> Trainable:
        """Images of the batch and the memory of all other classes, to train on; on a GPU, already there if they fit.

        If they are to be moved, they are fetched and moved batch by batch, so that what a GPU has room for does not
        decide which random numbers move which image.
        """
        others = self._others(batch)
        labels = torch.cat([*(samples.labels.cpu() for samples in others), batch.labels[positions]])
        ids = torch.cat([*(samples.ids.cpu() for samples in others), batch.ids[positions]])
        chosen = ChosenRows(batch.rows, positions)
        rows = StackedRows([*(ArrayRows(samples.images.cpu().numpy()) for samples in others), chosen])
        self._measure(rows)
        if not moves and self._fits_the_device(len(rows) * int(np.prod(rows.shape))):
            # A GPU's steps are recorded and replayed, if the samples lie there.
            return Samples.of(rows.take(torch.arange(len(rows))), labels, ids).to(self.network.device)
        return RowSamples(rows, labels, ids, self.network.device, fetched.add, self._moved if moves else None)

    def _fits_the_device(self, size: int) -> bool:
        """Whether so many bytes, twice, leave most of a GPU's memory free; a CPU's is never filled on purpose."""
        device = self.network.device
        return device.type == "cuda" and 2 * size < torch.cuda.mem_get_info(device)[0] // 4

    def _measure(self, rows: Rows) -> None:
        if self.network.mean is None and len(rows):
            evenly = torch.linspace(0, len(rows) - 1, min(MEASURED, len(rows))).round().long()
            self.network.measure_normalization(rows.take(evenly))

    def _resumed_phase(self, lesson: Lesson) -> Phase:
        phase = self._phase()
        if lesson.optimizer:
            phase.restore(lesson.optimizer)
            lesson.optimizer = {}
        return phase

    def _has_learned(self) -> bool:
        """Whether the network has ever told classes apart, so that its view is worth something."""
        return sum(len(samples) > 0 for samples in self.memory.values()) > 1

    def _choice(self, batch: Batch, lesson: Lesson, label: int, seed: int) -> Tensor:
        """Positions of a class's memory: all that people vouched for, then what the selector says."""
        found, margins = lesson.assessments[label], lesson.margins.get(label)
        own = self._best_of_class(batch, label, found, margins, 2, self.training.memory_per_class)
        pinned, free = own[batch.pinned[own]], own[~batch.pinned[own]]
        size = self.training.memory_per_class - len(pinned)
        if size < 0:  # more than can be kept
            pinned, free, size = pinned[:0], pinned, self.training.memory_per_class
        if len(free) > CANDIDATES:
            random = torch.Generator().manual_seed(seed_for(seed, f"candidates {label}"))
            free = free[torch.randperm(len(free), generator=random)[:CANDIDATES].sort().values]
        if not len(free) or not size:
            return pinned
        looked_at = free[:0] if self.selector.draws_only else free
        with self._timed_selection():
            parts = (batch.rows.take(part).to(self.network.device) for part in chunks(looked_at, batch.rows.shape))
            features, logits = zip(*(self.network.evaluate(images) for images in parts), strict=True)
            labels = torch.full((len(free),), label, device=self.network.device)
            judged = self.network.candidates(torch.cat(features), torch.cat(logits), labels)
            coreset = select(self.selector, judged, size, self._generator)
        return torch.cat([pinned, free[coreset.indices.cpu()]])
