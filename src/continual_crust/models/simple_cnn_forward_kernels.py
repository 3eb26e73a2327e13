"""Triton kernels for `SimpleCNN` from images to features. Import only where Triton is installed.

Layer by layer this is dozens of small kernels, most of them waiting for memory or for each other. Here it is four:
activations are laid out for tensor cores from the start, and normalisation, rectifier, pooling and dropout cost nothing
of their own. Products are in TF32, as cuDNN's are. Sums that several programs share are written part by part and added
in a fixed order, so that a step gives the same bits every time.

Shapes: images (B, C, H, W); `hidden` (B, H-2, W-2, 32) after the first convolution; `pooled` (B, 64 PH PW) in the order
of `nn.Flatten`; `parts` (splits, B, 128), whose sum is the linear layer's; `features` (B, 128).

A value of `pooled` is 0 where no gradient passes. Elsewhere the two lowest bits of its fraction, which TF32 drops
anyway, say which of its four pixels the maximum was.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

FIRST, SECOND, UNITS = 32, 64, 128


class Tuning(NamedTuple):
    """How a kernel is cut into programs, by what is fastest on an H200."""

    block: int
    """What one program takes at a time."""
    warps: int
    stages: int
    """How many rounds of a loop are on their way from memory at the same time."""


CONVOLVE = Tuning(64, 4, 1)
"""Pixels of the first convolution's output."""
POOL = Tuning(32, 4, 3)
"""Pooled values of each channel."""
ADD_UP = Tuning(128, 4, 4)
"""Inputs of the linear layer."""
ADD_UP_UNITS, SAMPLES = 64, 32
"""For how many of its units and samples they are added up."""


class Images(NamedTuple):
    """A batch of normalised images, or all images as bytes with the way to this batch of them."""

    images: Tensor
    """Floats of shape (B, C, H, W), or bytes of shape (n, C, H, W)."""
    order: Tensor | None = None
    """Where in `images` each sample of the epoch is; None if `images` is the batch."""
    counter: Tensor | None = None
    """How many batches of the epoch come before this one."""
    size: int = 0
    """How many samples these batches have."""
    mean: Tensor | None = None
    std: Tensor | None = None
    """What is taken from a channel's bytes, and what they are divided by then."""


class Draws(NamedTuple):
    """Where dropout's random numbers come from: they depend on these two numbers and the value's place alone."""

    seed: Tensor
    counter: Tensor | None = None
    """Of the steps that share a seed."""


@triton.jit
def places_of(source, sample, known):
    """Where in `source.images` samples of the batch are."""
    place = sample
    if source.order is not None:
        place = tl.load(source.order + tl.load(source.counter) * source.size + sample, mask=known, other=0)
    return place


@triton.jit
def pixels_at(source, at, channel, known):
    """Normalised pixels."""
    value = tl.load(source.images + at, mask=known, other=0).to(tl.float32)
    if source.mean is not None:
        value = (value - tl.load(source.mean + channel)) / tl.load(source.std + channel)
    return value


@triton.jit
def survives(draws, number, rate):
    """Whether dropout leaves the value of this number alone."""
    step = tl.zeros((), tl.int64)
    if draws.counter is not None:
        step = tl.load(draws.counter)
    return tl.rand(tl.load(draws.seed), (step << 32) + number) >= rate


