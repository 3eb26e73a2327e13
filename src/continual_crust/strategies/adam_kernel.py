"""Triton kernel for a step of Adam. Import only where Triton is installed."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


class Settings(NamedTuple):
    """Adam's constants, as the kernels use them."""

    rate: float
    decay: float
    first_rate: float
    second_rate: float
    log_first: float
    log_second: float
    epsilon: float

    @classmethod
    def of(cls, learning_rate: float, weight_decay: float, betas: tuple[float, float], epsilon: float) -> Settings:
        """From what PyTorch calls them."""
        logarithms = math.log(betas[0]), math.log(betas[1])
        return cls(learning_rate, weight_decay, 1 - betas[0], 1 - betas[1], *logarithms, epsilon)


class Learned(NamedTuple):
    """A parameter, and the averages of its gradient and of its square."""

    value: Tensor
    mean: Tensor
    square: Tensor


@triton.jit
def corrections(steps, settings):
    """What a step is to be multiplied by, and the root of the squares' average."""
    # In double precision: after the first step of the slower average the correction is a thousandth.
    steps = steps.to(tl.float64)
    first_share = (1 - tl.exp(steps * settings.log_first)).to(tl.float32)
    return settings.rate / first_share, 1 / tl.sqrt((1 - tl.exp(steps * settings.log_second)).to(tl.float32))


@triton.jit
def updated(old, gradient, mean, square, settings, scale, root):
    """The new value of a parameter, and of both its averages."""
    slope = gradient + settings.decay * old
    mean += settings.first_rate * (slope - mean)
    square += settings.second_rate * (slope * slope - square)
    return old - scale * mean / (tl.sqrt(square) * root + settings.epsilon), mean, square


@triton.jit
def update(learned, at, gradient, known, settings, scale, root):
    """Adam's step for some numbers of a parameter; their new values."""
    old = tl.load(learned.value + at, mask=known)
    mean, square = tl.load(learned.mean + at, mask=known), tl.load(learned.square + at, mask=known)
    new, mean, square = updated(old, gradient, mean, square, settings, scale, root)
    tl.store(learned.value + at, new, mask=known)
    tl.store(learned.mean + at, mean, mask=known)
    tl.store(learned.square + at, square, mask=known)
    return new


@triton.jit
def _adam(learned, gradient, step, count, settings, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    scale, root = corrections(tl.load(step), settings)
    update(learned, place, tl.load(gradient + place, mask=inside), inside, settings, scale, root)


def adam(learned: Learned, gradient: Tensor, step: Tensor, settings: Settings) -> None:
    """Change a tensor and its two averages in place; `step` counts this step too."""
    value = learned.value
    if gradient.stride() != value.stride():  # the kernel walks through memory, whatever the shape
        gradient = torch.empty_like(value).copy_(gradient)
    count = value.numel()
    _adam[(triton.cdiv(count, BLOCK),)](learned, gradient, step, count, settings, BLOCK)
