"""The body of `SimpleCNN` by Triton kernels, there and back. Import only where Triton is installed."""

from __future__ import annotations

import torch
from torch import Tensor

from continual_crust.models import simple_cnn_backward_kernels as back
from continual_crust.models import simple_cnn_forward_kernels as there
from continual_crust.models.simple_cnn_forward_kernels import FIRST, UNITS, Draws, Images


def forward(
    images: Tensor,
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    linear: tuple[Tensor, Tensor],
    seed: Tensor,
    rates: tuple[float, float],
) -> tuple[Tensor, ...]:
    """Features, and what :func:`backward` needs."""
    batch, _, height, width = images.shape
    inputs, draws = linear[0].shape[1], Draws(seed)
    hidden = images.new_empty(batch, height - 2, width - 2, FIRST)
    there.convolve(Images(images), *first, hidden)
    taps, taps_back = there.taps_of(second[0])
    pooled = images.new_empty(batch, inputs)
    there.pool(hidden, taps, second[1], draws, rates[0], pooled)
    parts = images.new_empty(there.splits_of(inputs), batch, UNITS)
    there.add_up(pooled, linear[0], parts)
    features = images.new_empty(batch, UNITS)
    there.finish(parts, linear[1], draws, rates[1], inputs, features)
    return features, hidden, taps_back, pooled


def backward(
    upstream: Tensor,
    images: Tensor,
    weight: Tensor,
    rates: tuple[float, float],
    features: Tensor,
    hidden: Tensor,
    taps_back: Tensor,
    pooled: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients of weight and bias of the first convolution, the second, and the linear layer."""
    batch, channels, height, width = images.shape
    weight_grad, bias_grad, passed = torch.empty_like(weight), weight.new_empty(UNITS), torch.empty_like(pooled)
    back.linear(upstream, features, pooled, rates[1], weight_grad, bias_grad)
    back.pass_on(upstream, features, pooled, weight, rates, passed)
    first_parts = images.new_empty(back.first_parts_of(batch, height, width), channels * 9 + 1, FIRST)
    second_parts = images.new_empty(back.second_parts_of(pooled), back.OF_SECOND)
    back.convolutions(Images(images), passed, taps_back, hidden, first_parts, second_parts)
    first, second = first_parts.sum(dim=0), second_parts.sum(dim=0)
    return (
        first[:-1].t().reshape(FIRST, channels, 3, 3),
        first[-1],
        second[: back.OF_WEIGHTS].view(3, 3, FIRST, -1).permute(3, 2, 0, 1),
        second[back.OF_WEIGHTS :],
        weight_grad,
        bias_grad,
    )
