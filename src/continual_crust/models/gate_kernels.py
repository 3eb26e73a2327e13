"""Triton kernels for a gate on channels (squeeze and excitation). Import only where Triton is there.

A gate is the mean of each channel over an image's pixels, two small layers behind it, and a factor for each channel.
PyTorch takes ten kernels forward and fourteen backward for that, hardly any of which has enough to do. Here it is three
and four: what a program needs of the small layers it computes on its way to the pixels.

Images lie in memory pixel by pixel, all channels of a pixel side by side. A program takes a block of channels of one
image, or some of the hidden values of one, or a block of channels for all images. All sums are in single precision and
in a fixed order. The first layer's weight is (hidden, channels), the second's (channels, hidden).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

CHANNELS, PIXELS = 64, 64
"""Of a tile of an image."""
HIDDEN = 8
"""Hidden values that one program computes."""
IMAGES, FEW_CHANNELS = 32, 32
"""Of a tile when weights' gradients are summed over images."""


class Layers(NamedTuple):
    """Weights and biases of the two small layers, or their gradients."""

    first: Tensor
    first_bias: Tensor
    second: Tensor
    second_bias: Tensor


class Kept(NamedTuple):
    """What :func:`backward` needs of :func:`forward`, for each image."""

    means: Tensor
    hidden: Tensor
    """Before their activation."""
    factors: Tensor


