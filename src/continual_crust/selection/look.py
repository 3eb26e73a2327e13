"""What images look like, in few numbers and without a network."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

COARSE = 8
"""Rows and columns of a coarse picture."""
PARTS = 4
"""Rows and columns of parts of an image whose detail is told apart."""
AT_A_TIME = 1 << 24
"""Values of images that are looked at together, for the sake of memory."""


def coarse_pixels(images: Tensor) -> Tensor:
    """Images of bytes, (n, channels, height, width), shrunk to 8 x 8 pixels; one row for each."""
    return functional.adaptive_avg_pool2d(images.float(), COARSE).flatten(1)


def detail(images: Tensor) -> Tensor:
    """A row for each image: how much detail its coarse picture leaves out, at each finer scale and in each part.

    From the coarse picture on, the side is doubled until it is that of the image itself. What each picture adds to the
    one before is the detail of its scale: the logarithm of its mean square is taken in each of 4 x 4 parts. Scales
    count alike. An image that is no larger than its coarse picture has no detail, so its row is empty.

    Examples
    --------
    >>> import torch
    >>> detail(torch.zeros(5, 3, 32, 32, dtype=torch.uint8)).shape  # 16 and 32 pixels, 3 channels, 16 parts
    torch.Size([5, 96])
    >>> detail(torch.zeros(5, 1, 8, 8, dtype=torch.uint8)).shape
    torch.Size([5, 0])
    """
    count = max(1, AT_A_TIME // max(1, images.shape[1:].numel()))
    parts = [_energies(part) for part in images.split(count)]
    if not parts or not parts[0]:
        return torch.zeros(len(images), 0, device=images.device)
    return side_by_side([torch.cat(scale) for scale in zip(*parts, strict=True)])


def side_by_side(views: Iterable[Tensor]) -> Tensor:
    """Several views of the same samples as one, in which each counts alike."""
    return torch.cat([of_spread_one(view) for view in views], dim=1)


def of_spread_one(points: Tensor) -> Tensor:
    """Points scaled so that their mean squared distance from their centre is one."""
    return points / (points - points.mean(dim=0)).square().sum(dim=1).mean().sqrt().clamp(min=1e-12)


def _energies(images: Tensor) -> list[Tensor]:
    """For each scale the logarithms of the mean squares, with a row for each image."""
    side, whole = COARSE, min(images.shape[2:])
    sides = [side]
    while side < whole:
        side = min(2 * side, whole)
        sides.append(side)
    pictures = (functional.adaptive_avg_pool2d(images.float(), side) for side in sides)
    return [_energy(coarser, finer) for coarser, finer in itertools.pairwise(pictures)]


def _energy(coarser: Tensor, finer: Tensor) -> Tensor:
    known = functional.interpolate(coarser, size=finer.shape[2:], mode="bilinear", align_corners=False)
    return functional.adaptive_avg_pool2d((finer - known).square(), PARTS).log1p().flatten(1)
