"""`ContinualLearner`: classes that arrive over time, as arrays, tensors and data sets."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.utils.data import StackDataset, TensorDataset

from continual_crust import ContinualLearner
from continual_crust.data import Dataset
from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.field.checkpoint import Checkpoint
from continual_crust.field.growth import with_head
from continual_crust.field.inputs import as_bytes, images_and_labels
from continual_crust.field.judge import Judge
from continual_crust.field.lesson import Batch, Lesson
from continual_crust.field.notes import second_thoughts
from continual_crust.field.rows import ArrayRows
from continual_crust.field.strategy import FieldSift
from continual_crust.models import build_model
from continual_crust.selection.noise_share import NoiseEstimate
from continual_crust.selection.trust import Assessment
from continual_crust.strategies.training import Phase, Trainable, Training
from field_images import numbers_of


def quick(**options: object) -> ContinualLearner:
    return ContinualLearner(
        **{"memory_per_class": 8, "phase1_epochs": 10, "phase2_epochs": 6, "device": "cpu"} | options
    )


def batch(digits: Dataset, *classes: int, start: int = 0, count: int = 30) -> tuple[np.ndarray, list[int]]:
    images = np.concatenate([numbers_of(digits, digit)[start : start + count] for digit in classes])
    return images, [digit for digit in classes for _ in range(count)]


@pytest.fixture(scope="module")
def learner(digits: Dataset) -> ContinualLearner:
    """Knows 0 and 1, then 2; read only."""
    return quick().learn(*batch(digits, 0, 1)).learn(*batch(digits, 2))


def test_classes_arrive_one_after_another(learner: ContinualLearner, digits: Dataset) -> None:
    assert learner.classes_.tolist() == [0, 1, 2]
    images, labels = batch(digits, 0, 1, 2, start=60)
    assert learner.score(images, labels) > 0.9
    probabilities = learner.predict_proba(images)
    assert probabilities.shape == (90, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (learner.predict(images) == probabilities.argmax(axis=1)).all()


def test_only_a_few_images_are_kept(learner: ContinualLearner, digits: Dataset) -> None:
    for label, coreset in learner.coresets.items():
        assert 0 < len(coreset.images) <= 8
        assert len(coreset.names) == len(coreset.scores) == len(coreset.images)
        seen = learner.seen(label)
        assert len(seen) == 30
        assert seen.kept.sum() == len(coreset.images)
        assert {seen.names()[row] for row in np.flatnonzero(seen.kept)} == set(coreset.names)
        number = int(coreset.names[0].removeprefix("image ")) - (30 if label == 1 else 0)
        assert (coreset.images[0, 0] == numbers_of(digits, int(label))[number]).all()


def test_same_seed_same_bits(learner: ContinualLearner, digits: Dataset) -> None:
    again = quick().learn(*batch(digits, 0, 1)).learn(*batch(digits, 2))
    images, _ = batch(digits, 0, 1, 2, start=60)
    assert (again.predict_proba(images) == learner.predict_proba(images)).all()


def test_old_outputs_stay_when_the_head_grows(learner: ContinualLearner, digits: Dataset) -> None:
    _, strategy = learner._fitted()
    images = torch.from_numpy(batch(digits, 0, 1, 2, start=60)[0][:, None])
    before = strategy.predict_logits(images)
    core = copy.copy(learner._core)
    assert core is not None
    core.labels = [*core.labels, 7, 8]
    wider = core._grown()
    after = wider.predict_logits(images)
    assert after.shape == (len(images), 5)
    # Products of matrices of another width may be summed in another order.
    torch.testing.assert_close(after[:, :3], before, rtol=1e-5, atol=1e-5)
    assert torch.equal(wider.network.head_weight[:3], strategy.network.head_weight)
    assert torch.equal(strategy.predict_logits(images), before)
    assert strategy.network.head_weight.shape[0] == 3


def test_a_head_without_bias_grows_too() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 2, bias=False)))
    with_head(model, 3, keep=2, seed=0)
    assert model(torch.zeros(1, 4)).shape == (1, 3)


def test_more_data_for_a_known_class_is_merged(digits: Dataset) -> None:
    learner = quick().learn(*batch(digits, 0, 1))
    untouched = learner.coresets[1]
    learner.learn(*batch(digits, 0, start=30))
    assert learner.classes_.tolist() == [0, 1]
    assert len(learner.seen(0)) == 60
    assert len(learner.coresets[0].images) == 8
    assert (learner.coresets[1].images == untouched.images).all()
    assert learner.seen(0).names()[:2] == ["image 0", "image 1"]
    assert learner.seen(0).names()[30:32] == ["image 0 (2)", "image 1 (2)"]


def test_labels_may_be_texts(digits: Dataset) -> None:
    images, labels = batch(digits, 0, 1)
    learner = quick().learn(images, ["nought" if label == 0 else "one" for label in labels])
    assert set(learner.predict(images)) == {"nought", "one"}
    with pytest.raises(InputError, match="by texts, as 'nought', and some by numbers, as 5; use one kind for all"):
        learner.learn(images[:20], [5] * 20)
    assert learner.classes_.tolist() == ["nought", "one"]


def test_tensors_arrays_data_sets_and_scales_agree(digits: Dataset) -> None:
    images, labels = batch(digits, 0, 1)
    ways = [
        (images, labels),
        (torch.from_numpy(images), torch.tensor(labels)),
        (images[:, None], np.array(labels)),
        (images[..., None], labels),
        (images.astype(np.float32) / 255, labels),
        (images.astype(np.int64), [float(label) for label in labels]),
        ([*images], labels),
        (TensorDataset(torch.from_numpy(images / 255.0)[:, None], torch.tensor(labels)), None),
    ]
    results = [quick(phase1_epochs=1, phase2_epochs=1).learn(*way) for way in ways]
    for learner, way in zip(results, ways, strict=True):
        assert (learner.coresets[0].images == results[0].coresets[0].images).all()
        assert learner.score(*way) == results[0].score(*ways[0])


def test_a_data_set_can_be_predicted_with_labels_or_without(learner: ContinualLearner, digits: Dataset) -> None:
    images, labels = batch(digits, 0, 1)
    wanted = learner.predict_proba(images)
    pairs = TensorDataset(torch.from_numpy(images), torch.tensor(labels))
    for given in (pairs, TensorDataset(torch.from_numpy(images)), StackDataset(torch.from_numpy(images))):
        assert (learner.predict_proba(given) == wanted).all()
    assert (learner.predict(pairs) == labels).mean() == learner.score(pairs)
    with pytest.raises(InputError, match="has no length"):
        learner.predict(torch.utils.data.Dataset())


def test_floats_keep_the_scale_of_the_first_batch(digits: Dataset) -> None:
    images, labels = batch(digits, 0, 1)
    learner = quick().learn(images / 255.0 * 16, labels)
    assert learner.settings_.image_scale == 1
    assert learner._core is not None
    assert learner.coresets[0].images.max() == 16
    # A dark image alone must not be mistaken for one on a scale of 0 to 1, nor one on that scale for a dark one.
    learner.predict(np.ones((1, 8, 8)))
    with pytest.raises(InputError, match=r"values up to 0\.5, and those the learner began with went beyond 1"):
        learner.predict(np.full((1, 8, 8), 0.5))


def test_fractions_that_would_be_lost_are_refused(digits: Dataset) -> None:
    """As of warmth in degrees, of which bytes would keep whole ones."""
    images, labels = batch(digits, 0, 1)
    degrees = 20 + images / 255 * 15
    learner = quick(phase1_epochs=1, phase2_epochs=1)
    with pytest.raises(InputError, match=r"values from 20 to 35 and would lose their fractions.* from 0 to 1\.$"):
        learner.learn(degrees, labels)
    for kept in (degrees.round(), degrees * 7, images.astype(float)):
        assert learner.fit(kept, labels).settings_.image_scale == 1
    # Once a scale is chosen, an image may well be dark.
    assert len(learner.predict(degrees)) == len(labels)


def test_images_with_transparency_are_refused_as_arrays_and_composed_as_pictures(digits: Dataset) -> None:
    images, labels = batch(digits, 0, 1)
    grey = [Image.fromarray(image) for image in images]
    clear = [picture.convert("RGBA") for picture in grey]
    with pytest.raises(InputError, match="transparency as the last channel"):
        quick().learn(np.stack([np.asarray(picture) for picture in clear]), labels)
    assert quick().learn(clear, labels).settings_.image_shape == (3, 8, 8)
    palette = [picture.convert("RGB").quantize(255) for picture in grey]
    coloured = quick().learn(palette, labels)
    assert coloured.settings_.image_shape == (3, 8, 8)
    assert np.abs(coloured.coresets[0].images.astype(int)).max() > 200  # not the palette's numbers
    with pytest.raises(InputError, match="some are grey and some in colour"):
        quick().learn([grey[0], *clear[1:]], labels)


def test_numbers_of_numpy_are_numbers() -> None:
    learner = ContinualLearner(memory_per_class=np.int64(3), learning_rate=np.float32(0.01), seed=np.int32(1))
    assert learner._asked().memory_per_class == 3


def test_a_later_class_shows_what_was_kept_wrongly_before(digits: Dataset) -> None:
    """Sevens among the nines cannot be told before sevens are known; then they are, and hardly anything else is."""
    nines, sevens = numbers_of(digits, 9)[:50], numbers_of(digits, 7)
    learner = quick(memory_per_class=20, seed=2).learn(*batch(digits, 0, 2, count=40))
    learner.learn(np.concatenate([nines, sevens[:25]]), [9] * 75)
    before = learner.seen(9)
    kept_wrongly = before.kept & (np.arange(75) >= 50) & (before.score >= 0.5)
    assert kept_wrongly.sum() >= 4, "or there is nothing to test"
    learner.learn(sevens[60:], [7] * len(sevens[60:]))
    after = learner.seen(9)
    doubted = (after.score < 0.5) & (before.score >= 0.5)
    assert doubted[kept_wrongly].mean() > 0.8
    assert doubted[:50].sum() <= 2
    assert after.other[doubted & kept_wrongly].tolist().count(3) > 0.8 * kept_wrongly.sum()  # 0, 2, 9, then 7
    assert (after.kept == before.kept).all()
    assert learner._core is not None
    assert learner._core.second_thoughts == {9: int(doubted.sum())}
    told = f"now that more is known, some of what is kept looks wrong: {doubted.sum()} of '9'; have a look"
    assert second_thoughts(learner._core)[0].startswith(told)
    # Learning more of a known class brings nothing new to light.
    learner.learn(*batch(digits, 2, start=40, count=20))
    assert learner._core.second_thoughts == {}
    assert second_thoughts(learner._core) == []
    # However many classes there are, it is one sentence.
    learner._core.second_thoughts = dict.fromkeys(range(20), 1)
    assert second_thoughts(learner._core)[0].count(" of '") == 5


def test_what_lies_among_another_class_is_forgotten_where_a_class_is_certainly_noisy() -> None:
    """Bright images among the dark ones, once a class of bright ones is known, but for what a person vouched for."""
    random = np.random.default_rng(0)
    dark, bright = (Tensor(random.integers(low, low + 60, (40, 1, 8, 8))).byte() for low in (0, 190))
    memory = {
        0: Samples.of(torch.cat([dark[:20], bright[:2]]), torch.zeros(22).long(), torch.arange(100, 122)),
        1: Samples.of(bright[2:37], torch.ones(35).long(), torch.arange(35)),
        2: Samples.of(bright[37:39], torch.full((2,), 2), torch.arange(2)),
    }
    strategy = FieldSift(build_model("simple_cnn", (1, 8, 8), 3), Training(1, 1))
    strategy.memory = memory
    doubtable = {0: torch.ones(22, dtype=torch.bool), 2: torch.ones(2, dtype=torch.bool)}
    nothing = torch.zeros(0).long()
    empty = Batch(ArrayRows(np.zeros((0, 1, 8, 8), np.uint8)), nothing, nothing, nothing, nothing, (), doubtable)
    found = strategy._out_of_place(empty, Lesson())
    assert {label: ids.tolist() for label, ids in found.items()} == {0: [120, 121]}  # too few of class 2 to say
    doubtable[0][20] = False
    assert strategy._out_of_place(empty, Lesson())[0].tolist() == [121]
    assert strategy._out_of_place(replace(empty, doubtable={}), Lesson()) == {}


def test_what_is_forgotten_of_another_class_is_told(digits: Dataset) -> None:
    """Half of the nines are zeros, so they are certainly noisy, or sevens, which nobody knows yet; then sevens come."""
    nines, zeros, sevens = (numbers_of(digits, digit) for digit in (9, 0, 7))
    learner = quick(memory_per_class=30).learn(*batch(digits, 0, 1, 2, count=40))
    learner.learn(np.concatenate([nines[:50], zeros[40:60], sevens[:30]]), [9] * 100)
    before = learner.seen(9)
    assert learner.noise_[9].low > 0
    learner.learn(sevens[60:], [7] * len(sevens[60:]))
    after, core = learner.seen(9), learner._core
    forgotten = before.kept & ~after.kept
    assert forgotten.sum() >= 3, "or there is nothing to test"
    assert forgotten[:50].sum() <= 1  # the nines
    assert after.looks_wrong()[forgotten].all()
    assert core.let_go == {9: int(forgotten.sum())}
    assert set(np.flatnonzero(after.kept)) == set(core.strategy.memory[3].ids.tolist())
    told = f"now that more is known, some of what was kept looks wrong and is forgotten: {forgotten.sum()} of '9'; undo"
    assert second_thoughts(core)[0].startswith(told)


def test_a_lesson_goes_on_from_every_epoch_to_the_same_bits(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of stage 1, of stage 2, where margins are added up, and of stage 3, before which classes forget."""
    judged, half = Judge.assessments, NoiseEstimate(0.5, 0.3, 0.7)  # so that not all is taught that looks right

    def noisy(self: Judge, *given: Any, **options: bool) -> dict[int, Assessment]:
        return {label: replace(found, noise=half) for label, found in judged(self, *given, **options).items()}

    monkeypatch.setattr(Judge, "assessments", noisy)
    nines, zeros, sevens = (numbers_of(digits, digit) for digit in (9, 0, 7))
    learner = quick(memory_per_class=30, phase1_epochs=8, phase2_epochs=3).learn(*batch(digits, 0, 1, 2, count=40))
    core = learner.learn(np.concatenate([nines[:50], zeros[40:60], sevens[:30]]), [9] * 100)._core
    assert core is not None
    images = sevens[60:, None]
    count = len(images)
    digests = np.zeros((count, 16), np.uint8)
    incoming = core.record(ArrayRows(images), [7] * count, ["x"] * count, digests, [b""] * count, {"source": None})
    files, stages = [], []

    def save(strategy: FieldSift, lesson: Lesson) -> None:
        files.append(tmp_path / str(len(files)))
        stages.append(lesson.stage)
        Checkpoint(files[-1], "key", every=-1).save(strategy, lesson)

    undisturbed = copy.deepcopy(core)
    undisturbed.learn(incoming, checkpoint=save)
    assert stages == [1] * 2 + [2] * 6 + [3] * 3
    assert undisturbed.let_go, "or there is less to test"
    for file in files:
        again = copy.deepcopy(core)
        again.learn(incoming, resume=Checkpoint(file, "key", every=0).resumed)
        assert again.files() == undisturbed.files()
        assert again.let_go == undisturbed.let_go


