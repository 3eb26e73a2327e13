"""What makes Avalanche's iCaRL another learner than ours, exactly; results/icarl_difference.json has what it costs."""

from __future__ import annotations

import copy
import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from continual_crust.data import Dataset, Noise, Stream
from continual_crust.evaluation import accuracies
from continual_crust.models import build_model, simple_cnn
from continual_crust.randomness import seed_for
from continual_crust.selection import herding
from continual_crust.strategies import Training

if importlib.util.find_spec("avalanche") is None:
    pytest.skip("the [avalanche] extra is not installed", allow_module_level=True)

# First, because it mends torchvision where Avalanche's own import would fail.
from avalanche_peers import SupervisedPlugin, run_avalanche, tensor_dataset  # isort: skip
from avalanche.models import NCMClassifier
from avalanche.training.supervised.icarl import _ICaRLPlugin

from icarl_difference import AVALANCHE, OURS, Habits, IcarlWithHabits, WithoutHabits, class_mean, exemplars

NOISE = Noise.parse("label:0.4")
SEED = 1


class Keeper(SupervisedPlugin):
    """Holds on to what a run does not give back."""

    strategy: Any = None
    dataset: Any = None
    """Of the last experience."""

    def before_training_exp(self, strategy: Any, **_: object) -> None:
        self.strategy, self.dataset = strategy, strategy.experience.dataset

    @property
    def memory(self) -> _ICaRLPlugin:
        return next(plugin for plugin in self.strategy.plugins if isinstance(plugin, _ICaRLPlugin))


@pytest.fixture(scope="module")
def taught(few_digits: Dataset) -> Keeper:
    """Avalanche's iCaRL, as it comes, at the end of a short stream."""
    keeper = Keeper()
    training = Training(phase1_epochs=15, phase2_epochs=0, memory_per_class=20)
    run_avalanche("icarl", few_digits, NOISE, SEED, training, plugins_after=[keeper])
    return keeper


@pytest.mark.parametrize("habits", [OURS, AVALANCHE, Habits(mirror=True), Habits(repeats=True, division=True)])
def test_with_the_same_habits_both_are_one_learner(
    habits: Habits, few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dropout and with one batch for all there is no chance in training, and nothing else may differ."""
    monkeypatch.setattr(simple_cnn, "DROPPED", (0.0, 0.0))
    training = Training(phase1_epochs=20, phase2_epochs=0, memory_per_class=20, batch_size=1000)
    theirs = run_avalanche("icarl", few_digits, NOISE, SEED, training, plugins_after=[WithoutHabits(habits)])
    model = build_model("simple_cnn", few_digits.image_shape, few_digits.classes, seed=seed_for(SEED, "model"))
    ours = IcarlWithHabits(model, training, seed=SEED)
    ours.habits = habits
    stream = Stream(few_digits, NOISE, SEED)
    matrix = []
    for experience in stream:
        ours.learn(experience)
        matrix.append(accuracies(ours, stream))
    assert torch.allclose(torch.tensor(matrix), torch.tensor(theirs.accuracy_matrix), atol=0.03)
    mine, other = (
        torch.cat([weight.detach().flatten() for weight in weights])
        for weights in (
            model.parameters(),
            [*theirs.model.feature_extractor.parameters(), *theirs.model.train_classifier.parameters()],
        )
    )
    # Other habits end 0.05 away; rounding, which Adam can make larger, mostly at 0.000001.
    assert (mine - other).norm() < 0.005 * mine.norm()


def test_old_network_of_avalanche_answers_with_dropout(taught: Keeper, few_digits: Dataset) -> None:
    """Ours is in evaluation mode. In that mode Avalanche's would answer with distances, which are no logits."""
    old = taught.strategy._criterion.old_model
    images = few_digits.test_images[:20].float() / 255
    assert old.training
    assert not torch.equal(old(images), old(images))
    old = copy.deepcopy(old).eval()
    assert torch.equal(old(images), old.eval_classifier(old.feature_extractor(images)))
    assert (old(images) <= 0).all()


def test_exemplars_and_class_means_of_avalanche_are_what_its_habits_say(taught: Keeper, few_digits: Dataset) -> None:
    stream = Stream(few_digits, NOISE, SEED)
    last = stream[len(stream) - 1]
    network = taught.strategy.model.eval().feature_extractor
    images = torch.stack([sample[0] for sample in taught.dataset])
    with torch.no_grad():
        features = network(images)
        kept = exemplars(features, 20, AVALANCHE)
        assert torch.equal(images[sorted(kept)], taught.memory.x_memory[-1])
        assert set(kept) != set(herding(features, 20).indices.tolist()), "this stream shows nothing"
        mean = class_mean(network(images[kept]), network(images[kept].flip(3)), AVALANCHE)
    assert torch.allclose(taught.memory.class_means[last.classes[0]], mean, atol=1e-6)
    assert not torch.allclose(class_mean(features[kept], features[kept], OURS), mean, atol=1e-3)


def test_class_with_one_sample_without_features_keeps_a_single_exemplar() -> None:
    """Herding looks for the direction of a mean that is not a number, and finds the first sample again and again."""
    features = torch.rand(20, 8, generator=torch.Generator().manual_seed(0))
    features[12] = 0
    plugin = _ICaRLPlugin(5, None, fixed_memory=False)
    plugin.observed_classes = [0]
    plugin.construct_exemplar_set(
        SimpleNamespace(
            experience=SimpleNamespace(
                benchmark=SimpleNamespace(n_classes_per_exp=[1]),
                dataset=tensor_dataset(features, torch.zeros(20, dtype=torch.int64)),
            ),
            clock=SimpleNamespace(train_exp_counter=0),
            eval_mb_size=32,
            device="cpu",
            model=SimpleNamespace(feature_extractor=nn.Identity()),
        )
    )
    assert torch.equal(plugin.x_memory[0], features[:1])
    assert exemplars(features, 5, AVALANCHE) == [0]
    assert len(exemplars(features, 5, OURS)) == 5


def test_one_exemplar_without_features_takes_every_image_for_its_class() -> None:
    """A mean that is not a number is nearer than any other."""
    plugin = _ICaRLPlugin(2, None, fixed_memory=False)
    plugin.embedding_size = 3
    plugin.x_memory = [torch.eye(3)[:2], torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])]
    plugin.y_memory = [[0, 0], [1, 1]]
    classifier = NCMClassifier(normalize=True)
    plugin.compute_class_means(
        SimpleNamespace(
            experience=SimpleNamespace(benchmark=SimpleNamespace(n_classes_per_exp=[2])),
            model=SimpleNamespace(feature_extractor=nn.Identity(), eval_classifier=classifier),
            device="cpu",
        )
    )
    assert classifier(torch.eye(3)).argmax(dim=1).tolist() == [1, 1, 1]
    means = torch.stack([class_mean(points, points, OURS) for points in plugin.x_memory])
    assert (torch.eye(3) @ means.T).argmax(dim=1).tolist() == [0, 0, 1]
