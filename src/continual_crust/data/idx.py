"""MNIST and FashionMNIST, from the four idx files both are published as."""

from __future__ import annotations

import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from continual_crust.data.loading import Bytes, Request, assemble, locate, told_as
from continual_crust.data.samples import Dataset
from continual_crust.errors import InputError
from continual_crust.torchvision_remedy import import_torchvision

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_SIDE = 28
_MOST_ITEMS = 60_000
_GZIP_START = b"\x1f\x8b"
_GZIP_WINDOW = 31
"""Tells zlib that a gzip file is coming, of any window."""
_OFFICIAL_TEST_LABELS = {
    "073c3904dfbd3e141ff8aa01cfde6b15": "mnist",
    "8dea97a4e78c1bd1b5a6e8efbb870b6e": "fashionmnist",
}
"""MD5 of the test labels. The two sets name their files alike, so only content tells them apart."""


@dataclass(frozen=True)
class IdxFiles:
    """A data set in idx files, gzipped or not, in ``root/NAME``, in torchvision's layout, or in the root."""

    name: str
    torchvision_name: str
    class_names: tuple[str, ...]
    homepage: str

    @property
    def how_to_get(self) -> str:
        """Where the files come from, as the end of a sentence."""
        return (
            f"expected the four idx files of {self.name}, gzipped or not: "
            f"download them (--download, or download=True) or take them from {self.homepage}"
        )

    @property
    def _damaged(self) -> str:
        return f"remove it and get it again; {self.how_to_get}"

    def find(self, request: Request) -> list[Path]:
        """Where the four files are."""
        root = request.root
        folders = [root / self.name, root / self.torchvision_name / "raw", root]
        return locate(folders, _FILES, self.how_to_get, endings=(".gz", ""))

    def load(self, request: Request) -> Dataset:
        """Read the four files."""
        train_images, train_labels, test_images, test_labels = self.find(request)
        return assemble(
            self.name,
            (self._images(train_images), self._labels(train_labels)),
            (self._images(test_images), self._labels(test_labels)),
            self.class_names,
            self.how_to_get,
        )

    def download(self, request: Request) -> None:
        """Let torchvision bring the files, to ``root/TORCHVISION_NAME/raw``."""
        getattr(import_torchvision().datasets, self.torchvision_name)(str(request.root), download=True)

    def _images(self, path: Path) -> Bytes:
        return _read(path, (_SIDE, _SIDE), self._damaged)[:, np.newaxis]

    def _labels(self, path: Path) -> Bytes:
        labels = _read(path, (), self._damaged)
        digest = hashlib.md5(labels.tobytes(), usedforsecurity=False).hexdigest()
        owner = _OFFICIAL_TEST_LABELS.get(digest, self.name)
        if owner != self.name:
            raise InputError(f"{path} belongs to {owner}, not {self.name}; {self.how_to_get}.")
        if labels.max() >= len(self.class_names):
            raise InputError(f"{path} holds the label {labels.max()}, above 9; {self._damaged}.")
        return labels


def _content(path: Path, most: int) -> bytes:
    """The first bytes of a file, uncompressed; judged by content, as browsers unpack .gz files and keep the name.

    In one piece, which takes Python's lock a few times only: a stream takes it for every few kilobytes, and waits each
    time as long as another thread may keep it.
    """
    with path.open("rb") as stream:
        content = stream.read(2 * most)  # no file gets twice as long by being compressed
    if not content.startswith(_GZIP_START):
        return content[:most]
    pieces, missing = [], most
    while missing and content.startswith(_GZIP_START):  # a gzip file may be several, one behind the other
        unpacking = zlib.decompressobj(_GZIP_WINDOW)
        pieces.append(unpacking.decompress(content, missing))
        missing -= len(pieces[-1])
        if missing and not unpacking.eof:
            raise EOFError("its end is missing")
        content = unpacking.unused_data
    return b"".join(pieces)


def _read(path: Path, item_shape: tuple[int, ...], remedy: str) -> Bytes:
    """The items of an idx file of bytes, after checking that it holds exactly what its header says."""
    dimensions = 1 + len(item_shape)
    start = 4 + 4 * dimensions
    item = math.prod(item_shape)
    # One byte more than there can be: it shows what is too long, and makes zlib check its sum.
    with told_as(f"{path} cannot be read", remedy):
        content = _content(path, start + _MOST_ITEMS * item + 1)
    magic = bytes((0, 0, 8, dimensions))
    if content[:4] != magic:
        raise InputError(
            f"{path} starts with {content[:4].hex() or 'nothing'} where an idx file of its kind has {magic.hex()}; "
            f"{remedy}."
        )
    if len(content) < start:
        raise InputError(f"{path} ends inside its header; {remedy}.")
    count, *shape = np.frombuffer(content[:start], ">u4", offset=4).tolist()
    if tuple(shape) != item_shape or not 1 <= count <= _MOST_ITEMS:
        sizes = " × ".join(map(str, (count, *shape)))
        wanted = " × ".join(map(str, (f"1 to {_MOST_ITEMS:,}", *item_shape)))
        raise InputError(f"{path} says it holds {sizes} bytes where {wanted} are expected; {remedy}.")
    size = len(content) - start
    if size != count * item:
        found = f"only {size:,}" if size < count * item else "more"
        raise InputError(f"{path} should hold {count * item:,} bytes of data but holds {found}; {remedy}.")
    return np.frombuffer(bytearray(content), np.uint8, offset=start).reshape(count, *item_shape)


MNIST = IdxFiles(
    name="mnist",
    torchvision_name="MNIST",
    class_names=tuple(str(label) for label in range(10)),
    homepage="https://ossci-datasets.s3.amazonaws.com/mnist/",
)
FASHION_MNIST = IdxFiles(
    name="fashionmnist",
    torchvision_name="FashionMNIST",
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    homepage="https://github.com/zalandoresearch/fashion-mnist",
)
