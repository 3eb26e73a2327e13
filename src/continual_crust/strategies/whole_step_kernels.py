"""Triton kernels that close the gap between `SimpleCNN`'s and a whole training step. Import only with Triton.

The head, its loss and their gradients are one kernel, and so is Adam. The gradient of the linear layer's weights, most
of all there are, is computed where they are updated and never stored; all others lie in parts, which Adam's kernel adds
up itself. It also lays out the second convolution's new weights for the next step.

A counter is advanced by a kernel whose programs do not read it, and read by later kernels only.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from continual_crust.models.simple_cnn_backward_kernels import (
    INPUTS_OF_TILE,
    OF_SECOND,
    OF_WEIGHTS,
    TILE_WARPS,
    UNITS_OF_TILE,
    linear_tiles_of,
    turned_gradient,
    weights_of_tile,
)
from continual_crust.models.simple_cnn_forward_kernels import SAMPLES, SECOND, Draws, Images, feature_values, places_of
from continual_crust.strategies.adam_kernel import Learned, Settings, corrections, update, updated

HEAD_WARPS, ADAM_WARPS = 4, TILE_WARPS
ROWS, SECOND_ROWS = 128, 72
"""Parts of a gradient that are on their way at the same time; of the second convolution's weights it is fewer."""
WIDE, OUTER = 32, 8
"""A program's share of the second convolution's weights: so many in a row, of so many output channels. These are whole
sectors of memory in the weights and in the parts of their gradient too, where output channels lie side by side."""
_OF_SECOND, _OF_WEIGHTS = tl.constexpr(OF_SECOND), tl.constexpr(OF_WEIGHTS)
_ROWS, _SECOND_ROWS = tl.constexpr(ROWS), tl.constexpr(SECOND_ROWS)
_WIDE, _OUTER = tl.constexpr(WIDE), tl.constexpr(OUTER)


class Network(NamedTuple):
    """All that the network learns."""

    first_weight: Learned
    first_bias: Learned
    second_weight: Learned
    second_bias: Learned
    linear_weight: Learned
    linear_bias: Learned
    head_weight: Learned
    head_bias: Learned


class Progress(NamedTuple):
    """What a step counts."""

    counter: Tensor
    """Steps of this epoch."""
    loss_sum: Tensor
    """Over these steps."""
    steps: Tensor
    """Of the optimizer, this one included once the head is done."""
    corrections: Tensor
    """Adam's two for this step."""


class Gradients(NamedTuple):
    """What Adam's kernel makes gradients of."""

    first_parts: Tensor
    second_parts: Tensor
    upstream: Tensor
    """At the linear layer's output, before rectifier and dropout, (B, 128)."""
    features: Tensor
    slopes: Tensor
    """At the logits, (B, classes)."""
    losses: Tensor
    """Of each sample, a part of the batch's."""


