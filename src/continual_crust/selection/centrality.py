"""The most central points: the CRUST rule as its authors released it."""

from __future__ import annotations

import torch
from torch import Tensor

from continual_crust.errors import InputError, is_number
from continual_crust.selection.coreset import Coreset, checked_number, checked_size, coreset_of, generator_or_fixed
from continual_crust.selection.points import Points, device_of, prepared
from continual_crust.selection.total_distances import total_distances

SINGLE = 2.0**-23
"""What float32 can tell apart, as a share of a number."""


def centrality(
    points: Points,
    size: int,
    *,
    references: int | None = None,
    generator: torch.Generator | None = None,
    resolution: float = SINGLE,
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
    resolution
        Totals Σᵢ (d₀ - dᵢⱼ) that differ by less than this share of n d₀ are equal, and equal ones are taken in their
        order. By default as much as the released code, which adds in single precision, can tell; 0 tells them all.

    Notes
    -----
    Distances are computed tile by tile, so memory grows with n and not with n², and each pair but once. `gains` holds
    the totals.

    The resolution is no detail. Once a network has fitted its data, the gradients of most samples are a million times
    smaller than those of the rest, and in single precision most totals are equal: what is chosen is then the first
    `size` of all samples that are fitted well, in the order of the data, which is as good as at random. Told apart
    exactly, they are the most typical few of these, which are purer under noise and less varied, and a network that
    learns from them alone is worse, most of all where there is no noise to avoid. docs/compared-methods.md has both.

    Examples
    --------
    >>> import torch
    >>> centrality(torch.tensor([[0.0], [0.1], [0.2], [5.0]]), size=2).indices.tolist()
    [1, 2]
    """
    points = prepared(points)
    size = checked_size(size, points)
    if not is_number(resolution) or not 0 <= resolution < 1:
        raise InputError(f"resolution is {resolution!r}; give a share of at least 0 and below 1.")
    count, device = len(points), device_of(points)
    if references is not None:
        references = checked_number(references, "compare points with {} references", 1)
    if references is None or references >= count:
        totals, farthest = total_distances(points)
        compared = count
    else:
        drawn = torch.randint(count, (references,), generator=generator_or_fixed(generator), device="cpu")
        totals, farthest = total_distances(points, points[drawn.to(device)])
        compared = references
    indices = torch.argsort(_rounded(totals, resolution * compared * farthest), stable=True)[:size]
    gains = (compared * farthest - totals[indices]) * (count / max(1, compared))
    return coreset_of(points, indices, gains)


def _rounded(totals: Tensor, unit: float) -> Tensor:
    return totals.div(unit).round_() if unit > 0 else totals
