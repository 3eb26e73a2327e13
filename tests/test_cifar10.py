"""CIFAR-10 in its binary version."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from continual_crust.data import load_dataset
from continual_crust.errors import InputError

FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
FILE_BYTES = 30_730_000


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as large as a real one: record number i has label i % 10 and every pixel i % 256."""
    numbers = np.arange(10_000)
    records = np.repeat((numbers % 256).astype(np.uint8)[:, np.newaxis], 3073, axis=1)
    records[:, 0] = numbers % 10
    # In the first record the colour planes differ, to show their order.
    records[0, 1:] = np.repeat([10, 20, 30], 1024)
    path = tmp_path_factory.mktemp("cifar10") / "batch.bin"
    records.tofile(path)
    return path


def link(folder: Path, batch: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).symlink_to(batch)
    return folder


def test_whole_files_are_read(batch: Path, tmp_path: Path) -> None:
    link(tmp_path / "cifar-10-batches-bin", batch)
    dataset = load_dataset("cifar10", tmp_path)
    assert dataset.train_images.shape == (50_000, 3, 32, 32)
    assert dataset.test_images.shape == (10_000, 3, 32, 32)
    assert dataset.train_images[0, :, 31, 31].tolist() == [10, 20, 30]
    assert dataset.train_images[10_003].unique().tolist() == [3]
    assert dataset.train_labels[10_003] == 3
    assert dataset.class_names[3] == "cat"


@pytest.mark.parametrize("size", [0, 3073, FILE_BYTES - 1, FILE_BYTES + 3073])
def test_a_file_of_another_size_is_one_sentence(size: int, batch: Path, tmp_path: Path) -> None:
    path = link(tmp_path, batch) / "data_batch_1.bin"
    path.unlink()
    with path.open("wb") as stream:
        stream.truncate(size)
    with pytest.raises(InputError, match=rf"data_batch_1.bin has {size:,} bytes instead of 30,730,000"):
        load_dataset("cifar10", tmp_path)


def test_a_foreign_file_of_the_right_size_is_one_sentence(batch: Path, tmp_path: Path) -> None:
    path = link(tmp_path, batch) / "data_batch_1.bin"
    path.unlink()
    np.full(FILE_BYTES, 77, np.uint8).tofile(path)
    with pytest.raises(InputError, match="holds the label 77"):
        load_dataset("cifar10", tmp_path)


def test_the_absent_file_is_named(batch: Path, tmp_path: Path) -> None:
    (link(tmp_path / "cifar10", batch) / "test_batch.bin").unlink()
    with pytest.raises(InputError, match=r"no 'test_batch.bin' in .*cifar10; .*--download"):
        load_dataset("cifar10", tmp_path)
