"""Points to choose from: rows of a tensor, or outer products that are never multiplied out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from continual_crust.errors import InputError
from continual_crust.selection.products import less_twice_products, row_products

BLOCK_ELEMENTS = 1 << 20
"""How many distances are held at a time where not all of them are needed at once (4 MiB: they stay in the cache)."""
GPU_BLOCKS = 64
"""How many times larger such a block is on a GPU, which needs much work at a time to be busy."""
LEAST_DISTANCE = 2.0**-63
"""Its square is the smallest float32 of full precision."""


@dataclass(frozen=True)
class FactoredPoints:
    """The points left[i] ⊗ right[i], kept as their two factors.

    Inner products factor too, <a ⊗ h, b ⊗ g> = <a, b> <h, g>, so distances and cosines cost as much as those of
    the factors. The gradient of a linear layer's parameters has this form and is far too large to write out.

    Unlike a tensor's rows they are not moved to the origin before distances are computed, so where a factor lies far
    from it compared with its spread, as at 100 ± 0.01, float32 rounds distances away; centre the features before, or
    give the points :meth:`multiplied_out`.
    """

    left: Tensor
    right: Tensor

    def __len__(self) -> int:
        return len(self.left)

    def __getitem__(self, index: Tensor | slice) -> FactoredPoints:
        return FactoredPoints(self.left[index], self.right[index])

    def multiplied_out(self) -> Tensor:
        """The points as rows. For a few at a time only."""
        return torch.einsum("na,nb->nab", self.left, self.right).flatten(1)


Points: TypeAlias = Tensor | FactoredPoints


def check_tensor(given: Any, name: str) -> None:
    """Refuse what is no tensor, or one of a kind that PyTorch hardly computes with."""
    if not isinstance(given, Tensor):
        raise InputError(f"{name} are a {type(given).__name__}; give a tensor, as torch.as_tensor({name}) makes it.")
    if given.layout != torch.strided:
        raise InputError(f"{name} are a sparse tensor; give {name}.to_dense().")
    if given.is_meta:
        raise InputError(f"{name} lie on the device meta, which holds no numbers; make them on another device.")
    if given.is_quantized:
        raise InputError(f"{name} are quantized; give {name}.dequantize().")
    if given.is_floating_point() and given.element_size() == 1:
        raise InputError(f"{name} are of type {given.dtype}, which cannot be computed with; give {name}.float().")


def checked(points: Points) -> Points:
    """The same points; refuses all but tensors of finite real numbers with a row for each point."""
    parts = (points.left, points.right) if isinstance(points, FactoredPoints) else (points,)
    for part in parts:
        check_tensor(part, "points")
        if part.is_complex():
            raise InputError("points are complex numbers; give real ones.")
        if part.ndim != 2:
            raise InputError(f"points must have shape (n, d), not {tuple(part.shape)}; flatten each sample to a row.")
        # A sum over a row tells of NaN and infinity in it; only where one does is each number looked at.
        if torch.isfinite(part.sum(dim=1)).all():
            continue
        bad = ~torch.isfinite(part).all(dim=1)
        if bad.any():
            raise InputError(
                f"{int(bad.sum())} of {len(part)} points hold NaN or infinity (the first is row "
                f"{int(bad.nonzero()[0])}); a network with such gradients has diverged, so lower its learning rate."
            )
    if isinstance(points, FactoredPoints) and len(points.left) != len(points.right):
        raise InputError(
            f"the factors are of {len(points.left)} and {len(points.right)} points; give both factors of every point."
        )
    return points


def prepared(points: Points) -> Points:
    """Check points and bring them into the form in which distances are most exact.

    Distances do not change when all points move together, and are computed with far less rounding near the
    origin: a fitted network's gradients lie almost on top of one another.
    """
    points = checked(points)
    if isinstance(points, FactoredPoints):
        points = FactoredPoints(points.left.detach().float(), points.right.detach().float())
    elif len(points):
        points = points.detach()
        points = points if points.dtype == torch.float64 else points.float()
        points = (points - points.mean(dim=0)).float()  # what is double may differ in no more than its last digits
    if not torch.isfinite(squared_norms(points)).all():
        raise InputError("points are longer than float32 can square, 1.8e19; scale them down.")
    return points


def lengths_or_one(rows: Tensor) -> Tensor:
    """What to divide rows by to leave nothing but their direction, as a column; zero vectors stay zero."""
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return lengths.where(lengths > 0, 1)


def squared_norms(points: Points) -> Tensor:
    """Squared length of each point."""
    if isinstance(points, FactoredPoints):
        return squared_norms(points.left) * squared_norms(points.right)
    # In blocks: the squares of all points at once would be written to main memory and read from there again.
    parts = [points[rows].square().sum(1) for rows in blocks(len(points), points.shape[1], points.device)]
    return torch.cat(parts) if parts else points.new_zeros(0)


def inner_products(a: Points, b: Points) -> Tensor:
    """Inner product of each point of `a` with each of `b`."""
    if isinstance(a, FactoredPoints):
        assert isinstance(b, FactoredPoints)
        return row_products(a.left, b.left).mul_(row_products(a.right, b.right))
    assert isinstance(b, Tensor)
    return row_products(a, b)


def squared_distances(sums: Tensor, a: Points, b: Points, out: Tensor) -> Tensor:
    """From the sums of both points' squared lengths; `out` may be `sums`."""
    if isinstance(a, FactoredPoints):
        return torch.sub(sums, inner_products(a, b), alpha=2, out=out)
    assert isinstance(b, Tensor)
    return less_twice_products(sums, a, b, out)


