"""Metrics on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from continual_crust.data import Dataset, Samples, Stream, Truth
from continual_crust.errors import InputError
from continual_crust.evaluation import accuracies, average_accuracy, forgetting, mean_purity, purity_per_class


def test_accuracy_averages_experiences_not_classes() -> None:
    """A learner that knows the last class only scores one over the number of experiences."""
    naive = [[1.0 if column == row else 0.0 for column in range(9)] for row in range(9)]
    assert average_accuracy(naive) == pytest.approx(1 / 9)


class Own:
    """A learner of somebody else's making, which takes every image for one class."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def predict(self, images: torch.Tensor) -> np.ndarray:
        return np.full((len(images), *self._shape), 2)


def test_any_learner_that_predicts_can_be_measured(few_digits: Dataset) -> None:
    stream = Stream(few_digits, "label:0.5", seed=1)
    share = [float((stream.test(index)[1] == 2).double().mean()) for index in range(len(stream))]
    assert accuracies(Own(()), stream) == share
    with pytest.raises(InputError, match=r"predictions have shape \(71, 1\); give one class for each of 71"):
        accuracies(Own((1,)), stream)


def test_what_cannot_predict_is_refused(few_digits: Dataset) -> None:
    stream = Stream(few_digits, "label:0.5", seed=1)
    with pytest.raises(InputError, match="a Stream cannot predict; give a learner, and then the stream"):
        accuracies(stream, Own(()))  # type: ignore[arg-type]


def test_forgetting_is_over_all_pairs_and_not_first_minus_last() -> None:
    matrix = [[0.9, 0.1, 0.0], [0.5, 0.8, 0.2], [0.7, 0.2, 0.6]]
    assert forgetting(matrix) == pytest.approx(((0.9 - 0.5) + (0.9 - 0.7) + (0.8 - 0.2)) / 3)


def test_forgetting_can_be_negative_and_needs_a_pair() -> None:
    assert forgetting([[0.5, 0.0], [0.9, 1.0]]) == pytest.approx(-0.4)
    assert forgetting([[1.0]]) is None


def test_purity_counts_flipped_and_perturbed_samples_as_dirty() -> None:
    flipped = torch.tensor([False, True, False, False, True, False])
    perturbed = torch.tensor([False, False, True, False, False, False])
    truth = Truth(torch.zeros(6, dtype=torch.int64), flipped, perturbed)

    def memory(*ids: int) -> Samples:
        return Samples.of(torch.zeros(len(ids), 1, 2, 2), torch.zeros(len(ids), dtype=torch.int64), torch.tensor(ids))

    per_class = purity_per_class(
        {
            0: memory(0, 1, 2, 3),
            1: memory(5),
            2: Samples.of(torch.zeros(0, 1, 2, 2), torch.zeros(0, dtype=torch.int64)),
        },
        truth,
    )
    assert per_class == {0: 0.5, 1: 1.0}
    assert mean_purity(per_class) == 0.75
    assert mean_purity({}) is None
