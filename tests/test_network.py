"""A network on its device: low precision, and how many images are evaluated at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from continual_crust.errors import InputError
from continual_crust.models import build_model
from continual_crust.strategies import network
from continual_crust.strategies.network import Network, may_lie_side_by_side

CPU = torch.device("cpu")


class Odd(nn.Module):
    """A layer that takes no part, and two that share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 3)
        self.first, self.second, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.second.weight = self.first.weight

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.last(self.second(self.first(images.flatten(1)).relu()))
        return out


class Functional(nn.Module):
    """Its pooling is no module, and it flattens by `view`."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 4, 3), nn.Linear(36, 10)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(functional.max_pool2d(self.body(images), 2).view(len(images), -1))
        return out


@pytest.fixture
def images() -> Tensor:
    return torch.randint(0, 256, (16, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def gradients(model: nn.Module, images: Tensor) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """With all weights lowered at once, and as autocast does it."""
    ours, plain = Network(model, CPU, "bfloat16"), copy.deepcopy(model)
    torch.manual_seed(1)  # for what is dropped
    ours.logits(images).square().mean().backward()
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        output = plain(images.float())
    output.float().square().mean().backward()
    return [parameter.grad for parameter in model.parameters()], [parameter.grad for parameter in plain.parameters()]


def test_networks_that_would_not_repeat_themselves_or_fail_keep_their_order_in_memory() -> None:
    orders = [may_lie_side_by_side(build_model(name, (1, 8, 8), 10)) for name in ("simple_cnn", "resnet18")]
    assert [*orders, may_lie_side_by_side(Functional())] == [False, True, False]


@pytest.mark.parametrize("name", ["simple_cnn", "resnet18"])
def test_lowering_all_weights_at_once_changes_no_bit(name: str, images: Tensor) -> None:
    for ours, plain in zip(*gradients(build_model(name, (1, 8, 8), 10, seed=0), images), strict=True):
        assert ours is not None
        assert plain is not None
        assert torch.equal(ours, plain)


def test_lowering_odd_networks(images: Tensor) -> None:
    torch.manual_seed(0)
    model = Odd()
    ours, plain = gradients(model, images)
    assert [gradient is None for gradient in ours] == [
        parameter in set(model.unused.parameters()) for parameter in model.parameters()
    ]
    for mine, other in zip(ours, plain, strict=True):
        if mine is not None and other is not None:
            # The two gradients of a shared weight are added before they are in full precision.
            assert torch.allclose(mine, other, rtol=0.02, atol=0.01 * float(other.abs().max()))


class CopiesCounted(TorchDispatchMode):
    """Counts tensors that are copied one at a time into another precision."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[torch.Size] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten._to_copy.default:
            self.copies.append(args[0].shape)
        return func(*args, **(kwargs or {}))


def test_no_weight_is_lowered_on_its_own(images: Tensor) -> None:
    model = build_model("resnet18", (1, 8, 8), 10, seed=0)
    lowering = Network(model, CPU, "bfloat16")
    with CopiesCounted() as counted:
        lowering.logits(images).square().mean().backward()
    shapes = {parameter.shape for parameter in model.parameters()}
    assert not [shape for shape in counted.copies if shape in shapes]
    assert counted.copies  # images and logits


def test_evaluation_is_in_full_precision(images: Tensor) -> None:
    model = build_model("resnet18", (1, 8, 8), 10, seed=0)
    low, full = Network(model, CPU, "bfloat16"), Network(copy.deepcopy(model), CPU)
    assert torch.equal(low.evaluate(images)[1], full.evaluate(images)[1])


@pytest.mark.parametrize(
    ("device", "fitting", "at_a_time"),
    [("cpu", 100, 100), ("cuda", 100, 256), ("cuda", 20, 80), ("cuda", 1000, 1000), ("cuda", 0, 4)],
)
def test_how_many_images_are_evaluated_at_a_time(
    device: str, fitting: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU enough to be worth launching a network, if that is not much more than what fits into a small memory."""
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    monkeypatch.setattr(network, "CHUNK_PIXELS", fitting * 64)
    evaluating = Network(build_model("simple_cnn", (1, 8, 8), 10), CPU)
    monkeypatch.setattr(evaluating, "device", torch.device(device))
    assert evaluating._chunk(images) == at_a_time


@pytest.mark.parametrize(
    ("count", "side", "sizes"),
    [(0, 28, [0]), (1, 28, [1]), (167, 28, [167]), (168, 28, [84, 84]), (3000, 8, [1500, 1500]), (65, 200, [33, 32])],
)
def test_a_cpu_evaluates_what_its_cache_holds_in_parts_of_nearly_equal_sizes(
    count: int, side: int, sizes: list[int]
) -> None:
    images = torch.zeros(count, 1, side, side, dtype=torch.uint8)
    assert [len(part) for part in Network(nn.Linear(1, 1), CPU)._parts(images)] == sizes


def test_an_evaluation_in_parts_is_that_of_the_whole() -> None:
    images = torch.randint(0, 256, (600, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    evaluating = Network(build_model("simple_cnn", (1, 28, 28), 10, seed=0).eval(), CPU)
    with torch.no_grad():
        whole = evaluating.features_and_logits(images)
    assert len(evaluating._parts(images)) > 1
    torch.testing.assert_close(evaluating.evaluate(images), whole)


def test_batch_statistics_of_images_that_lie_class_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Black ones, then white ones, in batches of half as many: what varies is the difference between the two."""
    images = torch.cat([torch.zeros(8, 1, 8, 8), torch.full((8, 1, 8, 8), 255.0)]).byte()
    monkeypatch.setattr(network, "CHUNK_PIXELS", 8 * 64)
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 2))
    Network(model, CPU).measure_batch_statistics(images)
    norm = model[0]
    assert isinstance(norm, nn.BatchNorm2d)
    assert float(norm.running_mean) == pytest.approx(127.5)
    assert float(norm.running_var) == pytest.approx(127.5**2, rel=0.01)


class Wrapped(nn.Module):
    """A network whose output is no tensor."""

    def __init__(self, wrap: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.head, self.wrap = nn.Linear(4, 2), wrap

    def forward(self, images: torch.Tensor) -> object:
        return self.wrap(self.head(images.flatten(1)))


@pytest.mark.parametrize("wrap", [lambda logits: (logits, None), lambda logits: {"logits": logits}])
def test_an_output_that_is_no_tensor_is_told(wrap: Callable[[torch.Tensor], object]) -> None:
    wrapping, images = Network(Wrapped(wrap), CPU), torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    for use in (wrapping.logits, wrapping.evaluate):
        with pytest.raises(InputError, match=r"the output of Wrapped is a (tuple|dict)"):
            use(images)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nn.Linear(4, 2).double(), r"computes in torch\.float64"),
        (nn.Linear(4, 2).requires_grad_(False), "no parameter of Linear can be trained"),
        (nn.LazyLinear(2), "does not know its sizes yet"),
    ],
)
def test_networks_that_cannot_be_trained_are_told(model: nn.Module, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Network(model, CPU)
