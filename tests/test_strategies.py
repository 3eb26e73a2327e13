"""Learning: what the algorithm promises, and that it learns."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from continual_crust.data import Dataset, Experience, Noise, Samples, Stream
from continual_crust.errors import InputError
from continual_crust.evaluation import accuracies, average_accuracy, mean_purity, purity_per_class
from continual_crust.models import build_model
from continual_crust.selection.selectors import SELECTORS, SelectorConfig
from continual_crust.strategies import STRATEGIES, Strategy, Told, Training, strategy_named, training
from continual_crust.strategies.adam import Adam
from continual_crust.strategies.augmentation import moved
from continual_crust.strategies.cumulative import CumulativeOptions
from continual_crust.strategies.network import Network
from continual_crust.strategies.replay_ewc import ReplayEwc
from continual_crust.strategies.sift import SiftOptions
from continual_crust.strategies.training import Phase
from continual_crust.tensor_tree import pack_tree, unpack_tree

QUICK = Training(phase1_epochs=3, phase2_epochs=2, memory_per_class=10)
ONE_AFTER_ANOTHER = [name for name in STRATEGIES if not strategy_named(name).learns_everything_at_once]


def told(strategy: Strategy, stream: Stream) -> Strategy:
    """The oracle alone is told which samples are clean, as a run would."""
    if isinstance(strategy, Told):
        strategy.reveal(stream.truth.is_clean(torch.arange(len(stream.truth.labels))))
    return strategy


def told_stream(strategy: Strategy, dataset: Dataset) -> Stream:
    """Without noise, so that every method keeps what it has room for."""
    stream = Stream(dataset, Noise.parse("none"), seed=1)
    told(strategy, stream)
    return stream


def learned(name: str, dataset: Dataset, training: Training = QUICK, noise: str = "label:0.3", **options) -> Strategy:
    strategy = strategy_named(name)(
        build_model("simple_cnn", dataset.image_shape, dataset.classes), training, **options
    )
    stream = Stream(dataset, Noise.parse(noise), seed=1)
    told(strategy, stream)
    for experience in [stream.joined()] if strategy.learns_everything_at_once else stream:
        strategy.learn(experience)
    return strategy


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_same_seed_same_weights_to_the_last_bit(name: str, few_digits: Dataset) -> None:
    first, again, other = (learned(name, few_digits, seed=seed) for seed in (0, 0, 1))
    weights = [strategy.network.model.state_dict() for strategy in (first, again, other)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert not all(torch.equal(weights[0][key], weights[2][key]) for key in weights[0])
    assert all(torch.equal(first.memory[label].ids, again.memory[label].ids) for label in first.memory)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_learning_leaves_the_global_random_state_alone(name: str, few_digits: Dataset) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    learned(name, few_digits)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", ["crust", "cosine_crust", "cumulative_cosine_crust", "replay"])
def test_memory_holds_at_most_k_given_samples_of_each_class(name: str, few_digits: Dataset) -> None:
    given = Stream(few_digits, Noise.parse("label:0.3"), seed=1).joined().samples
    strategy = learned(name, few_digits)
    assert sorted(strategy.memory) == [0, 1, 2, 3]
    for label, samples in strategy.memory.items():
        assert 0 < len(samples) <= QUICK.memory_per_class
        assert (samples.labels == label).all()
        assert len(samples.ids.unique()) == len(samples)
        assert torch.equal(given.images[given.ids.argsort()][samples.ids], samples.images)


def test_old_coresets_never_change(few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse("label:0.3"), seed=1)
    strategy = strategy_named("crust")(build_model("simple_cnn", few_digits.image_shape, 4), QUICK)
    strategy.learn(stream[0])
    before = {label: samples.ids.clone() for label, samples in strategy.memory.items()}
    strategy.learn(stream[1])
    assert all(torch.equal(strategy.memory[label].ids, ids) for label, ids in before.items())


@pytest.mark.parametrize(("name", "old"), [("crust", 20), ("cumulative_crust", 80)])
def test_phases_select_and_train_as_often_as_asked(
    name: str, old: int, few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    selections: list[tuple[int, ...]] = []
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(Phase, "epoch", lambda self, samples, beside=None: sizes.append(len(samples)))
    original = Strategy._remember
    monkeypatch.setattr(
        Strategy, "_remember", lambda self, classes, new: (selections.append(classes), original(self, classes, new))
    )
    stream = Stream(few_digits, Noise.parse("none"), seed=1)
    strategy = strategy_named(name)(
        build_model("simple_cnn", few_digits.image_shape, 4),
        QUICK,
        observer=lambda phase, epoch, epochs, loss: told.append((phase, epoch, epochs)),
    )
    strategy.learn(stream[0])
    strategy.learn(stream[1])
    assert sizes == [80] * 3 + [20] * 2 + [old + 40] * 3 + [30] * 2
    assert selections == [stream.groups[0]] * 2 + [stream.groups[1]] * 2
    assert told[:5] == [("phase 1", 1, 3), ("phase 1", 2, 3), ("phase 1", 3, 3), ("phase 2", 1, 2), ("phase 2", 2, 2)]


@pytest.mark.parametrize("name", [name for name in ONE_AFTER_ANOTHER if strategy_named(name).remembers])
def test_a_class_that_comes_again_keeps_what_was_remembered(name: str, few_digits: Dataset) -> None:
    """Room for all of it, so that nothing need go."""
    roomy = dataclasses.replace(QUICK, memory_per_class=10**4)
    strategy = strategy_named(name)(build_model("simple_cnn", few_digits.image_shape, few_digits.classes), roomy)
    stream = told_stream(strategy, few_digits)
    first, second = stream[0], stream[1]
    label = first.classes[0]
    own = first.samples.of_class(label)
    halves = own[: len(own) // 2], own[len(own) // 2 :]
    for part in (halves[0], second.samples, halves[1]):
        classes = second.classes if part is second.samples else (label,)
        strategy.learn(dataclasses.replace(first, classes=classes, samples=part))
    assert set(strategy.memory) == {label, *second.classes}
    kept = set(strategy.memory[label].ids.tolist())
    assert kept & set(halves[0].ids.tolist())
    assert kept & set(halves[1].ids.tolist())


def test_each_phase_has_a_fresh_optimizer(few_digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(training, "Adam", lambda *args: (made.append(1), Adam(*args))[1])
    learned("crust", few_digits)
    assert len(made) == 2 * 3


def test_an_epoch_visits_every_sample_once() -> None:
    seen: list[torch.Tensor] = []
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.device("cpu"))

    def loss(batch: Samples) -> torch.Tensor:
        seen.append(batch.ids)
        return network.logits(batch.images).sum()

    samples = Samples.of(torch.zeros(70, 1, 2, 2, dtype=torch.uint8), torch.zeros(70, dtype=torch.int64))
    phase = Phase(network, loss, Training(batch_size=32), torch.Generator().manual_seed(0))
    phase.epoch(samples)
    assert [len(batch) for batch in seen] == [32, 32, 6]
    assert sorted(torch.cat(seen).tolist()) == list(range(70))
    assert torch.cat(seen).tolist() != list(range(70))


def test_a_batch_beside_comes_with_every_batch() -> None:
    pairs: list[tuple[list[int], list[int]]] = []
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.device("cpu"))

    def loss(batch: Samples, beside: Samples) -> torch.Tensor:
        pairs.append((batch.ids.tolist(), beside.ids.tolist()))
        return network.logits(batch.images).sum()

    images = torch.zeros(20, 1, 2, 2, dtype=torch.uint8)
    samples = Samples.of(images, torch.zeros(20, dtype=torch.int64))
    memory = Samples.of(images[:3], torch.zeros(3, dtype=torch.int64), ids=torch.tensor([100, 101, 102]))
    Phase(network, loss, Training(batch_size=8), torch.Generator().manual_seed(0)).epoch(samples, memory)
    assert [len(batch) for batch, _ in pairs] == [8, 8, 4]
    assert [len(beside) for _, beside in pairs] == [8, 8, 8]
    walked = [one for _, beside in pairs for one in beside]
    assert all(sorted(walked[start : start + 3]) == [100, 101, 102] for start in range(0, 24, 3))


@pytest.mark.parametrize("name", [name for name in STRATEGIES if not name.startswith("sift")])
def test_images_are_moved_and_mirrored_for_training_alone(
    name: str, few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anew in every epoch; what is remembered are images as they came."""
    moves: list[tuple[float, bool]] = []

    def watched_moved(samples: Samples, most: float, mirror: bool, generator: torch.Generator) -> Samples:
        moves.append((most, mirror))
        return moved(samples, most, mirror, generator)

    monkeypatch.setattr("continual_crust.strategies.training.moved", watched_moved)
    plain = learned(name, few_digits)
    assert moves == []
    strategy = learned(name, few_digits, dataclasses.replace(QUICK, shift=0.2, mirror=True))
    assert set(moves) == {(0.2, True)}
    assert len(moves) >= QUICK.epochs
    given = {image.numpy().tobytes() for image in few_digits.train_images}
    assert all(image.numpy().tobytes() in given for kept in strategy.memory.values() for image in kept.images)
    weights = [learner.network.model.state_dict()["head.weight"] for learner in (plain, strategy)]
    assert not torch.equal(*weights)


