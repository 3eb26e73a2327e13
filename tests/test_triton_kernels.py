"""Kernels for training, where Triton is installed: on a GPU, or in Triton's own interpreter where there is none."""

from __future__ import annotations

import os

import pytest
import torch
from torch.nn import functional

from continual_crust.models import build_model, simple_cnn_fused
from continual_crust.strategies import adam

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported
pytest.importorskip("triton")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# TF32 has ten bits of mantissa; where it decides a near-tie of two pixels, a gradient goes to the other one.
TOLERANCE = 0.05 if torch.cuda.is_available() else 1e-5


@pytest.mark.parametrize(("batch", "shape"), [(3, (1, 10, 10)), (2, (3, 9, 11)), (33, (1, 8, 8))])
def test_fused_simple_cnn_is_the_same_network(batch: int, shape: tuple[int, int, int]) -> None:
    random = torch.Generator().manual_seed(0)
    body = build_model("simple_cnn", shape, 10, seed=0).to(DEVICE).body
    layers = (body[0], body[2], body[8])
    images = torch.randn(batch, *shape, generator=random).to(DEVICE)
    inputs = layers[2].in_features
    chance = torch.rand(batch, inputs + 128, generator=random).to(DEVICE)
    upstream = torch.randn(batch, 128, generator=random).to(DEVICE)

    pooled = functional.max_pool2d(functional.relu(layers[1](functional.relu(layers[0](images)))), 2).flatten(1)
    pooled = pooled * (chance[:, :inputs] >= 0.25) / 0.75
    features = functional.relu(layers[2](pooled)) * (chance[:, inputs:] >= 0.5) / 0.5
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    gradients = torch.autograd.grad(features, parameters, upstream)

    kernels, rates = simple_cnn_fused.kernels(), (0.25, 0.5)
    with torch.no_grad():
        pairs = [(layer.weight, layer.bias) for layer in layers]
        found, *between = kernels.forward(images, *pairs, chance, rates)
        found_gradients = kernels.backward(upstream, images, layers[2].weight, rates, found, *between)
    for ours, theirs in zip((found, *found_gradients), (features.detach(), *gradients), strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() <= TOLERANCE * theirs.abs().max()


def test_adam_kernel_takes_pytorchs_steps() -> None:
    random = torch.Generator().manual_seed(0)
    ours = torch.randn(40, 70, generator=random).to(DEVICE)
    theirs = ours.clone()
    peer = torch.optim.Adam([theirs], lr=1e-2, weight_decay=1e-3)
    first, second, step = torch.zeros_like(ours), torch.zeros_like(ours), torch.zeros((), device=DEVICE)
    for number in range(20):
        gradient = torch.randn(40, 70, generator=random).to(DEVICE)
        theirs.grad = gradient
        peer.step()
        step += 1
        laid_out_otherwise = gradient.t().contiguous().t() if number % 2 else gradient
        adam.kernels().adam(ours, laid_out_otherwise, first, second, step, 1e-2, 1e-3, (0.9, 0.999), 1e-8)
    assert torch.allclose(ours, theirs, atol=1e-5)
