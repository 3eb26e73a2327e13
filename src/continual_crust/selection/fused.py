"""Greedy picks by compiled kernels, where there are some: Triton's on a GPU, Numba's on a CPU. The same answers."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch
from torch import Tensor

from continual_crust.kernel_trial import tried_once
from continual_crust.selection.distance_table import DistanceTable

COMPILERS = {"cuda": "triton", "cpu": "numba"}
LARGEST_ON_GPU = 1 << 20
"""How many candidates one block of threads may look through in each step before that takes longer than it saves."""
SMALLEST_ON_CPU = 1 << 16
"""From how many distances on a score of selections wins back the half second that it takes to import Numba."""


def usable(table: DistanceTable) -> bool:
    """Whether a kernel can run for this table: all distances in memory, a compiler installed and working."""
    if table.kept is None or 0 in table.shape or table.device.type not in COMPILERS:
        return False
    if table.device.type == "cuda" and table.shape[1] > LARGEST_ON_GPU:
        return False
    if table.device.type == "cpu" and table.kept.numel() < SMALLEST_ON_CPU:
        return False
    return _works(table.device)


def picks(table: DistanceTable, tie: int, size: int) -> tuple[Tensor, Tensor]:
    """Indices of the greedy picks and their gains, in the table's units."""
    assert table.kept is not None
    indices, won, read = _greedy(table.kept, table.symmetric, table.totals, table.farthest, tie, size)
    table.read += read
    return indices, won


def kernels(compiler: str) -> ModuleType:
    """The module with the kernels. It imports their compiler, which need not be installed."""
    return importlib.import_module(f"continual_crust.selection.{compiler}_kernels")


def _greedy(
    table: Tensor, symmetric: bool, totals: Tensor, farthest: int, tie: int, size: int
) -> tuple[Tensor, Tensor, int]:
    """Indices, gains, and how many distances were read, as far as that was counted."""
    greedy = kernels(COMPILERS[table.device.type]).greedy
    if table.is_cuda:
        with torch.cuda.device(table.device):
            return *greedy(table, symmetric, totals, farthest, tie, size), 0
    indices, won, read = greedy(table.numpy(), symmetric, totals.numpy(), farthest, tie, size)
    return torch.from_numpy(indices), torch.from_numpy(won), read


@tried_once("selection", COMPILERS)
def _works(device: torch.device) -> bool:
    """Two picks of four points."""
    distances = torch.tensor([[0, 1, 2, 9], [1, 0, 1, 9], [2, 1, 0, 9], [9, 9, 9, 0]], dtype=torch.int32)
    distances = distances.to(device)
    indices, won, _ = _greedy(distances, True, distances.sum(dim=0), 9, 0, 2)
    return indices.tolist() == [1, 3] and won.tolist() == [25, 9]
