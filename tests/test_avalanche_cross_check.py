"""The compared methods against Avalanche's own, exactly where that is possible and by final accuracy elsewhere."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from continual_crust.data import Dataset, Noise, Samples, Stream
from continual_crust.models import build_model, simple_cnn
from continual_crust.randomness import seed_for
from continual_crust.selection import herding
from continual_crust.strategies import Training, options_of, strategy_named
from continual_crust.strategies.der import DarkSamples, DerOptions, der_loss
from continual_crust.strategies.icarl import Icarl
from continual_crust.strategies.network import Network
from continual_crust.strategies.replay_ewc import ReplayEwc, ReplayEwcOptions, fisher_diagonal
from continual_crust.torchvision_remedy import import_torchvision

if importlib.util.find_spec("avalanche") is None:
    pytest.skip("the [avalanche] extra is not installed", allow_module_level=True)
import_torchvision()

from avalanche.training.losses import ICaRLLossPlugin
from avalanche.training.plugins import EWCPlugin
from avalanche.training.supervised.icarl import _ICaRLPlugin

import avalanche_peers
import cross_check


@pytest.mark.parametrize("method", list(cross_check.METHODS))
def test_final_accuracy_agrees_over_three_seeds(method: str, six_digits: Dataset) -> None:
    """Six digits rather than ten, for time; results/cross_check_avalanche.json has all ten."""
    comparison = cross_check.compare(method, six_digits, Noise(), seeds=[0, 1, 2])
    assert abs(comparison.difference) <= 0.05, comparison


@pytest.mark.parametrize("method", ["replay", "der"])
def test_without_chance_both_sides_are_one_learner(
    method: str, three_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two experiences, no dropout, all new samples in one batch, and all old ones remembered and in one batch too."""
    monkeypatch.setattr(simple_cnn, "DROPPED", (0.0, 0.0))
    stream = Stream(three_digits, Noise.parse("label:0.4"), seed=1)
    first = len(stream[0].samples)
    training = Training(phase1_epochs=20, phase2_epochs=0, memory_per_class=first, batch_size=first)
    theirs = avalanche_peers.run_avalanche(method, three_digits, Noise.parse("label:0.4"), 1, training)
    model = build_model("simple_cnn", three_digits.image_shape, 3, seed=seed_for(1, "model"))
    ours = strategy_named(method)(model, training, options=options_of(method, cross_check.METHODS[method][0]), seed=1)
    for experience in stream:
        ours.learn(experience)
    for mine, other in zip(model.parameters(), theirs.model.parameters(), strict=True):
        assert (mine - other).norm() < 0.001 * mine.norm()


@pytest.fixture
def network_and_samples(digits: Dataset) -> tuple[Network, Samples]:
    network = Network(build_model("simple_cnn", digits.image_shape, 10, seed=3), torch.device("cpu"))
    samples = Samples.of(digits.train_images[:70:2], digits.train_labels[:70:2])
    network.measure_normalization(samples.images)
    return network, samples


@pytest.mark.parametrize("batch", [1, 8])
def test_fisher_diagonal_is_avalanches(network_and_samples, batch: int) -> None:
    """35 samples: with batches of 8 the last one is short and counts like the others, on both sides."""
    network, samples = network_and_samples
    data = avalanche_peers.tensor_dataset(network.normalized(samples.images), samples.labels)
    adam = torch.optim.Adam(network.model.parameters())
    theirs = EWCPlugin(1.0).compute_importances(network.model, nn.CrossEntropyLoss(), adam, data, "cpu", batch)
    ours = fisher_diagonal(network, samples, batch)
    for mine, other in zip(ours, theirs.values(), strict=True):
        assert torch.allclose(mine, other.data, rtol=1e-4, atol=1e-9)


