"""Triton kernels for `SimpleCNN` from the gradient at its features back to its weights. Import only with Triton.

As on the way there, shared sums are written part by part and added in a fixed order. The way back from the first
convolution's output to its weights is taken at once, so the largest gradient of all never reaches memory.

Shapes beside those of the way there: `passed` (B, PH, PW, 64), the gradient at `pooled` before dropout, with the same
two bits in each value; `second_parts` (2 B, 9 * 32 * 64 + 64), parts of the gradient of the second convolution, weights
and then bias; `first_parts` (stretches of pixels, 9 C + 1, 32), of the first one's, its bias last.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from continual_crust.models.simple_cnn_forward_kernels import (
    FIRST,
    SAMPLES,
    SECOND,
    Images,
    Tuning,
    pixels_at,
    places_of,
)

OF_WEIGHTS = 9 * FIRST * SECOND
OF_SECOND = OF_WEIGHTS + SECOND
"""Where in a part of the second convolution's gradient its weights end, and its bias."""
PLACES, CHANNELS = 16, 1
"""A tile of the linear layer's inputs: so many places of so many channels. Its weights lie place by place and the
gradient that is passed on lies channel by channel; neither is torn into pieces too small for memory."""
LINEAR_WARPS = 4
FIRST_WEIGHTS = Tuning(64, 4, 1)
"""Pixels of the first convolution's output."""
SECOND_WEIGHTS = Tuning(64, 4, 3)
"""Pixels of the second convolution's output."""
_OF_WEIGHTS, _OF_SECOND = tl.constexpr(OF_WEIGHTS), tl.constexpr(OF_SECOND)


@triton.jit
def inputs_of_tile(tile, places, PLACES: tl.constexpr, CHANNELS: tl.constexpr):
    """Channel and place of the linear layer's inputs in a tile; a place may lie outside."""
    across = tl.cdiv(places, PLACES)
    entry = tl.arange(0, PLACES * CHANNELS)
    return tile // across * CHANNELS + entry // PLACES, tile % across * PLACES + entry % PLACES


@triton.jit
def linear_gradients(
    upstream, features, pooled, weights, passed, channel, place, batch, places, rates, TILES: tl.constexpr,
    SAMPLES: tl.constexpr,
):  # fmt: skip
    """Gradients of the linear layer's weights and bias; the gradient at these inputs is passed on."""
    unit = tl.arange(0, 128)
    known = (place < places)[None, :]
    gradient = tl.zeros(weights.shape, tl.float32)
    of_bias = tl.zeros((128,), tl.float32)
    for tile in range(TILES):
        sample = tile * SAMPLES + tl.arange(0, SAMPLES)
        here = (sample < batch)[:, None]
        at = sample[:, None] * 128 + unit[None, :]
        alive = tl.load(features + at, mask=here, other=0) > 0
        error = tl.where(alive, tl.load(upstream + at, mask=here, other=0) / (1 - rates[1]), 0)
        of_bias += tl.sum(error, axis=0)
        at = sample[:, None] * (64 * places) + (channel * places + place)[None, :]
        values = tl.load(pooled + at, mask=here & known, other=0)
        gradient += tl.dot(tl.trans(error), values)
        back = tl.where(values > 0, tl.dot(error, weights) / (1 - rates[0]), 0)
        back = (back.to(tl.int32, bitcast=True) & -4) | (values.to(tl.int32, bitcast=True) & 3)
        at = (sample[:, None] * places + place[None, :]) * 64 + channel[None, :]
        tl.store(passed + at, back.to(tl.float32, bitcast=True), mask=here & known)
    return gradient, of_bias


