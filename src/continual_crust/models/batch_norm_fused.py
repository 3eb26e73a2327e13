"""Batch normalisation with the activation behind it; on a GPU in one or two kernels each way, where Triton is there."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from continual_crust.kernel_trial import tried_once

ACTIVATIONS = {"none": None, "relu": functional.relu, "silu": functional.silu}
LARGEST = 1 << 31
"""The kernels count values in 32 bits."""


class ActivatedBatchNorm2d(nn.BatchNorm2d):
    """Normalises, adds a second input if there is one, and activates; by name and state an `nn.BatchNorm2d`.

    Parameters
    ----------
    norm
        The layer whose parameters, running statistics and settings it takes over.
    activation
        One of ``ACTIVATIONS``.
    """

    def __init__(self, norm: nn.BatchNorm2d, activation: str = "none") -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            self.register_buffer(name, buffer)
        self.activation = activation

    def forward(self, images: Tensor, residual: Tensor | None = None) -> Tensor:
        """Images of the same shape."""
        if self._fusible(images, residual):
            return self._fused(images, residual)
        result = super().forward(images)
        if residual is not None:
            result += residual
        activate = ACTIVATIONS[self.activation]
        return result if activate is None else activate(result, inplace=True)

    def _fusible(self, images: Tensor, residual: Tensor | None) -> bool:
        settled = self.affine and self.track_running_stats and self.momentum is not None
        if not (self.training and settled and usable(images)):
            return False
        return residual is None or (residual.shape == images.shape and self.activation != "silu")

    def _fused(self, images: Tensor, residual: Tensor | None) -> Tensor:
        running = self.running_mean, self.running_var, self.num_batches_tracked
        if residual is not None:
            residual = residual.contiguous(memory_format=torch.channels_last)
        settings = running, self.eps, self.momentum, self.activation
        output: Tensor = _Normalization.apply(images, residual, self.weight, self.bias, *settings)  # type: ignore[no-untyped-call]
        return output


def usable(images: Tensor) -> bool:
    """Whether the kernels can take these images; each channel must have several values."""
    return channels_side_by_side(images) and images.numel() > images.shape[1] and _works(images.device)


def channels_side_by_side(images: Tensor) -> bool:
    """Whether images are what kernels of ours can take: on a GPU, the channels of a pixel side by side."""
    if not images.is_cuda or images.dtype not in (torch.float32, torch.bfloat16) or images.dim() != 4:
        return False
    return images.numel() < LARGEST and images.is_contiguous(memory_format=torch.channels_last)


class _Normalization(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        running: tuple[Tensor, Tensor, Tensor],
        epsilon: float,
        momentum: float,
        activation: str,
    ) -> Tensor:
        output, measured = kernels().forward(images, residual, (weight, bias), running, epsilon, momentum, activation)
        # Without a residual the kernel finds out again which values the activation held back.
        needed = output if residual is not None and activation != "none" else None
        ctx.save_for_backward(images, weight, bias, measured, needed)
        ctx.activation, ctx.has_residual = activation, residual is not None
        result: Tensor = output
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, bias, measured, output = ctx.saved_tensors
        upstream = upstream.contiguous(memory_format=torch.channels_last)
        gradient, passed, weight_grad, bias_grad = kernels().backward(
            upstream, images, output, measured, (weight, bias), ctx.activation
        )
        if ctx.has_residual and passed is None:
            passed = upstream
        return gradient, passed, weight_grad, bias_grad, None, None, None, None


def kernels() -> ModuleType:
    """The module with the kernels. It imports Triton, which need not be installed."""
    return importlib.import_module("continual_crust.models.batch_norm_kernels")


@tried_once("batch normalisation")
def _works(device: torch.device) -> bool:
    """Values of 1 and 3 in turn: their mean is 2, their deviation 1, and a rectifier lets half of them through."""
    rows, channels = 4096, 16
    images = torch.tensor([1.0, 3.0], device=device).repeat(rows // 2).view(1, 1, 64, 64).expand(1, channels, 64, 64)
    images = images.contiguous(memory_format=torch.channels_last)
    ones, zeros = torch.ones(channels, device=device), torch.zeros(channels, device=device)
    running = zeros.clone(), ones.clone(), torch.zeros((), dtype=torch.int64, device=device)
    with torch.cuda.device(device):
        output, measured = kernels().forward(images, None, (ones, zeros), running, 1e-5, 0.1, "relu")
        found = kernels().backward(torch.ones_like(images), images, None, measured, (ones, zeros), "relu")
    expected = ((images - 2).clamp(min=0), torch.zeros_like(images), ones * rows / 2, ones * rows / 2, ones * 0.2)
    pairs = zip((output, found[0], found[2], found[3], running[0]), expected, strict=True)
    return all(torch.allclose(ours, right, atol=1e-4) for ours, right in pairs)