def test_a_shift_of_no_pixel_is_told(few_digits: Dataset) -> None:
    with pytest.raises(InputError, match=r"shift of 0.06 is less than half a pixel of images of 8x8; give 0.12 or"):
        learned("crust", few_digits, dataclasses.replace(QUICK, shift=0.06))


@pytest.mark.parametrize("change", [{"shift": 0.1}, {"mirror": True}])
def test_sift_moves_its_images_itself(change: dict[str, object], few_digits: Dataset) -> None:
    with pytest.raises(InputError, match="'sift' moves and mirrors the images it learns from by itself; leave out"):
        learned("sift", few_digits, dataclasses.replace(QUICK, **change))


def test_weights_scale_the_loss(few_digits: Dataset) -> None:
    strategy = strategy_named("replay")(build_model("simple_cnn", few_digits.image_shape, 4).eval())
    samples = Samples.of(few_digits.train_images[:6], few_digits.train_labels[:6])
    doubled = dataclasses.replace(samples, weights=torch.full((6,), 2.0))
    assert torch.allclose(strategy._cross_entropy(doubled), 2 * strategy._cross_entropy(samples))


def test_weighted_loss_counts_samples_by_what_they_stand_for(few_digits: Dataset) -> None:
    plain = learned("crust", few_digits)
    weighted = learned("crust", few_digits, dataclasses.replace(QUICK, weighted_loss=True))
    for label in plain.memory:
        assert (plain.memory[label].weights == 1).all()
        assert weighted.memory[label].weights.mean() == pytest.approx(1)
        assert weighted.memory[label].weights.std() > 0


