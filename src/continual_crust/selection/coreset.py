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
    return min(checked_number(size, "choose {} points", 0), len(points))


def checked_number(number: int, purpose: str, least: int) -> int:
    """A whole number that is large enough for its purpose, which names it as ``{}``."""
    try:
        whole = operator.index(number)
    except TypeError:
        whole = least - 1
    if whole < least:
        raise InputError(f"cannot {purpose.format(repr(number))}; give a whole number of {least} or more.")
    return whole


def generator_or_fixed(generator: torch.Generator | None) -> torch.Generator:
    """What to draw from: the given generator, or one that always draws the same."""
    if generator is None:
        return torch.Generator().manual_seed(0)
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise InputError(
            f"generator is {generator!r}; give one of PyTorch's for the CPU: torch.Generator().manual_seed(0)."
        )
    return generator


def coreset_of(points: Points, indices: Tensor, gains: Tensor) -> Coreset:
    """Complete a choice with its weights: every point counts for the chosen point nearest to it."""
    weights = torch.zeros(len(indices), dtype=torch.float32, device=device_of(points))
    if len(indices):
        chosen = points[indices]
        for rows in blocks(len(points), len(indices), device_of(points)):
            nearest = distances(points[rows], chosen).argmin(dim=1)
            weights += torch.bincount(nearest, minlength=len(indices))
    return Coreset(indices, weights, gains)
