"""Triton kernels for batch normalisation in training, along with what surrounds it. Import only where Triton is there.

Forward: statistics, normalisation, scale and shift, a sum with a second input (or none), activation and running
statistics. Backward: the gradients of all of these. PyTorch takes up to six kernels for the one and four for the other,
and most of their time is waiting. Here a large layer takes two each, over parts of its pixels, and a small one one.

Images lie in memory pixel by pixel, all channels of a pixel side by side: a matrix of `rows` pixels. A program takes a
block of channels and some rounds of a tile of rows each. Parts are put together in a fixed order, so that a step gives
the same bits every time. Sums are in single precision whatever the inputs are, and a spread, which is a sum of squares
about the mean, is summed about the mean of its own tile.

`parts` (parts, 2, channels) holds mean and spread of each part, or the sums of the error and of error times normalised
value; `measured` (2, channels) holds the mean and the reciprocal of the deviation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

WHOLE = 512
"""Up to this many rows a program takes all of them, so that nothing has to be put together."""
MOST_PARTS = 64
TILES = (128, 512)
"""Rows of a tile: the larger where the smaller would make too many parts."""


@triton.jit
def _mean_and_spread(
    values, start, rows, channel, known, C, ROUNDS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr
):
    """Of some tiles of rows, of which the first has rows."""
    mean = tl.zeros((CHANNELS,), tl.float32)
    spread = tl.zeros((CHANNELS,), tl.float32)
    seen = 0
    for number in range(ROUNDS):
        first = start + number * TILE
        row = first + tl.arange(0, TILE)
        inside = (row < rows)[:, None] & known[None, :]
        tile = tl.load(values + row[:, None] * C + channel[None, :], mask=inside, other=0).to(tl.float32)
        here = tl.maximum(tl.minimum(rows - first, TILE), 0)
        tile_mean = tl.sum(tile, axis=0) / tl.maximum(here, 1)
        offset = tl.where(inside, tile - tile_mean[None, :], 0)
        share = here / (seen + here)
        shift = tile_mean - mean
        mean += shift * share
        spread += tl.sum(offset * offset, axis=0) + shift * shift * (seen * share)
        seen += here
    return mean, spread


@triton.jit
def _combined_mean_and_spread(parts, used, length, rows, channel, known, C, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    at = parts + part[:, None] * (2 * C) + channel[None, :]
    inside = (part < used)[:, None] & known[None, :]
    counts = tl.where(part < used, tl.minimum(rows - part * length, length), 0).to(tl.float32)[:, None]
    means = tl.load(at, mask=inside, other=0)
    mean = tl.sum(means * counts, axis=0) / rows
    offset = means - mean[None, :]
    spread = tl.sum(tl.load(at + C, mask=inside, other=0) + counts * offset * offset, axis=0)
    return mean, spread


@triton.jit
def _combined_sums(parts, used, channel, known, C, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    at = parts + part[:, None] * (2 * C) + channel[None, :]
    inside = (part < used)[:, None] & known[None, :]
    return tl.sum(tl.load(at, mask=inside, other=0), axis=0), tl.sum(tl.load(at + C, mask=inside, other=0), axis=0)


@triton.jit
def _error(upstream, output, at, inside, tile, scale, shift, ACTIVATION: tl.constexpr):
    """Gradient before the activation, which is known from the output if given, else from the normalised input."""
    error = tl.load(upstream + at, mask=inside, other=0).to(tl.float32)
    if ACTIVATION == "relu":
        if output is not None:
            reached = tl.load(output + at, mask=inside, other=0).to(tl.float32)
        else:
            reached = tile * scale[None, :] + shift[None, :]
        error = tl.where(reached <= 0, 0, error)
    if ACTIVATION == "silu":
        reached = tile * scale[None, :] + shift[None, :]
        gate = tl.sigmoid(reached)
        error *= gate * (1 + reached * (1 - gate))
    return error


@triton.jit
def _tile_of_errors(
    upstream, values, output, passed, row, rows, channel, known, scale, shift, C, ACTIVATION: tl.constexpr
):
    """Where some rows lie, which of them are there, their values and errors; these are left in `passed`, if given."""
    inside = (row < rows)[:, None] & known[None, :]
    at = row[:, None] * C + channel[None, :]
    tile = tl.load(values + at, mask=inside, other=0).to(tl.float32)
    error = _error(upstream, output, at, inside, tile, scale, shift, ACTIVATION)
    if passed is not None:
        tl.store(passed + at, error, mask=inside)
    return at, inside, tile, error


@triton.jit
def _affine(weight, bias, measured, channel, known, C):
    """Mean, reciprocal of the deviation, and the factor and summand that lead from the input to the activation."""
    mean = tl.load(measured + channel, mask=known, other=0)
    inverse = tl.load(measured + C + channel, mask=known, other=0)
    scale = tl.load(weight + channel, mask=known, other=0) * inverse
    return mean, inverse, scale, tl.load(bias + channel, mask=known, other=0) - mean * scale


@triton.jit
def _error_sums(
    upstream, values, output, weight, bias, measured, passed, start, rows, channel, known, C,
    ACTIVATION: tl.constexpr, ROUNDS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Sums over some tiles of rows; the errors themselves are left in `passed`, if given."""
    mean, inverse, scale, shift = _affine(weight, bias, measured, channel, known, C)
    of_error = tl.zeros((CHANNELS,), tl.float32)
    of_product = tl.zeros((CHANNELS,), tl.float32)
    for number in range(ROUNDS):
        row = start + number * TILE + tl.arange(0, TILE)
        _, _, tile, error = _tile_of_errors(
            upstream, values, output, passed, row, rows, channel, known, scale, shift, C, ACTIVATION
        )
        of_error += tl.sum(error, axis=0)
        of_product += tl.sum(error * (tile - mean[None, :]), axis=0)
    return of_error, of_product * inverse


