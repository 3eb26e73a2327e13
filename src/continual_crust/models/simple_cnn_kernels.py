"""Triton kernels for one training step of `SimpleCNN`. Import only where Triton is installed.

Layer by layer this is dozens of small kernels, most of them waiting for memory or for each other. Here it is ten:
activations are laid out for tensor cores from the start, and rectifier, pooling and dropout cost nothing of their own.
Products are in TF32, as cuDNN's are. Sums that several programs share are written part by part and added in a fixed
order, so that a step gives the same bits every time.

Shapes: images (B, C, H, W); `hidden` (B, H-2, W-2, 32) after the first convolution; `pooled` (B, 64 PH PW) in the order
of `nn.Flatten`; `code` as `pooled`, a byte that says which of its four values a maximum was, or 4 where no gradient
passes; `spread` (B, H-4, W-4, 64), the gradient at the second convolution; `features` (B, 128).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

FIRST, SECOND, UNITS = 32, 64, 128
BLOCKED = tl.constexpr(4)
SPLITS_OF = 128
"""Inputs of the linear layer that one program sums over."""
CELLS, PIXELS, SUMMED = 32, 64, 64
"""Pooled values, pixels and summed pixels that one program of the second convolution takes at a time."""
OF_WEIGHTS = 9 * FIRST * SECOND
OF_BIAS = OF_WEIGHTS + SECOND
"""Where in a part of the convolutions' gradients the second one's weights end, and its bias; the first one's follow."""
_OF_WEIGHTS, _OF_BIAS = tl.constexpr(OF_WEIGHTS), tl.constexpr(OF_BIAS)


@triton.jit(do_not_specialize=["pixels"])
def _first_forward(
    images, weight, bias, hidden, pixels, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, PIXELS: tl.constexpr
):
    rows, columns = H - 2, W - 2
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < pixels
    image, row, column = pixel // (rows * columns), pixel // columns % rows, pixel % columns
    channel = tl.arange(0, 32)
    total = tl.zeros((PIXELS, 32), tl.float32) + tl.load(bias + channel)[None, :]
    for tap in tl.static_range(C * 9):
        plane, down, right = tap // 9, tap % 9 // 3, tap % 3
        value = tl.load(images + ((image * C + plane) * H + row + down) * W + column + right, mask=inside, other=0)
        total += value[:, None] * tl.load(weight + channel * (C * 9) + tap)[None, :]
    tl.store(hidden + pixel[:, None] * 32 + channel[None, :], tl.maximum(total, 0), mask=inside[:, None])