def test_where_all_stand_for_as_many_weights_change_nothing(few_digits: Dataset) -> None:
    plain, weighted = (
        learned("replay", few_digits, dataclasses.replace(QUICK, weighted_loss=weighted)) for weighted in (False, True)
    )
    assert all(bool((kept.weights == 1).all()) for kept in weighted.memory.values())
    pairs = zip(plain.network.model.parameters(), weighted.network.model.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_normalization_is_measured_on_the_first_images_only(few_digits: Dataset) -> None:
    strategy = learned("crust", few_digits)
    images = Stream(few_digits, Noise.parse("label:0.3"), seed=1)[0].samples.images.float()
    assert float(strategy.network.mean) == pytest.approx(float(images.mean()), rel=1e-5)
    assert float(strategy.network.std) == pytest.approx(float(images.std(correction=0)), rel=1e-4)


def test_constant_images_do_not_divide_by_zero() -> None:
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.device("cpu"))
    network.measure_normalization(torch.full((3, 1, 2, 2), 9, dtype=torch.uint8))
    assert torch.isfinite(network.logits(torch.full((1, 1, 2, 2), 9, dtype=torch.uint8))).all()


def test_an_experience_without_images_is_survived(few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse("none"), seed=1)
    for name in ONE_AFTER_ANOTHER:
        strategy = told(strategy_named(name)(build_model("simple_cnn", few_digits.image_shape, 4), QUICK), stream)
        strategy.learn(stream[0])
        empty = stream[1].samples[torch.zeros(0, dtype=torch.int64)]
        strategy.learn(Experience(stream.groups[1], empty))
        strategy.learn(stream[2])
        assert set(strategy.memory.get(stream.groups[2][0], stream[2].samples).labels.tolist()) == {stream.groups[2][0]}