@triton.jit(do_not_specialize=["batch"])
def _linear(
    upstream, features, pooled, weight, weight_grad, bias_grad, passed, batch, places, rates, TILES: tl.constexpr,
    SAMPLES: tl.constexpr, PLACES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel, place = inputs_of_tile(tl.program_id(0), places, PLACES, CHANNELS)
    known = (place < places)[None, :]
    unit = tl.arange(0, 128)
    at = unit[:, None] * (64 * places) + (channel * places + place)[None, :]
    weights = tl.load(weight + at, mask=known, other=0)
    gradient, of_bias = linear_gradients(
        upstream, features, pooled, weights, passed, channel, place, batch, places, rates, TILES, SAMPLES
    )
    tl.store(weight_grad + at, gradient, mask=known)
    if tl.program_id(0) == 0:
        tl.store(bias_grad + unit, of_bias)


@triton.jit
def _unpooled(passed, image, row, column, known, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The gradient at pixels of the second convolution's output: nothing where pooling took its value from another."""
    # Pooling leaves out an odd last row and column.
    known = known & (row >= 0) & (row < 2 * ROWS) & (column >= 0) & (column < 2 * COLUMNS)
    at = ((image * ROWS + row // 2) * COLUMNS + column // 2)[:, None] * 64 + tl.arange(0, 64)[None, :]
    value = tl.load(passed + at, mask=known[:, None], other=0)
    pixel = (row % 2 * 2 + column % 2)[:, None]
    return tl.where((value.to(tl.int32, bitcast=True) & 3) == pixel, value, 0)


@triton.jit(do_not_specialize=["pixels"])
def _first_weights(
    source, passed, taps, hidden, parts, pixels, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr,
    PIXELS: tl.constexpr,
):  # fmt: skip
    """Part of the gradient of the first convolution; the tap after the last is its bias."""
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < pixels
    image, row, column = pixel // ((H - 2) * (W - 2)), pixel // (W - 2) % (H - 2), pixel % (W - 2)
    inner, outer = tl.arange(0, 32), tl.arange(0, 64)
    error = tl.zeros((PIXELS, 32), tl.float32)
    for tap in range(9):
        values = _unpooled(passed, image, row - tap // 3, column - tap % 3, inside, (H - 4) // 2, (W - 4) // 2)
        error = tl.dot(values, tl.load(taps + tap * 2048 + inner[None, :] * 64 + outer[:, None]), error)
    alive = tl.load(hidden + pixel[:, None] * 32 + inner[None, :], mask=inside[:, None], other=0) > 0
    error = tl.where(alive, error, 0)
    tap = tl.arange(0, TAPS)[:, None]
    corner = places_of(source, image, inside) * (C * H * W) + row * W + column
    known = (tap < C * 9) & inside[None, :]
    plane = tl.minimum(tap // 9, C - 1)
    shift = (tap // 9 * H + tap % 9 // 3) * W + tap % 3
    values = tl.where(tap < C * 9, pixels_at(source, corner[None, :] + shift, plane, known), 1.0)
    at = parts + (tl.program_id(0) * (C * 9 + 1) + tap) * 32 + inner[None, :]
    tl.store(at, tl.dot(values, error), mask=tap <= C * 9)


@triton.jit
def _second_weights(passed, hidden, parts, H: tl.constexpr, W: tl.constexpr, PIXELS: tl.constexpr):
    """Part of the gradient of three taps in a row of the second convolution, from half an image; and of its bias."""
    rows: tl.constexpr = (H - 4) // 2
    columns: tl.constexpr = (W - 4) // 2
    half: tl.constexpr = 2 * rows * columns
    part, down = tl.program_id(0), tl.program_id(1)
    image = part // 2
    inner, outer = tl.arange(0, 32), tl.arange(0, 64)
    left = tl.zeros((32, 64), tl.float32)
    middle = tl.zeros((32, 64), tl.float32)
    right = tl.zeros((32, 64), tl.float32)
    of_bias = tl.zeros((64,), tl.float32)
    for start in range(0, half, PIXELS):
        pixel = start + tl.arange(0, PIXELS)
        inside = pixel < half
        pixel += part % 2 * half
        row, column = pixel // (2 * columns), pixel % (2 * columns)
        errors = _unpooled(passed, image, row, column, inside, rows, columns)
        at = hidden + ((image * (H - 2) + row + down) * (W - 2) + column)[None, :] * 32 + inner[:, None]
        left = tl.dot(tl.load(at, mask=inside[None, :], other=0), errors, left)
        middle = tl.dot(tl.load(at + 32, mask=inside[None, :], other=0), errors, middle)
        right = tl.dot(tl.load(at + 64, mask=inside[None, :], other=0), errors, right)
        of_bias += tl.sum(errors, axis=0)
    part = parts + part * _OF_SECOND
    at = part + down * (3 * 2048) + inner[:, None] * 64 + outer[None, :]
    tl.store(at, left)
    tl.store(at + 2048, middle)
    tl.store(at + 4096, right)
    if down == 0:
        tl.store(part + _OF_WEIGHTS + outer, of_bias)


def tiles_of(places: int) -> int:
    """How many tiles the linear layer's inputs have."""
    return int(triton.cdiv(places, PLACES)) * (SECOND // CHANNELS)


def stretches_of(hidden: Tensor) -> int:
    """How many parts the gradient of the first convolution has."""
    return int(triton.cdiv(hidden.numel() // FIRST, FIRST_WEIGHTS.block))


def linear(
    upstream: Tensor,
    features: Tensor,
    pooled: Tensor,
    weight: Tensor,
    rates: tuple[float, float],
    weight_grad: Tensor,
    bias_grad: Tensor,
    passed: Tensor,
) -> None:
    """Fill the gradients of the linear layer, and `passed`."""
    batch, places = len(pooled), pooled.shape[1] // SECOND
    _linear[(tiles_of(places),)](
        upstream, features, pooled, weight, weight_grad, bias_grad, passed, batch, places, rates,
        triton.cdiv(batch, SAMPLES), SAMPLES, PLACES, CHANNELS, num_warps=LINEAR_WARPS,
    )  # fmt: skip


def convolutions(
    source: Images, passed: Tensor, taps: Tensor, hidden: Tensor, first_parts: Tensor, second_parts: Tensor
) -> None:
    """Fill the parts of the gradients of both convolutions."""
    channels, height, width = source.images.shape[1:]
    pixels = hidden.numel() // FIRST
    rows = max(16, triton.next_power_of_2(channels * 9 + 1))
    block, warps, stages = FIRST_WEIGHTS
    _first_weights[(len(first_parts),)](
        source, passed, taps, hidden, first_parts, pixels, height, width, channels, rows, block,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    block, warps, stages = SECOND_WEIGHTS
    _second_weights[(len(second_parts), 3)](
        passed, hidden, second_parts, height, width, block, num_warps=warps, num_stages=stages
    )