@triton.jit(do_not_specialize=["rows"])
def _measure_parts(values, parts, rows, C, ROUNDS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr):
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < C
    start = tl.program_id(0) * ROUNDS * TILE
    mean, spread = _mean_and_spread(values, start, rows, channel, known, C, ROUNDS, TILE, CHANNELS)
    at = parts + tl.program_id(0) * (2 * C) + channel
    tl.store(at, mean, mask=known)
    tl.store(at + C, spread, mask=known)


@triton.jit(do_not_specialize=["rows", "used"])
def _forward(
    values, residual, output, weight, bias, running_mean, running_var, tracked, parts, measured,
    rows, used, C, epsilon, momentum,
    ACTIVATION: tl.constexpr, PARTS: tl.constexpr, ROUNDS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < C
    start = tl.program_id(0) * ROUNDS * TILE
    if PARTS:
        mean, spread = _combined_mean_and_spread(parts, used, ROUNDS * TILE, rows, channel, known, C, PARTS)
    else:
        mean, spread = _mean_and_spread(values, 0, rows, channel, known, C, ROUNDS, TILE, CHANNELS)
    inverse = 1 / tl.sqrt(spread / rows + epsilon)
    if tl.program_id(0) == 0:
        tl.store(measured + channel, mean, mask=known)
        tl.store(measured + C + channel, inverse, mask=known)
        old = tl.load(running_mean + channel, mask=known)
        tl.store(running_mean + channel, old + momentum * (mean - old), mask=known)
        old = tl.load(running_var + channel, mask=known)
        tl.store(running_var + channel, old + momentum * (spread / (rows - 1) - old), mask=known)
        if tl.program_id(1) == 0:
            tl.store(tracked, tl.load(tracked) + 1)
    scale = tl.load(weight + channel, mask=known, other=0) * inverse
    shift = tl.load(bias + channel, mask=known, other=0) - mean * scale
    for number in range(ROUNDS):
        row = start + number * TILE + tl.arange(0, TILE)
        inside = (row < rows)[:, None] & known[None, :]
        at = row[:, None] * C + channel[None, :]
        reached = tl.load(values + at, mask=inside, other=0).to(tl.float32) * scale[None, :] + shift[None, :]
        if residual is not None:
            reached += tl.load(residual + at, mask=inside, other=0).to(tl.float32)
        if ACTIVATION == "relu":
            reached = tl.where(reached <= 0, 0, reached)
        if ACTIVATION == "silu":
            reached *= tl.sigmoid(reached)
        tl.store(output + at, reached, mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _sum_parts(
    upstream, values, output, weight, bias, measured, passed, parts, rows, C,
    ACTIVATION: tl.constexpr, ROUNDS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < C
    start = tl.program_id(0) * ROUNDS * TILE
    of_error, of_product = _error_sums(
        upstream, values, output, weight, bias, measured, passed, start, rows, channel, known, C,
        ACTIVATION, ROUNDS, TILE, CHANNELS,
    )  # fmt: skip
    at = parts + tl.program_id(0) * (2 * C) + channel
    tl.store(at, of_error, mask=known)
    tl.store(at + C, of_product, mask=known)


@triton.jit(do_not_specialize=["rows", "used"])
def _backward(
    upstream, values, output, weight, bias, measured, passed, parts, gradient, weight_grad, bias_grad,
    rows, used, C,
    ACTIVATION: tl.constexpr, PARTS: tl.constexpr, ROUNDS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < C
    start = tl.program_id(0) * ROUNDS * TILE
    if PARTS:
        of_error, of_product = _combined_sums(parts, used, channel, known, C, PARTS)
    else:
        of_error, of_product = _error_sums(
            upstream, values, output, weight, bias, measured, None, 0, rows, channel, known, C,
            ACTIVATION, ROUNDS, TILE, CHANNELS,
        )  # fmt: skip
    if tl.program_id(0) == 0:
        tl.store(bias_grad + channel, of_error, mask=known)
        tl.store(weight_grad + channel, of_product, mask=known)
    mean, inverse, scale, shift = _affine(weight, bias, measured, channel, known, C)
    mean_error = of_error / rows
    slope = of_product / rows * inverse
    for number in range(ROUNDS):
        row = start + number * TILE + tl.arange(0, TILE)
        at, inside, tile, error = _tile_of_errors(
            upstream, values, output, passed, row, rows, channel, known, scale, shift, C, ACTIVATION
        )
        change = error - mean_error[None, :] - (tile - mean[None, :]) * slope[None, :]
        tl.store(gradient + at, change * scale[None, :], mask=inside)


class _Plan(NamedTuple):
    """How a layer is shared out."""

    tile: int
    channels: int
    rounds: int
    parts: int
    warps: int


def _plan(rows: int) -> _Plan:
    if rows <= WHOLE:
        return _Plan(WHOLE, 16, 1, 1, 8)
    tile = next((tile for tile in TILES if triton.cdiv(rows, tile) <= MOST_PARTS), TILES[-1])
    # A power of two, as each number of rounds is compiled and the last batch of an epoch may have any size.
    rounds = triton.next_power_of_2(triton.cdiv(rows, tile * MOST_PARTS))
    return _Plan(tile, 32, rounds, triton.cdiv(rows, tile * rounds), 4 if tile == TILES[0] else 8)


def forward(
    values: Tensor,
    residual: Tensor | None,
    affine: tuple[Tensor, Tensor],
    running: tuple[Tensor, Tensor, Tensor],
    epsilon: float,
    momentum: float,
    activation: str,
) -> tuple[Tensor, Tensor]:
    """Output, and the statistics that :func:`backward` needs.

    Parameters
    ----------
    values, residual
        Images, channels last; the second is added before the activation.
    affine
        Weight and bias.
    running
        Mean, variance and number of batches, which are changed in place.
    epsilon, momentum
        As of `nn.BatchNorm2d`.
    activation
        ``none``, ``relu`` or ``silu``.
    """
    channels = values.shape[1]
    rows = values.numel() // channels
    plan = _plan(rows)
    grid = plan.parts, triton.cdiv(channels, plan.channels)
    output = torch.empty_like(values)
    measured = affine[0].new_empty(2, channels)
    parts, power = None, 0
    if plan.parts > 1:
        parts, power = _new_parts(plan, measured)
        _measure_parts[grid](values, parts, rows, channels, plan.rounds, plan.tile, plan.channels, num_warps=plan.warps)
    _forward[grid](
        values, residual, output, *affine, *running, parts, measured, rows, plan.parts, channels,
        epsilon, momentum, activation, power, plan.rounds, plan.tile, plan.channels, num_warps=plan.warps,
    )  # fmt: skip
    return output, measured


def backward(
    upstream: Tensor,
    values: Tensor,
    output: Tensor | None,
    measured: Tensor,
    affine: tuple[Tensor, Tensor],
    activation: str,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Gradients of values, residual, weight and bias; `output` is that of :func:`forward` where it had a residual."""
    channels = values.shape[1]
    rows = values.numel() // channels
    plan = _plan(rows)
    grid = plan.parts, triton.cdiv(channels, plan.channels)
    gradient = torch.empty_like(values)
    passed = None if output is None else torch.empty_like(output)
    weight_grad, bias_grad = torch.empty_like(affine[0]), torch.empty_like(affine[1])
    left, parts, power = passed, None, 0
    if plan.parts > 1:
        parts, power = _new_parts(plan, measured)
        _sum_parts[grid](
            upstream, values, output, *affine, measured, passed, parts, rows, channels,
            activation, plan.rounds, plan.tile, plan.channels, num_warps=plan.warps,
        )  # fmt: skip
        if passed is not None:  # what follows starts from there
            upstream, output, left, activation = passed, None, None, "none"
    _backward[grid](
        upstream, values, output, *affine, measured, left, parts, gradient, weight_grad, bias_grad,
        rows, plan.parts, channels, activation, power, plan.rounds, plan.tile, plan.channels, num_warps=plan.warps,
    )  # fmt: skip
    return gradient, passed, weight_grad, bias_grad


def _new_parts(plan: _Plan, like: Tensor) -> tuple[Tensor, int]:
    """Room for the parts, and a power of two that holds their number; of these there are two, as each is compiled."""
    return like.new_empty(plan.parts, 2, like.shape[1]), 16 if plan.parts <= 16 else MOST_PARTS
