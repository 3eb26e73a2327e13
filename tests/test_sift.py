"""The parts of Sift, one by one; that it learns is tested with all other methods."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import torch
from torch import Tensor

from continual_crust.data import Dataset, Noise, Samples, Stream
from continual_crust.errors import InputError
from continual_crust.models import build_model
from continual_crust.strategies import Sift, Training
from continual_crust.strategies.augmentation import mixed, moved
from continual_crust.strategies.network import Network
from continual_crust.strategies.sift import SiftOptions
from continual_crust.tensor_tree import pack_tree, unpack_tree

QUICK = Training(phase1_epochs=4, phase2_epochs=4, memory_per_class=10, learning_rate=3e-3)


def sift(dataset: Dataset, **options: object) -> Sift:
    model = build_model("simple_cnn", dataset.image_shape, dataset.classes, seed=0)
    return Sift(model, QUICK, options=SiftOptions(**options), seed=0)  # type: ignore[arg-type]


def random() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def some_images(count: int = 40) -> Samples:
    images = torch.randint(0, 256, (count, 2, 10, 20), dtype=torch.uint8, generator=random())
    return Samples.of(images, torch.arange(count) % 3)


def by_hand(image: Tensor, down: int, right: int) -> Tensor:
    """An image moved by cutting it and repeating its edge."""
    height, width = image.shape[-2:]
    rows = [min(max(row + down, 0), height - 1) for row in range(height)]
    columns = [min(max(column + right, 0), width - 1) for column in range(width)]
    return image[:, rows][:, :, columns]


def test_images_are_moved_by_up_to_a_share_and_all_else_stays() -> None:
    samples = some_images()
    found = moved(samples, 0.1, False, random())
    moves = set()
    for before, after in zip(samples.images, found.images, strict=True):
        fitting = {
            (down, right)
            for down in range(-2, 3)
            for right in range(-3, 4)
            if torch.equal(by_hand(before, down, right), after)
        }
        assert len(fitting) == 1
        moves |= fitting
    assert {down for down, _ in moves} == {-1, 0, 1}
    assert {right for _, right in moves} == {-2, -1, 0, 1, 2}
    assert torch.equal(found.labels, samples.labels)
    assert torch.equal(found.ids, samples.ids)
    assert torch.equal(moved(samples, 0.1, False, random()).images, found.images)


def test_images_are_moved_alike_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = some_images()
    found = moved(samples, 0.1, True, random()).images
    monkeypatch.setattr("continual_crust.strategies.augmentation.PART_PIXELS", 7 * samples.images[0, 0].numel() + 1)
    assert torch.equal(moved(samples, 0.1, True, random()).images, found)
    assert len(moved(samples[:0], 0.1, True, random())) == 0
    turned = replace(samples, images=samples.images.contiguous(memory_format=torch.channels_last))
    again = moved(turned, 0.1, True, random()).images
    assert torch.equal(again, found)
    assert again.is_contiguous()  # or a convolution might add up in another order


def test_about_half_of_the_images_are_mirrored_if_asked_for() -> None:
    samples = some_images()
    found = moved(samples, 0.0, True, random()).images
    mirrored = [torch.equal(before.flip(2), after) for before, after in zip(samples.images, found, strict=True)]
    as_before = [torch.equal(before, after) for before, after in zip(samples.images, found, strict=True)]
    assert [a != b for a, b in zip(mirrored, as_before, strict=True)] == [True] * len(samples)
    assert 10 <= sum(mirrored) <= 30


def test_each_mixed_image_shows_two_and_has_the_label_of_the_stronger_more_often() -> None:
    """Of plain images in as many shades, brightness tells which two, and how much of each."""
    shades = torch.arange(0, 250, 10, dtype=torch.uint8).repeat(40)
    samples = Samples.of(shades.view(-1, 1, 1, 1).expand(-1, 1, 3, 3).contiguous(), shades.long())
    found = mixed(samples, random())
    seen = found.images.flatten(1)
    assert torch.equal(seen.amin(dim=1), seen.amax(dim=1))  # all pixels in the same proportion
    kept = found.labels == samples.labels
    other = found.labels[~kept]  # whoever gives the label is in the picture: the shade lies between both
    own, shown = samples.labels[~kept], seen[~kept, 0].long()
    assert bool((((shown - own) * (other - shown)) >= 0).all())
    assert bool(((shown - own).abs() <= (other - shown).abs() + 1).all())  # with the weaker part, half at most
    assert 0.7 < kept.double().mean() < 0.84  # three quarters, and every twenty-fifth other is of the same shade
    assert torch.equal(found.ids, samples.ids)
    assert torch.equal(mixed(samples, random()).images, found.images)


def test_memories_among_those_of_another_class_are_forgotten_if_there_is_noise(few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse("none"), seed=1)
    strategy = sift(few_digits)
    for experience in stream:
        strategy.learn(experience)
    first, other = list(strategy.memory)[:2]
    intruder = strategy.memory[other][torch.arange(1)]
    wrong = Samples(intruder.images, torch.full_like(intruder.labels, first), intruder.ids + 10_000, intruder.weights)
    strategy.memory[first] = Samples.concatenate([strategy.memory[first], wrong])
    sizes = {label: len(samples) for label, samples in strategy.memory.items()}
    strategy._recognised = []
    strategy._review({})
    assert {label: len(samples) for label, samples in strategy.memory.items()} == sizes
    strategy._recognised = [0.3]
    strategy._review({})
    assert int(wrong.ids) not in strategy.memory[first].ids.tolist()
    assert len(strategy.memory[first]) >= sizes[first] - 2


def test_noise_is_found_where_little_of_what_was_held_back_is_recognised(few_digits: Dataset) -> None:
    strategy = sift(few_digits)
    taught = torch.arange(8)
    assert not strategy._noise_is_found()
    strategy._ask({0: torch.tensor([0.4] * 8 + [0.0] * 8)}, {0: taught}, {0: 0.6}, {})  # has not even learned that
    strategy._ask({0: torch.zeros(0)}, {0: taught[:0]}, {0: 0.6}, {})
    assert strategy._clean_shares == []
    strategy._ask({0: torch.tensor([1.0] * 8 + [0.0] * 4)}, {0: taught}, {0: 0.5}, {})  # too few were held back
    assert strategy._recognised == []
    strategy._ask({0: torch.tensor([0.5] * 8 + [0.1] * 8)}, {0: taught}, {0: 0.4}, {})
    assert strategy._recognised == [pytest.approx(0.2)]
    assert strategy._clean_shares == [pytest.approx((2 / 3 * 0.5) ** 0.5), pytest.approx((0.3 * 0.4) ** 0.5)]
    assert strategy._noise_is_found()
    for label in (1, 2):  # on average over all classes
        strategy._ask({label: torch.ones(16)}, {label: taught}, {label: 1.0}, {})
    assert not strategy._noise_is_found()


def test_the_wary_are_taught_half_until_noise_is_known_and_asked_about_the_worst_fifth(few_digits: Dataset) -> None:
    strategy = sift(few_digits, wary=True)
    assert strategy._taught_part() == 0.5
    scores = torch.arange(30.0)  # of thirty, the last fifteen are taught and the first six are the worst
    recognised = torch.tensor([0.2] * 6 + [0.9] * 9 + [1.0] * 15)
    strategy._ask({0: recognised}, {0: torch.arange(15, 30)}, {0: 1.0}, {0: scores})
    assert strategy._recognised == [pytest.approx(0.2)]
    assert strategy._taught_part() == sift(few_digits)._taught_part() == 0.8


@pytest.mark.parametrize(("standing", "forgotten"), [(-1.0, True), (1.0, False)])
def test_the_wary_forget_what_they_and_its_neighbours_call_otherwise(
    standing: float, forgotten: bool, few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = sift(few_digits, wary=True)
    strategy._recognised = [0.1]
    images = some_images(12).images
    strategy.memory = {label: Samples.of(images, torch.full((12,), label)) for label in (0, 1)}
    against = torch.tensor([5] + [4] * 11 + [0] * 12)  # too few to be outvoted
    monkeypatch.setattr("continual_crust.strategies.sift.votes", lambda *_: (torch.full((24,), 5), against))
    monkeypatch.setattr(strategy, "_points", lambda samples: samples.images)
    strategy._review({0: torch.full((12,), standing)})
    assert [len(samples) for samples in strategy.memory.values()] == [11 if forgotten else 12, 12]
    assert (0 in strategy.memory[0].ids.tolist()) is not forgotten


def test_what_passes_is_the_share_that_seems_clean_if_there_is_noise(few_digits: Dataset) -> None:
    strategy = sift(few_digits)
    own, scores = {0: some_images(40)}, {0: torch.arange(40.0).flip(0)}
    strategy._clean_shares = [0.4, 0.6]
    assert strategy._best(own, scores, 0.8)[0].tolist() == list(range(32))
    strategy._recognised = [0.3]
    assert strategy._best(own, scores, 0.8)[0].tolist() == list(range(16))
    assert strategy._best(own, scores, 0.1)[0].tolist() == list(range(5))  # never fewer
    assert strategy._best({0: own[0][torch.arange(3)]}, {0: scores[0][:3]}, 0.1)[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("noise", "found"), [("none", False), ("label:0.5", True)])
def test_noise_is_found_where_it_is(noise: str, found: bool, few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse(noise), seed=1)
    model = build_model("simple_cnn", few_digits.image_shape, few_digits.classes, seed=0)
    strategy = Sift(model, Training(15, 15, memory_per_class=10, learning_rate=3e-3), seed=0)
    for experience in stream:
        strategy.learn(experience)
    assert strategy._noise_is_found() == found


def test_what_there_is_to_be_said_for_a_sample(few_digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The margin counts double; what is of the upper kind by both seems clean."""
    strategy = sift(few_digits)
    samples = some_images(8)
    margin = torch.tensor([0.0, 0.1, 0.2, 0.3, 5.0, 5.1, 5.2, 5.3])
    near = torch.tensor([9.0, 0.0, 0.1, 0.2, 9.1, 9.2, 9.3, 0.3])
    monkeypatch.setattr(strategy, "_points", lambda samples: samples.images)
    monkeypatch.setattr("continual_crust.strategies.sift.crowding", lambda points, share: near)
    score, share = strategy._look(samples, margin)
    expected = 2 * (margin - margin.mean()) / margin.std(correction=0)
    expected += (near - near.mean()) / near.std(correction=0)
    assert torch.allclose(score.float(), expected, atol=1e-4)
    assert share == 3 / 8


