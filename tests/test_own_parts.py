"""Networks, selectors, options and data of one's own, and classes that come again."""

from __future__ import annotations

import copy
import dataclasses
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from typer.testing import CliRunner

from continual_crust.cli import app
from continual_crust.data import Dataset, Experience, Samples, Stream
from continual_crust.errors import InputError
from continual_crust.field import ContinualLearner
from continual_crust.models import build_model
from continual_crust.selection import Coreset, coreset, points
from continual_crust.selection.selectors import SELECTORS
from continual_crust.strategies import STRATEGIES, Strategy, Told, Training, strategy_named
from continual_crust.strategies.training import Phase, Trainable
from continual_crust.tensor_tree import pack_tree

QUICK = Training(phase1_epochs=2, phase2_epochs=1, memory_per_class=10)


class HeadFirst(nn.Module):
    """Its head is not the linear layer registered last."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(9, 4)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 9))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))


class Recurrent(nn.Module):
    """Of each row of an image in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.GRU(8, 9, batch_first=True)
        self.head = nn.Linear(9, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.rows(images[:, 0])[0][:, -1])


class Viewed(nn.Module):
    """It flattens as many a tutorial does."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(144, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).view(len(images), -1))


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


def in_order(images: Tensor) -> Tensor:
    """The same images in the usual layout, which `contiguous` does not bring where there is one channel."""
    return torch.empty(images.shape, dtype=images.dtype).copy_(images)


@pytest.mark.parametrize("method", ["replay", "crust", "icarl", "sift"])
def test_a_network_is_never_asked_about_no_image(method: str, few_digits: Dataset) -> None:
    images = in_order(few_digits.train_images)
    strategy = strategy_named(method)(Viewed(), QUICK)
    strategy.learn(Experience((0, 1, 2, 3), Samples.of(images, few_digits.train_labels)))
    assert [len(kept) for kept in strategy.memory.values()] == [10] * 4
    assert strategy.predict(images[:0]).shape == (0,)
    assert strategy.predict_logits(images[:0]).shape == (0, 4)


def test_a_network_that_cannot_take_images_as_they_lie_in_memory_says_so(few_digits: Dataset) -> None:
    images = few_digits.train_images.as_strided(few_digits.train_images.shape, (64, 1, 8, 1))
    with pytest.raises(InputError, match=r"Use .reshape\(...\) instead; give one that can"):
        strategy_named("replay")(Viewed(), QUICK).learn(
            Experience((0, 1, 2, 3), Samples.of(images, few_digits.train_labels))
        )


def test_a_learner_is_the_same_however_its_images_lie_in_memory(few_digits: Dataset) -> None:
    pixels, labels = in_order(few_digits.train_images).numpy(), few_digits.train_labels.numpy()
    torch.manual_seed(0)
    model, answers = Viewed(), []
    for images in (pixels, pixels[:, 0], pixels[:, 0][:, None][labels >= 0], pixels[:, 0, :, :, None].copy()):
        learner = ContinualLearner(copy.deepcopy(model), memory_per_class=5, phase1_epochs=2, phase2_epochs=1)
        answers.append(learner.learn(images, labels).predict_proba(images))
    assert all((answer == answers[0]).all() for answer in answers)


def test_a_network_that_does_not_end_in_its_head_is_refused_before_it_is_trained(
    few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Phase, "epoch", lambda *_: pytest.fail("epochs were spent"))
    with pytest.raises(InputError, match="does not end in its last linear layer"):
        strategy_named("crust")(HeadFirst(), QUICK).learn(Stream(few_digits)[0])


def test_a_learner_with_such_a_network_says_so(few_digits: Dataset) -> None:
    images, labels = few_digits.train_images.numpy(), few_digits.train_labels.numpy()
    with pytest.raises(InputError, match="does not end in its last linear layer"):
        ContinualLearner(HeadFirst()).learn(images, labels)


def test_images_that_were_refused_leave_no_normalisation_behind(few_digits: Dataset) -> None:
    usual, tried = (strategy_named("crust")(nn.Sequential(*flat()), QUICK) for _ in range(2))
    tried.network.model.load_state_dict(usual.network.model.state_dict())
    colour = Samples.of(torch.full((4, 3, 8, 8), 9, dtype=torch.uint8), torch.zeros(4).long())
    with pytest.raises(InputError, match="cannot take images of 3×8×8"):
        tried.learn(Experience((0,), colour))
    for strategy in (usual, tried):
        strategy.learn(Stream(few_digits)[0])
    assert torch.equal(usual.predict_logits(few_digits.test_images), tried.predict_logits(few_digits.test_images))


def test_a_network_whose_normalisation_keeps_no_statistics_learns(few_digits: Dataset) -> None:
    normalized = nn.BatchNorm1d(64, track_running_stats=False)
    strategy = strategy_named("crust")(nn.Sequential(nn.Flatten(), normalized, nn.Linear(64, 4)), QUICK)
    strategy.learn(Stream(few_digits)[0])
    assert len(strategy.memory) == 2


def test_elastic_weights_tell_of_networks_without_gradients_of_single_samples(few_digits: Dataset) -> None:
    with pytest.raises(InputError, match="replay_ewc needs gradients of single samples"):
        strategy_named("replay_ewc")(Recurrent(), QUICK).learn(Stream(few_digits)[0])


@pytest.mark.parametrize("name", ["crust", "icarl"])
def test_only_images_like_those_learned_are_predicted(name: str, few_digits: Dataset) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 4))
    colour = few_digits.train_images.expand(-1, 3, -1, -1)
    strategy = strategy_named(name)(model, QUICK)
    strategy.learn(Experience((0, 1, 2, 3), Samples.of(colour, few_digits.train_labels)))
    with pytest.raises(InputError, match="images are not bytes"):
        strategy.predict(colour / 255)
    with pytest.raises(InputError, match="images of 1 channels came, and those learned have 3"):
        strategy.predict(few_digits.test_images)
    with pytest.raises(InputError, match="cannot take images of 3×16×8"):
        strategy.predict(torch.cat([colour, colour], dim=2))


@pytest.mark.parametrize("name", ["crust", "cosine_crust", "der", "cumulative_crust"])
def test_samples_that_come_again_are_remembered_once(name: str, few_digits: Dataset) -> None:
    strategy = strategy_named(name)(flat(), QUICK)
    experience = Stream(few_digits)[0]
    for _ in range(3):
        strategy.learn(experience)
    assert all(len(kept.ids.unique()) == len(kept) > 0 for kept in strategy.memory.values())


def test_other_samples_of_the_same_ids_are_remembered_too(few_digits: Dataset) -> None:
    """Ids count up from 0 in every experience unless they are given."""
    strategy = strategy_named("replay")(flat(), dataclasses.replace(QUICK, memory_per_class=100))
    own = few_digits.train_images[few_digits.train_labels == 0]
    for part in (own[:20], own[20:]):
        strategy.learn(Experience((0,), Samples.of(part, torch.zeros(len(part)).long())))
    assert len(strategy.memory[0].images.unique(dim=0)) == len(own.unique(dim=0))


def test_what_is_remembered_of_a_class_that_comes_again_was_seen_once(few_digits: Dataset) -> None:
    strategy = strategy_named("cumulative_crust")(flat(), QUICK)
    samples = Stream(few_digits)[0].samples
    label = int(samples.labels[0])
    own = samples.of_class(label)
    for part in (own[:20], own[20:]):
        strategy.learn(Experience((label,), part))
    assert sorted(strategy.state()["own"]["ids"].tolist()) == sorted(own.ids.tolist())


@pytest.mark.parametrize(
    "name", [name for name, method in STRATEGIES.items() if not issubclass(method, Told) and name != "joint"]
)
def test_an_experience_that_was_interrupted_leaves_no_trace(
    name: str, few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was learned half is forgotten, and given again it is learned to the same bits as if nothing had been."""
    first, second = Stream(few_digits)[:2]
    again = Experience((*first.classes, *second.classes), Samples.concatenate([first.samples[:9], second.samples]))
    strategy, undisturbed = (
        strategy_named(name)(build_model("simple_cnn", few_digits.image_shape, 4), QUICK) for _ in range(2)
    )
    epoch, done = Phase.epoch, list[int]()

    def interrupted(self: Phase, samples: Trainable, beside: Trainable | None = None) -> None:
        epoch(self, samples, beside)
        done.append(1)
        if len(done) == 2:
            done.clear()
            raise KeyboardInterrupt

    for experience in (first, again):
        before = told(strategy)
        with monkeypatch.context() as patched:
            patched.setattr(Phase, "epoch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                strategy.learn(experience)
        assert told(strategy) == before
        strategy.learn(experience)
        undisturbed.learn(experience)
        assert told(strategy) == told(undisturbed)


def told(strategy: Strategy) -> bytes:
    """All that a learner is, but for how long it took."""
    return pack_tree(strategy.state() | {"selection_seconds": 0.0})


def test_what_sift_learned_of_the_noise_in_an_interrupted_experience_is_forgotten(
    few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Stream(few_digits)[:2]
    training = Training(phase1_epochs=12, phase2_epochs=12, memory_per_class=10, learning_rate=0.01, batch_size=8)
    sift = strategy_named("sift")(flat(), training)
    sift.learn(first)
    before = sift.state()["own"]
    assert before["clean_shares"]

    def interrupted(self: object, epochs: int) -> None:
        assert sift.state()["own"] != before
        raise KeyboardInterrupt

    monkeypatch.setattr(type(sift), "_learn_memories", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sift.learn(second)
    assert sift.state()["own"] == before


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (torch.arange(11), "came to a Tensor; let it return a Coreset of at most 10"),
        (Coreset(torch.arange(11), torch.ones(11), torch.ones(11).double()), "came to 11 samples"),
    ],
)
def test_a_selector_of_ones_own_keeps_to_the_budget(
    found: object, told: str, few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SELECTORS, "own", lambda *_: found)  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match=f"the selector 'own' {told}"):
        strategy_named("crust")(flat(), QUICK, "own").learn(Stream(few_digits)[0])


