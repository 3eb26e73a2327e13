"""Distances as whole numbers, so that sums of them do not depend on the order of summation."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from continual_crust.selection.points import (
    FactoredPoints,
    Points,
    blocks,
    device_of,
    distances_by_norms,
    shrunk_norms,
    squared_norms,
)
from continual_crust.selection.tiles import Scratch, tiles

LEVELS = 1 << 26
"""No distance exceeds so many units. Finer than float32, which tells 2²⁴ of them apart."""
ROWS_PER_SUM = 16
"""How many distances may be added up in 32 bits: 16 · 2²⁶ = 2³⁰."""
CACHED_DISTANCES = 1 << 28
"""Up to this many distances (1 GiB) are computed once and kept in main memory; beyond, rows when they are needed."""
GPU_SHARE = 0.5
"""Which part of a GPU's free memory distances may fill."""


class DistanceTable:
    """Distances from clients (rows) to candidates (columns), in whole numbers of a small unit.

    Greedy selection adds up thousands of distances for each candidate and compares the sums. Floating-point sums depend
    on their order; sums of whole numbers do not, so from the same distances come the same picks, whatever the blocks,
    the threads and the device.

    Parameters
    ----------
    clients, candidates
        :func:`prepared` points; the clients themselves are the candidates if none are given, and then only half of the
        distances are computed.
    keep
        Whether to keep the whole table; as memory allows if None. What is not kept is computed again when needed.

    Attributes
    ----------
    totals
        Sum of the distances to each candidate, int64.
    farthest
        The largest distance.
    unit
        What one unit of the table stands for.
    """

    def __init__(self, clients: Points, candidates: Points | None = None, *, keep: bool | None = None) -> None:
        self.symmetric = candidates is None
        norms = [squared_norms(points).amax() for points in (clients, candidates) if points is not None and len(points)]
        reach = 2 * math.sqrt(float(torch.stack(norms).amax())) if norms else 0.0
        # A power of two, so that scaling by it rounds nothing.
        self.unit = 2.0 ** math.ceil(math.log2(reach / LEVELS)) if reach else 1.0
        self._clients = _scaled(clients, 1 / self.unit)
        self._candidates = self._clients if candidates is None else _scaled(candidates, 1 / self.unit)
        self._client_norms = shrunk_norms(self._clients)
        self._candidate_norms = self._client_norms if candidates is None else shrunk_norms(self._candidates)
        self.device = device_of(clients)
        self.shape = (len(self._clients), len(self._candidates))
        self.computed = 0
        """How many distances were computed so far."""
        self.read = 0
        """How many distances were looked at after that."""
        if keep is None:
            keep = self.shape[0] * self.shape[1] <= _room_for_distances(self.device)
        self._scratch = Scratch(self.device)
        self.kept = _empty_table(self.shape, self.device) if keep else None
        self.totals, self.farthest = self._first_pass()

    def column(self, candidate: int) -> Tensor:
        """Distances from all clients to one candidate."""
        self.read += self.shape[0]
        if self.kept is None:
            return self._compute(slice(None), slice(candidate, candidate + 1))[:, 0].int()
        return self.kept[candidate] if self.symmetric else self.kept[:, candidate]

    def nearest(self, candidates: Tensor) -> Tensor:
        """For each client the position of its nearest among some candidates; the first of several equally near."""
        if self.kept is not None and self.symmetric:
            return self.kept.index_select(0, candidates).argmin(dim=0)
        nearest = torch.empty(self.shape[0], dtype=torch.int64, device=self.device)
        for rows in blocks(self.shape[0], len(candidates), self.device):
            nearest[rows] = self._compute(rows, candidates).argmin(dim=1)
        return nearest

    def won(self, clients: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """How much of its gain each candidate loses when some clients come closer, from `before` to `after`.

        Each of these clients costs a candidate as much as the candidate is nearer than `before`, but no more than
        `before - after`.
        """
        total = torch.zeros(self.shape[1], dtype=torch.int64, device=self.device)
        everyone = len(clients) == self.shape[0]
        for part in blocks(len(clients), self.shape[1], self.device):
            rows = self._rows(part if everyone else clients[part])
            held = torch.maximum(rows, after[part, None], out=self._scratch.tensor(torch.int32, rows.shape))
            total -= _sum_of_rows(torch.minimum(held, before[part, None], out=held))
        return total.add_(before.sum())

    def _rows(self, index: Tensor | slice) -> Tensor:
        """Some rows of the table; to be read before the next call only."""
        if self.kept is None:
            rows = self._compute(index, slice(None)).int()
        elif isinstance(index, slice):
            rows = self.kept[index]
        else:
            rows = torch.index_select(
                self.kept, 0, index, out=self._scratch.tensor(torch.int32, (len(index), self.shape[1]))
            )
        self.read += rows.numel()
        return rows

    def _compute(self, rows: Tensor | slice, columns: Tensor | slice) -> Tensor:
        """Distances in whole numbers, though not yet of an integer type; to be read before the next call only."""
        a, b = self._clients[rows], self._candidates[columns]
        self.computed += len(a) * len(b)
        out = self._scratch.tensor(torch.float32, (len(a), len(b)))
        return distances_by_norms(a, self._client_norms[rows], b, self._candidate_norms[columns], out).round_()

    def _first_pass(self) -> tuple[Tensor, int]:
        """Compute every distance once, and keep it if so wanted; the columns' sums and the largest distance."""
        totals = torch.zeros(self.shape[1], dtype=torch.int64, device=self.device)
        farthest = [torch.zeros((), dtype=torch.int32, device=self.device)]
        for rows, columns in tiles(self.shape, self.symmetric, self.device):
            tile = self._compute(rows, columns)
            if self.kept is None:
                tile = self._scratch.tensor(torch.int32, tile.shape).copy_(tile)
            else:
                self.kept[rows, columns] = tile
                tile = self.kept[rows, columns]
            totals[columns] += _sum_of_rows(tile)
            farthest.append(tile.amax())
            if self.symmetric and rows != columns:
                totals[rows] += _sum_of_columns(tile)
                if self.kept is not None:
                    self.kept[columns, rows] = tile.T
        return totals, int(torch.stack(farthest).amax())


def _scaled(points: Points, factor: float) -> Points:
    if isinstance(points, FactoredPoints):
        return FactoredPoints(points.left * factor, points.right)
    return points * factor


def _sum_of_rows(block: Tensor) -> Tensor:
    """Column sums of distances; in 32 bits for as long as they fit, which a CPU does many times faster than in 64."""
    if block.is_cuda:
        return block.sum(dim=0)
    if len(block) <= ROWS_PER_SUM:
        return block.sum(dim=0, dtype=torch.int32)
    groups, rest = divmod(len(block), ROWS_PER_SUM)
    shape = (groups, ROWS_PER_SUM, block.shape[1])
    sums = block.as_strided(shape, (ROWS_PER_SUM * block.stride(0), block.stride(0), 1)).sum(dim=1, dtype=torch.int32)
    total = sums.sum(dim=0)
    return total.add_(block[-rest:].sum(dim=0, dtype=torch.int32)) if rest else total


def _sum_of_columns(block: Tensor) -> Tensor:
    """Row sums of distances, int64, in the same manner."""
    if block.is_cuda:
        return block.sum(dim=1)
    width, rest = divmod(block.shape[1], ROWS_PER_SUM)
    whole = block.shape[1] - rest
    strips = block.as_strided((len(block), ROWS_PER_SUM, width), (block.stride(0), width, 1))
    return strips.sum(dim=1, dtype=torch.int32).sum(dim=1).add_(block[:, whole:].sum(dim=1, dtype=torch.int32))


def _empty_table(shape: tuple[int, int], device: torch.device) -> Tensor:
    if device.type == "cpu":
        # NumPy asks the kernel for huge pages, which takes a quarter of the time to get.
        return torch.from_numpy(np.empty(shape, dtype=np.int32))
    return torch.empty(shape, dtype=torch.int32, device=device)


def _room_for_distances(device: torch.device) -> int:
    """How many distances may be kept."""
    if device.type == "cuda":
        return int(GPU_SHARE * torch.cuda.mem_get_info(device)[0] / 4)
    return CACHED_DISTANCES
