"""Channels that are weighted by what an image shows (squeeze and excitation); on a GPU in a few kernels."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from continual_crust.kernel_trial import tried_once
from continual_crust.models.batch_norm_fused import channels_side_by_side

MOST_CHANNELS, MOST_HIDDEN = 4096, 256
"""A program holds a row of the one and a block of the other."""


class Gate(nn.Module):
    """The layers of torchvision's `SqueezeExcitation` with SiLU and sigmoid, by the same names.

    Parameters
    ----------
    fc1, fc2
        From channels to hidden values and back, as convolutions of single pixels.
    """

    def __init__(self, fc1: nn.Conv2d, fc2: nn.Conv2d) -> None:
        super().__init__()
        self.fc1, self.fc2 = fc1, fc2

    def forward(self, images: Tensor) -> Tensor:
        """Images of the same shape."""
        # Whoever differentiates a network that is not in training may want more of it than the kernels give.
        if self.training and usable(images, self.fc1.out_channels):
            layers = self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias
            output: Tensor = _Gating.apply(images, *layers)  # type: ignore[no-untyped-call]
            return output
        hidden = functional.silu(self.fc1(functional.adaptive_avg_pool2d(images, 1)))
        factors: Tensor = self.fc2(hidden).sigmoid()
        return factors * images


def usable(images: Tensor, hidden: int) -> bool:
    """Whether the kernels can take these."""
    small = images.shape[1] <= MOST_CHANNELS and hidden <= MOST_HIDDEN
    return small and channels_side_by_side(images) and _works(images.device)


class _Gating(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, *layers: Tensor) -> Tensor:
        output, kept = kernels().forward(images, kernels().Layers(*layers))
        ctx.save_for_backward(images, *layers, *kept)
        result: Tensor = output
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, ...]:
        images, *rest = ctx.saved_tensors
        layers, kept = kernels().Layers(*rest[:4]), kernels().Kept(*rest[4:])
        upstream = upstream.contiguous(memory_format=torch.channels_last)
        gradient, gradients = kernels().backward(upstream, images, kept, layers)
        return gradient, *gradients


def kernels() -> ModuleType:
    """The module with the kernels. It imports Triton, which need not be installed."""
    return importlib.import_module("continual_crust.models.gate_kernels")


@tried_once("gates")
def _works(device: torch.device) -> bool:
    """Beside PyTorch's layers, on images of several tiles."""
    random = torch.Generator().manual_seed(0)
    shapes = (2, 80, 9, 9), (20, 80, 1, 1), (20,), (80, 20, 1, 1), (80,)
    images, *layers = (torch.randn(shape, generator=random, device="cpu").to(device) for shape in shapes)
    images = images.contiguous(memory_format=torch.channels_last).requires_grad_()
    # Whoever asks may be in the middle of a step in low precision, or want no gradients.
    with torch.cuda.device(device), torch.autocast(device.type, enabled=False), torch.enable_grad():
        output, kept = kernels().forward(images.detach(), kernels().Layers(*layers))
        gradient, gradients = kernels().backward(output, images.detach(), kept, kernels().Layers(*layers))
        right = [images, *(layer.requires_grad_() for layer in layers)]
        first, first_bias, second, second_bias = (layer.flatten(1) if layer.dim() > 1 else layer for layer in layers)
        hidden = functional.silu(functional.linear(images.mean(dim=(2, 3)), first, first_bias))
        expected = functional.linear(hidden, second, second_bias).sigmoid()[:, :, None, None] * images
        slopes = torch.autograd.grad(expected, right, output)
    pairs = zip((output, gradient, *gradients), (expected.detach(), *slopes), strict=True)
    return all(torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2 * float(theirs.abs().max())) for ours, theirs in pairs)
