"""Continual CRUST for batches that come when they come, one epoch at a time.

The algorithm is that of `continual_crust.strategies.crust`, with what a learner in the field needs on top:

- A batch may bring more images of known classes. Such a class is selected anew, among what was kept of it and what is
  new; all other coresets stay as they are.
- Every image of the batch is judged (`trust`) by the network as it was before the batch: it has not memorised the wrong
  labels. Only a network that has never told classes apart is taught first, for the few epochs of phase 1. Images whose
  label is more likely wrong than right cannot be selected. Images a person vouched for always are.
- What is kept is moved a little in every epoch of phase 2, so that it is hard to learn by heart, and weights are
  averaged over the second half of it. (Moving what phase 1 sees as well, which is short, cost more than it gained.)
- Images are fetched batch by batch, so a batch may be larger than memory.
- Between any two epochs everything can be saved and taken up again, to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.field.rows import ArrayRows, Rows, RowSamples, StackedRows, chunks
from continual_crust.progress import OnProgress
from continual_crust.randomness import seed_for
from continual_crust.selection.selectors import select
from continual_crust.selection.trust import (
    DIRECTIONS,
    Assessment,
    Points,
    Projection,
    View,
    assess,
    image_view,
    network_view,
    right_among_known,
    sample_of,
)
from continual_crust.strategies.augmentation import moved
from continual_crust.strategies.crust import ContinualCrust
from continual_crust.strategies.training import Phase, Trainable

CANDIDATES = 4000
"""Images of a class that are looked at when its coreset is selected: enough to choose some hundred from."""
MEASURED = 2048
"""Images that brightness and contrast are measured on."""
MOST_OTHERS = 300
"""Images of another class that a class is compared with."""
MOVED = 0.1
"""How far the kept images are moved in every epoch, at most, as a share of their height and width."""
AVERAGED = 0.5
"""The share of phase 2, its end, over which weights are averaged."""


@dataclass(frozen=True)
class Batch:
    """Images of the classes that are to be learned now, old coresets of those classes among them."""

    rows: Rows
    labels: Tensor
    """Class index of each, int64."""
    ids: Tensor
    """Row of each in the record of its class, int64."""
    new: Tensor
    """Whether it came with this batch, bool."""
    pinned: Tensor
    """Whether a person vouched for it, bool."""
    classes: tuple[int, ...]
    """To be learned; some may have no image."""

    def of_class(self, label: int) -> Tensor:
        """Positions of a class's images."""
        return (self.labels == label).nonzero().flatten()


@dataclass
class Lesson:
    """How far the learning of a batch has come."""

    phase: int = 1
    epochs: int = 0
    """Done in this phase."""
    assessments: dict[int, Assessment] = field(default_factory=dict)
    """By class, in the order of the batch; empty until they are made."""
    chosen: dict[int, Tensor] = field(default_factory=dict)
    """By class, positions in the batch that are in the memory now."""
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    """Where the optimizer stood when the lesson was saved; taken by the phase that goes on."""
    mean: dict[str, Tensor] = field(default_factory=dict)
    """By name, the network's weights on average over the last epochs; empty before these."""