@triton.jit(do_not_specialize=["cells"])
def _second_forward(
    hidden,
    taps,
    bias,
    chance,
    pooled,
    code,
    cells,
    chances,
    rate,
    H: tl.constexpr,
    W: tl.constexpr,
    CELLS: tl.constexpr,
):
    """Convolution, rectifier, pooling, dropout. The four values of a cell have a sum each."""
    rows: tl.constexpr = (H - 4) // 2
    columns: tl.constexpr = (W - 4) // 2
    cell = tl.program_id(0) * CELLS + tl.arange(0, CELLS)
    inside = cell < cells
    image, place = cell // (rows * columns), cell % (rows * columns)
    corner = (image * (H - 2) + place // columns * 2) * (W - 2) + place % columns * 2
    inner, outer = tl.arange(0, 32), tl.arange(0, 64)
    most = tl.zeros((CELLS, 64), tl.float32)
    second = tl.zeros((CELLS, 64), tl.float32)
    third = tl.zeros((CELLS, 64), tl.float32)
    fourth = tl.zeros((CELLS, 64), tl.float32)
    for tap in range(9):
        weights = tl.load(taps + tap * 2048 + inner[:, None] * 64 + outer[None, :])
        at = hidden + (corner + tap // 3 * (W - 2) + tap % 3)[:, None] * 32 + inner[None, :]
        known = inside[:, None]
        most += tl.dot(tl.load(at, mask=known, other=0), weights)
        second += tl.dot(tl.load(at + 32, mask=known, other=0), weights)
        third += tl.dot(tl.load(at + (W - 2) * 32, mask=known, other=0), weights)
        fourth += tl.dot(tl.load(at + (W - 1) * 32, mask=known, other=0), weights)
    which = tl.where(second > most, 1, 0)
    most = tl.maximum(most, second)
    which = tl.where(third > most, 2, which)
    most = tl.maximum(most, third)
    which = tl.where(fourth > most, 3, which)
    most = tl.trans(tl.maximum(most, fourth) + tl.load(bias + outer)[None, :])
    which = tl.trans(which)
    within = outer[:, None] * (rows * columns) + place[None, :]
    at = image[None, :] * (64 * rows * columns) + within
    known = inside[None, :]
    alive = (tl.load(chance + image[None, :] * chances + within, mask=known, other=0) >= rate) & (most > 0)
    tl.store(pooled + at, tl.where(alive, most / (1 - rate), 0), mask=known)
    tl.store(code + at, tl.where(alive, which, BLOCKED).to(tl.int8), mask=known)


@triton.jit(do_not_specialize=["batch"])
def _linear_forward(pooled, weight, parts, batch, inputs, BATCH: tl.constexpr, SPLIT: tl.constexpr):
    """One stretch of the sum over inputs."""
    sample = tl.program_id(1) * BATCH + tl.arange(0, BATCH)
    here = (sample < batch)[:, None]
    unit = tl.arange(0, 128)
    total = tl.zeros((BATCH, 128), tl.float32)
    for start in tl.static_range(0, SPLIT, 32):
        entry = tl.program_id(0) * SPLIT + start + tl.arange(0, 32)
        known = entry < inputs
        values = tl.load(pooled + sample[:, None] * inputs + entry[None, :], mask=here & known[None, :], other=0)
        weights = tl.load(weight + unit[None, :] * inputs + entry[:, None], mask=known[:, None], other=0)
        total += tl.dot(values, weights)
    at = (tl.program_id(0) * batch + sample[:, None]) * 128 + unit[None, :]
    tl.store(parts + at, total, mask=here)


@triton.jit(do_not_specialize=["batch"])
def _linear_finish(
    parts,
    bias,
    chance,
    features,
    batch,
    chances,
    first,
    rate,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Sum, rectifier, dropout, for some units of one sample. All parts are on their way at the same time."""
    sample = tl.program_id(0)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    split = tl.arange(0, ROWS)
    at = (split[:, None] * batch + sample) * 128 + unit[None, :]
    total = tl.sum(tl.load(parts + at, mask=(split < SPLITS)[:, None], other=0), axis=0) + tl.load(bias + unit)
    kept = tl.load(chance + sample * chances + first + unit) >= rate
    tl.store(features + sample * 128 + unit, tl.where(kept & (total > 0), total / (1 - rate), 0))


@triton.jit(do_not_specialize=["batch"])
def _linear_backward(
    upstream,
    features,
    pooled,
    weight,
    weight_grad,
    bias_grad,
    passed,
    batch,
    inputs,
    unit_rate,
    rate,
    TILES: tl.constexpr,
    BATCH: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """Gradients of the linear layer's weights and bias, and of what pooling left."""
    entry = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES)
    known = (entry < inputs)[None, :]
    unit = tl.arange(0, 128)
    weights = tl.load(weight + unit[:, None] * inputs + entry[None, :], mask=known, other=0)
    gradient = tl.zeros((128, ENTRIES), tl.float32)
    of_bias = tl.zeros((128,), tl.float32)
    for tile in range(TILES):
        sample = tile * BATCH + tl.arange(0, BATCH)
        here = (sample < batch)[:, None]
        at = sample[:, None] * 128 + unit[None, :]
        alive = tl.load(features + at, mask=here, other=0) > 0
        error = tl.where(alive, tl.load(upstream + at, mask=here, other=0) / (1 - unit_rate), 0)
        of_bias += tl.sum(error, axis=0)
        at = sample[:, None] * inputs + entry[None, :]
        gradient += tl.dot(tl.trans(error), tl.load(pooled + at, mask=here & known, other=0))
        tl.store(passed + at, tl.dot(error, weights) / (1 - rate), mask=here & known)
    tl.store(weight_grad + unit[:, None] * inputs + entry[None, :], gradient, mask=known)
    if tl.program_id(0) == 0:
        tl.store(bias_grad + unit, of_bias)


@triton.jit
def _spread(passed, code, spread, H: tl.constexpr, W: tl.constexpr, CELLS: tl.constexpr):
    """Put the gradient where pooling took the value from, and nothing elsewhere."""
    rows: tl.constexpr = (H - 4) // 2
    columns: tl.constexpr = (W - 4) // 2
    image = tl.program_id(0)
    cell = tl.program_id(1) * CELLS + tl.arange(0, CELLS)
    inside = cell < rows * columns
    outer = tl.arange(0, 64)
    at = image * (64 * rows * columns) + outer[:, None] * (rows * columns) + cell[None, :]
    value = tl.trans(tl.load(passed + at, mask=inside[None, :], other=0))
    which = tl.trans(tl.load(code + at, mask=inside[None, :], other=4).to(tl.int32))
    corner = (image * (H - 4) + cell // columns * 2) * (W - 4) + cell % columns * 2
    for quarter in tl.static_range(4):
        pixel = corner + quarter // 2 * (W - 4) + quarter % 2
        at = spread + pixel[:, None] * 64 + outer[None, :]
        tl.store(at, tl.where(which == quarter, value, 0), mask=inside[:, None])


@triton.jit(do_not_specialize=["pixels"])
def _second_backward(spread, taps, hidden, error, pixels, H: tl.constexpr, W: tl.constexpr, PIXELS: tl.constexpr):
    """Gradient at the first convolution's output, before its rectifier."""
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < pixels
    image, row, column = pixel // ((H - 2) * (W - 2)), pixel // (W - 2) % (H - 2), pixel % (W - 2)
    inner, outer = tl.arange(0, 32), tl.arange(0, 64)
    total = tl.zeros((PIXELS, 32), tl.float32)
    for tap in range(9):
        up, left = row - tap // 3, column - tap % 3
        there = inside & (up >= 0) & (up < H - 4) & (left >= 0) & (left < W - 4)
        source = (image * (H - 4) + up) * (W - 4) + left
        values = tl.load(spread + source[:, None] * 64 + outer[None, :], mask=there[:, None], other=0)
        total += tl.dot(values, tl.load(taps + tap * 2048 + inner[None, :] * 64 + outer[:, None]))
    at = pixel[:, None] * 32 + inner[None, :]
    alive = tl.load(hidden + at, mask=inside[:, None], other=0) > 0
    tl.store(error + at, tl.where(alive, total, 0), mask=inside[:, None])


@triton.jit
def _second_weights(spread, hidden, parts, length, H: tl.constexpr, W: tl.constexpr, PIXELS: tl.constexpr):
    """Part of the gradient of three taps in a row of the second convolution, from half an image; and of its bias."""
    part, down = tl.program_id(0), tl.program_id(1)
    image = part // 2
    half: tl.constexpr = ((H - 4) * (W - 4) + 1) // 2
    inner, outer = tl.arange(0, 32), tl.arange(0, 64)
    left = tl.zeros((32, 64), tl.float32)
    middle = tl.zeros((32, 64), tl.float32)
    right = tl.zeros((32, 64), tl.float32)
    of_bias = tl.zeros((64,), tl.float32)
    for start in range(0, half, PIXELS):
        within = start + tl.arange(0, PIXELS)
        pixel = part % 2 * half + within
        inside = (within < half) & (pixel < (H - 4) * (W - 4))
        at = image * ((H - 4) * (W - 4)) + pixel
        errors = tl.load(spread + at[:, None] * 64 + outer[None, :], mask=inside[:, None], other=0)
        source = (image * (H - 2) + pixel // (W - 4) + down) * (W - 2) + pixel % (W - 4)
        at = hidden + source[None, :] * 32 + inner[:, None]
        left += tl.dot(tl.load(at, mask=inside[None, :], other=0), errors)
        middle += tl.dot(tl.load(at + 32, mask=inside[None, :], other=0), errors)
        right += tl.dot(tl.load(at + 64, mask=inside[None, :], other=0), errors)
        of_bias += tl.sum(errors, axis=0)
    at = parts + part * length + down * (3 * 2048) + inner[:, None] * 64 + outer[None, :]
    tl.store(at, left)
    tl.store(at + 2048, middle)
    tl.store(at + 4096, right)
    tl.store(parts + part * length + _OF_WEIGHTS + outer, of_bias, mask=(outer >= 0) & (down == 0))


@triton.jit
def _first_weights(
    images,
    error,
    parts,
    length,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    TAPS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """Part of the gradient of the first convolution, from half an image; the tap after the last is its bias."""
    part = tl.program_id(0)
    image = part // 2
    half: tl.constexpr = ((H - 2) * (W - 2) + 1) // 2
    tap, outer = tl.arange(0, TAPS), tl.arange(0, 32)
    plane, shift = image * C + tap // 9, tap % 9 // 3 * W + tap % 3
    total = tl.zeros((TAPS, 32), tl.float32)
    for start in range(0, half, PIXELS):
        within = start + tl.arange(0, PIXELS)
        pixel = part % 2 * half + within
        inside = (within < half) & (pixel < (H - 2) * (W - 2))
        corner = pixel // (W - 2) * W + pixel % (W - 2)
        source = (plane * (H * W) + shift)[:, None] + corner[None, :]
        values = tl.load(images + source, mask=(tap < C * 9)[:, None] & inside[None, :], other=0)
        values = tl.where((tap == C * 9)[:, None], 1.0, values)
        at = image * ((H - 2) * (W - 2)) + pixel
        errors = tl.load(error + at[:, None] * 32 + outer[None, :], mask=inside[:, None], other=0)
        total += tl.dot(values, errors)
    at = parts + part * length + _OF_BIAS + tap[:, None] * 32 + outer[None, :]
    tl.store(at, total, mask=(tap <= C * 9)[:, None] & (outer >= 0)[None, :])


def forward(
    images: Tensor,
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    linear: tuple[Tensor, Tensor],
    chance: Tensor,
    rates: tuple[float, float],
) -> tuple[Tensor, ...]:
    """Features, and what :func:`backward` needs. `chance` holds a uniform number for each value that may be dropped."""
    batch, channels, height, width = images.shape
    inputs, cells = linear[0].shape[1], (height - 4) // 2 * ((width - 4) // 2)
    hidden = images.new_empty(batch, height - 2, width - 2, FIRST)
    pixels = hidden.numel() // FIRST
    _first_forward[(triton.cdiv(pixels, 64),)](images, *first, hidden, pixels, height, width, channels, 64)
    taps = second[0].permute(2, 3, 1, 0).contiguous()
    pooled = images.new_empty(batch, inputs)
    code = torch.empty_like(pooled, dtype=torch.int8)
    _second_forward[(triton.cdiv(batch * cells, CELLS),)](
        hidden, taps, second[1], chance, pooled, code, batch * cells, chance.shape[1], rates[0], height, width, CELLS
    )
    splits, tiles = triton.cdiv(inputs, SPLITS_OF), triton.cdiv(batch, 32)
    parts = images.new_empty(splits, batch, UNITS)
    _linear_forward[(splits, tiles)](pooled, linear[0], parts, batch, inputs, 32, SPLITS_OF)
    features = images.new_empty(batch, UNITS)
    rows = triton.next_power_of_2(splits)
    _linear_finish[(batch, 4)](
        parts, linear[1], chance, features, batch, chance.shape[1], inputs, rates[1], splits, rows, UNITS // 4
    )
    return features, hidden, taps, pooled, code


def backward(
    upstream: Tensor,
    images: Tensor,
    weight: Tensor,
    rates: tuple[float, float],
    features: Tensor,
    hidden: Tensor,
    taps: Tensor,
    pooled: Tensor,
    code: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients of weight and bias of the first convolution, the second, and the linear layer."""
    batch, channels, height, width = images.shape
    inputs = pooled.shape[1]
    weight_grad, bias_grad = torch.empty_like(weight), weight.new_empty(UNITS)
    even = height % 2 == 0 and width % 2 == 0
    # Pooling leaves out an odd last row and column, and nothing flows back to them.
    spread = (torch.empty if even else torch.zeros)((batch, height - 4, width - 4, SECOND), device=images.device)
    passed = torch.empty_like(pooled)
    _linear_backward[(triton.cdiv(inputs, 64),)](
        upstream, features, pooled, weight, weight_grad, bias_grad, passed, batch, inputs, rates[1], rates[0],
        triton.cdiv(batch, 32), 32, 64,
    )  # fmt: skip
    _spread[(batch, triton.cdiv(inputs // SECOND, 32))](passed, code, spread, height, width, 32)
    error = torch.empty_like(hidden)
    pixels = hidden.numel() // FIRST
    _second_backward[(triton.cdiv(pixels, PIXELS),)](spread, taps, hidden, error, pixels, height, width, PIXELS)
    length = OF_BIAS + (channels * 9 + 1) * FIRST
    parts = images.new_empty(2 * batch, length)
    _second_weights[(2 * batch, 3)](spread, hidden, parts, length, height, width, SUMMED)
    rows = max(16, triton.next_power_of_2(channels * 9 + 1))
    _first_weights[(2 * batch,)](images, error, parts, length, height, width, channels, rows, 128)
    total = parts.sum(dim=0)
    of_first = total[OF_BIAS:].view(channels * 9 + 1, FIRST)
    return (
        of_first[:-1].t().reshape(FIRST, channels, 3, 3),
        of_first[-1],
        total[:OF_WEIGHTS].view(3, 3, FIRST, SECOND).permute(3, 2, 0, 1),
        total[OF_WEIGHTS:OF_BIAS],
        weight_grad,
        bias_grad,
    )
