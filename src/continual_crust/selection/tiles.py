"""Going through a large table of distances in small tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from continual_crust.selection.points import block_elements, pieces

SHAPE = 4
"""How many times wider than high tiles are."""


def tiles(shape: tuple[int, int], symmetric: bool, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of tiles that cover a table; of a symmetric one, those on its diagonal and right of it."""
    elements = block_elements(device)
    height = math.isqrt(max(1, elements // SHAPE))
    for rows in pieces(0, shape[0], height):
        if symmetric:
            yield rows, rows
        for columns in pieces(rows.stop if symmetric else 0, shape[1], elements // height):
            yield rows, columns


class Scratch:
    """Memory that is used again for each tile. Fresh memory for each would cost as much time as filling it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: dict[torch.dtype, Tensor] = {}

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """Memory of a type and shape; it overwrites what was there of the same type."""
        count = math.prod(shape)
        if dtype not in self._memory or self._memory[dtype].numel() < count:
            self._memory[dtype] = torch.empty(count, dtype=dtype, device=self._device)
        return self._memory[dtype][:count].view(shape)