@pytest.mark.parametrize(("name", "selector"), [("cosine_crust", None), ("sift", "reservoir"), ("replay", "crust")])
def test_a_program_that_computes_in_double_precision_changes_nothing(
    name: str, selector: str | None, few_digits: Dataset
) -> None:
    model = flat()

    def learned() -> tuple[Tensor, Tensor]:
        learner = strategy_named(name)(copy.deepcopy(model), QUICK, selector)
        for experience in Stream(few_digits, "salt_and_pepper:0.5"):
            learner.learn(experience)
        remembered = learner.remembered()
        assert remembered is not None
        assert remembered.weights.dtype is torch.float32
        return learner.predict_logits(few_digits.test_images), remembered.ids

    usual = learned()
    torch.set_default_dtype(torch.float64)
    try:
        double = learned()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(map(torch.equal, usual, double))


def test_the_examples_for_contributors_work_outside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    known: dict[str, Any] = {**vars(coreset), **vars(points), "functional": functional}
    known |= {"Strategy": Strategy, "Samples": Samples}
    for example in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(textwrap.dedent(example), known)
    rule = known["lowest_loss"]
    monkeypatch.setitem(SELECTORS, "lowest_loss", lambda _, c, size, __: rule(c.features, c.logits, c.labels, size))
    monkeypatch.setitem(STRATEGIES, "warmed", known["Warmed"])
    study = tmp_path / "mine.yaml"
    study.write_text(
        "{id: mine, title: mine, datasets: digits, noise: {kind: label, levels: 0.4}, seeds: 1, memory: 10,"
        " methods: [warmed, {method: warmed, selector: {name: lowest_loss}}], overrides: {phase1_epochs: 1}}"
    )
    study_run = ["study", "run", str(study), "--out", str(tmp_path), "--workers", "1"]
    for command in (study_run, ["report", str(tmp_path / "mine")]):
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
    table = pd.read_csv(tmp_path / "mine" / "report" / "tables" / "mine-purity.csv").set_index("label")["mean"]
    assert table["warmed (memory by lowest_loss)"] > table["warmed"] + 0.1


