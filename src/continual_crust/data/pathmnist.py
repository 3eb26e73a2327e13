"""PathMNIST, from MedMNIST's npz files: nine tissue types, balanced as in the paper."""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from continual_crust.data.loading import Bytes, MissingData, Request, assemble, locate, told_as
from continual_crust.data.samples import Dataset
from continual_crust.errors import InputError
from continual_crust.torchvision_remedy import import_torchvision

CLASS_NAMES = (
    "adipose",
    "background",
    "debris",
    "lymphocytes",
    "mucus",
    "smooth muscle",
    "normal colon mucosa",
    "cancer-associated stroma",
    "colorectal adenocarcinoma epithelium",
)
HOW_TO_GET = (
    "expected MedMNIST's pathmnist.npz (28 pixels), pathmnist_64.npz, pathmnist_128.npz or "
    "pathmnist_224.npz: download one (--download, or download=True) or take it from https://medmnist.com"
)
_DAMAGED = f"remove it and get it again; {HOW_TO_GET}"
TRAIN_PER_CLASS, TEST_PER_CLASS = 2_000, 300
"""How many images of each class the paper uses. These are the first ones in the file, whatever the seed."""
_FILES = {
    224: "pathmnist_224.npz",
    128: "pathmnist_128.npz",
    64: "pathmnist_64.npz",
    28: "pathmnist.npz",
}
_MOST_IMAGES = 100_000


def find(request: Request) -> tuple[Path, int]:
    """The file of the size asked for, or the largest there is, in ``root/pathmnist`` or ``root``; and its size."""
    if request.image_size is not None and request.image_size not in _FILES:
        known = ", ".join(map(str, sorted(_FILES)))
        raise InputError(f"pathmnist has no images of {request.image_size} pixels; choose among {known}.")
    folders = [request.root / "pathmnist", request.root]
    for size in [request.image_size] if request.image_size else _FILES:
        try:
            return locate(folders, [_FILES[size]], HOW_TO_GET)[0], size
        except MissingData as error:
            missing = error
    raise missing


def load(request: Request) -> Dataset:
    """Read the file that was found."""
    path, size = find(request)
    with told_as(f"{path} cannot be read", _DAMAGED), zipfile.ZipFile(path) as archive:
        train = _read_part(path, archive, "train", size, TRAIN_PER_CLASS)
        test = _read_part(path, archive, "test", size, TEST_PER_CLASS)
    return assemble("pathmnist", train, test, CLASS_NAMES, HOW_TO_GET)


def download(request: Request) -> None:
    """Let the medmnist package bring the file of the size asked for, or of 224 pixels, to the root."""
    # The package fetches through torchvision.
    import_torchvision()
    try:
        medmnist = importlib.import_module("medmnist")
    except ImportError as error:
        raise InputError(
            "downloading pathmnist needs the medmnist package; run: pip install 'continual-crust[medmnist]'."
        ) from error
    request.root.mkdir(parents=True, exist_ok=True)
    size = request.image_size or max(_FILES)
    medmnist.PathMNIST(split="test", root=str(request.root), size=size, download=True)


def _read_part(
    path: Path, archive: zipfile.ZipFile, part: str, size: int, per_class: int
) -> tuple[Bytes, NDArray[np.int64]]:
    """The first images of each class. The rest is skipped: all of them at 224 pixels would take 14 GB."""
    with _array(path, archive, f"{part}_labels") as (stream, shape, dtype):
        if shape[1:] not in {(), (1,)} or dtype.kind not in "iu" or not 1 <= shape[0] <= _MOST_IMAGES:
            raise InputError(f"{path} has {part}_labels of shape {shape} and type {dtype}; {_DAMAGED}.")
        labels = np.frombuffer(stream.read(shape[0] * dtype.itemsize), dtype).reshape(-1).astype(np.int64)
    if labels.min() < 0 or labels.max() >= len(CLASS_NAMES):
        raise InputError(f"{path} has {part}_labels outside 0 to {len(CLASS_NAMES) - 1}; {_DAMAGED}.")
    keep = np.zeros(len(labels), bool)
    for label in range(len(CLASS_NAMES)):
        keep[np.flatnonzero(labels == label)[:per_class]] = True
    images = np.empty((int(keep.sum()), 3, size, size), np.uint8)
    with _array(path, archive, f"{part}_images") as (stream, shape, dtype):
        wanted = (len(labels), size, size, 3)
        if shape != wanted or dtype != np.uint8:
            raise InputError(
                f"{path} has {part}_images of shape {shape} and type {dtype} instead of {wanted} and uint8; {_DAMAGED}."
            )
        slot = 0
        for kept in keep[: np.flatnonzero(keep)[-1] + 1]:
            pixels = stream.read(size * size * 3)
            if kept:
                images[slot] = np.frombuffer(pixels, np.uint8).reshape(size, size, 3).transpose(2, 0, 1)
                slot += 1
    return images, labels[keep]


@contextmanager
def _array(path: Path, archive: zipfile.ZipFile, key: str) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype]]:
    """Open an array of an npz file at its first value. Objects are refused, so nothing is ever unpickled."""
    name = f"{key}.npy"
    if name not in archive.namelist():
        raise InputError(f"{path} holds no {key}; {_DAMAGED}.")
    with archive.open(name) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, column_major, dtype = read_header(stream)
        if dtype.hasobject or column_major or not shape:
            raise InputError(f"{path} holds no plain array {key}; {_DAMAGED}.")
        yield stream, shape, dtype
