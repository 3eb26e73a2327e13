"""Triton kernels for `SimpleCNN` from the gradient at its features back to its weights. Import only with Triton.

As on the way there, shared sums are written part by part and added in a fixed order. The way back from the first
convolution's output to its weights is taken at once, so the largest gradient of all never reaches memory.

What is passed back through pooling goes to one of the four pixels of each cell. So both convolutions work on cells: a
cell's gradient is loaded once, and of it are made the gradients at its four pixels, nothing at three of them.

Shapes beside those of the way there: `passed` (B, 64 PH PW), the gradient at `pooled` before dropout, in its order and
with the same two bits in each value; `second_parts` (stretches of cells, 9 * 32 * 64 + 64), parts of the gradient of
the second convolution, weights and then bias; `first_parts` (stretches of blocks, 9 C + 1, 32), those of the first
one's, its bias last.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from continual_crust.models.simple_cnn_forward_kernels import (
    FIRST,
    SAMPLES,
    SECOND,
    UNITS,
    Images,
    pixels_at,
    places_of,
)

OF_WEIGHTS = 9 * FIRST * SECOND
OF_SECOND = OF_WEIGHTS + SECOND
"""Where in a part of the second convolution's gradient its weights end, and its bias."""
PASSED_INPUTS, PASSED_WARPS = 32, 4
"""Inputs of the linear layer to which one program takes the gradient back; 64 are a multiple of them."""
UNITS_OF_TILE, INPUTS_OF_TILE, TILE_WARPS = 32, 64, 4
"""Weights of the linear layer whose gradient one program computes."""
BLOCKS, FIRST_WARPS = 64, 4
"""Of 2 x 2 pixels of the first convolution's output, which one program takes."""


class Stretch(NamedTuple):
    """Which of the second convolution's cells one program takes, by what is fastest on an H200."""

    cells: int
    """At a time."""
    rounds: int
    warps: int


SECOND_WEIGHTS = Stretch(64, 1, 4)
_OF_WEIGHTS, _OF_SECOND = tl.constexpr(OF_WEIGHTS), tl.constexpr(OF_SECOND)


@triton.jit
def errors_at(upstream, features, at, here, rate):
    """The gradient at the linear layer's output: what comes from above has to go through dropout and rectifier first.

    Without `features` it has.
    """
    error = tl.load(upstream + at, mask=here, other=0)
    if features is not None:
        alive = tl.load(features + at, mask=here, other=0) > 0
        error = tl.where(alive, error * (1 / (1 - rate)), 0)
    return error


@triton.jit(do_not_specialize=["batch"])
def _passed(
    upstream, features, pooled, weight, passed, batch, rates, PLACES: tl.constexpr, SAMPLES: tl.constexpr,
    INPUTS: tl.constexpr,
):  # fmt: skip
    """The way back to some of the linear layer's inputs, with the pixel that each was taken from."""
    inputs: tl.constexpr = 64 * PLACES
    entry, unit = tl.program_id(0) * INPUTS + tl.arange(0, INPUTS), tl.arange(0, 128)
    sample = tl.program_id(1) * SAMPLES + tl.arange(0, SAMPLES)
    here = (sample < batch)[:, None]
    weights = tl.load(weight + unit[:, None] * inputs + entry[None, :])
    error = errors_at(upstream, features, sample[:, None] * 128 + unit[None, :], here, rates[1])
    at = sample[:, None] * inputs + entry[None, :]
    values = tl.load(pooled + at, mask=here, other=0)
    back = tl.where(values > 0, tl.dot(error, weights) * (1 / (1 - rates[0])), 0)
    back = (back.to(tl.int32, bitcast=True) & -4) | (values.to(tl.int32, bitcast=True) & 3)
    tl.store(passed + at, back.to(tl.float32, bitcast=True), mask=here)


@triton.jit
def weights_of_tile(number, PLACES: tl.constexpr, UNITS: tl.constexpr, INPUTS: tl.constexpr):
    """Units and inputs between which a tile of the linear layer's weights lies."""
    across: tl.constexpr = 64 * PLACES // INPUTS
    return number // across * UNITS + tl.arange(0, UNITS), number % across * INPUTS + tl.arange(0, INPUTS)


