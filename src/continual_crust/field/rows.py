"""Images that are fetched when they are needed, wherever they are: in memory, in a file, or still to be decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from continual_crust.data.loading import Bytes
from continual_crust.data.samples import Samples

CHUNK_PIXELS = 1 << 23
"""Values that are fetched at a time when all images are walked through."""


class Rows(Protocol):
    """A pile of images of one shape."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""

    def __len__(self) -> int: ...

    def take(self, positions: Tensor) -> Tensor:
        """Copies of some images, as bytes, (n, channels, height, width)."""


class ArrayRows:
    """Images in memory, or in a file mapped into it."""

    def __init__(self, images: Bytes) -> None:
        self._images = images

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self._images.shape[1:]
        return channels, height, width

    def __len__(self) -> int:
        return len(self._images)

    def take(self, positions: Tensor) -> Tensor:
        return torch.from_numpy(self._images[positions.numpy()])


class ChosenRows:
    """Some of a pile's images, in another order."""

    def __init__(self, rows: Rows, positions: Tensor) -> None:
        self._rows, self._positions = rows, positions

    @property
    def shape(self) -> tuple[int, int, int]:
        return self._rows.shape

    def __len__(self) -> int:
        return len(self._positions)

    def take(self, positions: Tensor) -> Tensor:
        return self._rows.take(self._positions[positions])


class StackedRows:
    """Several piles, one on another."""

    def __init__(self, piles: Sequence[Rows]) -> None:
        self._piles = [pile for pile in piles if len(pile)] or list(piles[:1])
        self._starts = np.cumsum([0, *(len(pile) for pile in self._piles)])

    @property
    def shape(self) -> tuple[int, int, int]:
        return self._piles[0].shape

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, positions: Tensor) -> Tensor:
        images = torch.empty((len(positions), *self.shape), dtype=torch.uint8)
        for pile, start in zip(self._piles, self._starts.tolist(), strict=False):
            inside = (positions >= start) & (positions < start + len(pile))
            if bool(inside.any()):
                images[inside] = pile.take(positions[inside] - start)
        return images


def chunks(positions: Tensor, shape: tuple[int, int, int]) -> Iterator[Tensor]:
    """Positions in pieces whose images fit into little memory together."""
    yield from positions.split(max(1, CHUNK_PIXELS // max(1, int(np.prod(shape)))))


class RowSamples:
    """Samples to train on whose images are fetched batch by batch.

    Indexing gives `Samples` on the device, as indexing `Samples` does, so that an epoch can walk through either. What
    is given passes through `change`, if there is one.
    """

    def __init__(
        self,
        rows: Rows,
        labels: Tensor,
        ids: Tensor,
        device: torch.device,
        on_fetch: Callable[[int], None],
        change: Callable[[Samples], Samples] | None = None,
    ) -> None:
        self._rows, self._labels, self._ids, self._device = rows, labels, ids, device
        self._on_fetch, self._change = on_fetch, change

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: Tensor) -> Samples:
        index = index.cpu()
        self._on_fetch(len(index))
        samples = Samples.of(self._rows.take(index), self._labels[index], self._ids[index]).to(self._device)
        return samples if self._change is None else self._change(samples)
