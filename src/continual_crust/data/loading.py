"""What the sources share: the request they answer, finding files, and one sentence about a bad one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from continual_crust.data.samples import Dataset
from continual_crust.errors import InputError

Bytes = NDArray[np.uint8]
Labels = NDArray[Any]


class MissingData(InputError):
    """Files are not there, so a download may bring them. Damaged files are not this: they are left alone."""


@dataclass(frozen=True)
class Request:
    """What a source is asked for."""

    root: Path
    """Folder to look in."""
    image_size: int | None = None
    """Side of the images in pixels, for sources that can choose."""
    crop: bool = False
    """Whether images are cut to their size around the centre rather than scaled to it."""


def locate(folders: Sequence[Path], names: Sequence[str], remedy: str, endings: Sequence[str] = ("",)) -> list[Path]:
    """Find all of the names, each with any of the endings, in the first folder that has them all.

    Raises
    ------
    MissingData
        Naming a file that is absent from the folder that comes nearest.
    """
    nearest = 0
    absent, where = names[0], ", ".join(map(str, folders))
    for folder in folders:
        found = {
            name: folder / (name + ending)
            for name in names
            for ending in endings
            if os.path.exists(folder / (name + ending))
        }
        if len(found) == len(names):
            return [found[name] for name in names]
        if len(found) > nearest:
            nearest = len(found)
            absent, where = next(name for name in names if name not in found), str(folder)
    raise MissingData(f"there is no '{absent}' in {where}; {remedy}.")


@contextmanager
def told_as(what: str, remedy: str) -> Iterator[None]:
    """Turn anything that other people's code raises inside the block into one sentence: what, why, remedy.

    Decoders and downloaders fail with errors of every type, so this catches them all.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # Of what the system refused, the sentence names the file already.
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        why = " ".join(said.split()).rstrip(".") or type(error).__name__
        raise InputError(f"{what} ({why}); {remedy}.") from error


def assemble(
    name: str,
    train: tuple[Bytes, Labels],
    test: tuple[Bytes, Labels],
    class_names: Sequence[str],
    remedy: str,
) -> Dataset:
    """Make a data set of two pairs of images (n, channels, height, width) and labels, every class in both."""
    for part, (images, labels) in (("training", train), ("test", test)):
        if len(images) != len(labels):
            raise InputError(f"'{name}' has {len(images)} {part} images but {len(labels)} labels; {remedy}.")
        empty = np.flatnonzero(np.bincount(labels, minlength=len(class_names)) == 0)
        if len(empty):
            raise InputError(f"'{name}' has no {part} image of class '{class_names[empty[0]]}'; {remedy}.")
    return Dataset(
        name=name,
        train_images=torch.from_numpy(train[0]),
        train_labels=torch.from_numpy(train[1].astype(np.int64)),
        test_images=torch.from_numpy(test[0]),
        test_labels=torch.from_numpy(test[1].astype(np.int64)),
        class_names=tuple(class_names),
    )