@triton.jit
def turned_gradient(
    upstream, features, pooled, unit, entry, batch, rate, PLACES: tl.constexpr, TILES: tl.constexpr,
    SAMPLES: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of the linear layer's weights, (inputs, units).

    Computed the other way round, everything that is done with the weights afterwards would be moved to the order that
    tensor cores answer in, and back; like this it stays in the order of memory, and only the gradient is moved.
    """
    turned = tl.zeros((entry.shape[0], unit.shape[0]), tl.float32)
    for tile in tl.static_range(TILES):
        sample = tile * SAMPLES + tl.arange(0, SAMPLES)
        here = sample < batch
        values = tl.load(pooled + sample[None, :] * (64 * PLACES) + entry[:, None], mask=here[None, :], other=0)
        at = sample[:, None] * 128 + unit[None, :]
        turned = tl.dot(values, errors_at(upstream, features, at, here[:, None], rate), turned)
    return turned


@triton.jit(do_not_specialize=["batch"])
def _linear_weights(
    upstream, features, pooled, weight_grad, bias_grad, batch, rate, PLACES: tl.constexpr, TILES: tl.constexpr,
    SAMPLES: tl.constexpr, UNITS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of the linear layer's weights; one program in each row of tiles also has its biases'."""
    unit, entry = weights_of_tile(tl.program_id(0), PLACES, UNITS, INPUTS)
    turned = turned_gradient(upstream, features, pooled, unit, entry, batch, rate, PLACES, TILES, SAMPLES)
    tl.store(weight_grad + unit[:, None] * (64 * PLACES) + entry[None, :], tl.trans(turned))
    if tl.program_id(0) % (64 * PLACES // INPUTS) == 0:
        of_bias = tl.zeros((UNITS,), tl.float32)
        for tile in tl.static_range(TILES):
            sample = tile * SAMPLES + tl.arange(0, SAMPLES)
            at = sample[:, None] * 128 + unit[None, :]
            of_bias += tl.sum(errors_at(upstream, features, at, (sample < batch)[:, None], rate), axis=0)
        tl.store(bias_grad + unit, of_bias)


@triton.jit
def _only(values, PIXEL: tl.constexpr):
    """The gradient at one of the four pixels of each cell: nothing where pooling took its value from another."""
    return tl.where((values.to(tl.int32, bitcast=True) & 3) == PIXEL, values, 0)


@triton.jit
def _back_through(total, error, taps, DOWN: tl.constexpr, RIGHT: tl.constexpr):
    """Add what an error gives to the hidden pixel so far from it, if it reaches that far."""
    if DOWN >= 0 and DOWN < 3 and RIGHT >= 0 and RIGHT < 3:
        at = (DOWN * 3 + RIGHT) * 2048 + tl.arange(0, 32)[None, :] * 64 + tl.arange(0, 64)[:, None]
        total = tl.dot(error, tl.load(taps + at), total)
    return total


@triton.jit
def _hidden_at(hidden, image, row, column, inside, H: tl.constexpr, W: tl.constexpr):
    """Hidden pixels, (pixels, 32)."""
    at = ((image * (H - 2) + row) * (W - 2) + column)[:, None] * 32 + tl.arange(0, 32)[None, :]
    return tl.load(hidden + at, mask=inside[:, None], other=0)


@triton.jit
def _of_first(
    total, error, source, hidden, image, row, column, inside, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    TAPS: tl.constexpr,
):  # fmt: skip
    """Add what the errors at hidden pixels give to the first convolution; the tap after the last is its bias."""
    alive = _hidden_at(hidden, image, row, column, inside, H, W) > 0
    tap = tl.arange(0, TAPS)[:, None]
    corner = places_of(source, image, inside) * (C * H * W) + row * W + column
    shift = (tap // 9 * H + tap % 9 // 3) * W + tap % 3
    known = (tap < C * 9) & inside[None, :]
    values = pixels_at(source, corner[None, :] + shift, tl.minimum(tap // 9, C - 1), known)
    return tl.dot(tl.where(tap < C * 9, values, 1.0), tl.where(alive, error, 0), total)


@triton.jit(do_not_specialize=["blocks"])
def _first_weights(
    source, passed, taps, hidden, parts, blocks, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr,
    BLOCKS: tl.constexpr,
):  # fmt: skip
    """Part of the gradient of the first convolution, from blocks of 2 x 2 hidden pixels: only four cells reach one.

    Hidden pixels below and right of the last block get nothing, as pooling left out what they lead to.
    """
    rows: tl.constexpr = (H - 4) // 2
    columns: tl.constexpr = (W - 4) // 2
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < blocks
    image = block // ((rows + 1) * (columns + 1))
    row, column = block // (columns + 1) % (rows + 1), block % (columns + 1)
    upper_left = tl.zeros((BLOCKS, 32), tl.float32)
    upper_right = tl.zeros((BLOCKS, 32), tl.float32)
    lower_left = tl.zeros((BLOCKS, 32), tl.float32)
    lower_right = tl.zeros((BLOCKS, 32), tl.float32)
    for cell in tl.static_range(4):
        above, before = row - (1 - cell // 2), column - (1 - cell % 2)
        known = inside & (above >= 0) & (above < rows) & (before >= 0) & (before < columns)
        at = (image * (64 * rows * columns) + above * columns + before)[:, None]
        at += tl.arange(0, 64)[None, :] * (rows * columns)
        values = tl.load(passed + at, mask=known[:, None], other=0)
        for pixel in tl.static_range(4):
            error = _only(values, pixel)
            # How far it is down and right from this pixel to each of the block's.
            upper_left = _back_through(
                upper_left, error, taps, 2 - cell // 2 * 2 - pixel // 2, 2 - cell % 2 * 2 - pixel % 2
            )
            upper_right = _back_through(
                upper_right, error, taps, 2 - cell // 2 * 2 - pixel // 2, 3 - cell % 2 * 2 - pixel % 2
            )
            lower_left = _back_through(
                lower_left, error, taps, 3 - cell // 2 * 2 - pixel // 2, 2 - cell % 2 * 2 - pixel % 2
            )
            lower_right = _back_through(
                lower_right, error, taps, 3 - cell // 2 * 2 - pixel // 2, 3 - cell % 2 * 2 - pixel % 2
            )
    row, column = row * 2, column * 2
    total = tl.zeros((TAPS, 32), tl.float32)
    total = _of_first(total, upper_left, source, hidden, image, row, column, inside, H, W, C, TAPS)
    total = _of_first(total, upper_right, source, hidden, image, row, column + 1, inside, H, W, C, TAPS)
    total = _of_first(total, lower_left, source, hidden, image, row + 1, column, inside, H, W, C, TAPS)
    total = _of_first(total, lower_right, source, hidden, image, row + 1, column + 1, inside, H, W, C, TAPS)
    tap = tl.arange(0, TAPS)[:, None]
    at = parts + (tl.program_id(0) * (C * 9 + 1) + tap) * 32 + tl.arange(0, 32)[None, :]
    tl.store(at, total, mask=tap <= C * 9)


@triton.jit(do_not_specialize=["cells"])
def _second_weights(
    passed, hidden, parts, cells, H: tl.constexpr, W: tl.constexpr, CELLS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Part of the gradient of three taps in a row of the second convolution, from some cells; and of its bias.

    Its weights are taken the other way round, by output channel first: 64 of these are what tensor cores want.
    """
    rows: tl.constexpr = (H - 4) // 2
    columns: tl.constexpr = (W - 4) // 2
    part, down = tl.program_id(0), tl.program_id(1)
    inner, outer = tl.arange(0, 32), tl.arange(0, 64)
    left = tl.zeros((64, 32), tl.float32)
    middle = tl.zeros((64, 32), tl.float32)
    right = tl.zeros((64, 32), tl.float32)
    of_bias = tl.zeros((64,), tl.float32)
    for turn in range(ROUNDS):
        cell = (part * ROUNDS + turn) * CELLS + tl.arange(0, CELLS)
        inside = cell < cells
        image, place = cell // (rows * columns), cell % (rows * columns)
        row, column = place // columns * 2 + down, place % columns * 2
        at = (image * (64 * rows * columns) + place)[None, :] + outer[:, None] * (rows * columns)
        values = tl.load(passed + at, mask=inside[None, :], other=0)
        of_bias += tl.sum(values, axis=1)
        for lower in tl.static_range(2):
            first = _hidden_at(hidden, image, row + lower, column, inside, H, W)
            second = _hidden_at(hidden, image, row + lower, column + 1, inside, H, W)
            third = _hidden_at(hidden, image, row + lower, column + 2, inside, H, W)
            fourth = _hidden_at(hidden, image, row + lower, column + 3, inside, H, W)
            one, other = _only(values, 2 * lower), _only(values, 2 * lower + 1)
            left = tl.dot(one, first, left)
            middle = tl.dot(one, second, middle)
            left = tl.dot(other, second, left)
            right = tl.dot(one, third, right)
            middle = tl.dot(other, third, middle)
            right = tl.dot(other, fourth, right)
    part = parts + part * _OF_SECOND
    at = part + down * (3 * 2048) + inner[None, :] * 64 + outer[:, None]
    tl.store(at, left)
    tl.store(at + 2048, middle)
    tl.store(at + 4096, right)
    if down == 0:
        tl.store(part + _OF_WEIGHTS + outer, of_bias)


def first_parts_of(batch: int, height: int, width: int) -> int:
    """How many parts the gradient of the first convolution has."""
    return int(triton.cdiv(_blocks(batch, height, width), BLOCKS))


def second_parts_of(pooled: Tensor) -> int:
    """How many parts the gradient of the second convolution has."""
    return int(triton.cdiv(pooled.numel() // SECOND, SECOND_WEIGHTS.cells * SECOND_WEIGHTS.rounds))


def _blocks(batch: int, height: int, width: int) -> int:
    return batch * ((height - 4) // 2 + 1) * ((width - 4) // 2 + 1)


def linear_tiles_of(places: int) -> int:
    """How many tiles the linear layer's weights have."""
    return (UNITS // UNITS_OF_TILE) * (SECOND * places // INPUTS_OF_TILE)


def pass_on(
    upstream: Tensor,
    features: Tensor | None,
    pooled: Tensor,
    weight: Tensor,
    rates: tuple[float, float],
    passed: Tensor,
) -> None:
    """Fill `passed`; without `features`, from what has been taken back through these."""
    batch, inputs = pooled.shape
    _passed[(inputs // PASSED_INPUTS, triton.cdiv(batch, SAMPLES))](
        upstream, features, pooled, weight, passed, batch, rates, inputs // SECOND, SAMPLES, PASSED_INPUTS,
        num_warps=PASSED_WARPS,
    )  # fmt: skip


def linear(
    upstream: Tensor,
    features: Tensor,
    pooled: Tensor,
    rate: float,
    weight_grad: Tensor,
    bias_grad: Tensor,
) -> None:
    """Fill the gradients of the linear layer."""
    batch, places = len(pooled), pooled.shape[1] // SECOND
    _linear_weights[(linear_tiles_of(places),)](
        upstream, features, pooled, weight_grad, bias_grad, batch, rate, places, triton.cdiv(batch, SAMPLES), SAMPLES,
        UNITS_OF_TILE, INPUTS_OF_TILE, num_warps=TILE_WARPS,
    )  # fmt: skip


def convolutions(
    source: Images, passed: Tensor, taps: Tensor, hidden: Tensor, first_parts: Tensor, second_parts: Tensor
) -> None:
    """Fill the parts of the gradients of both convolutions."""
    channels, height, width = source.images.shape[1:]
    rows = max(16, triton.next_power_of_2(channels * 9 + 1))
    _first_weights[(len(first_parts),)](
        source, passed, taps, hidden, first_parts, _blocks(len(hidden), height, width), height, width, channels, rows,
        BLOCKS, num_warps=FIRST_WARPS,
    )  # fmt: skip
    cells, rounds, warps = SECOND_WEIGHTS
    _second_weights[(len(second_parts), 3)](
        passed, hidden, second_parts, passed.numel() // SECOND, height, width, cells, rounds, num_warps=warps
    )
