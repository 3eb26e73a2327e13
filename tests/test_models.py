"""Networks by name."""

from __future__ import annotations

import pytest
import torch

from continual_crust.data import Dataset, Noise, Stream
from continual_crust.errors import InputError
from continual_crust.models import MODELS, build_model, simple_cnn_layers
from continual_crust.models.simple_cnn_layers import LARGE, Dropout, FirstConvolution, MaxPool2x2
from continual_crust.models.torchvision_models import _with_channels
from continual_crust.strategies import Naive, Training


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("simple_cnn", (1, 8, 8)),
        ("simple_cnn", (3, 28, 30)),
        ("simple_cnn", (1, 96, 96)),
        ("resnet18", (1, 28, 28)),
        ("resnet18", (3, 96, 80)),
        ("resnet18_strided", (1, 28, 28)),
        ("efficientnet_v2_s", (1, 64, 64)),
        ("efficientnet_v2_s", (3, 64, 64)),
    ],
)
def test_models_take_grey_and_colour_of_any_size(name: str, shape: tuple[int, int, int]) -> None:
    assert build_model(name, shape, classes=7).eval()(torch.rand(2, *shape)).shape == (2, 7)


def test_resnet18_keeps_the_resolution_of_small_images_unless_asked_not_to() -> None:
    sides = {}
    for name in ("resnet18", "resnet18_strided"):
        model = build_model(name, (3, 32, 32), 10).eval()
        last = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)][-1]
        last.register_forward_hook(lambda _, __, found, name=name: sides.update({name: found.shape[-1]}))
        model(torch.rand(2, 3, 32, 32))
    assert sides == {"resnet18": 4, "resnet18_strided": 1}
    large = [build_model(name, (3, 80, 80), 10, seed=1).state_dict() for name in sides]
    assert all(torch.equal(large[0][name], large[1][name]) for name in large[0])


def test_simple_cnn_has_the_layers_of_the_paper() -> None:
    shapes = [
        tuple(p.shape) for name, p in build_model("simple_cnn", (1, 28, 28), 10).named_parameters() if "weight" in name
    ]
    assert shapes == [(32, 1, 3, 3), (64, 32, 3, 3), (128, 9216), (10, 128)]


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("side", [4, 9, 24])
def test_pooling_gives_the_bits_of_pytorch_in_its_order(side: int, order: torch.memory_format) -> None:
    images = torch.randint(-2, 5, (3, 16, side, side)).float().contiguous(memory_format=order)
    with torch.no_grad():
        ours, plain = MaxPool2x2(1)(images), torch.nn.MaxPool2d(2)(images)
    assert torch.equal(ours, plain)
    assert ours.stride() == plain.stride()  # dropout draws in the order of memory
    slopes = []
    for pool in (MaxPool2x2(1), MaxPool2x2(1).eval(), torch.nn.MaxPool2d(2)):
        asked = images.clone(memory_format=torch.preserve_format).requires_grad_()
        pooled = pool(asked)
        assert pooled.stride() == plain.stride()
        (pooled * torch.arange(pooled.numel()).view_as(pooled)).sum().backward()
        slopes.append(asked.grad)
    assert torch.equal(slopes[0], slopes[2])
    assert torch.equal(slopes[1], slopes[2])


@pytest.mark.parametrize("side", [24, 25])
def test_pooling_of_large_batches_leaves_one_channel_after_the_other(side: int) -> None:
    """As our dropout and linear layers want them, whatever order the images have, and their gradients keep."""
    images = torch.randint(-2, 5, (60, 64, side, side)).float().contiguous(memory_format=torch.channels_last)
    slopes = []
    for pool in (MaxPool2x2(LARGE // 60 + 1), torch.nn.MaxPool2d(2)):
        asked = images.clone(memory_format=torch.preserve_format).requires_grad_()
        pooled = pool(asked)
        (pooled * torch.arange(pooled.numel()).view_as(pooled)).sum().backward()
        slopes.append((pooled, asked.grad))
    (ours, slope), (plain, plain_slope) = slopes
    assert ours.is_contiguous()
    assert slope.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(ours, plain)
    assert torch.equal(slope, plain_slope)
    assert not MaxPool2x2(LARGE // 60)(images[:59]).is_contiguous()


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 20, 31)])
def test_large_batches_have_channels_side_by_side_from_the_first_convolution(shape: tuple[int, int, int]) -> None:
    plain = torch.nn.Conv2d(shape[0], 32, 3)
    ours = FirstConvolution(shape[0], 32, LARGE // 64)
    ours.load_state_dict(plain.state_dict())
    few, many = torch.rand(63, *shape), torch.rand(64, *shape)
    assert torch.equal(ours(few), plain(few))
    assert torch.equal(ours.eval()(many), plain(many))
    found = ours.train()(many)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, plain(many))


def test_a_step_on_a_large_batch_is_pytorchs_but_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    labels, slopes = torch.arange(64) % 10, []
    for bound in (LARGE, 2**40):
        monkeypatch.setattr(simple_cnn_layers, "LARGE", bound)
        network = build_model("simple_cnn", (1, 28, 28), 10, seed=0).train()
        for layer in network.body:
            if isinstance(layer, Dropout):  # which draws other numbers for large batches
                layer.eval()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        slopes.append([parameter.grad for parameter in network.parameters()])
    for ours, plain in zip(*slopes, strict=True):
        # Usually a millionth; a near-tie in a pooled cell that rounding decides otherwise moves a thousandth.
        assert (ours - plain).norm() <= 1e-2 * plain.norm()


