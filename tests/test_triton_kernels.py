"""Kernels for training, where Triton is installed: on a GPU, or in Triton's own interpreter where there is none."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from continual_crust.data.samples import Samples
from continual_crust.models import build_model, simple_cnn_fused
from continual_crust.models.simple_cnn import DROPPED, SimpleCNN
from continual_crust.strategies import adam
from continual_crust.strategies.adam import Adam
from continual_crust.strategies.losses import weighted_cross_entropy
from continual_crust.strategies.network import Network
from continual_crust.strategies.whole_step import WholeStep
from test_selection_counts import Operations

triton = pytest.importorskip("triton")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# As a share of a gradient's length. TF32 has ten bits of mantissa; where it decides a near-tie of two pixels, a
# gradient goes to the other one: of one in a thousand, which is three hundredths of the length.
TOLERANCE = 0.1 if torch.cuda.is_available() else 1e-5
SHAPES = [(3, (1, 10, 10)), (2, (3, 9, 11)), (33, (1, 8, 8))]


@pytest.fixture(autouse=True)
def _exact_references() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def uniform(seed: int, step: int, count: int) -> Tensor:
    """What kernels draw for their values number 0, 1, ...: Philox4x32-10, computed anew, as numbers from 0 to 1."""
    low = np.uint64(0xFFFFFFFF)
    counter = [np.arange(count, dtype=np.uint64), np.full(count, step, np.uint64), np.uint64(0), np.uint64(0)]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        right, left = np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]
        counter = [
            left >> np.uint64(32) ^ counter[1] ^ key[0],
            left & low,
            right >> np.uint64(32) ^ counter[3] ^ key[1],
            right & low,
        ]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    signed = counter[0].astype(np.uint32).view(np.int32)
    return torch.from_numpy(np.where(signed < 0, ~signed, signed).astype(np.float32) * np.float32(4.6566127342e-10))


def reference_features(model: SimpleCNN, images: Tensor, seed: int, step: int = 0) -> Tensor:
    """What enters the head, by PyTorch's layers, with dropout as the kernels draw it."""
    first, second, linear, _ = model.layers()
    pooled = functional.max_pool2d(functional.relu(second(functional.relu(first(images)))), 2)
    places, batch = pooled[0, 0].numel(), len(images)
    draws = uniform(seed, step, pooled.numel() + batch * 128).to(images.device)
    kept = (draws[: pooled.numel()] >= DROPPED[0]).view(batch, places, 64).transpose(1, 2).flatten(1)
    features = functional.relu(linear(pooled.flatten(1) * kept / (1 - DROPPED[0])))
    return features * (draws[pooled.numel() :] >= DROPPED[1]).view(batch, 128) / (1 - DROPPED[1])


def close(ours: Tensor, theirs: Tensor, tolerance: float = TOLERANCE) -> bool:
    return ours.shape == theirs.shape and bool((ours - theirs).norm() <= tolerance * theirs.norm())


def plain_model(shape: tuple[int, int, int], classes: int = 10) -> SimpleCNN:
    model = build_model("simple_cnn", shape, classes, seed=0).to(DEVICE)
    assert isinstance(model, SimpleCNN)
    return model


@pytest.mark.parametrize(("batch", "shape"), SHAPES)
def test_fused_simple_cnn_is_the_same_network(batch: int, shape: tuple[int, int, int]) -> None:
    random = torch.Generator().manual_seed(0)
    model = plain_model(shape)
    layers: list[nn.Module] = list(model.layers()[:-1])
    images = torch.randn(batch, *shape, generator=random).to(DEVICE)
    upstream = torch.randn(batch, 128, generator=random).to(DEVICE)
    seed = 1 << 40 | 12345

    features = reference_features(model, images, seed)
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    gradients = torch.autograd.grad(features, parameters, upstream)

    kernels = simple_cnn_fused.kernels()
    with torch.no_grad():
        pairs = [tuple(layer.parameters()) for layer in layers]
        found, *between = kernels.forward(images, *pairs, torch.tensor(seed, device=DEVICE), DROPPED)
        found_gradients = kernels.backward(upstream, images, pairs[2][0], DROPPED, found, *between)
    for ours, theirs in zip((found, *found_gradients), (features.detach(), *gradients), strict=True):
        assert close(ours, theirs)


def some_samples(count: int, shape: tuple[int, int, int], classes: int) -> Samples:
    random = torch.Generator().manual_seed(1)
    return Samples.of(
        torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=random),
        torch.randint(0, classes, (count,), generator=random),
        weights=torch.rand(count, generator=random) + 0.5,
    ).to(DEVICE)