@pytest.mark.parametrize("name", ONE_AFTER_ANOTHER)
def test_a_first_experience_without_images_is_survived(name: str, few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse("none"), seed=1)
    strategy = told(strategy_named(name)(build_model("simple_cnn", few_digits.image_shape, 4), QUICK), stream)
    strategy.learn(Experience(stream.groups[0], stream[0].samples[torch.zeros(0, dtype=torch.int64)]))
    strategy.learn(stream[1])
    assert set(strategy.predict(stream[1].samples.images).tolist()) == set(stream.groups[1])


@pytest.mark.parametrize(("phase1", "phase2"), [(0, 2), (2, 0)])
def test_either_phase_may_be_left_out(few_digits: Dataset, phase1: int, phase2: int) -> None:
    training = Training(phase1_epochs=phase1, phase2_epochs=phase2, memory_per_class=5)
    assert {len(samples) for samples in learned("crust", few_digits, training).memory.values()} == {5}


@pytest.mark.parametrize("oracle", ["oracle", "sift_oracle"])
def test_oracles_remember_clean_samples_only(oracle: str, few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse("label:0.3"), seed=1)
    strategy = learned(oracle, few_digits)
    assert mean_purity(purity_per_class(strategy.memory, stream.truth)) == 1
    assert all(len(samples) == 10 for samples in strategy.memory.values())
    with pytest.raises(InputError, match="call reveal"):
        strategy_named(oracle)(build_model("simple_cnn", few_digits.image_shape, 4), QUICK).learn(stream[0])


@pytest.mark.parametrize("restart", [True, False])
def test_cumulative_learning_starts_anew_if_asked_to(restart: bool, few_digits: Dataset) -> None:
    model = build_model("simple_cnn", few_digits.image_shape, few_digits.classes)
    first = {name: value.clone() for name, value in model.state_dict().items()}
    strategy = strategy_named("cumulative")(model, QUICK, options=CumulativeOptions(restart=restart))
    began_as_at_first = []
    train = strategy._train

    def watched(samples: Samples) -> None:
        began_as_at_first.append(all(torch.equal(value, first[name]) for name, value in model.state_dict().items()))
        train(samples)

    strategy._train = watched  # type: ignore[method-assign]
    for experience in Stream(few_digits, Noise.parse("none"), seed=1):
        strategy.learn(experience)
        strategy.restore(unpack_tree(pack_tree(strategy.state())))  # nothing of it is lost between experiences
    assert began_as_at_first == [True, restart, restart]


def test_sift_learns_from_what_it_trusts(few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse("label:0.4"), seed=1)
    training = dataclasses.replace(QUICK, phase1_epochs=15, phase2_epochs=15)
    pure, blind = (
        mean_purity(
            purity_per_class(learned("sift", few_digits, training, "label:0.4", options=chosen).memory, stream.truth)
        )
        for chosen in (SiftOptions(), SiftOptions(margin=False, crowding=False))
    )
    assert pure is not None
    assert blind is not None
    assert pure > 0.85
    assert pure > blind + 0.1
    with pytest.raises(InputError, match="scout_epochs and trusted_epochs of 1 or more"):
        SiftOptions(scout_epochs=0)


@pytest.mark.parametrize("selector", list(SELECTORS))
def test_any_selector_serves_any_memory(selector: str, few_digits: Dataset) -> None:
    strategy = learned("replay", few_digits, selector=SelectorConfig(selector))
    assert all(0 < len(samples) <= 10 for samples in strategy.memory.values())