def test_dropout_meets_small_batches_in_the_order_it_always_did(digits: Dataset) -> None:
    """It draws in the order of memory, so every committed result of small images on a CPU hangs on that order."""
    network = build_model("simple_cnn", digits.image_shape, digits.classes, seed=0)
    orders = []
    dropout = next(layer for layer in network.body if isinstance(layer, Dropout))
    dropout.register_forward_pre_hook(lambda layer, given: orders.append((layer.training, given[0].stride())))
    experience = next(iter(Stream(digits, Noise.parse("none"), seed=0)))
    Naive(network, Training(1, 0, memory_per_class=5, batch_size=32)).learn(experience)
    assert {order for draws, order in orders if draws} == {(256, 1, 128, 64)}


def test_pooling_before_the_rectifier_changes_no_bit_of_a_step() -> None:
    """Nor do our own gradients of pooling, whatever comes behind."""
    images, labels = torch.randn(16, 1, 28, 28), torch.arange(16) % 10
    slopes = []
    for pooling in ((MaxPool2x2(1), torch.nn.ReLU()), (torch.nn.ReLU(), torch.nn.MaxPool2d(2))):
        network = build_model("simple_cnn", (1, 28, 28), 10, seed=0)
        layers = list(network.body)
        assert [type(layer) for layer in layers[3:5]] == [MaxPool2x2, torch.nn.ReLU]
        network.body = torch.nn.Sequential(*layers[:3], *pooling, *layers[5:]).train()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            torch.nn.functional.cross_entropy(network(images), labels).backward()
        slopes.append([parameter.grad for parameter in network.parameters()])
    assert all(torch.equal(ours, plain) for ours, plain in zip(*slopes, strict=True))


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_dropout_of_large_batches_drops_as_often_as_asked_and_keeps_the_mean(share: float) -> None:
    torch.manual_seed(0)
    ones = torch.ones(8, LARGE // 8 + 1, requires_grad=True)
    dropped = Dropout(share)(ones)
    assert dropped.unique().tolist() == [0.0, pytest.approx(1 / (1 - share))]
    assert dropped.mean().item() == pytest.approx(1, abs=0.01)  # five standard deviations
    kept = (dropped > 0).flatten().float()
    for apart in (1, 8, 64):  # neighbours, and equal bytes of numbers drawn one after the other
        together = (kept[apart:] * kept[:-apart]).mean().item()
        assert together == pytest.approx((1 - share) ** 2, abs=0.006)
    dropped.sum().backward()
    assert torch.equal(ones.grad, dropped)
    assert not torch.equal(Dropout(share)(ones), dropped)
    torch.manual_seed(0)
    assert torch.equal(Dropout(share)(ones), dropped)
    assert torch.equal(Dropout(share).eval()(ones), ones)


def test_dropout_of_small_batches_is_pytorchs_own() -> None:
    dropped = []
    for layer in (Dropout(0.25), torch.nn.Dropout(0.25)):
        torch.manual_seed(0)
        dropped.append(layer(torch.ones(LARGE - 1)))
    assert torch.equal(dropped[0], dropped[1])


def test_dropout_refuses_a_share_it_cannot_draw() -> None:
    with pytest.raises(ValueError, match="256ths"):
        Dropout(0.3)


def test_resnet_keeps_the_resolution_of_small_images() -> None:
    small, large = (build_model("resnet18", (3, side, side), 10) for side in (32, 96))
    assert small.conv1.kernel_size == (3, 3)
    assert large.conv1.kernel_size == (7, 7)
    assert isinstance(small.maxpool, torch.nn.Identity)


@pytest.mark.parametrize("name", list(MODELS))
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, again, other = (build_model(name, (1, 32, 32), 3, seed=seed).state_dict() for seed in (5, 5, 6))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


def test_pretrained_filters_respond_to_grey_as_to_equal_colours() -> None:
    colour = torch.nn.Conv2d(3, 4, 3, bias=False)
    grey = _with_channels(colour, 1, pretrained=True)
    image = torch.rand(1, 1, 8, 8)
    assert torch.allclose(grey(image), colour(image.expand(1, 3, 8, 8)), atol=1e-6)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: build_model("resnet81", (1, 28, 28), 2), "did you mean 'resnet18'"),
        (lambda: build_model("simple_cnn", (1, 5, 28), 2), "6x6 pixels or more, not 5x28"),
        (lambda: build_model("simple_cnn", (28, 28), 2), r"shape \(28, 28\) and 2 classes cannot be built"),
        (lambda: build_model("simple_cnn", (1, 28, 28), 0), "and 0 classes cannot be built; give channels, height"),
        (lambda: build_model("simple_cnn", (1, 28, 28), 2.5), "and 2.5 classes cannot be built"),
        (lambda: build_model("simple_cnn", (1, 28, 28), 2, pretrained=True), "no pretrained weights"),
        (lambda: build_model("resnet18", (3, 32, 32), 2, pretrained=True), "above 64 pixels"),
    ],
)
def test_impossible_models_are_refused(call, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call()
