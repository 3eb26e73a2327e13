"""Distances as whole numbers, so that sums of them do not depend on the order of summation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from continual_crust.selection.points import (
    FactoredPoints,
    Points,
    block_elements,
    blocks,
    device_of,
    distances_by_norms,
    pieces,
    shrunk_norms,
    squared_norms,
)

LEVELS = 1 << 26
"""No distance exceeds so many units. Finer than float32, which tells 2²⁴ of them apart."""
ROWS_PER_SUM = 16
"""How many distances may be added up in 32 bits: 16 · 2²⁶ = 2³⁰."""
CACHED_DISTANCES = 1 << 28
"""Up to this many distances (1 GiB) are computed once and kept in main memory; beyond, rows when they are needed."""
TILE_SHAPE = 16
"""How many times wider than high the tiles are in which all distances are computed."""
GPU_SHARE = 0.5
"""Which part of a GPU's free memory distances may fill."""


class DistanceTable:
    """Distances from clients (rows) to candidates (columns), in whole numbers of a small unit.

    Greedy selection adds up thousands of distances for each candidate and compares the sums. Floating-point sums depend
    on their order; sums of whole numbers do not, so neither blocks nor threads nor devices can change a pick.

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
        self.kept = _empty_table(self.shape, self.device) if keep else None
        self.totals, self.farthest = self._first_pass()

    def column(self, candidate: Tensor) -> Tensor:
        """Distances from all clients to one candidate, given as a tensor with its index."""
        self.read += self.shape[0]
        if self.kept is None:
            return self._compute(slice(None), candidate[None])[:, 0]
        return self.kept[candidate] if self.symmetric else self.kept[:, candidate]

    def won(self, clients: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """What each candidate could have won of the way that some clients came closer, from `before` to `after`.

        That is the sum over those clients of `before` minus the candidate's distance, from 0 up to `before - after`.
        """
        total = torch.zeros(self.shape[1], dtype=torch.int64, device=self.device)
        everyone = len(clients) == self.shape[0]
        for part in blocks(len(clients), self.shape[1], self.device):
            rows = self._rows(part if everyone else clients[part])
            # The table's own rows must stay as they are; a copy is overwritten.
            kept = torch.maximum(rows, after[part, None], out=None if everyone else rows)
            total -= _sum_of_rows(torch.minimum(kept, before[part, None], out=kept))
        return total.add_(before.sum())

    def _rows(self, index: Tensor | slice) -> Tensor:
        rows = self._compute(index, slice(None)) if self.kept is None else self.kept[index]
        self.read += rows.numel()
        return rows

    def _compute(self, rows: Tensor | slice, columns: Tensor | slice) -> Tensor:
        block = distances_by_norms(
            self._clients[rows], self._client_norms[rows], self._candidates[columns], self._candidate_norms[columns]
        )
        self.computed += block.numel()
        return block.round_().int()

    def _first_pass(self) -> tuple[Tensor, int]:
        """Compute every distance once, and keep it if so wanted; the columns' sums and the largest distance."""
        totals = torch.zeros(self.shape[1], dtype=torch.int64, device=self.device)
        farthest = [torch.zeros((), dtype=torch.int32, device=self.device)]
        for rows, columns in self._tiles():
            tile = self._compute(rows, columns)
            totals[columns] += _sum_of_rows(tile)
            farthest.append(tile.amax())
            mirrored = self.symmetric and rows != columns
            if mirrored:
                totals[rows] += _sum_of_columns(tile)
            if self.kept is not None:
                self.kept[rows, columns] = tile
                if mirrored:
                    self.kept[columns, rows] = tile.T
        return totals, int(torch.stack(farthest).amax())

    def _tiles(self) -> Iterator[tuple[slice, slice]]:
        """Tiles that cover the table; where it is symmetric, those on its diagonal and to the right of it."""
        elements = block_elements(self.device)
        height = math.isqrt(max(1, elements // TILE_SHAPE))
        for rows in pieces(0, self.shape[0], height):
            if self.symmetric:
                yield rows, rows
            for columns in pieces(rows.stop if self.symmetric else 0, self.shape[1], elements // height):
                yield rows, columns


def _scaled(points: Points, factor: float) -> Points:
    if isinstance(points, FactoredPoints):
        return FactoredPoints(points.left * factor, points.right)
    return points * factor


def _sum_of_rows(block: Tensor) -> Tensor:
    """Column sums of distances, int64; first in 32 bits for as long as they fit, which a CPU does many times faster."""
    if block.is_cuda:
        return block.sum(dim=0)
    groups, rest = divmod(len(block), ROWS_PER_SUM)
    whole = len(block) - rest
    sums = block[:whole].view(groups, ROWS_PER_SUM, block.shape[1]).sum(dim=1, dtype=torch.int32).sum(dim=0)
    return sums.add_(block[whole:].sum(dim=0, dtype=torch.int32))


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
