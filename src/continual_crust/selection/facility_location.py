"""Exact greedy facility location: the CRUST rule as the paper writes it."""

from __future__ import annotations

import torch
from torch import Tensor

from continual_crust.selection.coreset import Coreset, checked_size, coreset_of
from continual_crust.selection.points import Points, blocks, device_of, distances, prepared

CACHED_DISTANCES = 1 << 28
"""Up to this many distances (1 GiB) are computed once and kept; beyond, rows are computed when needed."""

TIE = 1e-6
"""Gains closer than this share of the largest distance differ by rounding only: distances are float32."""


def facility_location(points: Points, size: int) -> Coreset:
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

    Notes
    -----
    The gains of *all* candidates are kept exact, and after a pick only the points that came closer to a medoid
    change them: about n/t points at the t-th pick, so n² log k distances are looked at rather than n² k. Nothing
    here gets slower when points coincide, as lazy evaluation does. Under label noise this rule buys mostly noise,
    because it seeks coverage and the clean gradients form one tight cluster: see :func:`centrality`.

    Examples
    --------
    >>> import torch
    >>> facility_location(torch.tensor([[0.0], [0.1], [0.2], [5.0]]), size=2).indices.tolist()
    [1, 3]
    """
    points = prepared(points)
    size = checked_size(size, points)
    rows = _Rows(points)
    indices = torch.zeros(size, dtype=torch.int64, device=device_of(points))
    gains = torch.zeros(size, dtype=torch.float64, device=device_of(points))
    if size == 0:
        return Coreset(indices, gains.float(), gains)

    totals, farthest = rows.totals_and_farthest()
    nearest = torch.full_like(totals, farthest, dtype=torch.float32)
    candidate_gains = len(points) * farthest - totals
    tie = TIE * farthest
    for step in range(size):
        best = candidate_gains.max()
        pick = torch.where(candidate_gains >= best - tie, totals, torch.inf).argmin()
        indices[step], gains[step] = pick, candidate_gains[pick]
        to_pick = rows.of(pick[None])[0]
        closer = (to_pick < nearest).nonzero().flatten()
        before, after = nearest[closer], to_pick[closer]
        for part in blocks(len(closer), len(points)):
            # A candidate loses what the pick has already won of the way from `before` down to its own distance.
            lost = torch.clamp(rows.of(closer[part]), after[part, None], before[part, None])
            candidate_gains -= (before[part].double().sum() - lost.sum(dim=0, dtype=torch.float64)).clamp_(min=0)
        nearest[closer] = after
        candidate_gains[pick] = -torch.inf
    return coreset_of(points, indices, gains.clamp_(min=0))


class _Rows:
    """Rows of the distance matrix: remembered while they fit, computed again where they do not."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._all = distances(points, points) if len(points) ** 2 <= CACHED_DISTANCES else None

    def of(self, index: Tensor) -> Tensor:
        """Distances from the indexed points to all points."""
        return self._all[index] if self._all is not None else distances(self._points[index], self._points)

    def totals_and_farthest(self) -> tuple[Tensor, float]:
        """Sum of each point's distances to all others, and the largest distance of all."""
        count = len(self._points)
        totals = torch.zeros(count, dtype=torch.float64, device=device_of(self._points))
        farthest = 0.0
        for part in blocks(count, count):
            block = self._all[part] if self._all is not None else distances(self._points[part], self._points)
            totals[part] = block.sum(dim=1, dtype=torch.float64)
            farthest = max(farthest, float(block.max()))
        return totals, farthest
