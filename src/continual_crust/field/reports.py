"""What a lesson did to a class and what is kept of it, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from continual_crust.data.loading import Bytes
from continual_crust.field.inputs import Label
from continual_crust.field.seen import Seen
from continual_crust.selection.noise_share import NoiseEstimate


@dataclass(frozen=True)
class Doubt:
    """An image that looks mislabelled."""

    name: str
    score: float
    """How likely the given label is right."""
    other: Label | None
    """The class the learner would give instead; None where it knows no other."""
    other_probability: float


@dataclass(frozen=True)
class ClassReport:
    """What a lesson did to one class."""

    label: Label
    images: int
    """New ones, less what a review brought back."""
    kept: int
    """In the memory now, new or old."""
    doubts: list[Doubt]
    """Of the new images, the most doubtful first."""
    noise: NoiseEstimate | None
    """Of its last batch; None where that was too small to say."""
    second: float = 0.0
    """The share of what seems right in it that is a kind of its own."""


@dataclass(frozen=True)
class ClassCoreset:
    """What is kept of one class."""

    images: Bytes
    """Shape (n, channels, height, width)."""
    names: list[str]
    """Of the images, as they were given."""
    scores: NDArray[np.float32]
    """How likely each label is right."""


def doubts_of(seen: Seen, rows: NDArray[np.int64], labels: Sequence[Label]) -> list[Doubt]:
    """What there is to say about some images of a class's record, the most doubtful first."""
    names = seen.names()
    return [
        Doubt(
            names[row],
            float(seen.score[row]),
            labels[seen.other[row]] if seen.other[row] >= 0 else None,
            float(seen.other_probability[row]),
        )
        for row in rows[np.argsort(seen.score[rows], kind="stable")]
    ]


def second_opinion(logits: Tensor, label: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The most likely class beside the given one, and its probability."""
    if logits.shape[1] < 2:
        return np.full(len(logits), -1, np.int32), np.zeros(len(logits), np.float32)
    probabilities = logits.softmax(dim=1)
    probabilities[:, label] = -1
    best = probabilities.max(dim=1)
    return best.indices.numpy().astype(np.int32), best.values.numpy().astype(np.float32)