@dataclass(frozen=True)
class OwnOptions:
    temperature: float | None = None
    steps: tuple[int, ...] = (1, 2)
    layers: list[int] = field(default_factory=list)
    rate: float = 0.5


class Own(Strategy):
    name = "own"
    summary = "A method of one's own"
    options_type = OwnOptions

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        self._train(new)


def test_options_of_ones_own_may_have_any_default() -> None:
    assert Own(flat()).options == OwnOptions()
    given = {"temperature": 2.0, "steps": (3,), "layers": [4], "rate": 1}
    assert Own(flat(), options=given).options == OwnOptions(2.0, (3,), [4], 1.0)
    with pytest.raises(InputError, match="rate is 'fast'; give a number"):
        Own(flat(), options=OwnOptions(rate="fast"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ids": torch.arange(3)}, "ids of an experience are not a tensor with one for each image"),
        ({"ids": list(range(4))}, "ids of an experience"),
        ({"ids": torch.zeros(4)}, "ids of an experience"),
        ({"weights": torch.ones(1)}, "weights of an experience"),
        ({"weights": torch.ones(4, 1)}, "weights of an experience"),
        ({"weights": torch.ones(4).long()}, "weights of an experience .* give float32 numbers"),
    ],
)
def test_an_experience_has_an_id_and_a_weight_for_each_image(given: dict[str, Tensor], told: str) -> None:
    images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    with pytest.raises(InputError, match=told):
        Experience((0,), Samples.of(images, torch.zeros(4).long(), **given))


def test_classes_may_be_numbers_of_numpy(few_digits: Dataset) -> None:
    own = few_digits.train_images[few_digits.train_labels == 0]
    experience = Experience((np.int64(0),), Samples.of(own, torch.zeros(len(own)).long()))
    assert [type(label) for label in experience.classes] == [int]


@pytest.mark.parametrize("names", ["ab", ("a", "a"), 2])
def test_every_class_has_a_name_of_its_own(names: object, few_digits: Dataset) -> None:
    with pytest.raises(InputError, match="give a tuple with another for each class"):
        dataclasses.replace(few_digits, class_names=names)  # type: ignore[arg-type]


def test_lists_and_numbers_do_for_class_names(few_digits: Dataset) -> None:
    assert dataclasses.replace(few_digits, class_names=[*range(4)]).class_names == ("0", "1", "2", "3")  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 8, 16)])
def test_images_to_test_with_are_like_those_to_train_on(shape: tuple[int, ...], few_digits: Dataset) -> None:
    others = torch.zeros(len(few_digits.test_labels), *shape, dtype=torch.uint8)
    with pytest.raises(InputError, match=r"test images of .* and training images 1×8×8; bring them to one form"):
        dataclasses.replace(few_digits, test_images=others)


@pytest.mark.parametrize("given", [{"first_classes": 2.0}, {"classes_per_experience": "1"}, {"first_classes": 0}])
def test_numbers_of_classes_are_whole(given: dict[str, int], few_digits: Dataset) -> None:
    with pytest.raises(InputError, match="give whole numbers of classes of 1 or more"):
        Stream(few_digits, **given)
