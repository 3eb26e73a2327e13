"""Two kinds of samples told apart by one number each, without being told how many there are of either."""

from __future__ import annotations

import torch
from torch import Tensor

ITERATIONS = 200
LEAST_SPREAD = 1e-3
"""The least spread of a kind, as a share of the spread of all."""


def upper_kind(numbers: Tensor) -> Tensor:
    """The probability that each number is of the upper kind, float64, on the CPU.

    Two normal distributions are fitted by expectation maximisation, started from the two halves.

    A number above the upper mean is of the upper kind for certain, and one below the lower mean of the lower kind: the
    tails of a wide kind would otherwise claim both ends.

    Examples
    --------
    >>> import torch
    >>> upper_kind(torch.tensor([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])).tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    """
    values = numbers.cpu().double()  # many small steps: a busy GPU would let each of them wait
    spread = float(values.std(correction=0)) if len(values) else 0.0
    # Of equal numbers the mean may be off in its last digit, so that they seem to spread.
    if len(values) < 4 or spread == 0 or bool((values == values[0]).all()):
        return torch.ones_like(values)
    values = (values - values.mean()) / spread
    upper = (values > values.median()).double()
    means = values.new_zeros(2)
    for _ in range(ITERATIONS):
        memberships = torch.stack([1 - upper, upper])
        totals = memberships.sum(dim=1).clamp(min=1e-9)
        means = memberships @ values / totals
        squares = (memberships * (values - means[:, None]).square()).sum(dim=1) / totals
        spreads = squares.sqrt().clamp(min=LEAST_SPREAD)
        distances = (values - means[:, None]) / spreads[:, None]
        logs = (totals / spreads).log()[:, None] - distances.square() / 2
        before, upper = upper, (logs[1] - logs[0]).sigmoid()
        if float((upper - before).abs().max()) < 1e-6:
            break
    if means[0] > means[1]:
        means, upper = means.flip(0), 1 - upper
    return upper.masked_fill(values >= means[1], 1.0).masked_fill(values <= means[0], 0.0)