def test_one_more_image_says_nothing_about_the_noise_of_its_class(digits: Dataset) -> None:
    images, labels = batch(digits, 0, 1)
    learner = quick().learn(images[:-1], labels[:-1])
    before = learner.noise_
    assert before[0] is not None
    assert learner.learn(images[-1:], labels[-1:]).noise_ == before


def test_every_class_of_a_batch_is_looked_at_as_often_however_many_there_are(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is compared with all others; a look at each of them anew took most of the time of many classes."""
    looks, views = [], Judge.views
    monkeypatch.setattr(Judge, "views", lambda *given: looks.append(1) or views(*given))
    for classes in (3, 6):
        looks.clear()
        quick(phase1_epochs=1, phase2_epochs=1).learn(*batch(digits, *range(classes), count=10))
        assert len(looks) <= 3 * classes


def test_a_module_of_ones_own(digits: Dataset, tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
            self.head = nn.Linear(32, 1000)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(images))

    torch.manual_seed(0)
    given = Own()
    before = given.body[1].weight.detach().clone()
    images, labels = batch(digits, 0, 1)
    learner = quick(model=given, phase2_epochs=20).learn(images, labels)
    assert learner.score(images, labels) > 0.9
    assert torch.equal(given.body[1].weight, before)
    assert given.head.out_features == 1000
    learner.save(tmp_path / "own")
    with pytest.raises(InputError, match="network of its own"):
        ContinualLearner.load(tmp_path / "own")
    again = ContinualLearner.load(tmp_path / "own", model=Own(), device="cpu")
    assert (again.predict_proba(images) == learner.predict_proba(images)).all()


def test_a_saved_learner_goes_on_to_the_same_bits(digits: Dataset, tmp_path: Path) -> None:
    learner = quick().learn(*batch(digits, 0, 1))
    learner.save(tmp_path / "s")
    again = ContinualLearner.load(tmp_path / "s", device="cpu")
    images, labels = batch(digits, 2, 3)
    learner.learn(images, labels)
    again.learn(images, labels)
    assert (again.predict_proba(images) == learner.predict_proba(images)).all()
    assert again.noise_ == learner.noise_
    for label in (0, 1, 2, 3):
        assert again.seen(label).names() == learner.seen(label).names()
        assert (again.seen(label).score == learner.seen(label).score).all()
    learner.save(tmp_path / "a")
    again.save(tmp_path / "b")
    sums = [(tmp_path / name / "generations" / "000001" / "SHA256SUMS").read_text() for name in "ab"]
    assert sums[0] == sums[1]


def test_wrong_labels_are_found_and_kept_out(digits: Dataset) -> None:
    learner = quick(memory_per_class=15).learn(*batch(digits, 0, 1, 3, count=60))
    own, wrong = numbers_of(digits, 2)[:60], np.concatenate([numbers_of(digits, digit)[80:100] for digit in (0, 1, 3)])
    learner.learn(np.concatenate([own, wrong]), [2] * 120)
    seen = learner.seen(2)
    assert (seen.score[60:] < 0.5).mean() > 0.8
    assert (seen.score[:60] > 0.5).mean() > 0.8
    assert seen.kept[60:].sum() <= 2
    instead = seen.other[60:][seen.score[60:] < 0.5]
    assert (instead == np.repeat([0, 1, 2], 20)[seen.score[60:] < 0.5]).mean() > 0.7
    noise = learner.noise_[2]
    assert noise is not None
    assert noise.low <= 0.5 <= noise.high


@pytest.mark.parametrize(("count", "classes"), [(1, (0, 1)), (1, (0,)), (3, (0,)), (30, (0,))])
def test_few_images_and_single_classes_are_learned(count: int, classes: tuple[int, ...], digits: Dataset) -> None:
    images, labels = batch(digits, *classes, count=count)
    learner = quick().learn(images, labels)
    assert learner.predict(images).tolist() == labels or count == 1
    assert all(len(coreset.images) >= 1 for coreset in learner.coresets.values())
    assert learner.noise_[0] is None or count >= 8


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (np.zeros((0, 8, 8), np.uint8), [], "no image to learn from"),
        (np.full((2, 8, 8), np.nan), [0, 1], r"2 of 2 images hold NaN .*number 0"),
        (np.full((2, 8, 8), -1.0), [0, 1], "values from -1 to -1; give bytes"),
        (np.full((2, 8, 8), 300), [0, 1], "values from 300 to 300"),
        (np.zeros((2, 8, 8), complex), [0, 1], "type complex128"),
        (np.zeros((2, 8), np.uint8), [0, 1], r"shape \(2, 8\)"),
        (np.zeros((2, 9, 9), np.uint8), [0, 1], r"1×9×9 .* knows 1×8×8; resize them\.$"),
        (np.zeros((2, 3, 8, 8), np.uint8), [0, 1], r"3×8×8 .* knows 1×8×8; convert them to grey\.$"),
        (np.zeros((2, 3, 9, 9), np.uint8), [0, 1], r"; resize them and convert them to grey\.$"),
        (np.zeros((2, 8, 8), np.uint8), [0], "2 images but 1 labels"),
        (np.zeros((2, 8, 8), np.uint8), None, "no labels"),
        (np.zeros((2, 8, 8), np.uint8), [0.5, 1], r"0\.5 cannot be a label"),
        (np.zeros((2, 8, 8), np.uint8), [None, 1], "None cannot be a label"),
        (np.zeros((2, 8, 8), np.uint8), ["a", " "], r"^' ' cannot be a label; .* and leave out what has none\.$"),
        (["a/1.png", "a/2.png"], [0, 1], r"things such as 'a/1\.png'; open files first"),
        ([Path("a/1.png")], [0], r"things such as PosixPath\('a/1\.png'\); open files first"),
        (np.array(["a/1.png"]), [0], r"open files first"),
        (np.array([], dtype=str), [], "no image to learn from"),
        (np.zeros((2, 8, 8), np.uint8), {0: 1, 1: 0}, "labels are a dict; give a list"),
        (np.zeros((2, 8, 8), np.uint8), {0, 1}, "labels are a set; give a list"),
        (np.zeros((2, 8, 8), np.uint8), object(), "labels are a object; give a list"),
        (np.zeros(2), np.zeros((2, 64, 64)), r"^.{0,120} cannot be a label"),  # swapped
        (TensorDataset(torch.zeros(2, 8, 8), torch.eye(2)), None, r"tensor.* cannot be a label"),
        ([np.zeros((8, 8)), np.zeros((9, 8))], [0, 1], "differ in size"),
        (7, [1], "images are a int"),
    ],
)
def test_bad_arrays_are_one_sentence_and_change_nothing(
    images: object, labels: object, says: str, learner: ContinualLearner
) -> None:
    before = learner.predict_proba(np.zeros((1, 8, 8), np.uint8))
    with pytest.raises(InputError, match=says) as raised:
        learner.learn(images, labels)
    assert "\n" not in str(raised.value)
    assert learner.classes_.tolist() == [0, 1, 2]
    assert (learner.predict_proba(np.zeros((1, 8, 8), np.uint8)) == before).all()


def test_a_class_never_learned_counts_as_not_recognised(learner: ContinualLearner, digits: Dataset) -> None:
    images, labels = batch(digits, 0, 1, 5)
    known = [label != 5 for label in labels]
    right = learner.score(images[known], [label for label in labels if label != 5]) * sum(known)
    assert learner.score(images, labels) == pytest.approx(right / len(labels))


def test_labels_of_which_none_was_learned_cannot_be_scored(learner: ContinualLearner) -> None:
    with pytest.raises(InputError, match=r"class 9 was never learned; known: 0, 1, 2\."):
        learner.score(np.zeros((1, 8, 8), np.uint8), [9])


def test_nothing_learned_yet() -> None:
    for ask in (ContinualLearner().predict, ContinualLearner().predict_proba):
        with pytest.raises(InputError, match="learned nothing yet"):
            ask(np.zeros((1, 8, 8), np.uint8))
    assert ContinualLearner().classes_.tolist() == []
    assert not hasattr(ContinualLearner(), "noise_")
    with pytest.raises(NotFittedError):
        ContinualLearner().score(np.zeros((1, 8, 8), np.uint8), 0)
    with pytest.raises(InputError, match="did you mean 'resnet18'"):
        ContinualLearner(model="resnet").learn(np.zeros((2, 8, 8), np.uint8), [0, 1])
    assert repr(ContinualLearner(selector="herding", seed=3)) == "ContinualLearner(selector='herding', seed=3)"


def test_everything_then_what_looks_right_then_what_is_kept(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs on all images as they are, eight on the better part and six on what is kept, all of these moved anew;
    the mean of what the last 3 leave is what is learned."""
    seen: list[bytes] = []
    left: list[torch.Tensor] = []
    epoch = Phase.epoch

    def noted(self: Phase, samples: Trainable, beside: Trainable | None = None) -> None:
        everything = samples[torch.arange(len(samples))]
        seen.append(everything.images.numpy().tobytes())
        epoch(self, samples, beside)
        left.append(self._network.head_weight.detach().clone())

    monkeypatch.setattr(Phase, "epoch", noted)
    images, labels = batch(digits, 0, 1)
    labels[:9] = [1] * 9  # wrong
    given = quick().learn(images, labels)
    kept = np.concatenate([coreset.images for coreset in given.coresets.values()])
    assert len(left) == 2 + 8 + 6
    assert seen[0] == seen[1] == images[:, None].tobytes()
    assert len({*seen[2:]}) == 8 + 6
    better, worse = len(seen[2]) // 64, (given.seen(0).score < 0.5).sum() + (given.seen(1).score < 0.5).sum()
    assert {len(images) for images in seen[2:10]} == {64 * better}
    assert 30 < better <= 60 - 5 < 60 - worse + 5
    assert {len(images) for images in seen[10:]} == {kept.nbytes}
    assert kept.tobytes() not in seen
    _, strategy = given._fitted()
    assert torch.allclose(strategy.network.head_weight, torch.stack(left[-3:]).mean(dim=0), atol=1e-6)


def test_scikit_learn_can_copy_it() -> None:
    given = ContinualLearner("resnet18", memory_per_class=7)
    copied = clone(given)
    assert copied is not given
    assert copied.get_params() == given.get_params()
    assert copied.set_params(seed=4, memory_per_class=9).get_params()["memory_per_class"] == 9
    with pytest.raises(InputError, match="did you mean 'seed'"):
        copied.set_params(sead=4)


def test_scikit_learn_can_cross_validate_it(digits: Dataset) -> None:
    assert is_classifier(quick())
    scores = cross_val_score(quick(), *batch(digits, 0, 1), cv=3)
    assert scores.min() > 0.9


def test_scikit_learn_tells_classes_by_their_order(digits: Dataset) -> None:
    """Its tools take the columns of probabilities for those of sorted classes; batches may come in any order."""
    images, labels = batch(digits, 1, 0)
    given = quick().fit(images, labels)
    assert given.classes_.tolist() == [0, 1]
    assert quick().learn(images, labels).classes_.tolist() == [1, 0]
    assert cross_val_score(quick(), images, labels, cv=2, scoring="roc_auc").min() > 0.9
    assert make_pipeline(quick()).fit(images, labels).score(images, labels) > 0.9
    with pytest.raises(NotFittedError):
        check_is_fitted(quick())


def test_scikit_learn_can_teach_it_batch_by_batch(digits: Dataset) -> None:
    first, second = batch(digits, 0, 1), batch(digits, 2)
    given, same = quick(), quick().learn(*first).learn(*second)
    assert given.partial_fit(*first, classes=[0, 1, 2]).partial_fit(*second) is given
    assert (given.predict_proba(first[0]) == same.predict_proba(first[0])).all()


def test_parameters_that_would_not_be_used_are_told(digits: Dataset, tmp_path: Path) -> None:
    first, second = batch(digits, 0, 1), batch(digits, 2)
    given = quick().learn(*first)
    given.save(tmp_path / "state")
    for one in (given, ContinualLearner.load(tmp_path / "state")):
        size = one.memory_per_class
        one.set_params(memory_per_class=size + 1)
        with pytest.raises(
            InputError, match=f"memory_per_class was {size} when this learner began and is {size + 1} now"
        ):
            one.learn(*second)
        assert one.set_params(memory_per_class=size).learn(*second).classes_.tolist() == [0, 1, 2]
        assert len(one.set_params(memory_per_class=3).fit(*first).coresets[0].images) == 3
        assert one.learn(*second).classes_.tolist() == [0, 1, 2]


def test_what_was_seen_is_not_learned_again(digits: Dataset) -> None:
    images, labels = batch(digits, 0, 1)
    given = quick().learn(images, labels)
    before = given.predict_proba(images)
    assert (given.learn(images, labels).predict_proba(images) == before).all()
    more, names = batch(digits, 0, start=25)
    assert len(given.learn(more, names).seen(0)) == 30 + 25
    assert len(given.learn(images[:30], [1] * 30).seen(1)) == 30 + 30  # another class has not seen them


def test_what_others_taught_a_folder_since_is_not_overwritten(digits: Dataset, tmp_path: Path) -> None:
    quick().learn(*batch(digits, 0, 1)).save(tmp_path / "S")
    mine, other = (ContinualLearner.load(tmp_path / "S", device="cpu") for _ in range(2))
    other.learn(*batch(digits, 2)).save(tmp_path / "S")
    other.learn(*batch(digits, 3)).save(tmp_path / "S")
    with pytest.raises(InputError, match="has changed since this one was loaded"):
        mine.save(tmp_path / "S")
    with pytest.raises(InputError, match="is another one"):
        quick().learn(*batch(digits, 7, 8)).save(tmp_path / "S")
    assert ContinualLearner.load(tmp_path / "S", device="cpu").classes_.tolist() == [0, 1, 2, 3]
    mine.save(tmp_path / "S", overwrite=True)
    assert ContinualLearner.load(tmp_path / "S", device="cpu").classes_.tolist() == [0, 1]
    mine.save(tmp_path / "elsewhere")


def test_names_that_are_no_utf8_are_kept_and_saved(digits: Dataset, tmp_path: Path) -> None:
    images = numbers_of(digits, 0)[:3]
    learner = ContinualLearner(phase1_epochs=1, phase2_epochs=1, device="cpu")
    learner.learn(images, "zero", names=[os.fsdecode(b"caf\xe9.png"), "caf\u00e9.png", 7]).save(tmp_path / "S")
    assert ContinualLearner.load(tmp_path / "S").seen("zero").names() == ["caf\\xe9.png", "caf\u00e9.png", "7"]


def test_coresets_are_copies(learner: ContinualLearner) -> None:
    learner.coresets[0].images[:] = 0
    assert learner.coresets[0].images.any()


def test_a_head_with_two_names_grows_under_both() -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    model.again = model[0]
    with_head(model, 3, keep=2, seed=0)
    assert model.again is model[0]
    assert model[0].out_features == 3


def test_networks_that_do_not_fit(digits: Dataset, tmp_path: Path) -> None:
    images, labels = batch(digits, 0, 1)
    with pytest.raises(InputError, match="not its class"):
        quick(model=nn.Linear).learn(images, labels)
    with pytest.raises(InputError, match="does not know its sizes yet"):
        quick(model=nn.Sequential(nn.Flatten(), nn.LazyLinear(2))).learn(images, labels)
    with pytest.raises(InputError, match="does not end in its last linear layer"):
        quick(model=nn.Sequential(nn.Flatten(), nn.Linear(64, 2), nn.Softmax(dim=1))).learn(images, labels)
    with pytest.raises(InputError, match="cannot take images of 1×8×8"):
        quick(model=nn.Linear(3, 2)).learn(images, labels)
    quick(model=nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Linear(9, 2))).learn(images, labels).save(tmp_path)
    with pytest.raises(InputError, match="is not of the form of the one in"):
        ContinualLearner.load(tmp_path, nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, 2)))
    with pytest.raises(InputError, match="not its class or name"):
        ContinualLearner.load(tmp_path, nn.Linear)
    with pytest.raises(InputError, match="give a name such as 'crust'"):
        quick(selector=None).learn(images, labels)
    normalized = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.BatchNorm1d(9), nn.Linear(9, 2))
    with pytest.raises(InputError, match="cannot learn from one sample alone"):
        quick(model=normalized).learn(images[:1], labels[:1])
    with pytest.raises(InputError, match="give a number of 1 or more, or None"):
        quick(phase1_epochs=0).learn(images, labels)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_may_be_switched_off_around_learning(off, digits: Dataset) -> None:
    with off():
        quiet = quick().learn(*batch(digits, 0, 1))
        images = batch(digits, 0, 1)[0]
        assert quiet.predict(images).shape == (len(images),)
    quiet.learn(*batch(digits, 2))


