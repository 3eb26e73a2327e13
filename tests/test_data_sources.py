"""The data sets that can be asked for by name: what holds for all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from continual_crust.data import SOURCES, check_dataset, load_dataset
from continual_crust.errors import InputError

NAMES = ["digits", "mnist", "fashionmnist", "cifar10", "mstar", "pathmnist", "folder"]


def test_the_sources_are_known_and_described() -> None:
    assert list(SOURCES) == NAMES
    for name, source in SOURCES.items():
        assert source.name == name
        assert source.summary
        assert "\n" not in source.summary + source.how_to_get
        assert not source.how_to_get.endswith(".")


def test_importing_the_room_loads_nothing_heavy() -> None:
    code = "import continual_crust.data, sys; print({'sklearn', 'PIL', 'torchvision'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


def test_digits_are_real_and_always_split_alike() -> None:
    first, again = load_dataset("digits"), load_dataset("digits")
    assert first.image_shape == (1, 8, 8)
    assert first.train_images.dtype == torch.uint8
    assert len(first.train_labels) + len(first.test_labels) == 1_797
    assert 0.18 < len(first.test_labels) / 1_797 < 0.22
    assert (first.train_images.min(), first.train_images.max()) == (0, 255)
    assert first.class_names == tuple("0123456789")
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    counts = first.test_labels.bincount() / (first.train_labels.bincount() + first.test_labels.bincount())
    assert counts.min() > 0.18
    assert counts.max() < 0.22


def test_digits_for_training_are_not_for_testing() -> None:
    dataset = load_dataset("digits")
    train = {image.numpy().tobytes() for image in dataset.train_images}
    assert not any(image.numpy().tobytes() in train for image in dataset.test_images)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="no data set 'minst'; did you mean 'mnist'"):
        load_dataset("minst")
    with pytest.raises(InputError, match="no data set '3'; known"):
        load_dataset(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "digits"])
def test_absent_files_are_one_sentence_that_says_what_to_do(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        load_dataset(name, tmp_path / "nowhere")
    sentence = str(raised.value)
    assert sentence.startswith("there is no '")
    assert str(tmp_path) in sentence
    assert "expected" in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize("name", NAMES)
def test_what_is_absent_is_known_before_anything_is_read(name: str, tmp_path: Path) -> None:
    if name == "digits":
        check_dataset(name, tmp_path)
        return
    with pytest.raises(InputError) as when_read:
        load_dataset(name, tmp_path)
    with pytest.raises(InputError, match=re.escape(str(when_read.value))):
        check_dataset(name, tmp_path)
    if SOURCES[name].download is not None:
        check_dataset(name, tmp_path, download=True)


def test_the_folder_data_is_meant_unless_another_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"in data/mnist, data/MNIST/raw, data;"):
        load_dataset("mnist")
    with pytest.raises(InputError, match="needs to know which folder"):
        load_dataset("folder")


@pytest.mark.parametrize("name", ["digits", "mnist", "fashionmnist", "cifar10"])
@pytest.mark.parametrize("options", [{"image_size": 32}, {"crop": True}])
def test_an_option_without_meaning_is_refused(name: str, options: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"'{name}' has no option .*mstar.*folder"):
        load_dataset(name, tmp_path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [-1, 0, 1025])
def test_an_impossible_size_is_refused(size: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="out of range"):
        load_dataset("folder", tmp_path, image_size=size)


@pytest.mark.parametrize("name", ["digits", "mstar", "folder"])
def test_what_has_no_downloader_says_so(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"'{name}' cannot be downloaded"):
        load_dataset(name, tmp_path, download=True)
