"""Importances: convolutions as products of matrices, and the penalty that uses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from continual_crust.data.samples import Samples
from continual_crust.models import build_model
from continual_crust.strategies.fisher import ConvolutionsAsProducts, fisher_diagonal
from continual_crust.strategies.network import Network
from continual_crust.strategies.replay_ewc import ReplayEwc


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bias": False, "padding": 1},
        {"stride": 2, "padding": (1, 0)},
        {"stride": (1, 2), "dilation": (2, 1)},
        {"groups": 2},
        {"groups": 4, "padding": 2},
        {"padding": "same"},
    ],
    ids=str,
)
def test_a_convolution_is_a_product(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 8, (5, 3), **settings).double()
    images = torch.randn(2, 4, 9, 7, dtype=torch.float64, requires_grad=True)
    given = [images, *layer.parameters()]
    right = layer(images)
    slope = torch.randn_like(right)
    with ConvolutionsAsProducts():
        found = layer(images)
    assert ("Convolution" in found.grad_fn.name()) == (settings == {"padding": "same"})
    for ours, theirs in zip(
        (found, *torch.autograd.grad(found, given, slope)),
        (right, *torch.autograd.grad(right, given, slope)),
        strict=True,
    ):
        assert torch.allclose(ours, theirs)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("model", ["simple_cnn", "resnet18", "efficientnet_v2_s"])
def test_importances_by_products_are_those_by_convolutions(model: str, batch: int) -> None:
    network = Network(build_model(model, (3, 12, 12), 4, seed=1).double(), torch.device("cpu"))
    samples = Samples.of(torch.arange(5 * 432).mul(37).remainder(256).byte().view(5, 3, 12, 12), torch.arange(5) % 4)
    network.measure_normalization(samples.images)
    network.mean, network.std = network.mean.double(), network.std.double()
    by_convolutions = fisher_diagonal(network, samples, batch)
    with ConvolutionsAsProducts():
        by_products = fisher_diagonal(network, samples, batch)
    for ours, theirs in zip(by_products, by_convolutions, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-12 * float(theirs.max()))


def test_the_penalty_and_its_slope_are_what_they_are_by_hand() -> None:
    learner = ReplayEwc(build_model("simple_cnn", (1, 8, 8), 3, seed=0))
    assert learner._penalty() == 0
    values = list(learner.network.model.parameters())
    generator = torch.Generator().manual_seed(0)
    learner._importance, learner._anchor = (
        [torch.rand(value.shape, generator=generator) for value in values] for _ in range(2)
    )
    by_hand = sum(
        (importance * (value - anchor).square()).sum()
        for value, importance, anchor in zip(values, learner._importance, learner._anchor, strict=True)
    )
    penalty = learner._penalty()
    assert torch.allclose(penalty, by_hand, rtol=1e-6)
    for ours, theirs in zip(
        torch.autograd.grad(0.7 * penalty, values), torch.autograd.grad(0.7 * by_hand, values), strict=True
    ):
        assert torch.equal(ours, theirs)
