"""`SimpleCNN`'s training step on a GPU by fused kernels, where Triton is there; the same network as without it."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from continual_crust.kernel_trial import tried_once


def usable(images: Tensor) -> bool:
    """Whether the kernels can take this batch: full precision, on a GPU, Triton installed and working."""
    if not images.is_cuda or images.dtype != torch.float32 or torch.is_autocast_enabled("cuda"):
        return False
    # What is only evaluated need not wait until the kernels of the way back are compiled.
    return _works_there(images.device) and (not torch.is_grad_enabled() or _works_back(images.device))


def body(images: Tensor, parameters: tuple[Tensor, ...], rates: tuple[float, float]) -> Tensor:
    """What enters the head: convolution, convolution, pooling, dropout, linear layer, dropout.

    Parameters
    ----------
    images
        Normalised, (B, C, H, W).
    parameters
        Weight and bias of both convolutions and of the linear layer.
    rates
        Shares dropped after pooling and after the linear layer. If both are 0, nothing is drawn.
    """
    seed = torch.zeros((), dtype=torch.int64, device=images.device)
    if any(rates):
        seed.random_()  # from the generator in force, so that a recorded step goes on with its own sequence
    features: Tensor = _Body.apply(images.contiguous(), seed, rates, *parameters)  # type: ignore[no-untyped-call]
    return features


class _Body(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, seed: Tensor, rates: tuple[float, float], *parameters: Tensor) -> Tensor:
        layers = parameters[0:2], parameters[2:4], parameters[4:6]
        features, *between = kernels().forward(images, *layers, seed, rates)
        ctx.save_for_backward(images, parameters[4], features, *between)
        ctx.rates = rates
        result: Tensor = features
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, *between = ctx.saved_tensors
        return None, None, None, *kernels().backward(upstream.contiguous(), images, weight, ctx.rates, *between)


def kernels() -> ModuleType:
    """The module with the kernels. It imports Triton, which need not be installed."""
    return importlib.import_module("continual_crust.models.simple_cnn_kernels")


@tried_once("simple_cnn")
def _works_there(device: torch.device) -> bool:
    """Two small images of ones."""
    features = _of_ones(device)[2]
    # Each image: 9 ones and a bias make 10; 288 of these and a bias 2881; 256 of these and a bias 737537.
    return bool(torch.allclose(features, features.new_full((), 737537), rtol=1e-2))


@tried_once("gradients of simple_cnn")
def _works_back(device: torch.device) -> bool:
    """The same, there and back: each image adds one to the gradient of the linear layer's bias."""
    images, weight, features, *between = _of_ones(device)
    with torch.cuda.device(device):
        gradients = kernels().backward(torch.ones_like(features), images, weight, (0.0, 0.0), features, *between)
    return bool(gradients[5].eq(2).all())


def _of_ones(device: torch.device) -> tuple[Tensor, ...]:
    """Images, the linear layer's weights, features, and what lies between."""
    ones = functools.partial(torch.ones, device=device)
    parameters = (ones(32, 1, 3, 3), ones(32), ones(64, 32, 3, 3), ones(64), ones(128, 256), ones(128))
    layers, seed = (parameters[:2], parameters[2:4], parameters[4:]), torch.zeros((), dtype=torch.int64, device=device)
    with torch.cuda.device(device):
        images = ones(2, 1, 8, 8)
        return images, parameters[4], *kernels().forward(images, *layers, seed, (0.0, 0.0))
