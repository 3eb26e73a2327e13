"""Points to choose from: rows of a tensor, or outer products that are never multiplied out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from continual_crust.errors import InputError

BLOCK_ELEMENTS = 1 << 24
"""How many distances are held at a time where not all of them are needed at once (64 MiB of float32)."""


@dataclass(frozen=True)
class FactoredPoints:
    """The points left[i] ⊗ right[i], kept as their two factors.

    Inner products factor too, <a ⊗ h, b ⊗ g> = <a, b> <h, g>, so distances and cosines cost as much as those of
    the factors. The gradient of a linear layer's parameters has this form and is far too large to write out.
    """

    left: Tensor
    right: Tensor

    def __len__(self) -> int:
        return len(self.left)

    def __getitem__(self, index: Tensor | slice) -> FactoredPoints:
        return FactoredPoints(self.left[index], self.right[index])

    def multiplied_out(self) -> Tensor:
        """The points as rows. For a few at a time only."""
        return torch.einsum("na,nb->nab", self.left, self.right).flatten(1)


Points: TypeAlias = Tensor | FactoredPoints


def prepared(points: Points) -> Points:
    """Check points and bring them into the form in which distances are most exact.

    Distances do not change when all points move together, and are computed with far less rounding near the
    origin: a fitted network's gradients lie almost on top of one another.
    """
    parts = (points.left, points.right) if isinstance(points, FactoredPoints) else (points,)
    for part in parts:
        if part.ndim != 2:
            raise InputError(f"points must have shape (n, d), not {tuple(part.shape)}; flatten each sample to a row.")
        bad = ~torch.isfinite(part).all(dim=1)
        if bad.any():
            raise InputError(
                f"{int(bad.sum())} of {len(part)} points hold NaN or infinity (the first is row "
                f"{int(bad.nonzero()[0])}); a network with such gradients has diverged, so lower its learning rate."
            )
    if isinstance(points, FactoredPoints):
        return FactoredPoints(points.left.detach().float(), points.right.detach().float())
    points = points.detach().float()
    return points - points.mean(dim=0) if len(points) else points


def squared_norms(points: Points) -> Tensor:
    """Squared length of each point."""
    if isinstance(points, FactoredPoints):
        return points.left.square().sum(1) * points.right.square().sum(1)
    return points.square().sum(1)


def inner_products(a: Points, b: Points) -> Tensor:
    """Inner product of each point of `a` with each of `b`."""
    if isinstance(a, FactoredPoints):
        assert isinstance(b, FactoredPoints)
        return (a.left @ b.left.T).mul_(a.right @ b.right.T)
    assert isinstance(b, Tensor)
    return a @ b.T


def distances(a: Points, b: Points) -> Tensor:
    """Euclidean distance of each point of `a` to each of `b`, for :func:`prepared` points.

    Differences too small for float32 to tell from rounding count as zero, so that equal points are at distance
    zero and ties stay ties.
    """
    sums = squared_norms(a)[:, None] + squared_norms(b)[None, :]
    squares = torch.sub(sums, inner_products(a, b), alpha=2)
    noise = sums.mul_(4 * torch.finfo(squares.dtype).eps)
    return torch.where(squares > noise, squares, 0).sqrt_()


def blocks(count: int, width: int) -> Iterator[slice]:
    """Slices that cover `count` rows, such that one slice of `width` columns fits the block size."""
    rows = max(1, BLOCK_ELEMENTS // max(1, width))
    for start in range(0, count, rows):
        yield slice(start, min(start + rows, count))


def device_of(points: Points) -> torch.device:
    """Where the points live."""
    return points.left.device if isinstance(points, FactoredPoints) else points.device
