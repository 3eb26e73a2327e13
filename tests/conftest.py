"""Small noisy data that every test of learning shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from continual_crust.data import Dataset, load_dataset

# The same examples in every run, so that a change is judged by what it changed; `--hypothesis-profile fresh` looks for
# new ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, max_examples=1000)
settings.load_profile("same")

# Where there is no GPU, kernels are interpreted. Triton asks when it is imported, which many a library does.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="session")
def few_digits(digits: Dataset) -> Dataset:
    """Four classes with 40 training images each: a run takes a second."""
    return first_classes(digits, 4, images=40)


@pytest.fixture(scope="session")
def three_digits(digits: Dataset) -> Dataset:
    """Three classes with 40 training images each: two experiences."""
    return first_classes(digits, 3, images=40)


@pytest.fixture(scope="session")
def six_digits(digits: Dataset) -> Dataset:
    """Six classes with all their images: a third of the time of ten."""
    return first_classes(digits, 6, images=1000)


def first_classes(dataset: Dataset, classes: int, images: int) -> Dataset:
    """The first classes of a data set, with at most so many training images each."""
    train = torch.cat([(dataset.train_labels == label).nonzero().flatten()[:images] for label in range(classes)])
    test = (dataset.test_labels < classes).nonzero().flatten()
    return Dataset(
        f"{dataset.name}_{classes}",
        dataset.train_images[train],
        dataset.train_labels[train],
        dataset.test_images[test],
        dataset.test_labels[test],
        dataset.class_names[:classes],
    )


@pytest.fixture(autouse=True)
def same_number_of_threads() -> Iterator[None]:
    """Importing apricot makes this thread use all cores, whatever it was told; more threads give other last bits."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
