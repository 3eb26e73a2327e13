"""Thumbnails by the hundred in one picture each: a page decodes a few large pictures faster than thousands of small."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from continual_crust.field.seen import THUMBNAIL_SIDE

COLUMNS = 16
PER_SHEET = COLUMNS * COLUMNS
GUTTER = 1
"""Around each thumbnail its edge goes on for so many pixels: a browser that enlarges it looks across the edge."""
BLOCK = 16
"""WebP compresses squares of this size; thumbnails that start on their border do not stain each other."""
QUALITY = 80


@dataclass(frozen=True)
class Sheets:
    """Thumbnails in rows of `COLUMNS`, `PER_SHEET` in a sheet."""

    width: int
    """Of a thumbnail."""
    height: int
    pitch_x: int
    """From one thumbnail's left edge to the next one's."""
    pitch_y: int
    files: list[bytes]
    """WebP files."""


def sheets_of(thumbnails: Sequence[bytes]) -> Sheets:
    """Pack JPEG files; one that cannot be read, or is too large, leaves its place grey.

    All images of a learner have one size. Should one differ after all, it is stretched.
    """
    width = height = 0
    for picture in map(_opened, thumbnails):
        if picture is not None:
            width, height = max(width, picture.width), max(height, picture.height)
    width, height = max(width, 1), max(height, 1)
    # So small that losing nothing costs little, and that a block would hold several.
    lossless = max(width, height) <= BLOCK
    wide, high = width + 2 * GUTTER, height + 2 * GUTTER
    pitch_x, pitch_y = (wide, high) if lossless else (-(-side // BLOCK) * BLOCK for side in (wide, high))
    files = []
    for start in range(0, len(thumbnails), PER_SHEET):
        part = thumbnails[start : start + PER_SHEET]
        sheet = np.full((-(-len(part) // COLUMNS) * pitch_y + GUTTER, COLUMNS * pitch_x + GUTTER, 3), 128, np.uint8)
        for at, pixels in enumerate(_pixels(part, width, height)):
            top, left = at // COLUMNS * pitch_y, at % COLUMNS * pitch_x
            more = (GUTTER, pitch_y - height - GUTTER), (GUTTER, pitch_x - width - GUTTER), (0, 0)
            sheet[top : top + pitch_y, left : left + pitch_x] = np.pad(pixels, more, mode="edge")
        file = io.BytesIO()
        # Without the first gutter, thumbnails start where blocks do; at the sheet's border none is needed.
        PIL.Image.fromarray(sheet[GUTTER:, GUTTER:]).save(file, "WEBP", lossless=lossless, quality=QUALITY, method=3)
        files.append(file.getvalue())
    return Sheets(width, height, pitch_x, pitch_y, files)


def _pixels(thumbnails: Sequence[bytes], width: int, height: int) -> Iterator[NDArray[np.uint8]]:
    for picture in map(_opened, thumbnails):
        pixels = np.full((height, width, 3), 128, np.uint8)
        if picture is not None:
            try:
                colour = picture.convert("RGB")
            except (OSError, ValueError):
                pass  # cut off behind its header
            else:
                pixels = np.asarray(colour if colour.size == (width, height) else colour.resize((width, height)))
        yield pixels


def _opened(thumbnail: bytes) -> PIL.Image.Image | None:
    """A picture of which only the header was read; None if there is none, or not of a thumbnail."""
    try:
        picture = PIL.Image.open(io.BytesIO(thumbnail), formats=("JPEG",))
    except (OSError, ValueError, SyntaxError):
        return None
    return picture if max(picture.size) <= THUMBNAIL_SIDE else None
