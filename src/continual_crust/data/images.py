"""Image files of any format, size and depth, as one array of bytes."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from continual_crust.data.loading import Bytes, told_as
from continual_crust.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

REMEDY = "replace it by a whole image in a common format such as PNG or JPEG, or remove it"
MOST_PIXELS = 64_000_000
"""Larger images are refused: a file of a few kilobytes can claim enough pixels to fill the memory."""
FULL_DEPTH = (0, 0xFFFF)
"""What pixels of 16 bits can be."""
LEAST_CONTRAST = 16
"""What the brightest and the darkest pixel of a drawing differ by at least."""
MEASURED = 200
"""Files of which the depth is measured, at most."""
_GREY_MODES = {"1", "L", "LA", "La", "I", "F"}
_ORIENTATION = 0x0112
_SIDEWAYS = range(5, 9)


@dataclass(frozen=True)
class Header:
    """What an image file says about itself before it is decoded."""

    width: int
    height: int
    colour: bool
    deep: bool = False
    """Whether pixels may have more than eight bits."""
    several: bool = False
    """Whether there are more images in it, of which only the first is read."""


def survey(paths: Sequence[Path]) -> list[Header]:
    """Read the headers of image files, refusing files that are not images and images that are too large."""
    import PIL.Image

    headers = []
    with _quiet():
        warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
        for path in paths:
            if path.is_fifo() or path.is_socket() or path.is_char_device():
                raise InputError(f"{path} is no file but a pipe, a socket or a device; {REMEDY}.")  # may never end
            with told_as(f"{path} cannot be read", REMEDY):
                try:
                    with PIL.Image.open(path) as image:
                        headers.append(_header(image, path))
                except (PIL.Image.DecompressionBombWarning, PIL.Image.DecompressionBombError):
                    # Pillow's words are of an attack; most such files are maps or scans.
                    raise _too_large(path) from None
    return headers


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Pillow's warnings, of broken EXIF for instance: they do not say which file they mean."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _too_large(path: Path) -> InputError:
    return InputError(f"{path} has more than {MOST_PIXELS:,} pixels; make it smaller, cut it up or remove it.")


def _header(image: Image, path: Path) -> Header:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise _too_large(path)
    if "exif" in image.info and image.getexif().get(_ORIENTATION) in _SIDEWAYS:
        width, height = height, width
    return Header(width, height, colour=not is_grey(image), deep=is_deep(image), several=_has_several(image))


def _has_several(image: Image) -> bool:
    """Whether an image is a page of many or the beginning of a film; what a camera adds to its pictures is neither."""
    with contextlib.suppress(Exception):  # some formats have to look for the next one, and may find anything
        return image.format != "MPO" and bool(getattr(image, "is_animated", False))
    return False


def is_grey(image: Image) -> bool:
    """Whether an image has no colour, by what it says of itself."""
    # The part after a semicolon, as in I;16, only says how values are stored.
    return image.mode.partition(";")[0] in _GREY_MODES


def is_deep(image: Image) -> bool:
    """Whether an image's pixels may have more than eight bits."""
    return image.mode.startswith("I")


