"""How the samples of a class lie among each other: the class itself is one large crowd, everything else many small."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from continual_crust.selection.products import full_precision


@full_precision()
def nearest(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` points nearest to each point, itself and its copies among them: distances, and positions."""
    parts = [torch.cdist(part, points).topk(min(count, len(points)), largest=False) for part in points.split(2048)]
    return torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts])


def votes(points: Tensor, labels: Tensor, voters: int) -> tuple[Tensor, Tensor]:
    """How many of each point's nearest neighbours are of its own class, and how many of the commonest other class.

    Examples
    --------
    >>> import torch
    >>> points, labels = torch.tensor([[0.0], [1.0], [2.0], [9.0]]), torch.tensor([0, 1, 1, 1])
    >>> [found.tolist() for found in votes(points, labels, voters=2)]
    [[0, 1, 1, 2], [2, 1, 1, 0]]
    """
    found = nearest(points, voters + 1)[1]
    # Copies of a point are as near as the point itself, and may take its place at the front or even crowd it out.
    left_out = found == torch.arange(len(points), device=points.device)[:, None]
    left_out[:, -1] |= ~left_out.any(dim=1)
    neighbours = labels[found[~left_out].view(len(points), found.shape[1] - 1)]
    counts = labels.new_zeros(len(points), int(labels.max()) + 1)
    counts.scatter_add_(1, neighbours, torch.ones_like(neighbours))
    own = labels[:, None]
    return counts.gather(1, own).squeeze(1), counts.scatter(1, own, 0).amax(dim=1)


def crowding(points: Tensor, share: float) -> Tensor:
    """How near its neighbours each point is: minus the log of the mean distance to the nearest `share` of all."""
    count = max(1, math.ceil(share * len(points)))
    return -(nearest(points, count + 1)[0].sum(dim=1) / count + 1e-4).log()
