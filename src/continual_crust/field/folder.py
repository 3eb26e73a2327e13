"""Folders of image files: which files there are, what class each was given, and their pixels."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from continual_crust.data.folder import visible
from continual_crust.data.images import FULL_DEPTH, decode, depth_of, most_common_size, survey
from continual_crust.data.loading import Bytes
from continual_crust.errors import InputError
from continual_crust.field.seen import digest_of, thumbnail_of
from continual_crust.field.settings import Settings
from continual_crust.field.state import told_as_unwritable
from continual_crust.progress import OnProgress

CHUNK = 256
"""Files decoded at a time."""


@dataclass(frozen=True)
class ImageFile:
    """A file and the class it was given."""

    path: Path
    name: str
    """Relative to the folder; bytes that are no UTF-8 appear as ``\\xNN``."""
    label: str


@dataclass(frozen=True)
class Skipped:
    """A file that cannot be learned from."""

    name: str
    why: str


@dataclass(frozen=True)
class Form:
    """What all images of a learner are brought to."""

    channels: int
    height: int
    width: int
    crop: bool
    depth: tuple[int, int] = FULL_DEPTH
    """What is black and what is white in files with 16 bits a pixel."""

    @classmethod
    def of(cls, settings: Settings) -> Form:
        """The form of a learner's images."""
        if settings.channels not in (1, 3):  # learned from arrays
            raise InputError(
                f"this learner knows images of {settings.channels} channels, and files are read as grey or in colour; "
                "give it arrays, in Python."
            )
        return cls(*settings.image_shape, settings.crop, settings.depth)

    def kept_in(self, settings: Settings) -> Settings:
        """A learner's settings, with this form for its images."""
        darkest, brightest = self.depth
        return replace(
            settings,
            channels=self.channels,
            height=self.height,
            width=self.width,
            darkest=darkest,
            brightest=brightest,
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self.channels, self.height, self.width

    def decoded(self, paths: Sequence[Path], several: set[Path] | None = None) -> Bytes:
        """Files as bytes, (n, channels, height, width); raises `InputError` for the first that is none.

        Files that hold more images than the first are added to `several`.
        """
        headers = survey(paths)
        if several is not None:
            several.update(path for path, header in zip(paths, headers, strict=True) if header.several)
        return decode(paths, (self.width, self.height), self.crop, self.channels == 3, self.depth)

    def decoded_if_possible(
        self, paths: Sequence[Path], several: set[Path], tell: Callable[[Path, InputError], None], first: int = 0
    ) -> list[tuple[int, Bytes]]:
        """Decode the files that are images, each with its position, counted from `first`; `tell` hears of the others.

        As many files as possible at a time, since they are decoded side by side.
        """
        try:
            return list(enumerate(self.decoded(paths, several), start=first))
        except InputError as error:
            if len(paths) == 1:
                tell(paths[0], error)
                return []
        middle = len(paths) // 2
        return [
            *self.decoded_if_possible(paths[:middle], several, tell, first),
            *self.decoded_if_possible(paths[middle:], several, tell, first + middle),
        ]


def image_files(folder: Path, label: str | None, apart_from: Path | None = None) -> list[ImageFile]:
    """All files under a folder, in natural order, apart from those of one folder: a learner may be kept in there.

    With a label, the folder holds that one class. Without, it holds one folder for each class.
    """
    if not folder.is_dir():
        raise no_folder(folder)
    if label is not None:
        name = given_name(label, "--label")
        return [ImageFile(path, shown(path.relative_to(folder)), name) for path in files_under(folder, apart_from)]
    classes = [entry for entry in visible(folder) if entry.is_dir() and not _same(entry, apart_from)]
    if not classes:
        raise InputError(f"{folder} holds no class folders; if all its images are of one class, add --label NAME.")
    return [
        ImageFile(path, shown(path.relative_to(folder)), class_name(entry.name))
        for entry in classes
        for path in files_under(entry, apart_from, above=(folder.resolve(),))
    ]


def shown(path: Path) -> str:
    """A path as text that any program can read.

    >>> shown(Path("caf\\udce9.png"))
    'caf\\\\xe9.png'
    """
    return readable(path.as_posix())


def readable(name: str) -> str:
    """A name from the operating system, whose bytes need not be UTF-8, as text that always is."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def in_folder_called(label: object, name: str) -> str:
    """What a file is called if its class folder was renamed with the class.

    >>> in_folder_called("vixen", "fox/monday/1.png")
    'vixen/monday/1.png'
    """
    return f"{label}/{name.partition('/')[2]}"


def given_name(name: str, what: str) -> str:
    """A class's name that a person gave."""
    if not name.strip():
        raise InputError(f"{what} is empty; give the name of the class.")
    return class_name(name)


def class_name(name: str) -> str:
    """A class's name from a folder's or a person's: the same letters are the same name, however they are written.

    >>> class_name("cafe\u0301 ") == class_name("caf\u00e9")
    True
    """
    return unicodedata.normalize("NFC", readable(name)).strip() or readable(name)


def form_of(files: Sequence[ImageFile], side: int | None, largest: int, crop: bool, on_progress: OnProgress) -> Form:
    """The form that suits images: the most common size, no side longer than `largest`; in colour if any is.

    Parameters
    ----------
    files
        The first images of a learner. Those that cannot be read are passed over; they are reported when decoded.
    side
        Height and width that were asked for.
    largest
        Longest side otherwise.
    crop
        Whether images are cut to their size; then it is the largest square that all of them have.
    """
    sizes: list[tuple[int, int]] = []
    colour, deep = False, []
    for number, file in enumerate(files, start=1):
        try:
            header = survey([file.path])[0]
        except InputError:
            continue
        finally:
            on_progress("looking at sizes", number, len(files))
        sizes.append((header.width, header.height))
        colour |= header.colour
        deep += [file.path] if header.deep else []
    if not sizes:
        raise nothing_readable(files)
    if side is not None:
        width = height = side
    elif crop:
        width = height = min(largest, *(min(size) for size in sizes))
    else:
        width, height = most_common_size(sizes, largest)
    return Form(3 if colour else 1, height, width, crop, depth_of(deep))


def no_folder(folder: Path) -> InputError:
    """The error for a folder that is none."""
    if folder.is_file():
        return InputError(f"{folder} is a file; give the folder that holds your images.")
    return InputError(f"there is no folder {folder}; give the folder that holds your images.")


def nothing_readable(files: Sequence[ImageFile]) -> InputError:
    """The error for a folder without a single image."""
    why = ""
    if files:
        try:
            survey([files[0].path])
        except InputError as error:
            why = f": {error}"
    return InputError(f"none of {len(files)} files is an image that can be read{why or '; give a folder of images.'}")


class DecodedFiles:
    """The images of a folder, decoded once into a file of limited size; what does not fit is decoded when needed.

    Use :meth:`decode_all` first; it finds out which files are images. Positions count good files only.
    """

    def __init__(self, files: Sequence[ImageFile], form: Form, cache: Path, limit: int) -> None:
        self._form = form
        self._files = list(files)
        size = int(np.prod(form.shape))
        rows = min(len(files), max(1, limit // size))
        with told_as_unwritable(cache.parent):
            cache.parent.mkdir(parents=True, exist_ok=True)
            with cache.open("wb") as file:
                _claim(file.fileno(), max(1, rows * size))
        self._cached = np.memmap(cache, np.uint8, "r+", shape=(rows, *form.shape))
        self._good = np.arange(0)
        self.several: set[Path] = set()
        """Files that hold more images than the first."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self._form.shape

    @property
    def good(self) -> list[ImageFile]:
        """The files that are images."""
        return [self._files[at] for at in self._good.tolist()]

    @property
    def decoded_each_time(self) -> int:
        """How many images did not fit the cache."""
        return max(0, len(self) - len(self._cached))

    def __len__(self) -> int:
        return len(self._good)

    def decode_all(self, on_progress: OnProgress) -> tuple[NDArray[np.uint8], list[bytes], list[Skipped]]:
        """Read every file once: digests and thumbnails of the good ones, and what is wrong with the others."""
        digests, thumbnails = [], []
        skipped: list[Skipped] = []
        good: list[int] = []
        names = {file.path: file.name for file in self._files}

        def skip(path: Path, error: InputError) -> None:
            skipped.append(Skipped(names[path], str(error).replace(str(path), names[path])))

        for start in range(0, len(self._files), CHUNK):
            part = [file.path for file in self._files[start : start + CHUNK]]
            for at, image in self._form.decoded_if_possible(part, self.several, skip, start):
                if len(good) < len(self._cached):
                    self._cached[len(good)] = image
                good.append(at)
                digests.append(digest_of(image))
                thumbnails.append(thumbnail_of(image))
            on_progress("reading images", start + len(part), len(self._files))
        if not good:
            raise nothing_readable(self._files)
        self._good = np.array(good)
        return np.stack(digests), thumbnails, skipped

    def take(self, positions: Tensor) -> Tensor:
        """Copies of some images."""
        wanted = positions.numpy()
        images = np.empty((len(wanted), *self.shape), np.uint8)
        cached = wanted < len(self._cached)
        images[cached] = self._cached[wanted[cached]]
        missing = np.flatnonzero(~cached)
        if len(missing):
            images[missing] = self._form.decoded([self._files[at].path for at in self._good[wanted[missing]]])
        return torch.from_numpy(images)


def _claim(handle: int, size: int) -> None:
    """Take room on the disk now: one that fills up later would end the process without a word."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.truncate(handle, size)


def files_under(folder: Path, apart_from: Path | None = None, above: tuple[Path, ...] = ()) -> list[Path]:
    """Files of a folder and the folders in it, apart from one, less what operating systems leave there.

    Links are followed, but not to where the way has led through already (`above`).
    """
    files = []
    above = (*above, folder.resolve())
    for entry in visible(folder):
        if not entry.is_dir():
            files.append(entry)
        elif entry.resolve() not in above and not _same(entry, apart_from):
            files += files_under(entry, apart_from, above)
    return files


def _same(folder: Path, other: Path | None) -> bool:
    return other is not None and folder.resolve() == other.resolve()