class Walk:
    """Whole steps through some samples, and the same steps by PyTorch."""

    def __init__(self, batch: int, shape: tuple[int, int, int], sizes: list[int], classes: int = 10) -> None:
        self.samples = some_samples(sum(sizes) + 2, shape, classes)
        self.network = Network(plain_model(shape, classes), DEVICE)
        self.network.measure_normalization(self.samples.images)
        self.optimizer = Adam(list(self.network.model.parameters()), 1e-3, 1e-2)
        self.order = torch.randperm(len(self.samples), generator=torch.Generator().manual_seed(2)).to(DEVICE)
        self.counter = torch.zeros((), dtype=torch.int64, device=DEVICE)
        self.loss_sum = torch.zeros((), device=DEVICE)
        self.batch, self.sizes = batch, sizes
        self.step = WholeStep(self.network, self.optimizer, self.loss_sum, batch)

    def epoch(self, draws: int = 0) -> None:
        self.counter.zero_()
        with torch.random.fork_rng():
            torch.manual_seed(draws)
            self.step.begin()
        for size in self.sizes:
            self.step.take(self.samples, self.order, self.counter, size)
        self.step.end()

    def epoch_by_pytorch(self, model: SimpleCNN) -> tuple[torch.optim.Adam, float]:
        """The optimizer afterwards, and the sum of the losses."""
        optimizer = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-2)
        total, seed = 0.0, int(self.step._seed)
        for number, size in enumerate(self.sizes):
            batch = self.samples[self.order[number * self.batch :][:size]]
            features = reference_features(model, self.network.normalized(batch.images), seed, number)
            loss = weighted_cross_entropy(model.head(features), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        return optimizer, total


@pytest.mark.parametrize(
    ("batch", "shape", "sizes"), [(3, (1, 10, 10), [3, 2]), (2, (3, 9, 11), [2, 2]), (33, (1, 8, 8), [33])]
)
def test_whole_steps_are_pytorchs(batch: int, shape: tuple[int, int, int], sizes: list[int]) -> None:
    walk = Walk(batch, shape, sizes, classes=17)
    before, twin = plain_model(shape, 17), plain_model(shape, 17)
    walk.epoch()
    peer, loss_sum = walk.epoch_by_pytorch(twin)
    assert float(walk.loss_sum) == pytest.approx(loss_sum, rel=TOLERANCE)
    assert int(walk.counter) == len(sizes)
    for ours, theirs, start in zip(*(model.parameters() for model in (walk.network.model, twin, before)), strict=True):
        found, wanted = walk.optimizer.state_of(ours), peer.state[theirs]
        assert found["step"] == wanted["step"] == len(sizes)
        assert close(found["exp_avg"], wanted["exp_avg"], 5 * TOLERANCE)
        assert close(found["exp_avg_sq"], wanted["exp_avg_sq"], 5 * TOLERANCE)
        # Adam goes as far for the smallest gradient as for the largest, and its sign is a matter of rounding.
        assert close(ours - start, theirs - start, max(10 * TOLERANCE, 0.01))


def test_whole_steps_go_on_from_a_saved_state() -> None:
    walk, other = Walk(2, (1, 8, 8), [2]), Walk(2, (1, 8, 8), [2])
    walk.epoch(1)
    other.network.restore(copy.deepcopy(walk.network.state()))
    other.optimizer.restore(walk.optimizer.state())
    other.step = WholeStep(other.network, other.optimizer, other.loss_sum, 2)
    for each in (walk, other):
        each.epoch(2)
        assert {float(value) for name, value in each.optimizer.state().items() if name.endswith("step")} == {2}
    for ours, theirs in zip(walk.network.model.parameters(), other.network.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_whole_step_is_eight_launches_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that share a GPU wait for each other's launches."""
    walk, launched = Walk(2, (1, 8, 8), [2]), []
    kind = type(simple_cnn_fused.kernels().there._first)
    monkeypatch.setattr(kind, "run", lambda kernel, *args, **options: launched.append(kernel))
    walk.step.take(walk.samples, walk.order, walk.counter, 2)  # makes room for what lies between the kernels
    launched.clear()
    with Operations() as others:
        walk.step.take(walk.samples, walk.order, walk.counter, 2)
    assert (len(launched), others.count) == (8, 0)


def test_adam_kernel_takes_pytorchs_steps() -> None:
    random = torch.Generator().manual_seed(0)
    kernels = adam.kernels()
    learned = kernels.Learned(*(torch.zeros(40, 70, device=DEVICE) for _ in range(3)))
    learned.value.copy_(torch.randn(40, 70, generator=random))
    theirs = learned.value.clone()
    peer = torch.optim.Adam([theirs], lr=1e-2, weight_decay=1e-3)
    settings, step = kernels.Settings.of(1e-2, 1e-3, (0.9, 0.999), 1e-8), torch.zeros((), device=DEVICE)
    for number in range(20):
        gradient = torch.randn(40, 70, generator=random).to(DEVICE)
        theirs.grad = gradient
        peer.step()
        step += 1
        laid_out_otherwise = gradient.t().contiguous().t() if number % 2 else gradient
        kernels.adam(learned, laid_out_otherwise, step, settings)
    assert torch.allclose(learned.value, theirs, atol=1e-5)


@pytest.mark.parametrize(("batch", "shape"), SHAPES)
def test_without_dropout_nothing_is_drawn_and_features_are_those_of_the_layers(
    batch: int, shape: tuple[int, int, int]
) -> None:
    model = build_model("simple_cnn", shape, 4).to(DEVICE).eval()
    images = torch.rand(batch, *shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    parameters = tuple(parameter for layer in model.layers()[:-1] for parameter in layer.parameters())
    state = torch.get_rng_state() if DEVICE.type == "cpu" else torch.cuda.get_rng_state()
    with torch.no_grad():
        found = simple_cnn_fused.body(images, parameters, (0.0, 0.0))
        expected = model.body(images)
    after = torch.get_rng_state() if DEVICE.type == "cpu" else torch.cuda.get_rng_state()
    assert torch.equal(state, after)
    assert (found - expected).norm() <= TOLERANCE / 10 * expected.norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_evaluation_takes_the_kernels_unless_it_is_differentiated(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("simple_cnn", (1, 28, 28), 4).to(DEVICE).eval()
    images, taken = torch.rand(5, 1, 28, 28, device=DEVICE), []
    body = simple_cnn_fused.body
    monkeypatch.setattr(simple_cnn_fused, "body", lambda *given: taken.append(given) or body(*given))
    differentiated = model(images)
    assert not taken
    with torch.no_grad():
        assert torch.allclose(model(images), differentiated, atol=2e-2)
    assert len(taken) == 1
