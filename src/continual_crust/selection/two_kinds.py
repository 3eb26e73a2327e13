"""Two kinds of samples told apart by one number each, without being told how many there are of either."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ITERATIONS = 200
LEAST_SPREAD = 1e-3
"""The least spread of a kind, as a share of the spread of all."""
APART = 2.4
"""How many spreads (root mean square of both) two means must lie apart to be those of two kinds. Ashman, Bird and Zepf
(1994) ask for 2; a single kind with a long tail, as clean samples are, comes up to that."""


def upper_kind(values: Tensor) -> Tensor:
    """The probability that each value is of the upper of two normally distributed kinds.

    Expectation maximisation, started from the two halves. Whoever is above the upper mean is of the upper kind for
    certain, and below the lower mean of the lower: the tails of a wide kind would otherwise claim both ends. Where two
    kinds cannot be told apart, all are of the upper one.

    Examples
    --------
    >>> import torch
    >>> upper_kind(torch.tensor([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])).round().tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    """
    numbers = values.double()
    spread = float(numbers.std(correction=0)) if len(numbers) > 1 else 0.0
    if len(numbers) < 4 or spread == 0:
        return torch.ones_like(numbers)
    numbers = (numbers - numbers.mean()) / spread
    upper = (numbers > numbers.median()).double()
    means = spreads = torch.zeros(2)
    for _ in range(ITERATIONS):
        memberships = torch.stack([1 - upper, upper])
        totals = memberships.sum(dim=1).clamp(min=1e-9)
        means = memberships @ numbers / totals
        squares = (memberships * (numbers - means[:, None]).square()).sum(dim=1) / totals
        spreads = squares.sqrt().clamp(min=LEAST_SPREAD)
        logs = (totals / len(numbers) / spreads).log()[:, None] - (
            (numbers - means[:, None]) / spreads[:, None]
        ) ** 2 / 2
        before, upper = upper, (logs[1] - logs[0]).sigmoid()
        if float((upper - before).abs().max()) < 1e-6:
            break
    if means[0] > means[1]:
        means, upper = means.flip(0), 1 - upper
    if float((means[1] - means[0]) / (spreads.square().mean().sqrt())) < APART:
        return torch.ones_like(numbers)
    return upper.masked_fill(numbers >= means[1], 1.0).masked_fill(numbers <= means[0], 0.0)


def crowding(points: Tensor, share: float) -> Tensor:
    """How near its neighbours each point is: minus the log of the mean distance to the nearest `share` of all."""
    count = max(1, math.ceil(share * len(points)))
    means = [
        torch.cdist(part, points).topk(min(count + 1, len(points)), largest=False).values.sum(dim=1) / count
        for part in points.split(2048)
    ]
    return -(torch.cat(means) + 1e-4).log() if means else points.new_zeros(0)
