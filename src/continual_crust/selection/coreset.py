"""The result of every selection rule."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import Tensor

from continual_crust.errors import InputError
from continual_crust.selection.points import Points, blocks, device_of, distances


@dataclass(frozen=True)
class Coreset:
    """A weighted choice among n points, in the order in which the points were chosen."""

    indices: Tensor
    """Which points were chosen, int64."""
    weights: Tensor
    """How many points each chosen one stands for, being their nearest; float32. Sums to the number of points that were
    considered: all n, except for CosineCRUST, which drops some first."""
    gains: Tensor
    """What each choice added to the rule's own objective, float64."""

    def __len__(self) -> int:
        return len(self.indices)


def checked_size(size: int, points: Points) -> int:
    """The number of points a budget really buys: never more than there are."""
    try:
        size = operator.index(size)
    except TypeError:
        raise InputError(f"cannot choose {size!r} points; give a whole number.") from None
    if size < 0:
        raise InputError(f"cannot choose {size} points; give a size of 0 or more.")
    return min(size, len(points))


def coreset_of(points: Points, indices: Tensor, gains: Tensor) -> Coreset:
    """Complete a choice with its weights: every point counts for the chosen point nearest to it."""
    weights = torch.zeros(len(indices), device=device_of(points))
    if len(indices):
        chosen = points[indices]
        for rows in blocks(len(points), len(indices), device_of(points)):
            nearest = distances(points[rows], chosen).argmin(dim=1)
            weights += torch.bincount(nearest, minlength=len(indices))
    return Coreset(indices, weights, gains)
