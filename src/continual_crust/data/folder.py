"""Images in folders named after their classes: your own, and MSTAR."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from continual_crust.data.images import Header, decode, depth_of, most_common_size, survey
from continual_crust.data.loading import Request, assemble, locate, told_as
from continual_crust.data.samples import Dataset
from continual_crust.errors import InputError

FOLDER_HOW_TO_GET = "expected your own images as train/CLASS/* and test/CLASS/*, any number of classes"
MSTAR_HOW_TO_GET = (
    "expected MSTAR's standard operating conditions as 8-bit images in train_17deg/CLASS/* and "
    "test_15deg/CLASS/*, made from the public release at https://www.sdms.afrl.af.mil"
)
LARGEST_SIDE = 224
"""Side that images are scaled down to when no size is asked for, and MSTAR's side in the paper."""
_LITTER = {
    *("thumbs.db", "desktop.ini", "$recycle.bin", "system volume information", "lost+found"),
    *("@eadir", "#recycle", "__macosx"),
}
"""What operating systems and network drives leave: lists, deleted files, and small copies of images, which are none."""


def find_folder(request: Request) -> list[Path]:
    """Where ``train/CLASS/*`` and ``test/CLASS/*`` are: in ``root``."""
    return locate([request.root], ("train", "test"), FOLDER_HOW_TO_GET)


def load_folder(request: Request) -> Dataset:
    """Read what :func:`find_folder` finds.

    All images get one size: the one asked for, or else the most common among the training images, scaled down
    to at most 224 pixels; with `crop`, the largest square that every image has. They are in colour if any is.
    """
    train, test = find_folder(request)
    return _load("folder", train, test, request, FOLDER_HOW_TO_GET)


def find_mstar(request: Request) -> list[Path]:
    """Where the chips of 17° and those of 15° elevation are."""
    root = request.root
    return locate([root / "mstar", root / "MSTAR", root], ("train_17deg", "test_15deg"), MSTAR_HOW_TO_GET)


def load_mstar(request: Request) -> Dataset:
    """Read MSTAR radar chips in grey: 17° elevation to train, 15° to test.

    The paper scales the chips to 224 pixels, which is the default. Their native size differs by class, so
    scaling gives the class away by the grain of the picture. A `crop` does not, as long as it is no larger
    than the smallest chip, which is its default; a larger one is padded with black and gives it away again.
    """
    train, test = find_mstar(request)
    if request.image_size is None and not request.crop:
        request = replace(request, image_size=LARGEST_SIDE)
    return _load("mstar", train, test, request, MSTAR_HOW_TO_GET, always_grey=True)


def _load(name: str, train: Path, test: Path, request: Request, remedy: str, always_grey: bool = False) -> Dataset:
    train_files, test_files = _files_by_class(train, remedy), _files_by_class(test, remedy)
    for these, others, folder in ((train_files, test_files, test), (test_files, train_files, train)):
        for class_name in these:
            if class_name not in others:
                raise InputError(f"there is no class folder '{class_name}' in {folder}; {remedy}.")
    train_paths, test_paths = _flat(train_files), _flat(test_files)
    headers = survey([*train_paths, *test_paths])
    size = _common_size(headers, len(train_paths), request)
    colour = not always_grey and any(header.colour for header in headers)
    depth = depth_of([path for path, header in zip(train_paths, headers, strict=False) if header.deep])

    def decoded(files: dict[str, list[Path]]) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.arange(len(files)), [len(paths) for paths in files.values()])
        return decode(_flat(files), size, request.crop, colour, depth), labels

    return assemble(name, decoded(train_files), decoded(test_files), list(train_files), remedy)


def _files_by_class(folder: Path, remedy: str) -> dict[str, list[Path]]:
    """Image files of each class folder, both in natural order."""
    files: dict[str, list[Path]] = {}
    for class_folder in filter(Path.is_dir, visible(folder, remedy)):
        files[class_folder.name] = visible(class_folder, remedy)
        if not files[class_folder.name]:
            raise InputError(f"the class folder {class_folder} is empty; put images in it or remove it.")
        for path in files[class_folder.name]:
            if not path.is_file():
                raise InputError(f"{path} is no file; put the images of a class directly in {class_folder}.")
    if not files:
        raise InputError(f"there is no class folder in {folder}; {remedy}.")
    return files


def visible(folder: Path, remedy: str = "check its permissions") -> list[Path]:
    """What is in a folder, less what operating systems and network drives leave there."""
    with told_as(f"{folder} cannot be read", remedy):
        entries = [path for path in folder.iterdir() if path.name[0] != "." and path.name.lower() not in _LITTER]
    return sorted(entries, key=lambda path: _natural(path.name))


def _natural(name: str) -> tuple[list[str | int], str]:
    """Sorting key by which 2 comes before 10. The name itself decides between 2 and 02."""
    parts = re.split(r"(\d+)", name.casefold())
    return [int(part) if position % 2 else part for position, part in enumerate(parts)], name


def _flat(files: dict[str, list[Path]]) -> list[Path]:
    return [path for paths in files.values() for path in paths]


def _common_size(headers: Sequence[Header], train_count: int, request: Request) -> tuple[int, int]:
    if request.image_size is not None:
        return request.image_size, request.image_size
    if request.crop:
        side = min(LARGEST_SIDE, *(min(header.width, header.height) for header in headers))
        return side, side
    return most_common_size(((header.width, header.height) for header in headers[:train_count]), LARGEST_SIDE)
