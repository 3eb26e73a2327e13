"""Sums of each point's distances to many others, in floating-point numbers and bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor

from continual_crust.selection.points import (
    LEAST_DISTANCE,
    Points,
    device_of,
    rounding_noise,
    squared_distances,
    squared_norms,
)
from continual_crust.selection.tiles import Scratch, tiles


def total_distances(points: Points, others: Points | None = None) -> tuple[Tensor, float]:
    """Sum of the distances from each point to all others, float64, and the largest distance of all.

    Parameters
    ----------
    points
        :func:`prepared` points.
    others
        To which distances are summed; to the points themselves if not given, and then each pair is measured once.

    Notes
    -----
    The distances are those of :func:`distances`, but a zero counts as 1e-19: its root would take ten times as long.
    Sums are rounded to 1e-14 of the largest, so that equal points have equal sums whichever tiles they fell into.
    """
    symmetric = others is None
    columns_of = points if others is None else others
    device = device_of(points)
    row_norms, column_norms = squared_norms(points), squared_norms(columns_of)
    totals = torch.zeros(len(points), dtype=torch.float64, device=device)
    farthest = [torch.zeros((), device=device)]
    scratch, spare = Scratch(device), Scratch(device)
    for rows, columns in tiles((len(points), len(columns_of)), symmetric, device):
        a, b = points[rows], columns_of[columns]
        shape = (len(a), len(b))
        sums = torch.add(row_norms[rows, None], column_norms[columns], out=spare.tensor(torch.float32, shape))
        tile = squared_distances(sums, a, b, out=scratch.tensor(torch.float32, shape))
        noise = torch.le(tile, rounding_noise(sums), out=scratch.tensor(torch.bool, shape))
        tile.masked_fill_(noise, LEAST_DISTANCE**2).sqrt_()
        totals[rows] += tile.sum(dim=1, dtype=torch.float64)
        if symmetric and rows != columns:
            totals[columns] += tile.sum(dim=0, dtype=torch.float64)
        farthest.append(tile.amax())
    if len(totals):
        step = 2.0**-46 * totals.amax()
        totals = totals.div_(step).round_().mul_(step)
    return totals, float(torch.stack(farthest).amax())
