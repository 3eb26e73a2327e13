"""CIFAR-10, from the binary version: the Python version is pickled, and a pickle can run anything."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from continual_crust.data.loading import Bytes, Request, assemble, locate, told_as
from continual_crust.data.samples import Dataset
from continual_crust.errors import InputError
from continual_crust.torchvision_remedy import import_torchvision

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
HOW_TO_GET = (
    "expected the six files of the 'CIFAR-10 binary version': download them (--download, or download=True) "
    "or take them from https://www.cs.toronto.edu/~kriz/cifar.html"
)
_DAMAGED = f"remove it and get it again; {HOW_TO_GET}"
_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
_FOLDER = "cifar-10-batches-bin"
_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_TEST = ("test_batch.bin",)
_IMAGES_PER_FILE = 10_000
_PIXEL_BYTES = 3 * 32 * 32
_FILE_BYTES = _IMAGES_PER_FILE * (1 + _PIXEL_BYTES)


def find(request: Request) -> list[Path]:
    """Where the six files are: in ``root``, ``root/cifar10`` or the folder they are published in."""
    root = request.root
    folders = [root / "cifar10" / _FOLDER, root / _FOLDER, root / "cifar10", root]
    return locate(folders, (*_TRAIN, *_TEST), HOW_TO_GET)


def load(request: Request) -> Dataset:
    """Read the six files."""
    paths = find(request)
    train, test = _read(paths[: len(_TRAIN)]), _read(paths[len(_TRAIN) :])
    return assemble("cifar10", train, test, CLASS_NAMES, HOW_TO_GET)


def download(request: Request) -> None:
    """Let torchvision bring the archive, checked by its sum, and take the six files out of it."""
    import_torchvision().datasets.utils.download_url(_URL, str(request.root), md5=_MD5)
    folder = request.root / _FOLDER
    folder.mkdir(exist_ok=True)
    with tarfile.open(request.root / Path(_URL).name) as archive:
        for name in (*_TRAIN, *_TEST):
            member = archive.extractfile(f"{_FOLDER}/{name}")
            if member is None:
                raise InputError(f"{_URL} holds no file {name}; {HOW_TO_GET}.")
            # Reading by name, rather than extracting, leaves the archive no say in where files go.
            partial = folder / f".{name}.partial"
            partial.write_bytes(member.read())
            partial.replace(folder / name)


def _read(paths: Sequence[Path]) -> tuple[Bytes, Bytes]:
    images = np.empty((len(paths) * _IMAGES_PER_FILE, 3, 32, 32), np.uint8)
    labels = np.empty(len(images), np.uint8)
    for number, path in enumerate(paths):
        with told_as(f"{path} cannot be read", _DAMAGED):
            size = path.stat().st_size
            if size != _FILE_BYTES:
                raise InputError(f"{path} has {size:,} bytes instead of {_FILE_BYTES:,}; {_DAMAGED}.")
            records = np.fromfile(path, np.uint8).reshape(_IMAGES_PER_FILE, 1 + _PIXEL_BYTES)
        here = slice(number * _IMAGES_PER_FILE, (number + 1) * _IMAGES_PER_FILE)
        labels[here] = records[:, 0]
        images[here] = records[:, 1:].reshape(-1, 3, 32, 32)
        if labels[here].max() >= len(CLASS_NAMES):
            raise InputError(f"{path} holds the label {labels[here].max()}, above 9; {_DAMAGED}.")
    return images, labels
