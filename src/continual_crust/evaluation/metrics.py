"""Accuracy, forgetting and purity, as the paper defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from continual_crust.data.samples import Samples, Truth
from continual_crust.data.stream import Stream
from continual_crust.errors import InputError

AccuracyMatrix = Sequence[Sequence[float]]
"""Row i, column j: accuracy on the test images of experience j after training on experience i."""


class Predicts(Protocol):
    """Any learner, by whichever trainer: all strategies are."""

    def predict(self, images: Tensor, /) -> Any:
        """The class of each image, of bytes in shape (n, channels, height, width); a tensor, an array or a list."""


def accuracies(learner: Predicts, stream: Stream) -> list[float]:
    """Accuracy on the clean test images of every experience, past, present and future."""
    if not hasattr(learner, "predict"):
        raise InputError(
            f"a {type(learner).__name__} cannot predict; give a learner, and then the stream to test it on."
        )
    return [_accuracy(learner, *stream.test(index)) for index in range(len(stream))]


def _accuracy(learner: Predicts, images: Tensor, labels: Tensor) -> float:
    if not len(labels):
        return float("nan")
    predicted = torch.as_tensor(learner.predict(images), device="cpu")
    if predicted.shape != labels.shape:  # a column, or scores, would be compared with every label
        raise InputError(f"predictions have shape {tuple(predicted.shape)}; give one class for each of {len(labels)}.")
    return float((predicted == labels).double().mean())


def average_accuracy(matrix: AccuracyMatrix) -> float:
    """Mean over *experiences* of the accuracy after the last one; the first experience's classes count as one.

    >>> average_accuracy([[1.0, 0.0], [0.8, 0.6]])
    0.7
    """
    return sum(matrix[-1]) / len(matrix[-1])


def forgetting(matrix: AccuracyMatrix) -> float | None:
    """Mean over all pairs i > j of the accuracy on j lost between learning j and learning i.

    Not only first against last, which is what Avalanche reports. None where there is no pair.

    >>> round(forgetting([[1.0, 0.0, 0.0], [0.8, 1.0, 0.0], [0.6, 0.7, 1.0]]), 3)
    0.3
    """
    losses = [matrix[j][j] - matrix[i][j] for i in range(len(matrix)) for j in range(i)]
    return sum(losses) / len(losses) if losses else None


def purity_per_class(memory: Mapping[int, Samples], truth: Truth) -> dict[int, float]:
    """Share of each class's memory that is undamaged and truly of that class. Empty memories are left out."""
    return {
        label: float(truth.is_clean(samples.ids).double().mean()) for label, samples in memory.items() if len(samples)
    }


def mean_purity(per_class: Mapping[int, float]) -> float | None:
    """Purity averaged over classes; None where nothing is remembered."""
    return (
        float(torch.tensor(list(per_class.values()), dtype=torch.float64, device="cpu").mean()) if per_class else None
    )
