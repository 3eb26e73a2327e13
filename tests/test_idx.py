"""MNIST and FashionMNIST in idx files, whole and damaged."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import continual_crust.data.idx
from continual_crust.data import load_dataset
from continual_crust.errors import InputError

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
TRAIN, TEST = 20, 10


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()


def images(count: int) -> np.ndarray:
    return (np.arange(count * 784) % 253).astype(np.uint8).reshape(count, 28, 28)


def labels(count: int) -> np.ndarray:
    return (np.arange(count) % 10).astype(np.uint8)


def write(folder: Path, zipped: bool = False, **replaced: bytes) -> Path:
    """Four small idx files; a keyword such as ``train_labels`` gives other bytes to one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        part, kind, _ = file.split("-", 2)
        count = TRAIN if part == "train" else TEST
        content = replaced.get(f"{part}_{kind}", idx(images(count) if kind == "images" else labels(count)))
        if zipped:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content, mtime=0))
        else:
            (folder / file).write_bytes(content)
    return folder


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", [".", "NAME", "TORCHVISION/raw"])
@pytest.mark.parametrize(("name", "torchvision"), [("mnist", "MNIST"), ("fashionmnist", "FashionMNIST")])
def test_whole_files_are_read_wherever_they_are(
    name: str, torchvision: str, place: str, zipped: bool, tmp_path: Path
) -> None:
    place = place.replace("NAME", name).replace("TORCHVISION", torchvision)
    write(tmp_path / place, zipped)
    dataset = load_dataset(name, tmp_path)
    assert dataset.name == name
    assert dataset.image_shape == (1, 28, 28)
    assert dataset.train_images.dtype == torch.uint8
    assert dataset.train_labels.dtype == torch.int64
    assert np.array_equal(dataset.train_images[:, 0].numpy(), images(TRAIN))
    assert np.array_equal(dataset.test_images[:, 0].numpy(), images(TEST))
    assert dataset.test_labels.tolist() == list(range(10))
    assert len(set(dataset.class_names)) == 10


def test_class_names_are_real(tmp_path: Path) -> None:
    assert load_dataset("fashionmnist", write(tmp_path)).class_names[9] == "Ankle boot"
    assert load_dataset("mnist", tmp_path).class_names[9] == "9"


def test_a_gz_that_a_browser_unpacked_is_read(tmp_path: Path) -> None:
    for path in write(tmp_path).iterdir():
        path.rename(f"{path}.gz")
    assert len(load_dataset("mnist", tmp_path).train_labels) == TRAIN


def test_a_gz_of_several_parts_is_read_whole(tmp_path: Path) -> None:
    content = idx(images(TRAIN))
    parts = [gzip.compress(part) for part in (content[:5000], content[5000:5001], b"", content[5001:])]
    (write(tmp_path, zipped=True) / f"{FILES[0]}.gz").write_bytes(b"".join(parts) + bytes(512))
    assert np.array_equal(load_dataset("mnist", tmp_path).train_images[:, 0].numpy(), images(TRAIN))
    (tmp_path / f"{FILES[0]}.gz").write_bytes(b"".join(parts[:-1]))
    with pytest.raises(InputError, match="but holds only"):
        load_dataset("mnist", tmp_path)


def test_the_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no 'train-images-idx3-ubyte' in .*--download"):
        load_dataset("mnist", tmp_path)
    (write(tmp_path / "MNIST" / "raw") / FILES[3]).unlink()
    with pytest.raises(InputError, match=r"no 't10k-labels-idx1-ubyte' in .*MNIST/raw; .*--download"):
        load_dataset("mnist", tmp_path)


def header(*numbers: int) -> bytes:
    return np.array(numbers, ">u4").tobytes()


@pytest.mark.parametrize(
    ("replaced", "says"),
    [
        ({"train_images": b""}, "starts with nothing where"),
        ({"train_images": b"<!DOCTYPE html>"}, "starts with 3c21444f where .* has 00000803"),
        ({"train_images": idx(labels(TRAIN))}, "starts with 00000801 where .* has 00000803"),
        ({"train_images": header(0x803, 20)}, "ends inside its header"),
        ({"train_images": idx(images(TRAIN)[:, :14])}, "says it holds 20 × 14 × 28 bytes where"),
        ({"train_images": header(0x803, 4_000_000_000, 28, 28)}, "1 to 60,000 × 28 × 28 are expected"),
        ({"t10k_labels": header(0x801, 0)}, "holds 0 bytes where"),
        ({"train_images": idx(images(TRAIN))[:-1]}, "should hold 15,680 bytes of data but holds only 15,679"),
        ({"train_images": idx(images(TRAIN)) + b"!"}, "but holds more"),
        ({"t10k_labels": idx(labels(TEST) + 1)}, "holds the label 10"),
        ({"t10k_labels": idx(labels(TEST + 1))}, "10 test images but 11 labels"),
        ({"t10k_labels": idx(labels(TEST) // 2)}, "no test image of class '5'"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_a_wrong_file_is_one_sentence(replaced: dict[str, bytes], says: str, zipped: bool, tmp_path: Path) -> None:
    write(tmp_path, zipped, **replaced)
    with pytest.raises(InputError, match=says) as raised:
        load_dataset("mnist", tmp_path)
    assert "\n" not in str(raised.value)


def test_a_folder_in_the_place_of_a_file_is_one_sentence(tmp_path: Path) -> None:
    (write(tmp_path) / FILES[0]).unlink()
    (tmp_path / FILES[0]).mkdir()
    with pytest.raises(InputError, match="train-images-idx3-ubyte cannot be read"):
        load_dataset("mnist", tmp_path)


def test_the_files_of_one_are_not_those_of_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.md5(labels(TEST).tobytes()).hexdigest()
    monkeypatch.setitem(continual_crust.data.idx._OFFICIAL_TEST_LABELS, digest, "mnist")
    write(tmp_path)
    load_dataset("mnist", tmp_path)
    with pytest.raises(InputError, match="belongs to mnist, not fashionmnist"):
        load_dataset("fashionmnist", tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("idx"), zipped=True)


def load_with(folder: Path, content: bytes) -> bool:
    """Whether the data set still loads with other bytes in one of its files. Only InputError means no."""
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(content)
    try:
        return len(load_dataset("mnist", folder).test_labels) == TEST
    except InputError:
        return False


@given(share=st.floats(0, 1, exclude_max=True), zipped=st.booleans())
@example(share=0.9999, zipped=True)
def test_a_file_cut_anywhere_is_refused(folder: Path, share: float, zipped: bool) -> None:
    whole = idx(images(TEST))
    whole = gzip.compress(whole) if zipped else whole
    assert load_with(folder, whole)
    assert not load_with(folder, whole[: int(share * len(whole))])


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x1f\x8b", b"\x1f\x8b\x08\0", header(0x803)]))
def test_random_bytes_are_refused(folder: Path, noise: bytes, beginning: bytes) -> None:
    assert not load_with(folder, beginning + noise)


@given(st.data())
def test_a_changed_byte_is_refused_or_harmless(folder: Path, data: st.DataObject) -> None:
    content = bytearray(gzip.compress(idx(images(TEST)), mtime=0))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    assert load_with(folder, bytes(content)) in (True, False)  # anything but InputError would have come through
