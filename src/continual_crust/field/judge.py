"""What is thought of the images of a batch: how likely the label of each is right, by the network and by its looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.field.lesson import Batch
from continual_crust.field.rows import ArrayRows, Rows, chunks
from continual_crust.progress import Count, OnProgress
from continual_crust.randomness import seed_for
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
from continual_crust.strategies.network import Network

MOST_OTHERS = 300
"""Images of another class that a class is compared with."""


class Judge:
    """A network, and the memories of all classes that the images of one are compared with."""

    def __init__(self, network: Network, memory: Mapping[int, Samples]) -> None:
        self.network, self.memory = network, memory

    def logits(self, rows: Rows, positions: Tensor, looked_at: Count | None = None) -> Tensor:
        """What the network says about images, on the CPU."""
        found = []
        for part in chunks(positions, rows.shape):
            found.append(self.network.evaluate(rows.take(part).to(self.network.device))[1].cpu())
            if looked_at is not None:
                looked_at.add(len(part))
        return torch.cat(found)

    def views(self, rows: Rows, positions: Tensor) -> tuple[Points, Points]:
        """The network's view and the image's view of some images, fetched a few at a time."""
        parts = [self._look(rows, part) for part in chunks(positions, rows.shape)]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _look(self, rows: Rows, positions: Tensor) -> tuple[Points, Points]:
        """What the network makes of some images (of unit length), and what they look like."""
        images = rows.take(positions)
        return network_view(self.network.evaluate(images.to(self.network.device))[0]), image_view(images)

    def assessments(
        self, batch: Batch, on_progress: OnProgress, seed: int, with_noise: bool = True
    ) -> dict[int, Assessment]:
        """By class of a batch, how likely each label is right; and unless that is known, how noisy the class is."""
        judged, known = Count(on_progress, "judging", len(batch.labels)), self._known(batch)
        return {label: self._assessed(batch, label, known, judged, seed, with_noise) for label in batch.classes}

    def judged_again(
        self, pinned: Mapping[int, NDArray[np.bool_]], on_progress: OnProgress
    ) -> dict[int, NDArray[np.float32]]:
        """By class, how likely each image kept of it is of that class, by now, and not of another known one.

        `pinned` are the classes that are asked about, and which of their images a person has vouched for.
        """
        looks = {
            label: self.views(ArrayRows(kept.images.cpu().numpy()), torch.arange(len(kept)))
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
        judged: Count,
        seed: int,
        with_noise: bool,
    ) -> Assessment:
        """Judge a class's images by what is known of all others, and by each other."""
        own, purpose = batch.of_class(label), seed_for(seed, f"trust {label}")
        if not len(own):
            return Assessment(np.ones(0, np.float32), None)
        fitted = sample_of(len(own), purpose)
        sample, others = self.views(batch.rows, own[fitted]), [known[other] for other in known if other != label]
        plain = [View(sample[view], [other[view] for other in others]) for view in range(2)]
        projections = [Projection.of(view, count) for view, count in zip(plain, DIRECTIONS, strict=True)]
        parts: list[list[Points]] = [[], []]
        for part in chunks(own, batch.rows.shape):
            for view, points in enumerate(self._look(batch.rows, part)):
                parts[view].append(projections[view](points))
            judged.add(len(part))
        views = [
            View(np.concatenate(parts[view]), [projections[view](points) for points in plain[view].others])
            for view in range(2)
        ]
        return assess(views, fitted, batch.new[own].numpy(), batch.pinned[own].numpy(), purpose, with_noise)

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
                looks[label] = self.views(rows, positions[:: -(-len(positions) // MOST_OTHERS)])
        return looks


def both_looks(first: Assessment, second: Assessment) -> Assessment:
    """Two judgements of the same images as one, in which both count alike: odds by their logarithms.

    How noisy they are is for the first to say, if it was made by a network that had not been taught these labels.
    """
    pooled = expit((log_odds(first.right) + log_odds(second.right)).numpy() / 2)
    right = np.where(first.right == second.right, first.right, pooled).astype(np.float32)
    return replace(first, right=right)


def log_odds(right: NDArray[np.float32]) -> Tensor:
    """The logarithms of odds; certainty counts for no more than a million to one."""
    return torch.from_numpy(logit(right.astype(np.float64).clip(1e-6, 1 - 1e-6)))
