"""Where images come from: the data sets that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from continual_crust.data import cifar10, digits, folder, pathmnist
from continual_crust.data.idx import FASHION_MNIST, MNIST
from continual_crust.data.loading import MissingData, Request, told_as
from continual_crust.data.samples import Dataset
from continual_crust.errors import InputError, unknown_name

DEFAULT_ROOT = Path("data")
"""Where data is looked for, and downloaded to, unless another folder is given."""
LARGEST_IMAGE_SIZE = 1024


@dataclass(frozen=True)
class Source:
    """A data set that can be asked for by name."""

    name: str
    summary: str
    """One line about its images."""
    how_to_get: str
    """Where its files come from, as the end of a sentence."""
    load: Callable[[Request], Dataset]
    download: Callable[[Request], None] | None = None
    """Bring the files to the root, if there is a downloader."""
    find: Callable[[Request], object] | None = None
    """Look for its files without reading them, if it has any."""
    options: tuple[str, ...] = ()
    """Which of the options image_size and crop mean anything to it."""
    varies: bool = False
    """Whether its files may be others elsewhere, so that results of the same name need not be of the same images."""


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "digits",
            "1,797 handwritten digits of 8×8 grey pixels; 10 classes; no files needed",
            digits.HOW_TO_GET,
            digits.load,
        ),
        Source(
            "mnist",
            "70,000 handwritten digits of 28×28 grey pixels; 10 classes",
            MNIST.how_to_get,
            MNIST.load,
            MNIST.download,
            MNIST.find,
        ),
        Source(
            "fashionmnist",
            "70,000 pieces of clothing of 28×28 grey pixels; 10 classes",
            FASHION_MNIST.how_to_get,
            FASHION_MNIST.load,
            FASHION_MNIST.download,
            FASHION_MNIST.find,
        ),
        Source(
            "cifar10",
            "60,000 photographs of 32×32 pixels in colour; 10 classes",
            cifar10.HOW_TO_GET,
            cifar10.load,
            cifar10.download,
            cifar10.find,
        ),
        Source(
            "mstar",
            "about 5,170 radar images of vehicles, scaled to 224×224 grey pixels or cropped; 10 classes",
            folder.MSTAR_HOW_TO_GET,
            folder.load_mstar,
            find=folder.find_mstar,
            options=("image_size", "crop"),
            varies=True,
        ),
        Source(
            "pathmnist",
            "20,700 tissue images of 28 to 224 pixels in colour, in files of 0.2 to 13 GB; 9 classes",
            pathmnist.HOW_TO_GET,
            pathmnist.load,
            pathmnist.download,
            pathmnist.find,
            options=("image_size",),
            varies=True,
        ),
        Source(
            "folder",
            "your own images, in train/CLASS/ and test/CLASS/",
            folder.FOLDER_HOW_TO_GET,
            folder.load_folder,
            find=folder.find_folder,
            options=("image_size", "crop"),
            varies=True,
        ),
    )
}


def load_dataset(
    name: str,
    root: Path | str | None = None,
    *,
    download: bool = False,
    image_size: int | None = None,
    crop: bool = False,
) -> Dataset:
    """Load a data set into memory. The result depends on the files alone, never on a seed.

    Parameters
    ----------
    name
        One of :data:`SOURCES`.
    root
        Folder that holds the data set, or a folder of its name; ``data`` unless given.
    download
        Bring the files to the root if they are not there. Not every source can.
    image_size
        Side of the images in pixels, for sources that can choose.
    crop
        Cut images to that size around their centre instead of scaling them, for sources that can choose.

    Raises
    ------
    InputError
        If the name or an option is wrong, or files are missing, damaged or of another kind.

    Examples
    --------
    >>> load_dataset("digits").image_shape
    (1, 8, 8)
    """
    source, request = _asked(name, root, download, image_size, crop)
    try:
        return source.load(request)
    except MissingData:
        if not download or source.download is None:
            raise
    with told_as(f"data set '{name}' could not be downloaded", source.how_to_get):
        source.download(request)
    return source.load(request)


def check_dataset(
    name: str,
    root: Path | str | None = None,
    *,
    download: bool = False,
    image_size: int | None = None,
    crop: bool = False,
) -> None:
    """Refuse what :func:`load_dataset` would refuse before it reads anything: wrong options, and files not there.

    Files that are missing are no reason with `download`.
    """
    source, request = _asked(name, root, download, image_size, crop)
    if source.find is not None and not download:
        source.find(request)


def _asked(
    name: str, root: Path | str | None, download: bool, image_size: int | None, crop: bool
) -> tuple[Source, Request]:
    """A source and what to ask of it."""
    if name not in SOURCES:
        raise unknown_name("data set", name, SOURCES)
    source = SOURCES[name]
    for option, is_given in (("image_size", image_size is not None), ("crop", crop)):
        if is_given and option not in source.options:
            others = ", ".join(other.name for other in SOURCES.values() if option in other.options)
            raise InputError(f"data set '{name}' has no option {option}; leave it out (it is for {others}).")
    if image_size is not None and not 1 <= image_size <= LARGEST_IMAGE_SIZE:
        raise InputError(f"image_size {image_size} is out of range; give 1 to {LARGEST_IMAGE_SIZE} pixels.")
    if download and source.download is None:
        raise InputError(f"data set '{name}' cannot be downloaded; {source.how_to_get}.")
    if root is None and name == "folder":
        raise InputError(f"data set 'folder' needs to know which folder, --data-root; {source.how_to_get}.")
    return source, Request(Path(root or DEFAULT_ROOT).expanduser(), image_size, crop)
