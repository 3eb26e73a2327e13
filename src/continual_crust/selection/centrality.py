"""The most central points: the CRUST rule as its authors released it."""

from __future__ import annotations

import torch

from continual_crust.selection.coreset import Coreset, checked_size, coreset_of
from continual_crust.selection.points import Points, blocks, device_of, distances, prepared


def centrality(
    points: Points, size: int, *, references: int | None = None, generator: torch.Generator | None = None
) -> Coreset:
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
    references
        Estimate the totals from the distances to so many points drawn at random, at a cost linear in n; from those to
        all points if None. By Hoeffding's inequality, log(2n/δ) / 2ε² references estimate every mean distance to within
        ε times the largest distance, all of them with probability 1 - δ (Eppstein and Wang 2004).
    generator
        CPU generator for the references; a fixed one if not given.

    Notes
    -----
    Distances are computed block by block, so memory grows with n and not with n². `gains` holds the totals.

    Distances are floating-point numbers, and have to be. Once a network has fitted its data, the gradients of most
    samples are a million times smaller than those of the rest; which of them is central is told by the distances among
    themselves, as the distances to the rest no longer differ. Whole numbers of a common unit, which serve facility
    location well, would round the former to nothing.

    Examples
    --------
    >>> import torch
    >>> centrality(torch.tensor([[0.0], [0.1], [0.2], [5.0]]), size=2).indices.tolist()
    [1, 2]
    """
    points = prepared(points)
    size = checked_size(size, points)
    count, device = len(points), device_of(points)
    compared = points
    if references is not None and references < count:
        drawn = torch.randint(count, (references,), generator=generator or torch.Generator().manual_seed(0))
        compared = points[drawn.to(device)]
    totals = torch.zeros(count, dtype=torch.float64, device=device)
    farthest = 0.0
    for rows in blocks(count, len(compared), device):
        block = distances(points[rows], compared)
        totals[rows] = block.sum(dim=1, dtype=torch.float64)
        farthest = max(farthest, float(block.max()))
    indices = torch.argsort(totals, stable=True)[:size]
    gains = (len(compared) * farthest - totals[indices]) * (count / max(1, len(compared)))
    return coreset_of(points, indices, gains)