@pytest.mark.parametrize("selector", list(SELECTORS))
def test_the_network_is_asked_about_samples_only_if_the_selector_wants_to_know(
    selector: str, few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    evaluate = Network.evaluate
    monkeypatch.setattr(
        Network, "evaluate", lambda self, images: (asked.append(len(images)), evaluate(self, images))[1]
    )
    learned("replay", few_digits, selector=SelectorConfig(selector))
    assert sum(asked) == (0 if selector in ("random", "reservoir") else len(few_digits.train_labels))


@pytest.mark.parametrize("space", ["logits", "input", "parameters"])
@pytest.mark.parametrize("rule", ["centrality", "facility_location"])
def test_every_space_and_rule_learns(space: str, rule: str, few_digits: Dataset) -> None:
    for selector in ("crust", "cosine_crust"):
        strategy = learned("crust", few_digits, selector=SelectorConfig(selector, rule=rule, space=space))
        assert len(strategy.memory) == 4


def test_coresets_stay_cleaner_than_a_random_memory_and_learn_more(digits: Dataset) -> None:
    """The claim of the product, on one seed of real digits with 40 % of the labels wrong."""
    training = Training(phase1_epochs=10, phase2_epochs=10, memory_per_class=25)
    purity, accuracy = {}, {}
    for name in ("replay", "crust", "cosine_crust"):
        stream = Stream(digits, Noise.parse("label:0.4"), seed=0)
        strategy = strategy_named(name)(build_model("simple_cnn", digits.image_shape, 10), training)
        for experience in stream:
            strategy.learn(experience)
        purity[name] = mean_purity(purity_per_class(strategy.memory, stream.truth))
        accuracy[name] = average_accuracy([accuracies(strategy, stream)])
    assert min(purity["crust"], purity["cosine_crust"]) > purity["replay"] + 0.15
    assert min(accuracy["crust"], accuracy["cosine_crust"]) > accuracy["replay"] + 0.05


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"phase1_epochs": -1}, "phase1_epochs is -1"),
        ({"phase1_epochs": 0, "phase2_epochs": 0}, "nothing would be learned"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"learning_rate": 0.0}, r"learning_rate \(--lr\) is 0.0"),
        ({"learning_rate": float("nan")}, r"learning_rate \(--lr\) is nan"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"shift": 1.0}, "shift is 1.0; give a share from 0 to below 1"),
        ({"memory_per_class": -5}, r"memory_per_class \(--memory\) is -5"),
    ],
)
def test_impossible_training_is_refused(change: dict[str, float], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Training(**change)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "crst"}, "did you mean 'crust'"),
        ({"rule": "medoid"}, "no selection rule 'medoid'"),
        ({"clusters": 0}, "clusters is 0"),
        ({"min_cluster": -0.1}, "min_cluster is -0.1"),
    ],
)
def test_impossible_selectors_are_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        SelectorConfig(**change)


def test_unknown_method_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'cosine_crust'"):
        strategy_named("cosinecrust")


@pytest.mark.parametrize("name", ONE_AFTER_ANOTHER)
def test_a_saved_learner_goes_on_bit_for_bit(name: str, few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse("label:0.3"), seed=1)

    def fresh() -> Strategy:
        return told(strategy_named(name)(build_model("simple_cnn", few_digits.image_shape, 4), QUICK), stream)

    whole, first_part, second_part = fresh(), fresh(), fresh()
    for experience in stream:
        whole.learn(experience)
    first_part.learn(stream[0])
    first_part.learn(stream[1])
    second_part.restore(unpack_tree(pack_tree(first_part.state())))
    second_part.learn(stream[2])
    images = stream.test(0)[0]
    assert torch.equal(whole.predict_logits(images), second_part.predict_logits(images))
    assert all(torch.equal(whole.memory[label].ids, second_part.memory[label].ids) for label in whole.memory)


def test_the_observer_hears_the_mean_loss(few_digits: Dataset) -> None:
    losses: list[float] = []
    strategy = strategy_named("naive")(
        build_model("simple_cnn", few_digits.image_shape, 4),
        Training(phase1_epochs=12, phase2_epochs=0),
        observer=lambda phase, epoch, epochs, loss: losses.append(loss()),
    )
    strategy.learn(Stream(few_digits, Noise(), seed=1)[0])
    assert losses[0] == pytest.approx(1.4, abs=0.5)  # about log 4 before anything is learned
    assert losses[-1] < 0.2


@pytest.mark.parametrize(("count", "batch"), [(9, 4), (9, 1), (1, 4), (1, 1)])
def test_no_sample_is_left_out_without_batch_normalization(count: int, batch: int) -> None:
    seen: list[int] = []
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.device("cpu"))

    def loss(part: Samples) -> torch.Tensor:
        seen.extend(part.ids.tolist())
        return network.logits(part.images).sum()

    samples = Samples.of(torch.zeros(count, 1, 2, 2, dtype=torch.uint8), torch.zeros(count, dtype=torch.int64))
    Phase(network, loss, Training(batch_size=batch), torch.Generator().manual_seed(0)).epoch(samples)
    assert sorted(seen) == list(range(count))