def distances(a: Points, b: Points) -> Tensor:
    """Euclidean distance of each point of `a` to each of `b`, for :func:`prepared` points.

    Differences too small for float32 to tell from rounding count as zero, so that equal points are at distance
    zero and ties stay ties.
    """
    sums = squared_norms(a)[:, None] + squared_norms(b)[None, :]
    squares = squared_distances(sums, a, b, out=torch.empty_like(sums))
    return torch.where(squares > rounding_noise(sums), squares, 0).sqrt_()


def rounding_noise(sums: Tensor) -> Tensor:
    """What rounding may add to a squared distance, from the sums of both points' squared lengths; in place."""
    return sums.mul_(4 * torch.finfo(sums.dtype).eps)


def shrunk_norms(points: Points) -> Tensor:
    """Squared length of each point, less what rounding may add to a squared distance."""
    norms = squared_norms(points)
    return norms * (1 - 4 * torch.finfo(norms.dtype).eps)


def distances_by_norms(a: Points, norms_a: Tensor, b: Points, norms_b: Tensor, out: Tensor | None = None) -> Tensor:
    """As :func:`distances`, but faster for callers that compare the same points many times.

    They keep the points' :func:`shrunk_norms`, and get distances whose error is a small share of the points' norms.

    Equal points are at the distance ``LEAST_DISTANCE``: roots of zero take ten times as long as others.
    """
    # The norms first, because only then does it not matter which of two points comes first.
    sums = torch.add(norms_a[:, None], norms_b, out=out)
    return squared_distances(sums, a, b, out=sums).clamp_(min=LEAST_DISTANCE**2).sqrt_()


def blocks(count: int, width: int, device: torch.device | None = None) -> Iterator[slice]:
    """Slices that cover `count` rows, such that one slice of `width` columns fits the block size."""
    return pieces(0, count, max(1, block_elements(device) // max(1, width)))


def block_elements(device: torch.device | None) -> int:
    """How many distances to hold at a time on a device."""
    return BLOCK_ELEMENTS * (GPU_BLOCKS if device is not None and device.type == "cuda" else 1)


def pieces(start: int, stop: int, length: int) -> Iterator[slice]:
    """Slices of at most `length` that cover a range."""
    for first in range(start, stop, length):
        yield slice(first, min(first + length, stop))


def device_of(points: Points) -> torch.device:
    """Where the points live."""
    return points.left.device if isinstance(points, FactoredPoints) else points.device