@triton.jit
def _block(C, CHANNELS: tl.constexpr):
    """The channels of a program, which of them are there, and where they are among those of all images."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    return channel, channel < C, tl.program_id(0) * C + channel


@triton.jit
def _tile(start, pixels, channel, known, C, PIXELS: tl.constexpr):
    """Where a tile of an image lies, and which of it is there."""
    pixel = start + tl.arange(0, PIXELS)
    at = (tl.program_id(0) * pixels + pixel[:, None]) * C + channel[None, :]
    return at, (pixel < pixels)[:, None] & known[None, :]


@triton.jit(do_not_specialize=["pixels"])
def _means(images, means, pixels, C, ROUNDS: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr):
    channel, known, of_image = _block(C, CHANNELS)
    total = tl.zeros((CHANNELS,), tl.float32)
    for part in range(ROUNDS):
        at, inside = _tile(part * PIXELS, pixels, channel, known, C, PIXELS)
        total += tl.sum(tl.load(images + at, mask=inside, other=0).to(tl.float32), axis=0)
    tl.store(means + of_image, total / pixels, mask=known)


@triton.jit
def _hidden(means, first, first_bias, hidden, C, S, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    image = tl.program_id(0)
    number = tl.program_id(1) * HIDDEN + tl.arange(0, HIDDEN)
    there = number < S
    channel = tl.arange(0, WIDTH)
    mean = tl.load(means + image * C + channel, mask=channel < C, other=0)
    inside = there[:, None] & (channel < C)[None, :]
    weight = tl.load(first + number[:, None] * C + channel[None, :], mask=inside, other=0).to(tl.float32)
    reached = tl.sum(weight * mean[None, :], axis=1) + tl.load(first_bias + number, mask=there, other=0).to(tl.float32)
    tl.store(hidden + image * S + number, reached, mask=there)


@triton.jit(do_not_specialize=["pixels"])
def _scaled(
    images, hidden, second, second_bias, factors, output, pixels, C, S,
    SQUEEZED: tl.constexpr, ROUNDS: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    channel, known, of_image = _block(C, CHANNELS)
    number = tl.arange(0, SQUEEZED)
    reached = tl.load(hidden + tl.program_id(0) * S + number, mask=number < S, other=0)
    active = reached * tl.sigmoid(reached)
    there = known[:, None] & (number < S)[None, :]
    weight = tl.load(second + channel[:, None] * S + number[None, :], mask=there, other=0).to(tl.float32)
    bias = tl.load(second_bias + channel, mask=known, other=0).to(tl.float32)
    factor = tl.sigmoid(tl.sum(weight * active[None, :], axis=1) + bias)
    tl.store(factors + of_image, factor, mask=known)
    for part in range(ROUNDS):
        at, inside = _tile(part * PIXELS, pixels, channel, known, C, PIXELS)
        values = tl.load(images + at, mask=inside, other=0).to(tl.float32)
        tl.store(output + at, values * factor[None, :], mask=inside)


@triton.jit(do_not_specialize=["pixels"])
def _factor_errors(
    upstream, images, factors, errors, pixels, C, ROUNDS: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr
):
    """Gradients before the last activation."""
    channel, known, of_image = _block(C, CHANNELS)
    total = tl.zeros((CHANNELS,), tl.float32)
    for part in range(ROUNDS):
        at, inside = _tile(part * PIXELS, pixels, channel, known, C, PIXELS)
        values = tl.load(images + at, mask=inside, other=0).to(tl.float32)
        total += tl.sum(values * tl.load(upstream + at, mask=inside, other=0).to(tl.float32), axis=0)
    factor = tl.load(factors + of_image, mask=known, other=0)
    tl.store(errors + of_image, total * factor * (1 - factor), mask=known)


@triton.jit
def _hidden_errors(errors, second, hidden, hidden_errors, C, S, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    image = tl.program_id(0)
    number = tl.program_id(1) * HIDDEN + tl.arange(0, HIDDEN)
    there = number < S
    channel = tl.arange(0, WIDTH)
    error = tl.load(errors + image * C + channel, mask=channel < C, other=0)
    inside = (channel < C)[:, None] & there[None, :]
    weight = tl.load(second + channel[:, None] * S + number[None, :], mask=inside, other=0).to(tl.float32)
    reached = tl.load(hidden + image * S + number, mask=there, other=0)
    gate = tl.sigmoid(reached)
    slope = gate * (1 + reached * (1 - gate))
    tl.store(hidden_errors + image * S + number, tl.sum(weight * error[:, None], axis=0) * slope, mask=there)


@triton.jit(do_not_specialize=["pixels"])
def _image_gradient(
    upstream, first, factors, hidden_errors, gradient, pixels, C, S,
    SQUEEZED: tl.constexpr, ROUNDS: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    channel, known, of_image = _block(C, CHANNELS)
    number = tl.arange(0, SQUEEZED)
    error = tl.load(hidden_errors + tl.program_id(0) * S + number, mask=number < S, other=0)
    there = (number < S)[:, None] & known[None, :]
    weight = tl.load(first + number[:, None] * C + channel[None, :], mask=there, other=0).to(tl.float32)
    by_mean = tl.sum(weight * error[:, None], axis=0) / pixels
    factor = tl.load(factors + of_image, mask=known, other=0)
    for part in range(ROUNDS):
        at, inside = _tile(part * PIXELS, pixels, channel, known, C, PIXELS)
        values = tl.load(upstream + at, mask=inside, other=0).to(tl.float32)
        tl.store(gradient + at, values * factor[None, :] + by_mean[None, :], mask=inside)


@triton.jit(do_not_specialize=["images"])
def _weight_gradients(
    means, hidden, errors, hidden_errors, first, first_bias, second, second_bias, images, C, S,
    SQUEEZED: tl.constexpr, ROUNDS: tl.constexpr, CHANNELS: tl.constexpr, IMAGES: tl.constexpr,
):  # fmt: skip
    """Of both layers, summed over all images."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < C
    number = tl.arange(0, SQUEEZED)
    there = number < S
    of_first = tl.zeros((SQUEEZED, CHANNELS), tl.float32)
    of_second = tl.zeros((CHANNELS, SQUEEZED), tl.float32)
    of_first_bias = tl.zeros((SQUEEZED,), tl.float32)
    of_second_bias = tl.zeros((CHANNELS,), tl.float32)
    for part in range(ROUNDS):
        image = part * IMAGES + tl.arange(0, IMAGES)
        inside = (image < images)[:, None] & known[None, :]
        at = image[:, None] * C + channel[None, :]
        mean = tl.load(means + at, mask=inside, other=0)
        error = tl.load(errors + at, mask=inside, other=0)
        inside_hidden = (image < images)[:, None] & there[None, :]
        at_hidden = image[:, None] * S + number[None, :]
        reached = tl.load(hidden + at_hidden, mask=inside_hidden, other=0)
        hidden_error = tl.load(hidden_errors + at_hidden, mask=inside_hidden, other=0)
        of_first += tl.dot(tl.trans(hidden_error), mean, input_precision="ieee")
        of_second += tl.dot(tl.trans(error), reached * tl.sigmoid(reached), input_precision="ieee")
        of_first_bias += tl.sum(hidden_error, axis=0)
        of_second_bias += tl.sum(error, axis=0)
    tl.store(first + number[:, None] * C + channel[None, :], of_first, mask=there[:, None] & known[None, :])
    tl.store(second + channel[:, None] * S + number[None, :], of_second, mask=known[:, None] & there[None, :])
    tl.store(second_bias + channel, of_second_bias, mask=known)
    if tl.program_id(0) == 0:
        tl.store(first_bias + number, of_first_bias, mask=there)