def test_a_capped_margin_speaks_against_a_sample_but_for_none_more_than_the_middle_one(few_digits: Dataset) -> None:
    margin = torch.tensor([0.0, 1.0, 2.0, 3.0, 40.0, 50.0, 60.0])
    looks = [sift(few_digits, crowding=False, capped=capped)._look(some_images(7), margin) for capped in (False, True)]
    assert looks[0][0].argsort().tolist() == list(range(7))
    assert looks[1][0].diff().gt(0).tolist() == [True, True, True, False, False, False]
    assert looks[0][1] == looks[1][1] == 3 / 7  # what seems clean is the same


@pytest.mark.parametrize(("steps", "epochs"), [(0, 1), (5, 2), (10_000, 2)])
def test_a_scout_takes_enough_steps_but_no_more_than_a_third_of_all_epochs(
    steps: int, epochs: int, few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = sift(few_digits, scout_epochs=1, scout_steps=steps)
    seen: list[str] = []
    monkeypatch.setattr(strategy, "_observer", lambda phase, *rest: seen.append(phase))
    first = Stream(few_digits, Noise.parse("none"), seed=1)[0]
    assert len(first.samples) == 80  # two and a half steps of 32
    strategy.learn(first)
    assert seen.count("scouting") == epochs


@dataclass
class Watched:
    """What happened while a class was learned after two others, by a learner that had found noise."""

    strategy: Sift
    known: Samples
    """The memories before."""
    new: Samples
    before: dict[str, Tensor]
    """The weights before."""
    happened: list[str] = field(default_factory=list)
    """Phases, and calls between them."""
    phases: dict[str, tuple[Samples, bool, dict[str, Tensor]]] = field(default_factory=dict)
    """What each was to train on, whether changed in every epoch, and the weights it started with."""
    best: list[tuple[dict[int, Tensor], float]] = field(default_factory=list)
    """Scores and part, whenever the best were asked for."""


Watch = Callable[..., Watched]


@pytest.fixture
def watch(few_digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> Watch:
    def learned(prepare: Callable[[Sift], object] = lambda strategy: None, **options: object) -> Watched:
        stream = Stream(few_digits, Noise.parse("label:0.3"), seed=1)
        strategy = sift(few_digits, **options)
        strategy.learn(stream[0])
        strategy._recognised, strategy._clean_shares = [0.1], [0.5]
        known = strategy.remembered()
        assert known is not None
        weights = copy.deepcopy(strategy.network.model.state_dict())
        seen = Watched(strategy, known, stream[1].samples, weights)
        prepare(strategy)
        trained, best = strategy._trained, strategy._best

        def watched_training(name: str, epochs: int, samples: Samples, augmented: bool = True) -> Iterator[int]:
            seen.happened.append(name)
            seen.phases[name] = (samples, augmented, copy.deepcopy(strategy.network.model.state_dict()))
            return trained(name, epochs, samples, augmented)

        def watched_best(own: dict[int, Samples], scores: dict[int, Tensor], part: float) -> dict[int, Tensor]:
            seen.best.append((scores, part))
            return best(own, scores, part)

        monkeypatch.setattr(strategy, "_trained", watched_training)
        monkeypatch.setattr(strategy, "_best", watched_best)
        for name in ("_wake", "_review"):
            called = partial(seen.happened.append, name)
            monkeypatch.setattr(strategy, name, lambda *args, called=called: called())
        strategy.learn(stream[1])
        return seen

    return learned


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def ids_of(samples: Samples) -> set[int]:
    return set(samples.ids.tolist())


def test_a_class_is_scouted_taught_and_remembered_in_this_order(watch: Watch) -> None:
    seen = watch()
    assert seen.happened == ["scouting", "what passed", "_wake", "_review", "memories"]
    assert not watch(wake=False).happened.count("_wake")


def test_the_scout_sees_everything_as_it_is_and_is_forgotten(watch: Watch) -> None:
    seen = watch(trusted_epochs=QUICK.epochs // 3)
    samples, augmented, weights = seen.phases["scouting"]
    assert ids_of(samples) == ids_of(seen.known) | ids_of(seen.new)
    assert not augmented
    assert same(weights, seen.before)
    assert same(seen.phases["what passed"][2], seen.before)
    assert not same(seen.phases["memories"][2], seen.before)
    remembered = watch(trusted_epochs=QUICK.epochs // 3, unlearn=False)
    assert not same(remembered.phases["what passed"][2], seen.before)


def test_where_time_is_short_the_learner_goes_on_from_the_scout(watch: Watch) -> None:
    seen = watch(trusted_epochs=QUICK.epochs // 3 + 1)
    assert not same(seen.phases["what passed"][2], seen.before)
    seen = watch(trusted_epochs=QUICK.epochs // 3 + 1, fresh_scout=True)  # which has forgotten what came before
    assert same(seen.phases["what passed"][2], seen.before)


def test_a_fresh_scout_starts_from_the_first_weights(watch: Watch, few_digits: Dataset) -> None:
    seen = watch(fresh_scout=True)
    assert same(seen.phases["scouting"][2], sift(few_digits).network.model.state_dict())
    assert same(seen.phases["what passed"][2], seen.before)


def test_the_learner_is_taught_the_better_part_of_what_passes_beside_the_memories(watch: Watch) -> None:
    seen = watch()
    (label,) = set(seen.new.labels.tolist())
    samples, augmented, _ = seen.phases["what passed"]
    taught = samples.of_class(label)
    best = seen.best[0][0][label].argsort(descending=True)
    assert len(seen.new) == 41
    assert ids_of(taught) == ids_of(seen.new[best[:17]])  # 0.8 of 0.5 of 41
    assert ids_of(samples) == ids_of(seen.known) | ids_of(taught)
    assert augmented
    kept, part = seen.strategy.memory[label], seen.best[-1][1]
    share = sum(seen.strategy._clean_shares) / len(seen.strategy._clean_shares)
    passed = seen.best[-1][0][label].argsort(descending=True)[: math.ceil(41 * share)]
    assert len(passed) < 41
    assert part == 1.0
    assert len(kept) == QUICK.memory_per_class
    assert ids_of(kept) < ids_of(seen.new[passed])
    assert ids_of(seen.phases["memories"][0]) == ids_of(seen.known) | ids_of(kept)


@pytest.mark.parametrize("second_look", [True, False])
def test_what_the_learner_sees_is_added_to_what_the_scout_saw(
    second_look: bool, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [torch.arange(41.0).double(), torch.arange(41.0).flip(0).double() * 3]

    def prepare(strategy: Sift) -> None:
        left = iter(looks)
        monkeypatch.setattr(
            strategy, "_judged", lambda own, margins: ({label: next(left) for label in own}, dict.fromkeys(own, 0.5))
        )

    (scores,) = watch(prepare, second_look=second_look).best[-1][0].values()
    assert torch.equal(scores, looks[0] + looks[1] if second_look else looks[0])


def test_what_is_recognised_is_that_of_the_second_half_of_the_epochs(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two epochs the second: first all margins are above nothing, then a half of them."""
    asked: list[Tensor] = []

    def prepare(strategy: Sift) -> None:
        scout, first, second = torch.arange(41.0), torch.ones(41), torch.arange(41.0) - 20
        left = iter([scout, scout, first, second])
        monkeypatch.setattr(strategy, "_margins", lambda own, seen: {label: next(left) for label in own})
        monkeypatch.setattr(strategy, "_ask", lambda recognised, *_: asked.extend(recognised.values()))

    watch(prepare)
    assert [share.tolist() for share in asked] == [[0.0] * 21 + [1.0] * 20]


def test_images_are_moved_and_mixed_for_the_learner_alone(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def watched_moved(samples: Samples, shift: float, mirror: bool, generator: torch.Generator) -> Samples:
        calls.append(f"moved {shift} {mirror}")
        return moved(samples, shift, mirror, generator)

    def watched_mixed(samples: Samples, generator: torch.Generator) -> Samples:
        calls.append("mixed")
        return mixed(samples, generator)

    monkeypatch.setattr("continual_crust.strategies.sift.moved", watched_moved)
    monkeypatch.setattr("continual_crust.strategies.sift.mixed", watched_mixed)
    watch(lambda strategy: calls.clear())
    assert calls == ["moved 0.1 False"] * 6  # eight epochs but those of the scout
    watch(lambda strategy: calls.clear(), shift=0.0, mirror=True, mixed=True)
    assert calls == ["moved 0.0 True", "mixed"] * 6
    watch(lambda strategy: calls.clear(), shift=0.0)
    assert calls == []


def test_batch_statistics_are_those_of_the_memories(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def prepare(strategy: Sift) -> None:
        monkeypatch.setattr(strategy.network, "measure_batch_statistics", lambda images: measured.append(len(images)))

    seen = watch(prepare)
    assert measured == [len(seen.known) + QUICK.memory_per_class]
    assert watch(prepare, averaged=0.0)
    assert len(measured) == 1


@pytest.mark.parametrize("epochs", [(1, 0), (1, 1), (2, 1), (2, 2)])
def test_few_epochs_are_enough_to_learn_something(epochs: tuple[int, int], few_digits: Dataset) -> None:
    model = build_model("simple_cnn", few_digits.image_shape, few_digits.classes, seed=0)
    before = copy.deepcopy(model.state_dict())
    Sift(model, Training(*epochs, memory_per_class=10), seed=0).learn(Stream(few_digits, Noise(), seed=1)[0])
    assert not same(model.state_dict(), before)


def test_a_margin_is_how_far_a_label_is_ahead_of_all_others_together(few_digits: Dataset) -> None:
    strategy = sift(few_digits)
    samples = Stream(few_digits, Noise(), seed=1)[0].samples
    strategy.learn(Stream(few_digits, Noise(), seed=1)[0])
    logits = strategy.predict_logits(samples.images).double()
    expected = logits[:, 1] - (logits[:, 0].exp() + logits[:, 3].exp()).log()
    assert torch.allclose(strategy._margin(samples, 1, [0, 1, 3]).double(), expected, atol=1e-4)
    assert torch.allclose(strategy._margin(samples, 1, [1]).double(), logits[:, 1], atol=1e-4)


def test_a_class_that_comes_again_counts_once_in_a_margin(few_digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = sift(few_digits)
    against: list[list[int]] = []
    margin = Sift._margin
    monkeypatch.setattr(
        Sift, "_margin", lambda self, of, label, seen: (against.append(seen), margin(self, of, label, seen))[1]
    )
    first = Stream(few_digits, Noise.parse("none"), seed=1)[0]
    learner.learn(first)
    learner.learn(first)
    assert {tuple(sorted(seen)) for seen in against} == {tuple(sorted(first.classes))}


def test_neighbours_are_near_by_features_and_coarse_pixels_alike(few_digits: Dataset) -> None:
    strategy = sift(few_digits)
    strategy.learn(Stream(few_digits, Noise(), seed=1)[0])
    points = strategy._points(few_digits_of(few_digits))
    features, pixels = points[:, :-64], points[:, -64:]
    assert features.shape[1] == strategy.network.head_weight.shape[1]
    for part in (features, pixels):
        assert float((part - part.mean(dim=0)).square().sum(dim=1).mean()) == pytest.approx(1.0, rel=1e-3)


def few_digits_of(dataset: Dataset) -> Samples:
    return Samples.of(dataset.train_images, dataset.train_labels)


def test_a_class_of_few_memories_is_not_outvoted(few_digits: Dataset) -> None:
    strategy = sift(few_digits)
    for experience in Stream(few_digits, Noise(), seed=1):
        strategy.learn(experience)
    first, other = list(strategy.memory)[:2]
    intruders = few_digits_of(few_digits).of_class(other)[torch.arange(3)]
    strategy.memory[first] = Samples(
        intruders.images, torch.full_like(intruders.labels, first), intruders.ids, intruders.weights
    )
    strategy._recognised = [0.1]
    strategy._review({})
    assert len(strategy.memory[first]) == 3


def test_a_saved_learner_knows_of_the_noise_it_found(few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse("label:0.5"), seed=1)

    def fresh() -> Sift:
        model = build_model("simple_cnn", few_digits.image_shape, few_digits.classes, seed=0)
        return Sift(model, Training(12, 12, memory_per_class=10, learning_rate=3e-3), seed=0)

    one, other = fresh(), fresh()
    one.learn(stream[0])
    one.learn(stream[1])
    assert one._noise_is_found()
    other.restore(unpack_tree(pack_tree(one.state())))
    assert (other._recognised, other._clean_shares) == (one._recognised, one._clean_shares)
    one.learn(stream[2])
    other.learn(stream[2])
    images = stream.test(0)[0]
    assert torch.equal(one.predict_logits(images), other.predict_logits(images))


def test_only_outputs_that_sleep_are_woken(few_digits: Dataset) -> None:
    strategy = sift(few_digits)
    first = Stream(few_digits, Noise.parse("none"), seed=1)[0]
    strategy.learn(first)
    awake, asleep = first.classes
    with torch.no_grad():
        strategy.network.model.head.bias[asleep] = -100.0
    before = strategy.network.head_weight.detach().clone()
    strategy._wake(first.classes)
    assert torch.equal(strategy.network.head_weight[awake], before[awake])
    assert not strategy.network.head_weight[asleep].any()
    assert not strategy.network.model.head.bias[asleep].any()


def test_weights_are_averaged_over_the_last_epochs(few_digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four epochs on the memories, half: the mean of the weights after the last two."""
    strategy = sift(few_digits, scout_epochs=2, scout_steps=0)
    seen: list[tuple[str, dict[str, Tensor]]] = []

    def watch(phase: str, epoch: int, epochs: int, loss: Callable[[], float]) -> None:
        seen.append((phase, copy.deepcopy(strategy.network.model.state_dict())))

    monkeypatch.setattr(strategy, "_observer", watch)
    strategy.learn(Stream(few_digits, Noise.parse("none"), seed=1)[0])
    last = [state for phase, state in seen if phase == "memories"]
    assert len(last) == 4
    for name, value in strategy.network.model.state_dict().items():
        assert torch.allclose(value, (last[2][name] + last[3][name]) / 2, atol=1e-6)


def test_batch_statistics_are_measured_anew(few_digits: Dataset) -> None:
    network = Network(build_model("resnet18", few_digits.image_shape, 4, seed=0), torch.device("cpu"))
    images = few_digits.train_images[:20]
    network.measure_normalization(images)
    network.measure_batch_statistics(images)
    first = network.model.bn1
    with torch.no_grad():
        values = network.model.conv1(network.normalized(images))
    assert isinstance(first, torch.nn.BatchNorm2d)
    assert first.running_mean is not None
    assert torch.allclose(first.running_mean, values.mean(dim=(0, 2, 3)), atol=1e-5)
    network.measure_batch_statistics(images[:1])  # one image has no spread, and nothing is measured
    assert torch.allclose(first.running_mean, values.mean(dim=(0, 2, 3)), atol=1e-5)


@pytest.mark.parametrize("wrong", [{"scout_steps": -1}, {"trusted_epochs": 0}, {"better_part": 0.0}])
def test_epochs_and_parts_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="sift needs scout_epochs and trusted_epochs of 1 or more"):
        SiftOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"shift": 1.0}, {"shift": -0.1}, {"averaged": 1.5}, {"recognised": -0.1}])
def test_options_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="a shift from 0 to below 1, and averaged and recognised from 0 to 1"):
        SiftOptions(**wrong)  # type: ignore[arg-type]


def test_layers_that_draw_beside_batch_norm_draw_from_the_learners_own_numbers(few_digits: Dataset) -> None:
    """Averaged weights have what is usual measured anew, in the mode in which dropout draws."""
    outcomes = []
    for outside in (3, 4):
        torch.manual_seed(0)
        layers = (torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(8))
        network = torch.nn.Sequential(*layers, torch.nn.Linear(8, 4))
        torch.manual_seed(outside)
        before = torch.get_rng_state()
        strategy = Sift(network, Training(2, 2, memory_per_class=5))
        strategy.learn(Stream(few_digits, Noise.parse("label:0.3"), seed=1)[0])
        assert torch.equal(before, torch.get_rng_state())
        outcomes.append(network[3].running_var)
    assert torch.equal(*outcomes)