def test_fit_starts_anew_and_learn_goes_on(digits: Dataset) -> None:
    given = quick().learn(*batch(digits, 0, 1))
    assert given.fit(*batch(digits, 2, 3)).classes_.tolist() == [2, 3]
    fresh = quick().learn(*batch(digits, 2, 3))
    images, _ = batch(digits, 2, 3, start=60)
    assert (given.predict_proba(images) == fresh.predict_proba(images)).all()
    with pytest.raises(InputError, match="at least one"):
        given.fit(images[:0], [])
    assert given.learn(*batch(digits, 4)).classes_.tolist() == [2, 3, 4]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("out of memory"), KeyboardInterrupt()])
def test_what_stops_a_lesson_leaves_the_learner_as_it_was(
    error: BaseException, learner: ContinualLearner, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = batch(digits, 0, 5)
    before = learner.predict_proba(images)
    monkeypatch.setattr(Judge, "_assessed", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(type(error)):
        learner.learn(images, labels)
    assert learner.classes_.tolist() == [0, 1, 2]
    assert len(learner.seen(0)) == 30
    assert (learner.predict_proba(images) == before).all()


@pytest.mark.parametrize("epochs", [(1, 20), (20, 1)])
def test_a_network_that_diverges_teaches_nothing(epochs: tuple[int, int], digits: Dataset) -> None:
    phases = {"phase1_epochs": epochs[0], "phase2_epochs": epochs[1]}
    given = quick(selector="random", learning_rate=1e30, **phases)
    with pytest.raises(InputError, match="it has diverged"):
        given.learn(*batch(digits, 0, 1))
    assert given.classes_.tolist() == []


def test_deep_images_keep_their_contrast(digits: Dataset, tmp_path: Path) -> None:
    images, labels = batch(digits, 0, 1)
    deep = [Image.fromarray((7600 + image.astype(np.uint16) // 2).squeeze()) for image in images]
    assert {image.mode for image in deep} == {"I;16"}
    given = quick().learn(deep[::2], labels[::2])
    assert given.score(deep[1::2], labels[1::2]) > 0.9
    given.save(tmp_path / "S")
    again = ContinualLearner.load(tmp_path / "S", device="cpu")
    assert (again.predict_proba(deep) == given.predict_proba(deep)).all()


def test_one_label_for_all_images(digits: Dataset) -> None:
    images, _ = batch(digits, 0)
    assert quick().learn(images, "nought").classes_.tolist() == ["nought"]
    for three in (3, 3.0, np.int64(3), np.array(3), torch.tensor(3)):
        assert images_and_labels(images, three)[1] == [3] * len(images)


def test_dark_images_can_be_seen_in_a_review(digits: Dataset) -> None:
    images, labels = batch(digits, 0, 1)
    learner = quick(phase1_epochs=1, phase2_epochs=1).learn(images // 16, labels)
    assert max(np.asarray(Image.open(io.BytesIO(one))).max() for one in learner.seen(0).thumbnails) > 200


def test_channels_may_come_last(digits: Dataset) -> None:
    images = np.stack([batch(digits, 0)[0].squeeze()] * 5, axis=-1)
    assert quick().learn(images, 0).settings_.image_shape == (5, 8, 8)
    many = np.zeros((2, 16, 8, 8), np.uint8)  # sixteen come first
    assert as_bytes(many, None)[0].shape == many.shape


def test_importing_the_package_imports_nothing() -> None:
    probe = "import sys, continual_crust; print('torch' in sys.modules, continual_crust.__version__)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False ")