@triton.jit(do_not_specialize=["batch"])
def _head(
    parts, network, source, labels, weights, draws, features, upstream, slopes, losses, progress, settings, batch,
    inputs, classes, rate, SPLITS: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """One sample's features, logits and loss, and the gradients at all three."""
    sample = tl.program_id(0)
    unit, number = tl.arange(0, 128), tl.arange(0, CLASSES)
    bias = network.linear_bias.value
    feature = feature_values(parts, bias, draws, sample, unit, batch, inputs, rate, SPLITS, ROWS)
    known = number < classes
    at = number[:, None] * 128 + unit[None, :]
    matrix = tl.load(network.head_weight.value + at, mask=known[:, None], other=0)
    logits = tl.load(network.head_bias.value + number, mask=known, other=float("-inf"))
    logits += tl.sum(matrix * feature[None, :], axis=1)
    place = places_of(source, sample, sample < batch)
    given = number == tl.load(labels + place)
    weight = tl.load(weights + place) / batch
    logits -= tl.max(logits, axis=0)
    total = tl.sum(tl.exp(logits), axis=0)
    slope = (tl.exp(logits) / total - tl.where(given, 1.0, 0.0)) * weight
    tl.store(features + sample * 128 + unit, feature)
    error = tl.where(feature > 0, tl.sum(matrix * slope[:, None], axis=0) * (1 / (1 - rate)), 0)
    tl.store(upstream + sample * 128 + unit, error)
    tl.store(slopes + sample * classes + number, slope, mask=known)
    tl.store(losses + sample, (tl.log(total) - tl.sum(tl.where(given, logits, 0), axis=0)) * weight)
    if sample == 0:
        steps = tl.load(progress.steps) + 1
        scale, root = corrections(steps, settings)
        tl.store(progress.steps, steps)
        tl.store(progress.corrections, scale)
        tl.store(progress.corrections + 1, root)


@triton.jit
def _update(learned, at, gradient, settings, progress):
    """Adam's step for some numbers of a tensor; their new values."""
    scale, root = tl.load(progress.corrections), tl.load(progress.corrections + 1)
    return update(learned, at, gradient, None, settings, scale, root)


@triton.jit
def _update_tile(
    number, learned, gradients, pooled, progress, settings, batch, PLACES: tl.constexpr, TILES: tl.constexpr,
    SAMPLES: tl.constexpr, UNITS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """Adam's step for a tile of the linear layer's weights, whose gradient is computed here and never stored."""
    unit, entry = weights_of_tile(number, PLACES, UNITS, INPUTS)
    at = unit[:, None] * (64 * PLACES) + entry[None, :]
    # On their way while the gradient is computed; both averages are not needed again before the next step, and leave
    # the cache to the weights. These are loaded afterwards, or Triton would move them to the product's order.
    mean = tl.load(learned.mean + at, eviction_policy="evict_first")
    square = tl.load(learned.square + at, eviction_policy="evict_first")
    scale, root = tl.load(progress.corrections), tl.load(progress.corrections + 1)
    turned = turned_gradient(gradients.upstream, None, pooled, unit, entry, batch, 0.0, PLACES, TILES, SAMPLES)
    old = tl.load(learned.value + at)
    new, mean, square = updated(old, tl.trans(turned), mean, square, settings, scale, root)
    tl.store(learned.value + at, new)
    tl.store(learned.mean + at, mean, eviction_policy="evict_first")
    tl.store(learned.square + at, square, eviction_policy="evict_first")


@triton.jit
def _sum_of_parts(parts, count, length, at, ROUNDS: tl.constexpr, ROWS: tl.constexpr):
    """The same few numbers of all parts, added up in a fixed order."""
    total = tl.zeros(at.shape, tl.float32)
    for turn in tl.static_range(ROUNDS):
        part = turn * ROWS + tl.arange(0, ROWS)
        some = tl.load(parts + part[:, None] * length + at[None, :], mask=(part < count)[:, None], other=0)
        total += tl.sum(some, axis=0)
    return total


@triton.jit
def _sum_of_second(parts, count, at, ROUNDS: tl.constexpr):
    """The same where they are as many as a program has threads: each adds up its own."""
    total = tl.zeros(at.shape, tl.float32)
    for turn in range(ROUNDS):
        for row in tl.static_range(_SECOND_ROWS):
            part = turn * _SECOND_ROWS + row
            total += tl.load(parts + part * _OF_SECOND + at, mask=part < count, other=0)
    return total


@triton.jit(do_not_specialize=["batch", "first_parts", "second_parts"])
def _adam(
    network, taps, taps_back, gradients, pooled, progress, settings, batch, first_parts, second_parts, classes,
    C: tl.constexpr, PLACES: tl.constexpr, ROUNDS: tl.constexpr, FIRST_ROUNDS: tl.constexpr,
    SECOND_ROUNDS: tl.constexpr, SAMPLES: tl.constexpr, UNITS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """Adam's step for everything. Each program has a share of one tensor."""
    of_weights: tl.constexpr = (64 // _OUTER) * (288 // _WIDE)
    of_second: tl.constexpr = of_weights + 1
    of_first: tl.constexpr = of_second + C * 9 + 1
    task = tl.program_id(0)
    if task < of_weights:
        outer = task % (64 // _OUTER) * _OUTER + tl.arange(0, _OUTER)[None, :]
        entry = task // (64 // _OUTER) * _WIDE + tl.arange(0, _WIDE)[:, None]
        tap, inner = entry % 9, entry // 9
        at = tap * 2048 + inner * 64 + outer
        gradient = _sum_of_second(gradients.second_parts, second_parts, at, SECOND_ROUNDS)
        new = _update(network.second_weight, outer * 288 + entry, gradient, settings, progress)
        tl.store(taps + tap * 2048 + outer * 32 + inner, new)
        tl.store(taps_back + at, new)
    elif task < of_second:
        outer = tl.arange(0, 64)
        gradient = _sum_of_parts(
            gradients.second_parts, second_parts, _OF_SECOND, outer + _OF_WEIGHTS, SECOND_ROUNDS, _ROWS
        )
        _update(network.second_bias, outer, gradient, settings, progress)
    elif task < of_first:
        tap, channel = task - of_second, tl.arange(0, 32)
        at = tap * 32 + channel
        gradient = _sum_of_parts(gradients.first_parts, first_parts, (C * 9 + 1) * 32, at, FIRST_ROUNDS, _ROWS)
        if tap < C * 9:
            _update(network.first_weight, channel * (C * 9) + tap, gradient, settings, progress)
        else:
            _update(network.first_bias, channel, gradient, settings, progress)
    elif task < classes + of_first:  # in this order, as Triton's interpreter cannot add them in the other
        number, unit = task - of_first, tl.arange(0, 128)
        of_weight = tl.zeros((128,), tl.float32)
        of_bias = tl.zeros((), tl.float32)
        for turn in tl.static_range(ROUNDS):
            sample = turn * SAMPLES + tl.arange(0, SAMPLES)
            here = sample < batch
            slope = tl.load(gradients.slopes + sample * classes + number, mask=here, other=0)
            at = sample[:, None] * 128 + unit[None, :]
            feature = tl.load(gradients.features + at, mask=here[:, None], other=0)
            of_weight += tl.sum(feature * slope[:, None], axis=0)
            of_bias += tl.sum(slope, axis=0)
        _update(network.head_weight, number * 128 + unit, of_weight, settings, progress)
        _update(network.head_bias, number, of_bias, settings, progress)
    elif task < classes + of_first + 1:
        unit = tl.arange(0, 128)
        of_bias = tl.zeros((128,), tl.float32)
        loss = tl.load(progress.loss_sum)
        for turn in tl.static_range(ROUNDS):
            sample = turn * SAMPLES + tl.arange(0, SAMPLES)
            here = sample < batch
            at = gradients.upstream + sample[:, None] * 128 + unit[None, :]
            of_bias += tl.sum(tl.load(at, mask=here[:, None], other=0), axis=0)
            loss += tl.sum(tl.load(gradients.losses + sample, mask=here, other=0), axis=0)
        _update(network.linear_bias, unit, of_bias, settings, progress)
        tl.store(progress.loss_sum, loss)
        tl.store(progress.counter, tl.load(progress.counter) + 1)
    else:
        number = task - (classes + of_first + 1)
        _update_tile(
            number, network.linear_weight, gradients, pooled, progress, settings, batch, PLACES, ROUNDS, SAMPLES,
            UNITS, INPUTS,
        )  # fmt: skip


def head(
    parts: Tensor,
    network: Network,
    source: Images,
    labels: Tensor,
    weights: Tensor,
    draws: Draws,
    rate: float,
    gradients: Gradients,
    progress: Progress,
    settings: Settings,
) -> None:
    """Fill what the head gives to `gradients`; count the step."""
    splits, batch, _ = parts.shape
    inputs, classes = network.linear_weight.value.shape[1], len(network.head_bias.value)
    _head[(batch,)](
        parts, network, source, labels, weights, draws, gradients.features, gradients.upstream, gradients.slopes,
        gradients.losses, progress, settings, batch, inputs, classes, rate, splits, triton.next_power_of_2(splits),
        max(16, triton.next_power_of_2(classes)), num_warps=HEAD_WARPS,
    )  # fmt: skip


def adam(
    network: Network,
    taps: Tensor,
    taps_back: Tensor,
    gradients: Gradients,
    pooled: Tensor,
    progress: Progress,
    settings: Settings,
) -> None:
    """Update everything; add the batch's loss and count the step of the epoch."""
    channels, classes = network.first_weight.value.shape[1], len(network.head_bias.value)
    batch, first_parts, second_parts = len(pooled), len(gradients.first_parts), len(gradients.second_parts)
    places = pooled.shape[1] // SECOND
    programs = OF_WEIGHTS // (WIDE * OUTER) + 1 + channels * 9 + 1 + classes + 1 + linear_tiles_of(places)
    _adam[(programs,)](
        network, taps, taps_back, gradients, pooled, progress, settings, batch, first_parts, second_parts, classes,
        channels, places, triton.cdiv(batch, SAMPLES), triton.cdiv(first_parts, ROWS),
        triton.cdiv(second_parts, SECOND_ROWS), SAMPLES, UNITS_OF_TILE, INPUTS_OF_TILE, num_warps=ADAM_WARPS,
    )  # fmt: skip
