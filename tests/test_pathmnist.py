"""PathMNIST in MedMNIST's npz files."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from continual_crust.cli import app
from continual_crust.data import load_dataset, pathmnist
from continual_crust.errors import InputError
from continual_crust.studies.result import RunResult
from continual_crust.studies.study_file import find_study

Arrays = dict[str, np.ndarray]


def arrays(size: int = 28, train: int = 27, test: int = 18) -> Arrays:
    """Image number i has class i % 9, i in red, its row in green and its column in blue."""
    made: Arrays = {}
    for part, count in (("train", train), ("val", 9), ("test", test)):
        images = np.zeros((count, size, size, 3), np.uint8)
        images[..., 0] = np.arange(count).reshape(-1, 1, 1)
        images[..., 1] = np.arange(size).reshape(1, -1, 1)
        images[..., 2] = np.arange(size).reshape(1, 1, -1)
        made[f"{part}_images"] = images
        made[f"{part}_labels"] = (np.arange(count, dtype=np.uint8) % 9).reshape(-1, 1)
    return made


def write(path: Path, values: Arrays | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **(arrays() if values is None else values))
    return path


@pytest.mark.parametrize("place", [".", "pathmnist"])
def test_a_whole_file_is_read(place: str, tmp_path: Path) -> None:
    write(tmp_path / place / "pathmnist.npz")
    dataset = load_dataset("pathmnist", tmp_path)
    assert dataset.train_images.shape == (27, 3, 28, 28)
    assert dataset.test_images.shape == (18, 3, 28, 28)
    assert dataset.train_images[11, :, 5, 7].tolist() == [11, 5, 7]
    assert dataset.train_labels.tolist() == [*range(9)] * 3
    assert dataset.train_labels.dtype == torch.int64
    assert dataset.class_names[0] == "adipose"


def test_each_class_gives_its_first_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (pathmnist.TRAIN_PER_CLASS, pathmnist.TEST_PER_CLASS) == (2_000, 300)
    monkeypatch.setattr(pathmnist, "TRAIN_PER_CLASS", 2)
    monkeypatch.setattr(pathmnist, "TEST_PER_CLASS", 1)
    values = arrays(train=36)
    values["train_labels"][:9] = 0
    write(tmp_path / "pathmnist.npz", values)
    dataset = load_dataset("pathmnist", tmp_path)
    # Positions 0 and 1 are the first of class 0; the other classes come from position 10 on.
    assert dataset.train_images[:, 0, 0, 0].tolist() == [0, 1, *range(10, 18), *range(19, 27)]
    assert dataset.train_labels.bincount().tolist() == [2] * 9
    assert dataset.test_labels.tolist() == list(range(9))


def test_the_largest_file_is_read_unless_a_size_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "pathmnist.npz")
    write(tmp_path / "pathmnist_64.npz", arrays(64))
    assert load_dataset("pathmnist", tmp_path).image_shape == (3, 64, 64)
    assert load_dataset("pathmnist", tmp_path, image_size=28).image_shape == (3, 28, 28)
    with pytest.raises(InputError, match=r"no 'pathmnist_128\.npz' in"):
        load_dataset("pathmnist", tmp_path, image_size=128)
    with pytest.raises(InputError, match="no images of 32 pixels; choose among 28, 64, 128, 224"):
        load_dataset("pathmnist", tmp_path, image_size=32)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("test_images", None, "holds no test_images"),
        ("test_labels", None, "holds no test_labels"),
        ("train_labels", np.arange(27) % 9 + 1, "train_labels outside 0 to 8"),
        ("train_labels", np.arange(27) % 9 - 1, "train_labels outside 0 to 8"),
        ("train_labels", np.zeros(27), "of shape .27,. and type float64"),
        ("train_labels", np.zeros((27, 2), np.uint8), "of shape .27, 2."),
        ("train_labels", np.zeros(0, np.uint8), "of shape .0,."),
        ("train_labels", np.zeros(27, np.uint8), "no training image of class 'background'"),
        ("train_labels", np.array([0, None], object), "no plain array train_labels"),
        ("train_images", np.array([0, None], object), "no plain array train_images"),
        ("train_images", np.zeros((), np.uint8), "no plain array train_images"),
        ("train_images", np.zeros((27, 28, 28), np.uint8), "instead of .27, 28, 28, 3."),
        ("train_images", np.zeros((27, 64, 64, 3), np.uint8), "instead of .27, 28, 28, 3."),
        ("train_images", np.zeros((26, 28, 28, 3), np.uint8), "instead of .27, 28, 28, 3."),
        ("train_images", np.zeros((27, 28, 28, 3), np.float32), "float32 instead of"),
    ],
)
def test_a_wrong_array_is_one_sentence(key: str, value: np.ndarray | None, says: str, tmp_path: Path) -> None:
    values = arrays()
    if value is None:
        del values[key]
    else:
        values[key] = value
    write(tmp_path / "pathmnist.npz", values)
    with pytest.raises(InputError, match=says) as raised:
        load_dataset("pathmnist", tmp_path)
    assert "\n" not in str(raised.value)


def test_images_shorter_than_their_header_says_are_one_sentence(tmp_path: Path) -> None:
    write(tmp_path / "whole.npz")
    with (
        zipfile.ZipFile(tmp_path / "whole.npz") as whole,
        zipfile.ZipFile(tmp_path / "pathmnist.npz", "w") as cut,
    ):
        for name in whole.namelist():
            content = whole.read(name)
            cut.writestr(name, content[:-1] if name == "test_images.npy" else content)
    with pytest.raises(InputError, match=r"pathmnist\.npz cannot be read"):
        load_dataset("pathmnist", tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pathmnist")


def load_with(folder: Path, content: bytes) -> bool:
    (folder / "pathmnist.npz").write_bytes(content)
    try:
        return len(load_dataset("pathmnist", folder).test_labels) > 0
    except InputError:
        return False


def small_file(compressed: bool) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays(train=9, test=9))
    return stream.getvalue()


WHOLE = {compressed: small_file(compressed) for compressed in (False, True)}


@given(st.booleans(), st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused(folder: Path, compressed: bool, share: float) -> None:
    whole = WHOLE[compressed]
    assert load_with(folder, whole)
    assert not load_with(folder, whole[: int(share * len(whole))])


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(folder: Path, content: bytes) -> None:
    assert not load_with(folder, content)
    assert not load_with(folder, b"PK\x03\x04" + content)


@given(st.data())
def test_changed_bytes_are_refused_or_harmless(folder: Path, data: st.DataObject) -> None:
    whole = WHOLE[data.draw(st.booleans())]
    content = bytearray(whole)
    # Headers of arrays and the directory at the end hold all structure; most other bytes are pixels.
    places = st.one_of(st.integers(0, 200), st.integers(len(content) - 500, len(content) - 1))
    for place in data.draw(st.lists(places, min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    assert load_with(folder, bytes(content)) in (True, False)  # anything but InputError would have come through


@given(st.binary(max_size=150))
def test_a_foreign_array_header_is_refused(folder: Path, header: bytes) -> None:
    stream = io.BytesIO()
    beginning = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("train_labels.npy", beginning + header)
    assert not load_with(folder, stream.getvalue())


def test_the_download_is_left_to_medmnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(split: str, root: str, size: int, download: bool) -> None:
        assert split == "test"
        assert download
        write(Path(root) / f"pathmnist_{size}.npz", arrays(size, 9, 9))

    monkeypatch.setattr(pathmnist, "import_torchvision", lambda: None)
    monkeypatch.setitem(sys.modules, "medmnist", SimpleNamespace(PathMNIST=fake))
    dataset = load_dataset("pathmnist", tmp_path / "new", download=True, image_size=64)
    assert dataset.image_shape == (3, 64, 64)
    assert load_dataset("pathmnist", tmp_path / "other", download=True).image_shape == (3, 224, 224)


def test_the_download_says_which_package_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathmnist, "import_torchvision", lambda: None)
    monkeypatch.setitem(sys.modules, "medmnist", None)
    with pytest.raises(InputError, match=r"pip install 'continual-crust\[medmnist\]'"):
        load_dataset("pathmnist", tmp_path, download=True)


def run_study(data: Path, out: Path) -> RunResult:
    """The shipped study on whatever npz lies in a folder, as short as can be."""
    text = find_study("pathmnist_label_256")[1]
    for whole, part in (
        (text[text.index("methods:") : text.index("noise:")], "methods: [crust]\n"),
        ("levels: [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]", "levels: [0.4]"),
        ("memory: [256]", "memory: [1]"),
        ("seeds: 5", "seeds: 1\noverrides: {phase1_epochs: 1, phase2_epochs: 1, first_classes: 7}"),
    ):
        assert text.count(whole) == 1
        text = text.replace(whole, part)
    (out / "short.yaml").write_text(text)
    options = ["--data-root", str(data), "--out", str(out), "--device", "cpu", "--workers", "1"]
    command = ["study", "run", str(out / "short.yaml"), *options]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    (result,) = (out / "pathmnist_label_256" / "runs").glob("*/result.json")
    return RunResult.read(result)


def test_its_study_runs_from_the_file_to_the_result(tmp_path: Path) -> None:
    write(tmp_path / "data" / "pathmnist.npz", arrays(train=36, test=9))
    result = run_study(tmp_path / "data", tmp_path)
    assert sorted(len(group) for group in result.experiences) == [1, 1, 7]
    assert result.memory_sizes == dict.fromkeys(pathmnist.CLASS_NAMES, 1)
    assert result.noise == "label:0.4"
