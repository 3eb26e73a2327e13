"""A few images of what a learner remembers, kept beside its result for whoever looks later."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from continual_crust.writing import write_atomically

if TYPE_CHECKING:
    from continual_crust.studies.run import FinishedRun

KEPT = 40
"""Images of a class that are kept for looking at."""
SIDE = 40
"""Side that they are brought to in a picture: smaller ones grow by the whole number that fits, larger ones shrink."""
LARGEST = 100_000_000
"""Bytes such images can have together, unpacked; a small file that claims more is not read."""


@dataclass(frozen=True)
class ClassMemory:
    """What is remembered of one class."""

    name: str
    images: Tensor
    """Bytes, (n, channels, height, width): all, or `KEPT` evenly chosen ones."""
    is_clean: Tensor
    """Whether each of these images is undamaged and rightly labelled."""
    total: int
    """How many images the memory has."""
    clean: int
    """How many of all are clean."""


def memory_by_class(finished: FinishedRun) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """By class name the images a learner remembers, and whether each is clean. Empty ones are left out."""
    names, truth = finished.stream.dataset.class_names, finished.stream.truth
    memory = {names[label]: samples for label, samples in finished.strategy.memory.items() if len(samples)}
    images = {name: samples.images.cpu() for name, samples in memory.items()}
    return images, {name: truth.is_clean(samples.ids) for name, samples in memory.items()}


def save_memory(finished: FinishedRun, path: Path) -> None:
    """Store some images of each class, small enough for a contact sheet; no file where nothing is remembered."""
    images, is_clean = memory_by_class(finished)
    if not images:
        # Of an earlier run in this folder, perhaps; it would pass for this one's.
        path.unlink(missing_ok=True)
        return
    chosen = {name: evenly(len(of_class), KEPT) for name, of_class in images.items()}
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        names=np.array(list(images), dtype=np.str_),
        totals=np.array([len(of_class) for of_class in images.values()], dtype=np.int64),
        clean=np.array([int(is_clean[name].sum()) for name in images], dtype=np.int64),
        rows=np.repeat(np.arange(len(images)), [len(at) for at in chosen.values()]),
        images=torch.cat([shrunk(images[name][at], SIDE) for name, at in chosen.items()]).numpy(),
        is_clean=torch.cat([is_clean[name][at] for name, at in chosen.items()]).cpu().numpy(),
    )
    write_atomically(path, buffer.getvalue())


def load_memory(path: Path) -> list[ClassMemory] | None:
    """What :func:`save_memory` stored, class by class; None where there is nothing that can be shown."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
                return None
        with np.load(path, allow_pickle=False) as file:
            names, totals, clean = file["names"], file["totals"], file["clean"]
            rows, images, is_clean = file["rows"], file["images"], file["is_clean"]
    except (OSError, ValueError, KeyError, EOFError, TypeError, MemoryError, zipfile.BadZipFile, zlib.error):
        return None
    consistent = (
        names.dtype.kind == "U"
        and totals.dtype.kind == clean.dtype.kind == rows.dtype.kind == "i"
        and images.dtype == np.uint8
        and is_clean.dtype == np.bool_
        and names.shape == totals.shape == clean.shape
        and names.ndim == rows.ndim == 1
        and images.ndim == 4
        and rows.shape == is_clean.shape == images.shape[:1]
        and all(images.shape)
    )
    if not consistent:
        return None
    return [
        ClassMemory(
            str(name),
            torch.from_numpy(images[rows == row]),
            torch.from_numpy(is_clean[rows == row]),
            int(totals[row]),
            int(clean[row]),
        )
        for row, name in enumerate(names)
    ]


def evenly(count: int, most: int) -> list[int]:
    """At most `most` of `count` positions, first and last among them, in order.

    >>> evenly(3, 5), evenly(100, 4)
    ([0, 1, 2], [0, 33, 66, 99])
    """
    return list(range(count)) if count <= most else [int(at) for at in np.linspace(0, count - 1, most).round()]


def shrunk(images: Tensor, side: int) -> Tensor:
    """Images as bytes, (n, channels, height, width), none longer than `side`; smaller ones stay as they are."""
    height, width = images.shape[2:]
    longest = max(height, width)
    if longest <= side or not len(images):
        return images
    size = (max(1, round(height * side / longest)), max(1, round(width * side / longest)))
    return functional.interpolate(images.float(), size, mode="area").round().to(torch.uint8)