def most_common_size(sizes: Iterable[tuple[int, int]], largest: int) -> tuple[int, int]:
    """The width and height that most images have, scaled down until no side is longer than `largest`.

    >>> most_common_size([(40, 30), (400, 300), (400, 300)], largest=100)
    (100, 75)
    """
    width, height = Counter(sizes).most_common(1)[0][0]
    scale = min(1.0, largest / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def depth_of(images: Sequence[Path | Image]) -> tuple[int, int]:
    """What to take for black and for white in images, in files or open, with pixels of 16 bits.

    Cameras that measure 12 or 14 bits use a small part of 16, and a thermal one a small part of that: of a scene
    between 7,600 and 7,800 hardly one grey would be left. As much as is in use is added on either side, for images to
    come. Images that use more than half of what there is are left alone.
    """
    lowest, highest = used_depth(images)
    used = highest - lowest
    if used <= 0 or used > (FULL_DEPTH[1] - FULL_DEPTH[0]) // 2:
        return FULL_DEPTH
    return max(FULL_DEPTH[0], lowest - used), min(FULL_DEPTH[1], highest + used)


def used_depth(images: Sequence[Path | Image]) -> tuple[int, int]:
    """The darkest and the brightest pixel of images with 16 bits, of some if there are many; unreadable ones have none.

    One pixel in a hundred of each may be darker or brighter: cameras have dead and hot ones.
    """
    lowest, highest = FULL_DEPTH[1], FULL_DEPTH[0]
    for some in images[:: -(-len(images) // MEASURED) or 1]:
        with contextlib.suppress(Exception):
            values = _values(some)
            low, high = np.quantile(values, 0.01, method="higher"), np.quantile(values, 0.99, method="lower")
            if low >= FULL_DEPTH[0] and high <= FULL_DEPTH[1]:
                lowest, highest = min(lowest, int(low)), max(highest, int(high))
    return lowest, highest


def _values(image: Path | Image) -> NDArray[Any]:
    import PIL.Image

    if not isinstance(image, Path):
        return np.asarray(image)
    with PIL.Image.open(image) as opened:
        return np.asarray(opened)


def decode(
    paths: Sequence[Path], size: tuple[int, int], crop: bool, colour: bool, depth: tuple[int, int] = FULL_DEPTH
) -> Bytes:
    """Decode image files that :func:`survey` accepted.

    Parameters
    ----------
    paths
        The files.
    size
        Width and height of the result.
    crop
        Cut to the size around the centre, with black where an image is smaller. Otherwise scale to it.
    colour
        Three channels rather than one.
    depth
        What becomes black and white of pixels with 16 bits, from :func:`depth_of`.

    Returns
    -------
    ndarray
        Bytes, shape (files, channels, height, width).
    """
    import PIL.Image

    width, height = size
    channels = 3 if colour else 1
    decoded = np.empty((len(paths), channels, height, width), np.uint8)

    def decode_one(position: int) -> None:
        path = paths[position]
        with told_as(f"{path} cannot be read", REMEDY), PIL.Image.open(path) as image:
            fitted = _fit(in_bytes(image, str(path), depth).convert("RGB" if colour else "L"), size, crop)
            decoded[position] = np.asarray(fitted).reshape(height, width, channels).transpose(2, 0, 1)

    with _quiet(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for _ in pool.map(decode_one, range(len(paths))):
            pass
    return decoded


def in_bytes(image: Image, name: str, depth: tuple[int, int] = FULL_DEPTH) -> Image:
    """The image the right way up, eight bits deep, on white where it is transparent, or black if it is white itself."""
    import PIL.Image
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
            raise InputError(f"{name} has pixels of more than 16 bits; save it with 8 or 16 bits a channel.")
        # Pillow's own conversion would cut off at 255 instead of scaling.
        scaled = (np.clip(values, *depth).astype(np.float64) - depth[0]) * (255 / (depth[1] - depth[0]))
        return PIL.Image.fromarray(np.round(scaled).astype(np.uint8))
    if image.mode in {"LA", "La", "PA", "RGBA", "RGBa"} or "transparency" in image.info:
        on_white, on_black = (
            PIL.Image.alpha_composite(PIL.Image.new("RGBA", image.size, ground), image.convert("RGBA"))
            for ground in ("white", "black")
        )
        return on_black if _contrast(on_white) < LEAST_CONTRAST <= _contrast(on_black) else on_white
    return image


def _contrast(image: Image) -> int:
    return int(np.ptp(np.asarray(image.convert("L"))))


def _fit(image: Image, size: tuple[int, int], crop: bool) -> Image:
    import PIL.Image

    if image.size == size:
        return image
    if not crop:
        return image.resize(size, PIL.Image.Resampling.BILINEAR)
    left, top = (image.width - size[0]) // 2, (image.height - size[1]) // 2
    return image.crop((left, top, left + size[0], top + size[1]))
