"""Small noisy data that every test of learning shares."""

from __future__ import annotations

import pytest
import torch

from continual_crust.data import Dataset, load_dataset


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="session")
def few_digits(digits: Dataset) -> Dataset:
    """Four classes with 40 training images each: a run takes a second."""
    keep = [(digits.train_labels == label).nonzero().flatten()[:40] for label in range(4)]
    index = torch.cat(keep)
    test = (digits.test_labels < 4).nonzero().flatten()
    return Dataset(
        "few_digits",
        digits.train_images[index],
        digits.train_labels[index],
        digits.test_images[test],
        digits.test_labels[test],
        digits.class_names[:4],
    )
