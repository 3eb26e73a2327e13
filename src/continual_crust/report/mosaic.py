"""Many small images as one picture, the wrong ones framed in red."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from continual_crust.report.styles import WRONG
from continual_crust.studies.memory import SIDE, shrunk

Picture = npt.NDArray[np.uint8]

FRAME = 6
"""Thickness of the red frame in pixels. It lies around the image and covers nothing of it."""
GAP = 3
"""White between neighbours."""
ROW_GAP = 14
"""White between rows, more than between neighbours so that rows read as rows."""
_RED = tuple(bytes.fromhex(WRONG.removeprefix("#")))


def mosaic(rows: Sequence[Tensor], is_clean: Sequence[Tensor]) -> Picture:
    """Compose rows of images, in their order, on white.

    Parameters
    ----------
    rows
        For each row its images as bytes, (n, channels, height, width); all of one height and width, any n.
    is_clean
        For each row a flag for each image; the others are framed.

    Returns
    -------
    Pixels of shape (height, width, 3). Rows lie at equal distances; short ones end in white.
    """
    scaled = [_as_pixels(images) for images in rows]
    height, width = next(images.shape[1:3] for images in scaled if len(images))
    cell_height, cell_width = height + 2 * FRAME, width + 2 * FRAME
    columns = max(map(len, scaled))
    picture = np.full(
        (len(rows) * (cell_height + ROW_GAP) - ROW_GAP, columns * (cell_width + GAP) - GAP, 3), 255, np.uint8
    )
    for row, (images, flags) in enumerate(zip(scaled, is_clean, strict=True)):
        top = row * (cell_height + ROW_GAP)
        for column, (image, clean) in enumerate(zip(images, flags.tolist(), strict=True)):
            left = column * (cell_width + GAP)
            cell = picture[top : top + cell_height, left : left + cell_width]
            if not clean:
                cell[:] = _RED
            cell[FRAME:-FRAME, FRAME:-FRAME] = image
    return picture


def _as_pixels(images: Tensor) -> Picture:
    """Images as (n, height, width, 3), about `SIDE` large. Grey ones become grey RGB."""
    images = images.cpu()
    if not len(images):
        return np.empty((0, 0, 0, 3), np.uint8)
    images = images[:, :3] if images.shape[1] >= 3 else images[:, :1].expand(-1, 3, -1, -1)
    images = shrunk(images, SIDE)
    # Whole factors keep square pixels square.
    factor = max(1, SIDE // max(images.shape[2:]))
    images = images.repeat_interleave(factor, dim=2).repeat_interleave(factor, dim=3)
    pixels: Picture = images.permute(0, 2, 3, 1).contiguous().numpy()
    return pixels
