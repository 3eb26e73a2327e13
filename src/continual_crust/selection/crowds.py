"""How the samples of a class lie among each other: the class itself is one large crowd, everything else many small."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags, identity
from torch import Tensor

NEIGHBOURS = 10
"""Of a walk's step."""
STEPS = 16
"""Of a walk out, and as many back."""
PROBES = 256
"""Random vectors that are walked with; the estimate's relative error is √(2 / PROBES)."""


def nearest(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Distances of each point to so many of the nearest, itself the first of them, and which these are."""
    parts = [torch.cdist(part, points).topk(min(count, len(points)), largest=False) for part in points.split(2048)]
    return torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts])


def crowding(points: Tensor, share: float) -> Tensor:
    """How near its neighbours each point is: minus the log of the mean distance to the nearest `share` of all."""
    count = max(1, math.ceil(share * len(points)))
    return -(nearest(points, count + 1)[0].sum(dim=1) / count + 1e-4).log()


def crowd_size(points: Tensor, generator: torch.Generator) -> Tensor:
    """The log of the share of all points that a short random walk from each point reaches.

    A walk steps to one of the nearest neighbours, or stays. In a small crowd it soon has been everywhere, and is back
    at its start more often than chance has it: by the factor of all there are over those in reach. Unlike a density,
    that does not depend on how far from each other the points of a crowd lie.

    Parameters
    ----------
    points
        (n, d), on any device.
    generator
        CPU generator. Return probabilities are estimated from random vectors, so that the cost is linear in the number
        of neighbours.

    Returns
    -------
    Tensor
        n numbers, 0 where the whole graph is in reach, on the CPU.

    Examples
    --------
    >>> import torch
    >>> random = torch.Generator().manual_seed(0)
    >>> large, small = torch.randn(400, 5, generator=random), torch.randn(40, 5, generator=random) / 100 + 20
    >>> size = crowd_size(torch.cat([large, small]), random).exp()
    >>> bool(size[:400].median() > 3 * size[400:].median())
    True
    """
    if len(points) < 2:
        return torch.zeros(len(points))
    graph, degrees = _neighbour_graph(points)
    walked = torch.randn(len(points), PROBES, generator=generator).numpy()
    for _ in range(STEPS):
        walked = graph @ walked
    # With S the symmetric form of a step, a walk out and back returns to i with probability (S^2t)ᵢᵢ = |(S^t)ᵢ|².
    returns = torch.from_numpy(walked).square().mean(dim=1)
    return (degrees / degrees.sum() / returns.clamp(min=1e-30)).log()


def _neighbour_graph(points: Tensor) -> tuple[Any, Tensor]:
    """Steps between points of which either is a near neighbour of the other, scaled by both degrees; and the degrees.

    A sparse matrix of SciPy's, on the CPU, where sums have an order: a GPU may add in another one every time.
    """
    ends = nearest(points, NEIGHBOURS + 1)[1].cpu().numpy()
    starts = np.broadcast_to(np.arange(len(ends))[:, None], ends.shape)
    one_way = csr_matrix((np.ones(ends.size, np.float32), (starts.ravel(), ends.ravel())), (len(ends), len(ends)))
    either_way = one_way.maximum(one_way.T).maximum(identity(len(ends), np.float32, "csr"))
    degrees = np.asarray(either_way.sum(axis=1)).ravel()
    scale = diags(degrees**-0.5)
    return (scale @ either_way @ scale).tocsr().astype(np.float32), torch.from_numpy(degrees)