def test_batch_normalization_never_sees_one_sample_alone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 2))
    network = Network(model, torch.device("cpu"))
    sizes: list[int] = []

    def loss(part: Samples) -> torch.Tensor:
        sizes.append(len(part))
        return network.logits(part.images).sum()

    samples = Samples.of(torch.zeros(9, 1, 2, 2, dtype=torch.uint8), torch.zeros(9, dtype=torch.int64))
    Phase(network, loss, Training(batch_size=4), torch.Generator().manual_seed(0)).epoch(samples)
    assert sizes == [4, 4]
    with pytest.raises(InputError, match="batches of one sample"):
        Phase(network, loss, Training(batch_size=1), torch.Generator())


def test_a_saved_state_does_not_change_as_learning_goes_on(few_digits: Dataset) -> None:
    stream = Stream(few_digits, Noise.parse("label:0.3"), seed=1)
    strategy = strategy_named("icarl")(build_model("simple_cnn", few_digits.image_shape, 4), QUICK)
    strategy.learn(stream[0])
    state = strategy.state()
    before = state["network"]["model"]["head.weight"].clone(), state["own"]["is_old_class"].clone()
    strategy.learn(stream[1])
    assert torch.equal(state["network"]["model"]["head.weight"], before[0])
    assert torch.equal(state["own"]["is_old_class"], before[1])
    with pytest.raises(InputError, match="not the state of a learner by method 'naive'"):
        strategy_named("naive")(build_model("simple_cnn", few_digits.image_shape, 4)).restore(state)


def test_the_state_of_another_method_changes_nothing(few_digits: Dataset) -> None:
    def made(name: str) -> Strategy:
        return strategy_named(name)(build_model("simple_cnn", few_digits.image_shape, 4, seed=len(name)), QUICK)

    for name, other in (("naive", "icarl"), ("icarl", "naive"), ("replay", "der"), ("der", "replay")):
        strategy, before = made(name), made(name).state()
        with pytest.raises(InputError, match=f"not the state of a learner by method '{name}' but by '{other}'"):
            strategy.restore(made(other).state())
        assert all(map(torch.equal, strategy.state()["network"]["model"].values(), before["network"]["model"].values()))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_told() -> None:
    with pytest.raises(InputError, match="sees no CUDA device"):
        strategy_named("naive")(build_model("simple_cnn", (1, 8, 8), 2), device="cuda")


def test_penalty_of_ewc_and_its_slope_are_what_they_are_by_hand() -> None:
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


@pytest.mark.parametrize("name", ["naive", "joint", "replay", "der", "crust", "sift"])
def test_a_network_that_has_diverged_is_no_result(name: str, few_digits: Dataset) -> None:
    strategy = strategy_named(name)(
        build_model("simple_cnn", few_digits.image_shape, few_digits.classes),
        dataclasses.replace(QUICK, learning_rate=1e30),
    )
    with pytest.raises(InputError, match="diverged, so lower its learning rate"):
        strategy.learn(Stream(few_digits, seed=1).joined())


def test_joint_learning_refuses_a_second_experience(few_digits: Dataset) -> None:
    strategy = strategy_named("joint")(build_model("simple_cnn", few_digits.image_shape, few_digits.classes), QUICK)
    stream = Stream(few_digits, seed=1)
    strategy.learn(stream[0])
    with pytest.raises(InputError, match="learns everything at once"):
        strategy.learn(stream[1])
    again = strategy_named("joint")(build_model("simple_cnn", few_digits.image_shape, few_digits.classes), QUICK)
    again.restore(unpack_tree(pack_tree(strategy.state())))
    with pytest.raises(InputError, match="learns everything at once"):
        again.learn(stream[1])


def test_a_network_with_too_few_outputs_is_told_at_once(few_digits: Dataset) -> None:
    strategy = strategy_named("naive")(build_model("simple_cnn", few_digits.image_shape, 1), QUICK)
    with pytest.raises(InputError, match="the network has 1 outputs"):
        strategy.learn(Stream(few_digits, seed=1).joined())


