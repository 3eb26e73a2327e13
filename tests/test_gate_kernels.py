"""Gates on channels: by kernels, and as the layer that torchvision has."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from continual_crust.data.samples import Samples
from continual_crust.models import build_model, gated
from continual_crust.models.gated import Gate
from continual_crust.strategies.network import Network
from continual_crust.strategies.replay_ewc import fisher_diagonal
from continual_crust.torchvision_remedy import import_torchvision

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _exact_references() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def images_like(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(DEVICE, dtype).contiguous(memory_format=torch.channels_last)


def gate_and_peer(channels: int, hidden: int, dtype: torch.dtype) -> tuple[Gate, nn.Module]:
    """With the same weights, large enough to matter."""
    squeeze = import_torchvision().ops.SqueezeExcitation(channels, hidden, nn.SiLU)
    with torch.no_grad():
        for number, parameter in enumerate(squeeze.parameters()):
            parameter.normal_(generator=torch.Generator().manual_seed(number))
    peer = squeeze.to(DEVICE, dtype).to(memory_format=torch.channels_last)
    ours = copy.deepcopy(peer)
    return Gate(ours.fc1, ours.fc2), peer.float()


@pytest.mark.parametrize(
    ("shape", "hidden", "dtype"),
    [
        ((3, 70, 5, 7), 5, torch.float32),
        ((34, 64, 2, 2), 16, torch.float32),  # more images than a tile holds
        ((2, 130, 9, 9), 33, torch.float32),  # more pixels, too
        ((3, 40, 1, 1), 8, torch.float32),
        ((3, 70, 5, 7), 5, torch.bfloat16),
    ],
)
def test_kernels_do_what_the_layers_do(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], hidden: int, dtype: torch.dtype
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(gated, "usable", lambda *_: True)
    ours, peer = gate_and_peer(shape[1], hidden, dtype)
    images, upstream = images_like(shape, dtype, 0), images_like(shape, dtype, 1)
    results = []
    for layer, given in ((ours, images.clone()), (peer, images.float())):
        output = layer(given.requires_grad_())
        output.backward(upstream.to(output.dtype))
        results.append([output, given.grad, *(parameter.grad for parameter in layer.parameters())])
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    for value, right in zip(*results, strict=True):
        assert value.shape == right.shape
        assert (value.float() - right).abs().max() <= tolerance * right.abs().max()


def test_gate_is_the_layer_it_replaces() -> None:
    ours, peer = gate_and_peer(12, 3, torch.float32)
    assert list(ours.state_dict()) == list(peer.state_dict())
    images = images_like((2, 12, 4, 4), torch.float32, 0)
    assert torch.allclose(ours(images), peer(images), atol=1e-6)


def test_importances_of_a_network_with_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are differentiated sample by sample, which kernels cannot be."""
    ours, _ = gate_and_peer(4, 2, torch.float32)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), ours, nn.Flatten(), nn.Linear(4 * 36, 2)).to(DEVICE)
    samples = Samples.of(torch.arange(3 * 64).byte().view(3, 1, 8, 8), torch.tensor([0, 1, 0])).to(DEVICE)
    plain = fisher_diagonal(Network(model, DEVICE), samples)
    monkeypatch.setattr(gated, "usable", lambda *_: True)
    for found, right in zip(fisher_diagonal(Network(model, DEVICE), samples), plain, strict=True):
        assert torch.equal(found, right)


@pytest.mark.parametrize("wrong", [None, "first", "first_bias", "second", "second_bias"])
def test_trial_tells_right_from_wrong(monkeypatch: pytest.MonkeyPatch, wrong: str | None) -> None:
    pytest.importorskip("triton")
    kernels, backward = gated.kernels(), gated.kernels().backward

    def spoilt(*given: object) -> tuple[Tensor, object]:
        gradient, gradients = backward(*given)
        return gradient, gradients if wrong is None else gradients._replace(**{wrong: 0.9 * getattr(gradients, wrong)})

    monkeypatch.setattr(kernels, "backward", spoilt)
    if DEVICE.type == "cpu":
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    with torch.autocast(DEVICE.type, torch.bfloat16), torch.no_grad():
        assert gated._works.__wrapped__(DEVICE) is (wrong is None)


def test_every_gate_of_an_efficientnet_is_one_of_ours() -> None:
    network = build_model("efficientnet_v2_s", (1, 32, 32), 10)
    squeeze = import_torchvision().ops.SqueezeExcitation
    assert sum(isinstance(module, Gate) for module in network.modules()) == 30
    assert not any(isinstance(module, squeeze) for module in network.modules())


@pytest.mark.parametrize(("channels", "hidden"), [(gated.MOST_CHANNELS + 1, 1), (1, gated.MOST_HIDDEN + 1)])
def test_what_no_program_could_hold_is_left_to_pytorch(channels: int, hidden: int) -> None:
    assert not gated.usable(torch.empty(1, channels, 1, 1, device="meta"), hidden)
