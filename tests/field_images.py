"""Folders of small images, and the command line in this process."""

from __future__ import annotations

import hashlib
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from continual_crust import cli
from continual_crust.data import Dataset

QUICK = ("-m", "2", "-n", "2", "-k", "6", "--device", "cpu")


def numbers_of(dataset: Dataset, digit: int) -> NDArray[np.uint8]:
    """All training images of a digit, (n, height, width)."""
    images: NDArray[np.uint8] = dataset.train_images[dataset.train_labels == digit][:, 0].numpy()
    return images


def write_images(folder: Path, images: NDArray[np.uint8], prefix: str = "") -> Path:
    """Images as PNG files 0.png, 1.png, …"""
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{prefix}{number}.png")
    return folder


def digit_folders(root: Path, dataset: Dataset, digits: tuple[int, ...] = (0, 1), count: int = 16) -> Path:
    """A folder with a class folder for each digit."""
    for digit in digits:
        write_images(root / str(digit), numbers_of(dataset, digit)[:count])
    return root


def command(*arguments: object) -> int:
    """Run the command line as a person would; returns its exit code."""
    with patch("sys.argv", ["continual-crust", *map(str, arguments)]):
        try:
            cli.main()
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def fingerprint(state: Path) -> dict[str, str]:
    """Every file of a state's generations by its content, whatever else is in the folder."""
    return {
        str(path.relative_to(state)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((state / "generations").rglob("*"))
        if path.is_file()
    }