def test_ewc_penalty_is_avalanches_with_twice_the_strength(network_and_samples) -> None:
    network, samples = network_and_samples
    data = avalanche_peers.tensor_dataset(network.normalized(samples.images), samples.labels)
    adam = torch.optim.Adam(network.model.parameters())
    plugin = EWCPlugin(0.7)
    clock = SimpleNamespace(train_exp_counter=0)
    their_side = SimpleNamespace(
        model=network.model,
        _criterion=nn.CrossEntropyLoss(),
        optimizer=adam,
        experience=SimpleNamespace(dataset=data),
        device="cpu",
        train_mb_size=8,
        clock=clock,
        loss=torch.zeros(()),
    )
    plugin.after_training_exp(their_side)
    our_side = ReplayEwc(network.model, options=ReplayEwcOptions(strength=1.4, fisher_batch=8))
    our_side.network = network
    our_side._consolidate(samples)
    with torch.no_grad():
        for number, parameter in enumerate(network.model.parameters()):
            parameter += 0.01 * (number + 1)
    clock.train_exp_counter = 1
    plugin.before_backward(their_side)
    assert torch.allclose(our_side.options.strength / 2 * our_side._penalty(), their_side.loss, rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_herding_order_is_avalanches(seed: int) -> None:
    """Sizes at which Avalanche's loop never comes back to a sample it has; ours never does."""
    features = torch.randn(140, 128, generator=torch.Generator().manual_seed(seed)).relu() + 0.01
    plugin = _ICaRLPlugin(25, None, fixed_memory=False)
    plugin.observed_classes = [0]
    data = avalanche_peers.tensor_dataset(features, torch.zeros(140, dtype=torch.int64))
    benchmark = SimpleNamespace(n_classes_per_exp=[1])
    plugin.construct_exemplar_set(
        SimpleNamespace(
            experience=SimpleNamespace(benchmark=benchmark, dataset=data),
            clock=SimpleNamespace(train_exp_counter=0),
            eval_mb_size=32,
            device="cpu",
            model=SimpleNamespace(feature_extractor=nn.Identity()),
        )
    )
    rows = torch.cdist(plugin.x_memory[0], features).argmin(dim=1)
    assert herding(features, 25).indices.tolist() == rows[plugin.order[0].argsort()].tolist()


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.5), (0.7, 0.0)])
def test_der_loss_is_avalanches(alpha: float, beta: float, digits: Dataset) -> None:
    """Watch a real step of Avalanche's DER and compute our loss on its very outputs."""
    seen = []

    class Watcher(avalanche_peers.SupervisedPlugin):
        def before_backward(self, strategy, **_) -> None:
            if strategy.replay_loader is not None and not seen:
                seen.append(
                    (strategy.mb_output.detach(), strategy.mb_y, strategy.batch_logits, float(strategy.loss.detach()))
                )

    budget = avalanche_peers.Budget(
        build_model("simple_cnn", digits.image_shape, 10), Training(phase1_epochs=1, phase2_epochs=0), 10
    )
    strategy = avalanche_peers.der(budget, alpha, beta)
    strategy.plugins.append(Watcher())
    data = [
        avalanche_peers.tensor_dataset(digits.train_images[chosen].float() / 255, digits.train_labels[chosen])
        for chosen in (digits.train_labels < 2, digits.train_labels == 2)
    ]
    benchmark = avalanche_peers.create_multi_dataset_generic_benchmark(data, data)
    for experience in benchmark.train_stream:
        strategy.train(experience)
    outputs, labels, logits, their_loss = seen[0]
    memory = len(logits)  # Avalanche puts the memory first
    stored = DarkSamples(torch.zeros(memory), labels[:memory], torch.zeros(memory), torch.ones(memory), logits)
    new = Samples.of(torch.zeros(len(labels) - memory), labels[memory:])
    ours = der_loss(outputs[memory:], new, outputs[:memory], stored, DerOptions(alpha, beta))
    assert float(ours) == pytest.approx(their_loss, rel=1e-5)


def test_icarl_loss_is_avalanches(network_and_samples) -> None:
    network, samples = network_and_samples
    network.model.eval()  # one forward pass must equal another
    old = build_model("simple_cnn", (1, 8, 8), 10, seed=9).eval()
    ours = Icarl(network.model)
    ours.network, ours._old_model = network, old
    ours._is_old_class[[0, 4, 7]] = True
    plugin = ICaRLLossPlugin()
    plugin.old_classes = [0, 4, 7]
    plugin.old_logits = old(network.normalized(samples.images)).detach()
    theirs = plugin(network.logits(samples.images), samples.labels)
    assert torch.allclose(ours._loss(samples), theirs, rtol=1e-5)
