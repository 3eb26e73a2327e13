"""Greedy facility location: the CRUST rule as the paper writes it."""

from __future__ import annotations

import torch

from continual_crust.selection.coreset import Coreset, checked_size, coreset_of, generator_or_fixed
from continual_crust.selection.distance_table import DistanceTable
from continual_crust.selection.greedy import greedy_medoids
from continual_crust.selection.partition import partitioned_medoids
from continual_crust.selection.points import Points, device_of, prepared

EXACT_POINTS = 1 << 16
"""Up to so many points are chosen from exactly, unless told otherwise."""


def facility_location(
    points: Points, size: int, *, exact: bool | None = None, generator: torch.Generator | None = None
) -> Coreset:
    """Choose medoids one by one, each the point that most reduces the total distance to the nearest medoid.

    Maximises F(S) = Σᵢ max over j in S of (d₀ - dᵢⱼ), where d₀ is the largest distance, by exact greedy steps. F is
    monotone and submodular, so gains never rise. Equal gains are common (two points that would cover just one
    another always tie); the more central of the two wins, then the lower index, so that the order of the points
    does not matter.

    Parameters
    ----------
    points
        An (n, d) tensor or :class:`FactoredPoints`, on any device.
    size
        How many to choose; all n if it is larger.
    exact
        True: the picks of plain greedy, at a cost of n² distances. False: partition and merge, in bounded memory and
        at a cost linear in n; see :func:`partitioned_medoids` for what it promises. None: exact up to
        ``EXACT_POINTS``.
    generator
        CPU generator for the partition; a fixed one if not given. The exact rule draws nothing.

    Notes
    -----
    The picks are those of plain greedy in float64 wherever the best gain leads by more than 1e-6 d₀, given the
    float32 distances rounded to 2⁻²⁴ of the largest (:class:`DistanceTable`); closer gains count as tied. Under label
    noise this rule buys mostly noise, because it seeks coverage and the clean gradients form one tight cluster: see
    :func:`centrality`.

    Examples
    --------
    >>> import torch
    >>> facility_location(torch.tensor([[0.0], [0.1], [0.2], [5.0]]), size=2).indices.tolist()
    [1, 3]
    """
    points = prepared(points)
    size = checked_size(size, points)
    if size == 0:
        nothing = torch.zeros(0, device=device_of(points))
        return Coreset(nothing.long(), nothing, nothing.double())
    if exact is None:
        exact = len(points) <= EXACT_POINTS
    if exact:
        table = DistanceTable(points)
        indices, gains = greedy_medoids(table, size)
        return Coreset(indices, torch.bincount(table.nearest(indices), minlength=size).float(), gains)
    indices, gains = partitioned_medoids(points, size, generator_or_fixed(generator))
    return coreset_of(points, indices, gains)
