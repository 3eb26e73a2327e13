"""Batch normalisation with what surrounds it: by kernels, and in networks that stay what torchvision made them."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from continual_crust.models import batch_norm_fused, build_model
from continual_crust.models.activated import ResidualBlock
from continual_crust.models.batch_norm_fused import ActivatedBatchNorm2d
from continual_crust.randomness import seeded_globally
from continual_crust.torchvision_remedy import import_torchvision

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ACTIVATE = {"none": lambda values: values, "relu": functional.relu, "silu": functional.silu}


@pytest.fixture(params=["whole", "in parts", "in rounds"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """All ways to share out a layer, at sizes that an interpreter can manage."""
    pytest.importorskip("triton")
    kernels = batch_norm_fused.kernels()
    monkeypatch.setattr(kernels, "WHOLE", 2048 if request.param == "whole" else 0)
    monkeypatch.setattr(kernels, "TILES", (32, 64))
    monkeypatch.setattr(kernels, "MOST_PARTS", 2 if request.param == "in rounds" else 64)
    return kernels


def images_like(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2 + 3
    return values.to(DEVICE, dtype).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("shape", "activation", "has_residual", "dtype"),
    [
        ((3, 40, 7, 9), "relu", True, torch.float32),
        ((2, 32, 6, 8), "relu", False, torch.float32),
        ((5, 24, 5, 5), "silu", False, torch.float32),
        ((4, 33, 8, 8), "none", False, torch.float32),
        ((4, 16, 8, 8), "none", True, torch.float32),
        ((2, 48, 1, 1), "relu", True, torch.float32),
        ((3, 40, 7, 9), "relu", True, torch.bfloat16),
    ],
)
def test_kernels_do_what_the_layers_do(
    kernels: ModuleType, shape: tuple[int, ...], activation: str, has_residual: bool, dtype: torch.dtype
) -> None:
    channels = shape[1]
    images = images_like(shape, dtype, 0).requires_grad_()
    residual = images_like(shape, dtype, 1).requires_grad_() if has_residual else None
    upstream = images_like(shape, dtype, 2) - 3
    plain = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.2).to(DEVICE)
    with torch.no_grad():
        plain.weight.uniform_(-1, 2, generator=torch.Generator(DEVICE).manual_seed(3))
        plain.bias.uniform_(-1, 1, generator=torch.Generator(DEVICE).manual_seed(4))
    running = [value.clone() for value in (plain.running_mean, plain.running_var, plain.num_batches_tracked)]

    reached = plain(images.float())
    expected = ACTIVATE[activation](reached if residual is None else reached + residual.float())
    inputs = [value for value in (images, residual, plain.weight, plain.bias) if value is not None]
    gradients = torch.autograd.grad(expected, inputs, upstream.float())

    with torch.no_grad():
        affine = plain.weight, plain.bias
        output, measured = kernels.forward(images, residual, affine, running, 1e-3, 0.2, activation)
        needed = output if has_residual and activation == "relu" else None
        found = kernels.backward(upstream, images, needed, measured, affine, activation)
    assert (found[1] is None) == (needed is None)
    if has_residual and needed is None:  # the layer then passes on what came from behind
        gradients = (gradients[0], *gradients[2:])
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    ours = [output, *(value for value in found if value is not None), *running[:2]]
    theirs = [expected, *gradients, plain.running_mean, plain.running_var]
    for value, right in zip(ours, theirs, strict=True):
        assert value.shape == right.shape
        assert (value.float() - right.float()).abs().max() <= tolerance * right.abs().max().float()
    assert running[2] == 1


def test_spread_is_found_about_a_far_mean(kernels: ModuleType) -> None:
    images = images_like((4, 16, 8, 8), torch.float32, 0) * 0.01 + 100
    ones, zeros = torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE)
    running = zeros.clone(), ones.clone(), torch.zeros((), dtype=torch.int64, device=DEVICE)
    _, measured = kernels.forward(images, None, (ones, zeros), running, 0.0, 0.1, "none")
    right = images.double().transpose(0, 1).flatten(1).std(dim=1, correction=0)
    assert torch.allclose(1 / measured[1].double(), right, rtol=1e-3)


@pytest.mark.parametrize("activation", ["relu", "silu", "none"])
@pytest.mark.parametrize("has_residual", [True, False])
def test_layer_learns_by_kernels_as_without(
    monkeypatch: pytest.MonkeyPatch, activation: str, has_residual: bool
) -> None:
    pytest.importorskip("triton")
    states, gradients = [], []
    for fused in (True, False):
        monkeypatch.setattr(batch_norm_fused, "usable", lambda _, fused=fused: fused)
        layer = ActivatedBatchNorm2d(nn.BatchNorm2d(16), activation).to(DEVICE)
        images = images_like((3, 16, 5, 5), torch.float32, 0).requires_grad_()
        residual = images_like((3, 16, 5, 5), torch.float32, 1).requires_grad_() if has_residual else None
        layer(images, residual).square().sum().backward()
        states.append(layer.state_dict())
        gradients.append([value.grad for value in (images, residual, *layer.parameters()) if value is not None])
    for name, value in states[0].items():
        assert torch.allclose(value, states[1][name], atol=1e-6)
    for ours, right in zip(*gradients, strict=True):
        assert (ours - right).abs().max() <= 1e-5 * right.abs().max() + 1e-4  # sums that cancel leave rounding


@pytest.mark.parametrize(("name", "shape"), [("resnet18", (3, 32, 32)), ("efficientnet_v2_s", (3, 32, 32))])
def test_networks_stay_what_torchvision_made(name: str, shape: tuple[int, int, int]) -> None:
    ours = build_model(name, shape, 1000, seed=5)
    with seeded_globally(5):
        peer = getattr(import_torchvision().models, name)()
        if name == "resnet18":
            peer.conv1, peer.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
            peer.fc = nn.Linear(512, 1000)
        else:
            peer.classifier[-1] = nn.Linear(1280, 1000)
    state, right = ours.state_dict(), peer.state_dict()
    assert list(state) == list(right)
    assert all(torch.equal(value, right[key]) for key, value in state.items())
    assert not any(type(module) is nn.BatchNorm2d for module in ours.modules())
    assert not any(isinstance(module, nn.ReLU) for module in ours.modules())
    images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    for network in (ours, peer):
        for module in network.modules():
            if type(module).__name__ == "StochasticDepth":
                module.p = 0.0  # else the two would draw
            if isinstance(module, nn.Dropout):
                module.p = 0.0
    for training in (True, False):
        results = [network.train(training)(images) for network in (ours, peer)]
        assert torch.equal(*results)
    slopes = [
        torch.autograd.grad(network.train()(images).square().sum(), network.parameters()) for network in (ours, peer)
    ]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*slopes, strict=True))


def test_every_block_of_a_resnet_is_one_of_ours() -> None:
    blocks = [
        module for module in build_model("resnet18", (1, 28, 28), 10).modules() if isinstance(module, ResidualBlock)
    ]
    assert len(blocks) == 8
