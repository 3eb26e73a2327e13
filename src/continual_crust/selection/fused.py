"""Greedy picks on a GPU in two launches each, where Triton is there; the same answers as without it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
from types import ModuleType

import torch
from torch import Tensor

from continual_crust.selection.distance_table import DistanceTable

LOG = logging.getLogger(__name__)
LARGEST = 1 << 20
"""How many candidates one block of threads may look through in each step before that takes longer than it saves."""


def usable(table: DistanceTable) -> bool:
    """Whether the kernels can run for this table: on a GPU, all distances in memory, Triton installed and working."""
    if table.device.type != "cuda" or table.kept is None or 0 in table.shape or table.shape[1] > LARGEST:
        return False
    return _works(table.device)


def picks(table: DistanceTable, tie: int, size: int) -> tuple[Tensor, Tensor]:
    """Indices of the greedy picks and their gains, in the table's units."""
    assert table.kept is not None
    with torch.cuda.device(table.device):
        indices, won = kernels().greedy(table.kept, table.symmetric, table.totals, table.farthest, tie, size)
    return indices, won


def kernels() -> ModuleType:
    """The module with the kernels. It imports Triton, which need not be installed."""
    return importlib.import_module("continual_crust.selection.triton_kernels")


@functools.cache
def _works(device: torch.device) -> bool:
    """Whether Triton can build and run the kernels here, tried once on four points; it needs a C compiler."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        distances = torch.tensor([[0, 1, 2, 9], [1, 0, 1, 9], [2, 1, 0, 9], [9, 9, 9, 0]], dtype=torch.int32)
        distances = distances.to(device)
        with torch.cuda.device(device):
            indices, won = kernels().greedy(distances, True, distances.sum(dim=0), 9, 0, 2)
        return bool(indices.tolist() == [1, 3] and won.tolist() == [25, 9])
    except Exception as error:  # whatever a compiler, a driver or a version may raise: there is another way
        LOG.warning("Triton cannot be used for selection (%s); the same picks take longer.", error)
        return False