def forward(images: Tensor, layers: Layers) -> tuple[Tensor, Kept]:
    """Images times the factors they give themselves.

    Parameters
    ----------
    images
        Channels last.
    layers
        The two small layers, of any precision.
    """
    count, channels, pixels, squeezed = _sizes(images, layers)
    means, factors = (images.new_empty(count, channels, dtype=torch.float32) for _ in range(2))
    hidden = images.new_empty(count, squeezed, dtype=torch.float32)
    output = torch.empty_like(images)
    blocks, some = (count, triton.cdiv(channels, CHANNELS)), (count, triton.cdiv(squeezed, HIDDEN))
    width, power = triton.next_power_of_2(channels), _power(squeezed)
    rounds = triton.cdiv(pixels, PIXELS)
    _means[blocks](images, means, pixels, channels, rounds, CHANNELS, PIXELS)
    _hidden[some](means, layers.first, layers.first_bias, hidden, channels, squeezed, HIDDEN, width, num_warps=8)
    _scaled[blocks](
        images, hidden, layers.second, layers.second_bias, factors, output, pixels, channels, squeezed,
        power, rounds, CHANNELS, PIXELS,
    )  # fmt: skip
    return output, Kept(means, hidden, factors)


def backward(upstream: Tensor, images: Tensor, kept: Kept, layers: Layers) -> tuple[Tensor, Layers]:
    """Gradients of the images and of the two layers."""
    count, channels, pixels, squeezed = _sizes(images, layers)
    errors, hidden_errors = torch.empty_like(kept.factors), torch.empty_like(kept.hidden)
    gradient, gradients = torch.empty_like(images), Layers(*map(torch.empty_like, layers))
    blocks, some = (count, triton.cdiv(channels, CHANNELS)), (count, triton.cdiv(squeezed, HIDDEN))
    width, power = triton.next_power_of_2(channels), _power(squeezed)
    rounds = triton.cdiv(pixels, PIXELS)
    _factor_errors[blocks](upstream, images, kept.factors, errors, pixels, channels, rounds, CHANNELS, PIXELS)
    _hidden_errors[some](
        errors, layers.second, kept.hidden, hidden_errors, channels, squeezed, HIDDEN, width, num_warps=8
    )
    _image_gradient[blocks](
        upstream, layers.first, kept.factors, hidden_errors, gradient, pixels, channels, squeezed,
        power, rounds, CHANNELS, PIXELS,
    )  # fmt: skip
    _weight_gradients[(triton.cdiv(channels, FEW_CHANNELS),)](
        kept.means, kept.hidden, errors, hidden_errors, *gradients, count, channels, squeezed,
        power, triton.cdiv(count, IMAGES), FEW_CHANNELS, IMAGES,
    )  # fmt: skip
    return gradient, gradients


def _sizes(images: Tensor, layers: Layers) -> tuple[int, int, int, int]:
    count, channels, height, width = images.shape
    return count, channels, height * width, len(layers.first)


def _power(squeezed: int) -> int:
    """A power of two that holds the hidden values; products want 16 at least."""
    return max(16, triton.next_power_of_2(squeezed))
