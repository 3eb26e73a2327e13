"""Greedy facility location for more points than can be compared with one another: partition and merge."""

from __future__ import annotations

import torch
from torch import Tensor

from continual_crust.selection.distance_table import DistanceTable
from continual_crust.selection.greedy import greedy_medoids
from continual_crust.selection.points import Points, device_of

PART = 1 << 14
"""How many candidates, and how many clients, are compared at a time: a table of 2²⁸ distances, 1 GiB."""


def partitioned_medoids(
    points: Points, size: int, generator: torch.Generator, part: int = PART
) -> tuple[Tensor, Tensor]:
    """Greedy medoids of random parts, then of what the parts chose, until one part is left.

    A random partition loses little: with one merge, and every gain computed on all points, the expected objective is
    at least (1 - 1/e) / 2 of the best possible (Barbosa et al. 2015; Mirrokni and Zadimoghaddam 2015). Gains here are
    computed on a random sample of clients instead of on all n, as GreeDi does for sums over points (Mirzasoleiman et
    al. 2013); by Hoeffding's inequality the mean over m clients of numbers between 0 and d₀ is off by more than
    d₀ √(log(2/δ) / 2m) with probability at most δ.

    Parameters
    ----------
    points
        :func:`prepared` points.
    size
        How many to choose, at most as many as there are points.
    generator
        CPU generator for the partition and the samples.
    part
        How many points are compared with how many; at least 2 `size` are.

    Returns
    -------
    tuple[Tensor, Tensor]
        Indices of the chosen points and their estimated gains, float64, both in the order of the last merge.
    """
    part = max(part, 2 * size)
    device = device_of(points)
    candidates = torch.randperm(len(points), generator=generator, device="cpu").to(device)
    clients = None
    while True:
        groups = candidates.tensor_split(-(-len(candidates) // part))
        picks, gains = zip(*(_medoids(points, group, clients, size) for group in groups), strict=True)
        if len(groups) == 1:
            return picks[0], gains[0] * (len(points) / len(candidates if clients is None else clients))
        candidates = torch.cat(picks)[
            torch.randperm(sum(map(len, picks)), generator=generator, device="cpu").to(device)
        ]
        # The fewer candidates are left in a group, the more clients fit into the same memory.
        room = part**2 // min(part, len(candidates))
        clients = torch.randperm(len(points), generator=generator, device="cpu")[:room].to(device)


def _medoids(points: Points, group: Tensor, clients: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
    """Greedy picks among a group and their gains, judged by the clients, or by the group itself."""
    members = points[group]
    table = DistanceTable(members, keep=True) if clients is None else DistanceTable(points[clients], members, keep=True)
    picks, gains = greedy_medoids(table, min(size, len(group)))
    return group[picks], gains