@triton.jit(do_not_specialize=["pixels"])
def _first(
    source, weight, bias, hidden, pixels, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, PIXELS: tl.constexpr
):
    """Convolution and rectifier."""
    rows, columns = H - 2, W - 2
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < pixels
    image, row, column = pixel // (rows * columns), pixel // columns % rows, pixel % columns
    corner = places_of(source, image, inside) * (C * H * W) + row * W + column
    channel = tl.arange(0, 32)
    total = tl.zeros((PIXELS, 32), tl.float32) + tl.load(bias + channel)[None, :]
    for tap in tl.static_range(C * 9):
        value = pixels_at(source, corner + (tap // 9 * H + tap % 9 // 3) * W + tap % 3, tap // 9, inside)
        total += value[:, None] * tl.load(weight + channel * (C * 9) + tap)[None, :]
    tl.store(hidden + pixel[:, None] * 32 + channel[None, :], tl.maximum(total, 0), mask=inside[:, None])


@triton.jit(do_not_specialize=["cells"])
def _second(hidden, taps, bias, draws, pooled, cells, rate, H: tl.constexpr, W: tl.constexpr, CELLS: tl.constexpr):
    """Convolution, rectifier, pooling, dropout."""
    rows: tl.constexpr = (H - 4) // 2
    columns: tl.constexpr = (W - 4) // 2
    # One product for all four pixels of a cell, in such an order that a thread of the product holds all four of them.
    line = tl.arange(0, 4 * CELLS)
    down, right = line // (2 * CELLS), line // 8 % 2
    cell = tl.program_id(0) * CELLS + line // 16 % (CELLS // 8) * 8 + line % 8
    image, place = cell // (rows * columns), cell % (rows * columns)
    corner = (image * (H - 2) + place // columns * 2 + down) * (W - 2) + place % columns * 2 + right
    inner, outer = tl.arange(0, 32), tl.arange(0, 64)
    total = tl.zeros((4 * CELLS, 64), tl.float32)
    for tap in range(9):
        at = (corner + tap // 3 * (W - 2) + tap % 3)[:, None] * 32 + inner[None, :]
        values = tl.load(hidden + at, mask=(cell < cells)[:, None], other=0)
        weights = tl.load(taps + tap * 2048 + outer[None, :] * 32 + inner[:, None])
        total = tl.dot(values, weights, total)
    four = tl.permute(tl.reshape(total, (2, CELLS // 8, 2, 8, 64)), (1, 3, 4, 0, 2))
    most, which = tl.max(tl.reshape(four, (CELLS, 64, 4)), axis=2, return_indices=True)
    most += tl.load(bias + outer)[None, :]
    cell = tl.program_id(0) * CELLS + tl.arange(0, CELLS)
    alive = survives(draws, cell[:, None] * 64 + outer[None, :], rate) & (most > 0)
    most = (((most / (1 - rate)).to(tl.int32, bitcast=True) & -4) | which).to(tl.float32, bitcast=True)
    image, place = cell // (rows * columns), cell % (rows * columns)
    at = image[None, :] * (64 * rows * columns) + outer[:, None] * (rows * columns) + place[None, :]
    tl.store(pooled + at, tl.trans(tl.where(alive, most, 0)), mask=(cell < cells)[None, :])


@triton.jit(do_not_specialize=["batch"])
def _linear(
    pooled, weight, parts, batch, inputs, SAMPLES: tl.constexpr, SPLIT: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """One stretch of the sum over inputs, for some units."""
    sample = tl.program_id(2) * SAMPLES + tl.arange(0, SAMPLES)
    here = (sample < batch)[None, :]
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    total = tl.zeros((UNITS, SAMPLES), tl.float32)
    for start in range(0, SPLIT, 32):
        entry = tl.program_id(0) * SPLIT + start + tl.arange(0, 32)
        known = entry < inputs
        weights = tl.load(weight + unit[:, None] * inputs + entry[None, :], mask=known[None, :], other=0)
        values = tl.load(pooled + sample[None, :] * inputs + entry[:, None], mask=here & known[:, None], other=0)
        total = tl.dot(weights, values, total)
    at = (tl.program_id(0) * batch + sample[None, :]) * 128 + unit[:, None]
    tl.store(parts + at, total, mask=here)


@triton.jit
def feature_values(parts, bias, draws, sample, unit, batch, inputs, rate, SPLITS: tl.constexpr, ROWS: tl.constexpr):
    """Sum, rectifier, dropout, for some units of one sample. All parts are on their way at the same time."""
    split = tl.arange(0, ROWS)
    at = (split[:, None] * batch + sample) * 128 + unit[None, :]
    total = tl.sum(tl.load(parts + at, mask=(split < SPLITS)[:, None], other=0), axis=0) + tl.load(bias + unit)
    alive = survives(draws, batch * inputs + sample * 128 + unit, rate) & (total > 0)
    return tl.where(alive, total / (1 - rate), 0)


@triton.jit(do_not_specialize=["batch"])
def _features(
    parts, bias, draws, features, batch, inputs, rate, SPLITS: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    value = feature_values(parts, bias, draws, tl.program_id(0), unit, batch, inputs, rate, SPLITS, ROWS)
    tl.store(features + tl.program_id(0) * 128 + unit, value)


def splits_of(inputs: int) -> int:
    """How many parts the linear layer's sum has."""
    return int(triton.cdiv(inputs, ADD_UP.block))


def taps_of(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The second convolution's weights as :func:`pool` reads them, (3, 3, 64, 32), and as the way back does."""
    return weight.permute(2, 3, 0, 1).contiguous(), weight.permute(2, 3, 1, 0).contiguous()


def convolve(source: Images, weight: Tensor, bias: Tensor, hidden: Tensor) -> None:
    """Fill `hidden` from images."""
    channels, height, width = source.images.shape[1:]
    pixels = hidden.numel() // FIRST
    block, warps, stages = CONVOLVE
    _first[(triton.cdiv(pixels, block),)](
        source, weight, bias, hidden, pixels, height, width, channels, block, num_warps=warps, num_stages=stages
    )


def pool(hidden: Tensor, taps: Tensor, bias: Tensor, draws: Draws, rate: float, pooled: Tensor) -> None:
    """Fill `pooled` from `hidden`."""
    height, width = hidden.shape[1] + 2, hidden.shape[2] + 2
    cells = pooled.numel() // SECOND
    block, warps, stages = POOL
    _second[(triton.cdiv(cells, block),)](
        hidden, taps, bias, draws, pooled, cells, rate, height, width, block, num_warps=warps, num_stages=stages
    )


def add_up(pooled: Tensor, weight: Tensor, parts: Tensor) -> None:
    """Fill `parts` from `pooled`."""
    batch, inputs = pooled.shape
    block, warps, stages = ADD_UP
    _linear[(len(parts), UNITS // ADD_UP_UNITS, triton.cdiv(batch, SAMPLES))](
        pooled, weight, parts, batch, inputs, SAMPLES, block, ADD_UP_UNITS, num_warps=warps, num_stages=stages
    )


def finish(parts: Tensor, bias: Tensor, draws: Draws, rate: float, inputs: int, features: Tensor) -> None:
    """Fill `features` from `parts`."""
    splits, batch, _ = parts.shape
    rows = triton.next_power_of_2(splits)
    _features[(batch, 4)](parts, bias, draws, features, batch, inputs, rate, splits, rows, UNITS // 4)