@pytest.mark.parametrize("change", [lambda some: some / 255, lambda some: some[0], lambda some: some.numpy()])
def test_images_that_are_not_bytes_are_not_predicted(change, few_digits: Dataset) -> None:
    strategy = learned("naive", few_digits)
    with pytest.raises(InputError, match=r"images are not bytes of shape \(n, channels, height, width\)"):
        strategy.predict(change(few_digits.test_images))


def flat(inputs: int, outputs: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": "simple_cnn"}, "model is 'simple_cnn'; give a module"),
        ({"model": nn.Linear}, "give a module, not its class or name"),
        ({"training": {"phase1_epochs": 1}}, r"training is \{'phase1_epochs': 1\}; give a Training"),
        ({"training": 0}, "training is 0; give a Training"),
        ({"selector": 3}, "selector is 3; give a name such as 'crust'"),
        ({"device": 1.5}, "there is no device '1.5'"),
        ({"device": None}, "there is no device 'None'"),
    ],
)
def test_a_strategy_of_other_things_is_refused(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        strategy_named("crust")(**{"model": flat(64), **arguments})


@pytest.mark.parametrize("name", ["naive", "crust"])
@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (flat(65), "cannot take images of 1×8×8"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 4)), "cannot take images of 1×8×8"),
        (nn.Linear(8, 4), r"the output of Linear has shape .* a row of logits for each image"),
    ],
)
def test_a_network_for_other_images_is_told(name: str, model: nn.Module, sentence: str, few_digits: Dataset) -> None:
    with pytest.raises(InputError, match=sentence):
        strategy_named(name)(model, QUICK).learn(Stream(few_digits)[0])


def test_a_machine_without_memory_is_not_taken_for_a_wrong_network(
    few_digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RuntimeError("CUDA out of memory")

    strategy = strategy_named("naive")(flat(64), QUICK)
    strategy.learn(Stream(few_digits)[0])
    monkeypatch.setattr(Phase, "epoch", full)
    larger = Samples.of(torch.zeros(5, 1, 9, 9, dtype=torch.uint8), torch.zeros(5).long())
    with pytest.raises(RuntimeError, match="out of memory"):
        strategy.learn(Experience((0,), larger))


def test_images_of_another_size_change_nothing(few_digits: Dataset) -> None:
    stream = Stream(few_digits)
    strategy = strategy_named("crust")(flat(64), QUICK)
    strategy.learn(stream[0])
    label = stream.groups[1][0]
    larger = Samples.of(torch.zeros(5, 1, 9, 9, dtype=torch.uint8), torch.full((5,), label))
    with pytest.raises(InputError, match=r"images are 1×9×9 .* and those remembered 1×8×8"):
        strategy.learn(Experience((label,), larger))
    strategy.learn(stream[1])
    assert len(strategy.memory[label]) == QUICK.memory_per_class


@pytest.mark.parametrize("whole", ["stream", "data set", "samples"])
def test_what_is_no_experience_is_not_learned(whole: str, few_digits: Dataset) -> None:
    stream = Stream(few_digits)
    given = {"stream": stream, "data set": few_digits, "samples": stream[0].samples}[whole]
    with pytest.raises(InputError, match="is not an experience; give them one by one"):
        strategy_named("crust")(flat(64), QUICK).learn(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_may_be_switched_off_around_learning(off, few_digits: Dataset) -> None:
    usual, quiet = (strategy_named("crust")(build_model("simple_cnn", (1, 8, 8), 4), QUICK) for _ in range(2))
    usual.learn(Stream(few_digits)[0])
    with off():
        quiet.learn(Stream(few_digits)[0])
    assert torch.equal(usual.predict_logits(few_digits.test_images), quiet.predict_logits(few_digits.test_images))


@pytest.mark.parametrize("state", [{}, "of another network"])
def test_the_state_of_another_network_is_told(state: object) -> None:
    saved = state if isinstance(state, dict) else strategy_named("crust")(flat(64, outputs=7), QUICK).state()
    with pytest.raises(InputError, match="the state is not of a network like this one"):
        strategy_named("crust")(flat(64), QUICK).restore(saved)