class FieldCrust(ContinualCrust):
    """Continual CRUST that can be stopped between epochs, and that listens to people."""

    name = "field_crust"
    summary = "Continual CRUST for batches of any size and order"

    def lesson(self, batch: Batch, lesson: Lesson, on_progress: OnProgress, seed: int) -> Iterator[None]:
        """Learn a batch, pausing after every epoch; `lesson` tells then how far it has come.

        A lesson that was saved goes on where it stood, if the network was brought back too.
        """
        if self._has_learned() and not lesson.assessments:
            lesson.assessments = self._assessments(batch, on_progress, seed)
        everything = self._everything(batch, lesson, on_progress)
        if lesson.phase == 1:
            phase = self._resumed_phase(lesson)
            for epoch in range(lesson.epochs, self.training.phase1_epochs):
                if len(everything):
                    phase.epoch(everything)
                lesson.epochs = epoch + 1
                yield
            self._check_converged()
            if not lesson.assessments:
                lesson.assessments = self._assessments(batch, on_progress, seed)
            lesson.phase, lesson.epochs, lesson.optimizer = 2, 0, {}
        phase = self._resumed_phase(lesson)
        candidates = {label: self._candidates(batch, lesson, label, seed) for label in batch.classes}
        self._take(batch, lesson)
        for epoch in range(lesson.epochs, self.training.phase2_epochs):
            for label in batch.classes:
                lesson.chosen[label] = self._choice(batch, candidates[label], label)
            self._take(batch, lesson)
            coresets = self.remembered()
            if coresets is not None:
                phase.epoch(moved(coresets, MOVED, False, self._generator))
            lesson.epochs = epoch + 1
            self._average(lesson)
            on_progress("training on what is kept", lesson.epochs, self.training.phase2_epochs)
            yield
        if not self.training.phase2_epochs:
            for label in batch.classes:
                lesson.chosen[label] = self._choice(batch, candidates[label], label)
            self._take(batch, lesson)
        self._end_phase()
        self._settle(lesson)
        self._check_converged()

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

    def logits(self, rows: Rows, positions: Tensor) -> Tensor:
        """What the network says about images, on the CPU."""
        return torch.cat([self._look(rows, part)[2] for part in chunks(positions, rows.shape)])

    def _views(self, rows: Rows, positions: Tensor) -> tuple[Points, Points]:
        """The network's view and the image's view of some images, fetched a few at a time."""
        parts = [self._look(rows, part)[:2] for part in chunks(positions, rows.shape)]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _look(self, rows: Rows, positions: Tensor) -> tuple[Points, Points, Tensor]:
        """What the network makes of some images (of unit length), what they look like, and their logits."""
        images = rows.take(positions)
        features, logits = self.network.evaluate(images.to(self.network.device))
        return network_view(features), image_view(images), logits.cpu()

    def _everything(self, batch: Batch, lesson: Lesson, on_progress: OnProgress) -> Trainable:
        """The batch and the memory of all other classes, to train on; on a GPU, already there if they fit."""
        others = [samples for label, samples in self.memory.items() if label not in batch.classes and len(samples)]
        labels = torch.cat([*(samples.labels.cpu() for samples in others), batch.labels])
        ids = torch.cat([*(samples.ids.cpu() for samples in others), batch.ids])
        rows = StackedRows([*(ArrayRows(samples.images.cpu().numpy()) for samples in others), batch.rows])
        total = len(rows) * self.training.phase1_epochs
        done = len(rows) * lesson.epochs if lesson.phase == 1 else total

        def fetched(count: int) -> None:
            nonlocal done
            done = min(done + count, total)
            on_progress("training on everything", done, total)

        self._measure(rows)
        if self._fits_the_device(len(rows) * int(np.prod(rows.shape))):
            # A GPU's steps are recorded and replayed, if the samples lie there.
            return Samples.of(rows.take(torch.arange(len(rows))), labels, ids).to(self.network.device)
        return RowSamples(rows, labels, ids, self.network.device, fetched)

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

    def _assessments(self, batch: Batch, on_progress: OnProgress, seed: int) -> dict[int, Assessment]:
        judged = 0

        def advance(count: int) -> None:
            nonlocal judged
            judged += count
            on_progress("judging", judged, len(batch.labels))

        known = self._known(batch)
        return {label: self._assessed(batch, label, known, advance, seed) for label in batch.classes}

    def judged_again(
        self, pinned: Mapping[int, NDArray[np.bool_]], on_progress: OnProgress
    ) -> dict[int, NDArray[np.float32]]:
        """By class, how likely each image kept of it is of that class, by now, and not of another known one.

        `pinned` are the classes that are asked about, and which of their images a person has vouched for.
        """
        looks = {
            label: self._views(ArrayRows(kept.images.cpu().numpy()), torch.arange(len(kept)))
            for label, kept in self.memory.items()
            if len(kept) > 1
        }
        found = {}
        for number, (label, vouched) in enumerate(pinned.items(), start=1):
            others = [look for other, look in looks.items() if other != label]
            if label in looks:
                views = []
                for view, directions in enumerate(DIRECTIONS):
                    some = [other[view][:: -(-len(other[view]) // MOST_OTHERS)] for other in others]
                    plain = View(looks[label][view], some)
                    project = Projection.of(plain, directions)
                    views.append(View(project(plain.own), [project(points) for points in plain.others]))
                found[label] = right_among_known(views, vouched)
            on_progress("looking at what is kept", number, len(pinned))
        return found

    def _assessed(
        self,
        batch: Batch,
        label: int,
        known: Mapping[int, tuple[Points, Points]],
        advance: Callable[[int], None],
        seed: int,
    ) -> Assessment:
        """Judge a class's images by what is known of all others, and by each other."""
        own, purpose = batch.of_class(label), seed_for(seed, f"trust {label}")
        if not len(own):
            return Assessment(np.ones(0, np.float32), None)
        fitted = sample_of(len(own), purpose)
        sample, others = self._views(batch.rows, own[fitted]), [known[other] for other in known if other != label]
        plain = [View(sample[view], [other[view] for other in others]) for view in range(2)]
        projections = [Projection.of(view, count) for view, count in zip(plain, DIRECTIONS, strict=True)]
        parts: list[list[Points]] = [[], []]
        for part in chunks(own, batch.rows.shape):
            for view, points in enumerate(self._look(batch.rows, part)[:2]):
                parts[view].append(projections[view](points))
            advance(len(part))
        views = [
            View(np.concatenate(parts[view]), [projections[view](points) for points in plain[view].others])
            for view in range(2)
        ]
        return assess(views, fitted, batch.new[own].numpy(), batch.pinned[own].numpy(), purpose)

    def _known(self, batch: Batch) -> dict[int, tuple[Points, Points]]:
        """Both views of what is known of every class that another one is to be compared with."""
        alone = set(batch.classes) if len(batch.classes) == 1 else set()
        looks = {}
        for label in sorted({*self.memory, *batch.classes} - alone):
            if label in batch.classes:
                positions, rows = batch.of_class(label), batch.rows
            else:
                positions = torch.arange(len(self.memory[label]))
                rows = ArrayRows(self.memory[label].images.cpu().numpy())
            if len(positions) > 1:
                looks[label] = self._views(rows, positions[:: -(-len(positions) // MOST_OTHERS)])
        return looks

    def _candidates(self, batch: Batch, lesson: Lesson, label: int, seed: int) -> Tensor:
        """Positions of the images of a class that may be kept: not those that look wrong, unless all do."""
        own = batch.of_class(label)
        likely = torch.from_numpy(lesson.assessments[label].right >= 0.5) | batch.pinned[own]
        if bool(likely.any()):
            own = own[likely]
        if len(own) > CANDIDATES:
            random = torch.Generator().manual_seed(seed_for(seed, f"candidates {label}"))
            some = torch.randperm(len(own), generator=random)[:CANDIDATES].sort().values
            own = own[torch.zeros(len(own), dtype=torch.bool).index_fill_(0, some, True) | batch.pinned[own]]
        return own

    def _choice(self, batch: Batch, candidates: Tensor, label: int) -> Tensor:
        """Positions of a class's coreset: all that people vouched for, then what the selector says."""
        pinned, free = candidates[batch.pinned[candidates]], candidates[~batch.pinned[candidates]]
        size = self.training.memory_per_class - len(pinned)
        if size < 0:  # more than can be kept
            pinned, free, size = pinned[:0], pinned, self.training.memory_per_class
        if not len(free) or not size:
            return pinned
        features, logits = [], []
        with self._timed_selection():
            for part in chunks(free, batch.rows.shape):
                feature, logit = self.network.evaluate(batch.rows.take(part).to(self.network.device))
                features.append(feature)
                logits.append(logit)
            labels = torch.full((len(free),), label, device=self.network.device)
            judged = self.network.candidates(torch.cat(features), torch.cat(logits), labels)
            coreset = select(self.selector, judged, size, self._generator)
        return torch.cat([pinned, free[coreset.indices.cpu()]])

    def _take(self, batch: Batch, lesson: Lesson) -> None:
        """Set the memory to what was chosen."""
        for label, chosen in lesson.chosen.items():
            samples = Samples.of(batch.rows.take(chosen), batch.labels[chosen], batch.ids[chosen])
            self.memory[label] = samples.to(self.network.device)
