"""The most central points: the CRUST rule as its authors released it."""

from __future__ import annotations

import torch

from continual_crust.selection.coreset import Coreset, checked_size, coreset_of
from continual_crust.selection.points import Points, blocks, device_of, distances, prepared


def centrality(points: Points, size: int) -> Coreset:
    """Choose the points with the smallest total distance to all others.

    The released CRUST code compares the totals Σᵢ (d₀ - dᵢⱼ) where greedy facility location compares marginal
    gains, so it returns exactly these points: the dense middle of the class, with no regard for coverage. That is
    what makes it robust. Clean gradients form a tight cluster and this rule stays inside it.

    Parameters
    ----------
    points
        An (n, d) tensor or :class:`FactoredPoints`, on any device.
    size
        How many to choose; all n if it is larger.

    Notes
    -----
    Distances are computed block by block, so memory grows with n and not with n². `gains` holds the totals.

    Examples
    --------
    >>> import torch
    >>> centrality(torch.tensor([[0.0], [0.1], [0.2], [5.0]]), size=2).indices.tolist()
    [1, 2]
    """
    points = prepared(points)
    size = checked_size(size, points)
    totals = torch.zeros(len(points), dtype=torch.float64, device=device_of(points))
    farthest = 0.0
    for rows in blocks(len(points), len(points)):
        block = distances(points[rows], points)
        totals[rows] = block.sum(dim=1, dtype=torch.float64)
        farthest = max(farthest, float(block.max()))
    indices = torch.argsort(totals, stable=True)[:size]
    return coreset_of(points, indices, len(points) * farthest - totals[indices])
