"""How the samples of a class lie among each other: the class itself is one large crowd, everything else many small."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def nearest(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Distances of each point to so many of the nearest, itself the first of them, and which these are."""
    parts = [torch.cdist(part, points).topk(min(count, len(points)), largest=False) for part in points.split(2048)]
    return torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts])


def crowding(points: Tensor, share: float) -> Tensor:
    """How near its neighbours each point is: minus the log of the mean distance to the nearest `share` of all."""
    count = max(1, math.ceil(share * len(points)))
    return -(nearest(points, count + 1)[0].sum(dim=1) / count + 1e-4).log()
