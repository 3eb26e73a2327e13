"""Triton kernel for a step of Adam. Import only where Triton is installed."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _adam(
    value, gradient, first, second, step, count, rate, decay, first_rate, second_rate, log_first, log_second, epsilon,
    BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    steps = tl.load(step).to(tl.float64)
    # In double precision: after the first step of the slower average the correction is a thousandth.
    first_share = (1 - tl.exp(steps * log_first)).to(tl.float32)
    second_root = tl.sqrt((1 - tl.exp(steps * log_second)).to(tl.float32))
    old = tl.load(value + place, mask=inside)
    slope = tl.load(gradient + place, mask=inside) + decay * old
    mean = tl.load(first + place, mask=inside)
    mean += first_rate * (slope - mean)
    square = tl.load(second + place, mask=inside)
    square += second_rate * (slope * slope - square)
    tl.store(first + place, mean, mask=inside)
    tl.store(second + place, square, mask=inside)
    tl.store(value + place, old - rate / first_share * mean / (tl.sqrt(square) / second_root + epsilon), mask=inside)


def adam(
    value: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    step: Tensor,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """Change a tensor and its two averages in place; `step` counts this step too."""
    if gradient.stride() != value.stride():  # the kernel walks through memory, whatever the shape
        gradient = torch.empty_like(value).copy_(gradient)
    count = value.numel()
    _adam[(triton.cdiv(count, BLOCK),)](
        value, gradient, first, second, step, count, learning_rate, weight_decay,
        1 - betas[0], 1 - betas[1], math.log(betas[0]), math.log(betas[1]), epsilon, BLOCK,
    )  # fmt: skip
