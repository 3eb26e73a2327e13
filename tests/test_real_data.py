"""The sources on real data, if CONTINUAL_CRUST_DATA names a folder with mnist, fashionmnist and so on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from continual_crust.data import load_dataset
from continual_crust.errors import InputError
from continual_crust.report.study_report import write_report
from test_pathmnist import run_study

VARIABLE = "CONTINUAL_CRUST_DATA"


def real(name: str) -> Path:
    """The folder of all real data, or skip the test if that does not hold this set."""
    root = os.environ.get(VARIABLE)
    if not root:
        pytest.skip(f"set {VARIABLE} to a folder of real data to run this")
    if not Path(root, name).is_dir():
        pytest.skip(f"{VARIABLE} names a folder without {name}")
    return Path(root)


@pytest.mark.parametrize(
    ("name", "first_labels", "mean"),
    [("mnist", [5, 0, 4, 1, 9], 33.3), ("fashionmnist", [9, 0, 0, 3, 0], 72.9)],
)
def test_idx(name: str, first_labels: list[int], mean: float) -> None:
    dataset = load_dataset(name, real(name))
    assert dataset.train_images.shape == (60_000, 1, 28, 28)
    assert dataset.test_images.shape == (10_000, 1, 28, 28)
    assert dataset.train_labels[:5].tolist() == first_labels
    assert dataset.train_images.float().mean() == pytest.approx(mean, abs=0.1)


def test_mnist_is_not_taken_for_fashionmnist() -> None:
    with pytest.raises(InputError, match="belongs to mnist, not fashionmnist"):
        load_dataset("fashionmnist", real("mnist") / "mnist")


def test_cifar10() -> None:
    dataset = load_dataset("cifar10", real("cifar10"))
    assert dataset.train_labels.bincount().tolist() == [5_000] * 10
    assert dataset.test_labels.bincount().tolist() == [1_000] * 10


def test_mstar() -> None:
    dataset = load_dataset("mstar", real("mstar"), crop=True)
    assert dataset.classes == 10
    assert dataset.image_shape == (1, 128, 128)
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (2_747, 2_425)


def pathmnist_sample() -> Path:
    samples = sorted((real("pathmnist") / "pathmnist").glob("pathmnist_train_*.npz"))
    if not samples:
        pytest.skip(f"{VARIABLE} names a folder without a sample of PathMNIST's training images")
    return samples[0]


def divide(sample: Path, folder: Path, train: slice, test: slice) -> tuple[np.ndarray, np.ndarray]:
    """Make a set for training and testing from training images alone."""
    with np.load(sample, allow_pickle=False) as arrays:
        images, labels = arrays["train_images"], arrays["train_labels"]
    parts = {"train": train, "test": test}
    divided = {f"{name}_images": images[part] for name, part in parts.items()}
    np.savez(folder / "pathmnist.npz", **divided, **{f"{name}_labels": labels[part] for name, part in parts.items()})
    return images, labels


def test_pathmnist_sample(tmp_path: Path) -> None:
    (tmp_path / "pathmnist.npz").symlink_to(pathmnist_sample())
    with pytest.raises(InputError, match="holds no test_labels"):
        load_dataset("pathmnist", tmp_path)
    (tmp_path / "pathmnist.npz").unlink()
    images, labels = divide(pathmnist_sample(), tmp_path, slice(600), slice(600, None))
    dataset = load_dataset("pathmnist", tmp_path)
    assert torch.equal(dataset.train_images, torch.from_numpy(images[:600]).permute(0, 3, 1, 2))
    assert dataset.test_labels.tolist() == labels[600:, 0].tolist()


def test_the_study_of_pathmnist_runs_on_its_sample(tmp_path: Path) -> None:
    divide(pathmnist_sample(), tmp_path, slice(200), slice(900, None))
    result = run_study(tmp_path, tmp_path)
    assert len(result.memory_sizes) == 9
    assert 0 <= result.accuracy <= 1
    assert "PathMNIST+" in write_report(tmp_path / "pathmnist_label_256", None).read_text()


def test_pathmnist_source_patches_as_a_folder(tmp_path: Path) -> None:
    patches = real("pathmnist") / "pathmnist" / "crc_val_he_sample"
    if not patches.is_dir():
        pytest.skip(f"{VARIABLE} names a folder without patches of CRC-VAL-HE")
    for part in ("train", "test"):
        (tmp_path / part).symlink_to(patches)
    dataset = load_dataset("folder", tmp_path)
    assert dataset.classes == 9
    assert dataset.image_shape == (3, 224, 224)
