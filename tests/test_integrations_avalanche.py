"""Coresets inside real Avalanche training: benchmarks, strategies, metrics, checkpoints."""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from continual_crust.data import Dataset
from continual_crust.errors import InputError
from continual_crust.models import build_model
from continual_crust.selection.selectors import SELECTORS, SelectorConfig, select

if importlib.util.find_spec("avalanche") is None:
    pytest.skip("the [avalanche] extra is not installed", allow_module_level=True)

# First, because it mends torchvision where Avalanche's own import would fail.
from continual_crust.integrations.avalanche import CoresetBuffer, CoresetReplayPlugin, CoresetSelection  # isort: skip
from avalanche.benchmarks import class_incremental_benchmark, nc_benchmark
from avalanche.benchmarks.utils import AvalancheDataset, as_classification_dataset, concat_datasets
from avalanche.benchmarks.utils import _make_taskaware_classification_dataset as make_classification_dataset
from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint
from avalanche.evaluation.metrics import accuracy_metrics, forgetting_metrics
from avalanche.models import IncrementalClassifier, MultiHeadClassifier, as_multitask
from avalanche.training.plugins import EvaluationPlugin, LRSchedulerPlugin, ReplayPlugin, SupervisedPlugin
from avalanche.training.storage_policy import ParametricBuffer
from avalanche.training.supervised import EWC, JointTraining, Naive, Replay

from continual_crust.integrations.avalanche.network import candidates_from, positions_by_group
from continual_crust.integrations.avalanche.selection import ordered_coreset

pytestmark = pytest.mark.filterwarnings("ignore")  # Avalanche warns of its own future


class Images(torch.utils.data.Dataset):
    """Images, labels and targets, as Avalanche wants them."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.targets = images.float() / 255, labels.tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index], self.targets[index]


@pytest.fixture
def benchmark(few_digits: Dataset) -> Any:
    """Four digits in two experiences of two."""
    return benchmark_of(few_digits)


def benchmark_of(dataset: Dataset, experiences: int = 2, **more: Any) -> Any:
    train = Images(dataset.train_images, dataset.train_labels)
    test = Images(dataset.test_images, dataset.test_labels)
    order = list(range(dataset.classes))
    return nc_benchmark(train, test, experiences, more.pop("task_labels", False), fixed_class_order=order, **more)


def arguments(model: nn.Module, epochs: int = 3, **more: Any) -> dict[str, Any]:
    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), lr=3e-3),
        "criterion": nn.CrossEntropyLoss(),
        "train_mb_size": 16,
        "eval_mb_size": 64,
        "train_epochs": epochs,
        "evaluator": EvaluationPlugin(accuracy_metrics(experience=True, stream=True), loggers=[]),
        **more,
    }


def network(classes: int = 4) -> nn.Module:
    return build_model("simple_cnn", (1, 8, 8), classes)


def perceptron(head: nn.Module) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), head)


def state_of_global_randomness() -> list[bytes]:
    return [
        torch.get_rng_state().numpy().tobytes(),
        repr(random.getstate()).encode(),
        repr(np.random.get_state()).encode(),  # noqa: NPY002
    ]


def first_experience(benchmark: Any) -> AvalancheDataset:
    return benchmark.train_stream[0].dataset


# Replay with coresets, end to end


@pytest.mark.parametrize("selector", SELECTORS)
def test_replay_takes_every_selector_as_a_plugin(selector: str, benchmark: Any) -> None:
    plugin = CoresetReplayPlugin(selector=selector)
    learner = Replay(**arguments(network(), epochs=1), mem_size=20, plugins=[plugin])
    for experience in benchmark.train_stream:
        learner.train(experience)
    kept = plugin.storage_policy.buffer
    assert 0 < len(kept) <= 20
    assert set(kept.targets) == {0, 1, 2, 3}
    own = [other for other in learner.plugins if isinstance(other, ReplayPlugin)]
    assert [other.storage_policy for other in own] == [plugin.storage_policy]


def test_metrics_show_that_old_classes_are_remembered(benchmark: Any) -> None:
    def final_accuracies(plugins: list[SupervisedPlugin]) -> dict[str, float]:
        torch.manual_seed(0)
        evaluator = EvaluationPlugin(accuracy_metrics(experience=True), forgetting_metrics(stream=True), loggers=[])
        learner = Naive(**arguments(network(), epochs=6, evaluator=evaluator), plugins=plugins)
        for experience in benchmark.train_stream:
            learner.train(experience)
            metrics = learner.eval(benchmark.test_stream)
        return metrics

    first = "Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp000"
    forgotten = final_accuracies([])
    remembered = final_accuracies([CoresetReplayPlugin(40, "crust", coreset_epochs=3)])
    assert forgotten[first] < 0.2
    assert remembered[first] > 0.7
    assert remembered["StreamForgetting/eval_phase/test_stream"] < 0.3


def test_plugin_works_beside_other_plugins(benchmark: Any) -> None:
    learner = EWC(**arguments(network(), epochs=6), ewc_lambda=1.0, plugins=[CoresetReplayPlugin(20, coreset_epochs=3)])
    learner.plugins.insert(0, LRSchedulerPlugin(torch.optim.lr_scheduler.ConstantLR(learner.optimizer)))
    for experience in benchmark.train_stream:
        learner.train(experience)
    assert learner.eval(benchmark.test_stream)["Top1_Acc_Stream/eval_phase/test_stream/Task000"] > 0.5


def test_buffer_in_a_replay_plugin_is_the_same_as_the_plugin(benchmark: Any) -> None:
    def weights(plugin: SupervisedPlugin) -> torch.Tensor:
        torch.manual_seed(0)
        learner = Naive(**arguments(network()), plugins=[plugin])
        for experience in benchmark.train_stream:
            learner.train(experience)
        return nn.utils.parameters_to_vector(learner.model.parameters())

    buffer = CoresetBuffer(20, "cosine_crust")
    theirs = weights(ReplayPlugin(20, storage_policy=buffer))
    assert torch.equal(theirs, weights(CoresetReplayPlugin(20, "cosine_crust")))


def test_benchmark_without_task_labels(few_digits: Dataset) -> None:
    """Avalanche's newer benchmarks give images and labels alone."""
    train = as_classification_dataset(Images(few_digits.train_images, few_digits.train_labels))
    benchmark = class_incremental_benchmark({"train": train}, class_order=[0, 1, 2, 3], num_experiences=2)
    plugin = CoresetReplayPlugin(20, "crust", coreset_epochs=1)
    learner = Naive(**arguments(network(), epochs=2), plugins=[plugin])
    for experience in benchmark.train_stream:
        assert len(experience.dataset[0]) == 2
        learner.train(experience)
    assert np.bincount(list(plugin.storage_policy.buffer.targets)).tolist() == [5, 5, 5, 5]


@pytest.mark.parametrize("groupby", [None, "class", "experience"])
@pytest.mark.parametrize("selector", ["crust", "cosine_crust", "reservoir"])
def test_parametric_buffer_takes_the_selection_and_stays_balanced(groupby: str, selector: str, benchmark: Any) -> None:
    buffer = ParametricBuffer(20, groupby=groupby, selection_strategy=CoresetSelection(selector))
    learner = Naive(**arguments(network(), epochs=1), plugins=[ReplayPlugin(20, storage_policy=buffer)])
    for experience in benchmark.train_stream:
        learner.train(experience)
    counts = np.bincount(list(buffer.buffer.targets), minlength=4)
    assert counts.sum() == 20
    assert counts.tolist() == [5, 5, 5, 5]


def test_coreset_epochs_see_coresets_alone_with_a_fresh_optimizer(benchmark: Any) -> None:
    seen: list[tuple[int, int]] = []

    class Watcher(SupervisedPlugin):
        def before_training_iteration(self, strategy: Any, **_: Any) -> None:
            steps = max((int(state["step"]) for state in strategy.optimizer.state.values()), default=0)
            if strategy.clock.train_epoch_iterations == 0:
                seen.append((len(strategy.adapted_dataset), steps))

    plugin = CoresetReplayPlugin(20, coreset_epochs=2)
    learner = Naive(**arguments(network(), epochs=3), plugins=[plugin, Watcher()])
    learner.train(benchmark.train_stream[0])
    assert seen == [(80, 0), (20, 0), (20, 2)]
    assert len(plugin.storage_policy.buffer) == 20


@pytest.mark.parametrize("epochs", [1, 2])
def test_coreset_epochs_need_epochs_before_them(epochs: int, benchmark: Any) -> None:
    learner = Naive(**arguments(network(), epochs=epochs), plugins=[CoresetReplayPlugin(20, coreset_epochs=2)])
    with pytest.raises(InputError, match=f"coreset_epochs is 2 and the strategy's train_epochs {epochs}"):
        learner.train(benchmark.train_stream[0])


@pytest.mark.parametrize(("epochs", "warns"), [(1, True), (2, True), (3, False)])
def test_training_that_stops_before_the_coreset_epochs_is_told(epochs: int, warns: bool, benchmark: Any) -> None:
    class Stopper(SupervisedPlugin):
        def before_training_epoch(self, strategy: Any, **_: Any) -> None:
            if strategy.clock.train_exp_epochs == epochs:
                strategy.stop_training()

    learner = Naive(**arguments(network(), epochs=4), plugins=[CoresetReplayPlugin(20, coreset_epochs=2), Stopper()])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.train(benchmark.train_stream[0])
    told = [warning for warning in caught if f"stopped after {epochs} of 4 epochs" in str(warning.message)]
    assert len(told) == warns


# What the buffer keeps


@pytest.mark.parametrize("selector", ["crust", "herding", "random"])
def test_buffer_is_the_selectors_own_choice(selector: str, benchmark: Any) -> None:
    learner = SimpleNamespace(model=network(), eval_mb_size=32)
    data = first_experience(benchmark)
    selection = CoresetSelection(selector, seed=5)
    for group, positions in positions_by_group(data).items():
        own = data.subset(positions)
        chosen = selection.coreset(learner, own, 7)
        assert len(set(chosen)) == 7
        assert selection.coreset(learner, own, len(own)) != list(range(len(own))), group
    if selector != "random":
        expected = select(SelectorConfig(selector), candidates_from(learner, own, 0), 7, torch.Generator())
        assert chosen == expected.indices.tolist()


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("size", [0, 1, 2, 13, 40, 99])
def test_ordered_coreset_is_the_selectors_set(selector: str, size: int, benchmark: Any) -> None:
    data = first_experience(benchmark)
    own = data.subset(positions_by_group(data)[0, 0])
    candidates = candidates_from(SimpleNamespace(model=network()), own, 0)
    config = SelectorConfig(selector)
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    order = ordered_coreset(config, candidates, size, generators[0])
    plain = select(config, candidates, size, generators[1]).indices.tolist()
    assert sorted(order) == sorted(plain)
    assert torch.equal(generators[0].get_state(), generators[1].get_state())
    if selector in ("crust", "herding", "random"):
        assert order == plain


def test_prefix_of_an_ordered_cosine_coreset_visits_every_cluster(benchmark: Any) -> None:
    """Two far groups of gradients of equal size: any prefix should hold about as many of each."""
    data = first_experience(benchmark)
    candidates = candidates_from(SimpleNamespace(model=network()), data.subset(positions_by_group(data)[0, 0]), 0)
    candidates.logits[:20], candidates.logits[20:] = torch.tensor([0.0, 9, 0, 0]), torch.tensor([0.0, 0, 9, 0])
    order = ordered_coreset(SelectorConfig("cosine_crust", clusters=2), candidates, 40, torch.Generator())
    for size in (4, 8, 16, 32):
        assert abs(sum(position < 20 for position in order[:size]) - size / 2) <= 1


def test_memory_shrinks_by_what_was_chosen_last(few_digits: Dataset) -> None:
    benchmark = benchmark_of(few_digits, experiences=4)
    buffer = CoresetBuffer(12)
    learner = SimpleNamespace(model=network())
    before: list[list[float]] = []
    for number, experience in enumerate(benchmark.train_stream, start=1):
        buffer.post_adapt(learner, experience)
        first = [image.sum().item() for image, *_ in buffer.buffer_groups[0, 0].buffer]
        assert len(first) == 12 // number
        assert before[: len(first)] == first or not before
        assert len(buffer.buffer) == 12
        before = first


def test_fixed_shares_never_shrink(few_digits: Dataset) -> None:
    buffer = CoresetBuffer(40, adaptive_size=False, total_num_classes=4)
    learner = SimpleNamespace(model=network())
    for number, experience in enumerate(benchmark_of(few_digits, experiences=4).train_stream, start=1):
        buffer.post_adapt(learner, experience)
        assert [len(kept.buffer) for kept in buffer.buffer_groups.values()] == [10] * number


def test_more_classes_than_there_are_fixed_shares_for(benchmark: Any) -> None:
    buffer = CoresetBuffer(40, adaptive_size=False, total_num_classes=3)
    buffer.post_adapt(SimpleNamespace(model=network()), benchmark.train_stream[0])
    with pytest.raises(InputError, match=r"4 classes came.* total_num_classes is 3"):
        buffer.post_adapt(SimpleNamespace(model=network()), benchmark.train_stream[1])
    assert len(buffer.buffer) == 26


@pytest.mark.parametrize("max_size", [0, 1, 3])
@pytest.mark.parametrize("kind", ["buffer", "parametric"])
def test_memory_smaller_than_the_number_of_classes(max_size: int, kind: str, few_digits: Dataset) -> None:
    buffer = (
        CoresetBuffer(max_size)
        if kind == "buffer"
        else ParametricBuffer(max_size, groupby="class", selection_strategy=CoresetSelection())
    )
    plugin = ReplayPlugin(max_size, storage_policy=buffer)
    learner = Naive(**arguments(network(), epochs=1), plugins=[plugin])
    for experience in benchmark_of(few_digits, experiences=4).train_stream:
        learner.train(experience)
        assert len(buffer.buffer) <= max_size
    assert len(buffer.buffer) == max_size
    if max_size:
        assert len(set(buffer.buffer.targets)) == max_size


def test_plugin_without_room_trains_on(few_digits: Dataset) -> None:
    learner = Naive(**arguments(network(), epochs=2), plugins=[CoresetReplayPlugin(0, coreset_epochs=1)])
    learner.train(benchmark_of(few_digits).train_stream[0])
    assert learner.clock.train_iterations == 10


def test_class_that_comes_again_is_chosen_among_old_and_new(benchmark: Any) -> None:
    data = first_experience(benchmark)
    halves = [data.subset(list(range(start, 80, 2))) for start in (0, 1)]
    buffer, learner = CoresetBuffer(20), SimpleNamespace(model=network())
    buffer.update_from_dataset(halves[0], learner)
    kept = concat_datasets([group.buffer for group in buffer.buffer_groups.values()])
    buffer.update_from_dataset(halves[1], learner)
    after = {image.numpy().tobytes() for image, *_ in buffer.buffer}
    sources = [{image.numpy().tobytes() for image, *_ in part} for part in (kept, halves[1])]
    assert len(after) == 20
    assert after <= sources[0] | sources[1]
    assert after & sources[0]
    assert after & sources[1]


def test_empty_experience_changes_nothing(benchmark: Any) -> None:
    buffer, learner = CoresetBuffer(20), SimpleNamespace(model=network())
    buffer.post_adapt(learner, SimpleNamespace(dataset=AvalancheDataset([])))
    assert len(buffer.buffer) == 0
    buffer.post_adapt(learner, benchmark.train_stream[0])
    buffer.post_adapt(learner, SimpleNamespace(dataset=first_experience(benchmark).subset([])))
    assert len(buffer.buffer) == 20


# Networks


@pytest.mark.parametrize("selector", ["crust", "herding"])
def test_growing_classifier(selector: str, benchmark: Any) -> None:
    model = perceptron(IncrementalClassifier(24, initial_out_features=1))
    plugin = CoresetReplayPlugin(20, selector, coreset_epochs=1)
    learner = Naive(**arguments(model, epochs=2), plugins=[plugin])
    for experience in benchmark.train_stream:
        learner.train(experience)
    assert sorted(plugin.storage_policy.buffer.targets) == sorted([0, 1, 2, 3] * 5)


def multi_head() -> nn.Module:
    return as_multitask(perceptron(nn.Linear(24, 2)), "3")


@pytest.mark.parametrize("same_names", [False, True])
def test_task_incremental_multi_head_training(same_names: bool, few_digits: Dataset) -> None:
    """With the same names both tasks call their classes 0 and 1; they are different classes all the same."""
    torch.manual_seed(0)  # Avalanche shuffles by the global generator, and so few samples are not always enough
    tasks = benchmark_of(few_digits, task_labels=True, class_ids_from_zero_in_each_exp=same_names)
    plugin = CoresetReplayPlugin(20, "crust", coreset_epochs=2)
    learner = Naive(**arguments(multi_head(), epochs=6), plugins=[plugin])
    for experience in tasks.train_stream:
        learner.train(experience)
    metrics = learner.eval(tasks.test_stream)
    groups = plugin.storage_policy.buffer_groups
    second = (0, 1) if same_names else (2, 3)
    assert {group: len(kept.buffer) for group, kept in groups.items()} == dict.fromkeys(
        [(0, 0), (0, 1), (1, second[0]), (1, second[1])], 5
    )
    assert all(value > 0.8 for name, value in metrics.items() if "Top1_Acc_Exp" in name)


def test_gradients_see_only_the_head_of_the_task(few_digits: Dataset) -> None:
    tasks = benchmark_of(few_digits, task_labels=True)
    learner = Naive(**arguments(multi_head(), epochs=1))
    for experience in tasks.train_stream:
        learner.train(experience)
    heads = next(module for module in learner.model.modules() if isinstance(module, MultiHeadClassifier)).classifiers
    for task, experience in enumerate(tasks.train_stream):
        candidates = candidates_from(learner, experience.dataset, 0)
        head = heads[str(task)].classifier
        assert torch.equal(candidates.weight, head.weight)
        assert torch.allclose(candidates.logits[:, 2 * task], head(candidates.features)[:, 2 * task])


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_know_of_the_heads_bias(bias: bool, benchmark: Any) -> None:
    learner = SimpleNamespace(model=perceptron(nn.Linear(24, 4, bias=bias)))
    assert candidates_from(learner, first_experience(benchmark), 0).bias == bias


def rectified_where_no_class_is() -> nn.Module:
    """Ends in a rectifier that leaves the outputs of all classes alone, as they are positive."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU())
    nn.init.constant_(model[1].bias[:4].detach(), 100.0)
    return model


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Softmax(dim=1)),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Conv2d(1, 4, 8), nn.Flatten()),
        rectified_where_no_class_is(),
    ],
)
def test_network_that_does_not_end_in_a_linear_layer(model: nn.Module, benchmark: Any) -> None:
    with pytest.raises(InputError, match="does not end in a linear layer"):
        CoresetBuffer(20).post_adapt(SimpleNamespace(model=model), benchmark.train_stream[0])
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("selector", ["random", "reservoir"])
def test_selectors_that_only_draw_ask_no_network(selector: str, benchmark: Any) -> None:
    buffer = CoresetBuffer(20, selector)
    buffer.post_adapt(SimpleNamespace(model=None), benchmark.train_stream[0])
    assert np.bincount(list(buffer.buffer.targets)).tolist() == [10, 10]


def test_every_module_keeps_its_mode_and_nobody_else_sees_a_draw(benchmark: Any) -> None:
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(64, 4))
    model.train()
    model[0].eval()  # a frozen layer
    statistics = model[0].running_mean.clone()
    randomness = state_of_global_randomness()
    for selector in SELECTORS:
        CoresetBuffer(20, selector).post_adapt(SimpleNamespace(model=model), benchmark.train_stream[0])
        CoresetSelection(selector).make_sorted_indices(SimpleNamespace(model=model), first_experience(benchmark))
    assert [module.training for module in model] == [False, True, True, True]
    assert torch.equal(model[0].running_mean, statistics)
    assert state_of_global_randomness() == randomness
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_augmentation_does_not_reach_the_selection(few_digits: Dataset) -> None:
    """Random training transforms must not decide what is kept; the memory replays with them all the same."""
    source = Images(few_digits.train_images, few_digits.train_labels)

    def noisy(image: torch.Tensor) -> torch.Tensor:
        return image + torch.rand(())

    data = make_classification_dataset(
        source, transform_groups={"train": (noisy, None), "eval": (None, None)}, initial_transform_group="train"
    )
    plain = as_classification_dataset(source)
    learner = SimpleNamespace(model=network())
    kept = [CoresetSelection().make_sorted_indices(learner, choice) for choice in (data, plain)]
    assert kept[0] == kept[1]
    buffer = CoresetBuffer(20)
    buffer.update_from_dataset(data, learner)
    assert not torch.equal(buffer.buffer[0][0], buffer.buffer[0][0])


# The documentation


PAGE = (Path(__file__).parent.parent / "docs" / "avalanche.md").read_text(encoding="utf-8")


def test_documented_lines_run(benchmark: Any) -> None:
    lines = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    model = network()
    given = arguments(model)
    names = {"model": model, "optimizer": given["optimizer"], "criterion": given["criterion"]}
    exec(compile(lines, "docs/avalanche.md", "exec"), names)
    names["learner"].train_epochs, names["learner"].train_mb_size = 11, 64
    names["learner"].train(benchmark.train_stream[0])
    assert len(names["plugin"].storage_policy.buffer) == 80


def test_documented_table_is_the_measured_one() -> None:
    import avalanche_plugin

    results = json.loads((Path(__file__).parent.parent / "results" / "avalanche_plugin.json").read_text("utf-8"))
    for row in results["rows"]:
        assert avalanche_plugin.summary(avalanche_plugin.Row(**row)) in PAGE


# Checkpoints, seeds, mistakes


@pytest.mark.parametrize("is_old", [False, True])
def test_checkpoint_continues_as_if_never_stopped(is_old: bool, benchmark: Any, tmp_path: Path) -> None:
    def make() -> Any:
        plugin = CoresetReplayPlugin(selector="cosine_crust", coreset_epochs=1)
        model = network()
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        return Replay(**arguments(model, epochs=2, optimizer=plain), mem_size=20, plugins=[plugin])

    learner = make()
    learner.train(benchmark.train_stream[0])
    if is_old:  # as before plugins marked whose they are
        del learner._coreset_replay_plugin.__dict__["_marked"], learner._coreset_replay_plugin
    # Without the optimizer, which has no state here: Avalanche's checkpoints cannot hold those of recent PyTorch.
    save_checkpoint(learner, tmp_path / "learner.pkl", exclude=["optimizer"])
    loaded, done = maybe_load_checkpoint(make(), tmp_path / "learner.pkl")
    assert done == 1
    ends = []
    for continued in (learner, loaded):
        torch.manual_seed(1)
        continued.train(benchmark.train_stream[1])
        plugin = next(plugin for plugin in continued.plugins if isinstance(plugin, CoresetReplayPlugin))
        kept = torch.stack([image for image, *_ in plugin.storage_policy.buffer])
        ends.append((nn.utils.parameters_to_vector(continued.model.parameters()), kept))
    assert torch.equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])


def test_seed_decides_what_a_random_memory_keeps(benchmark: Any) -> None:
    def kept(seed: int) -> list[int]:
        return CoresetSelection("random", seed=seed).make_sorted_indices(
            SimpleNamespace(model=network()), first_experience(benchmark)
        )

    assert kept(1) == kept(1)
    assert kept(1) != kept(2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CoresetBuffer(-1), "cannot hold -1 samples"),
        (lambda: CoresetBuffer(9, adaptive_size=False), "total_num_classes=None"),
        (lambda: CoresetBuffer(9, total_num_classes=3), "total_num_classes=3"),
        (lambda: CoresetBuffer(9, "crost"), "did you mean 'crust'"),
        (lambda: CoresetReplayPlugin(9, coreset_epochs=-1), "cannot have coreset_epochs of -1"),
        (lambda: CoresetReplayPlugin(9, coreset_epochs=1.5), r"coreset_epochs of 1\.5; give a whole number"),
        (lambda: CoresetReplayPlugin("crust"), "cannot hold 'crust' samples in memory; give a whole number"),
        (lambda: CoresetReplayPlugin(9.5), r"cannot hold 9\.5 samples in memory; give a whole number"),
        (lambda: CoresetReplayPlugin(9, None), "selector is None; give a name"),
        (lambda: CoresetReplayPlugin(9, batch_size_memory=3), "did you mean 'batch_size_mem'"),
        (lambda: CoresetReplayPlugin(9, storage_policy=CoresetBuffer(9)), "no argument of .* 'storage_policy'"),
    ],
)
def test_wrong_arguments_get_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("strategy", "plugin", "others", "message"),
    [
        (Naive, CoresetReplayPlugin(), [], "give CoresetReplayPlugin a mem_size"),
        (Naive, CoresetReplayPlugin(9), [ReplayPlugin(10)], "9 and the strategy's replay one of 10"),
        (Naive, CoresetReplayPlugin(), [ReplayPlugin(9), ReplayPlugin(9)], "has a replay memory already"),
        (Naive, CoresetReplayPlugin(), [ReplayPlugin(9, storage_policy=CoresetBuffer(9))], "replay memory already"),
        (Naive, CoresetReplayPlugin(batch_size_mem=3), [ReplayPlugin(9)], "batch_size_mem cannot be set here"),
        (Naive, CoresetReplayPlugin(9), [CoresetReplayPlugin(9)], "more than one CoresetReplayPlugin"),
    ],
)
def test_contradictions_are_told_before_training(
    strategy: Any, plugin: Any, others: list[Any], message: str, benchmark: Any
) -> None:
    learner = strategy(**arguments(network(), epochs=1), plugins=[plugin, *others])
    with pytest.raises(InputError, match=message):
        learner.train(benchmark.train_stream[0])
    assert learner.clock.train_iterations == 0


def test_joint_training_needs_no_memory(benchmark: Any) -> None:
    learner = JointTraining(**arguments(network(), epochs=2), plugins=[CoresetReplayPlugin(9, coreset_epochs=1)])
    with pytest.raises(InputError, match="JointTraining has all experiences at once"):
        learner.train(benchmark.train_stream)


def test_a_network_that_has_diverged_is_told(benchmark: Any) -> None:
    model = network()
    nn.init.constant_(next(model.parameters()), torch.nan)
    with pytest.raises(InputError, match="it has diverged, so lower its learning rate"):
        CoresetBuffer(9).update_from_dataset(benchmark.train_stream[0].dataset, SimpleNamespace(model=model))


def test_a_plugin_serves_one_strategy(benchmark: Any) -> None:
    plugin = CoresetReplayPlugin(9)
    learners = [Naive(**arguments(network(), epochs=1), plugins=[plugin]) for _ in range(2)]
    learners[0].train(benchmark.train_stream[0])
    with pytest.raises(InputError, match="belongs to another strategy"):
        learners[1].train(benchmark.train_stream[0])
    learners[0].train(benchmark.train_stream[1])


def test_data_without_targets() -> None:
    data = AvalancheDataset([torch.utils.data.TensorDataset(torch.zeros(3, 1, 8, 8))])
    with pytest.raises(InputError, match="no targets"):
        CoresetBuffer(9).update_from_dataset(data, SimpleNamespace(model=network()))


def test_import_without_avalanche_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "continual_crust.integrations.avalanche"
    for name in [name for name in sys.modules if name.startswith(("avalanche.", ours))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "avalanche", None)  # how Python says that a module is not there
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(ours)
    assert str(caught.value) == (
        "continual_crust.integrations.avalanche needs Avalanche, which is not installed; "
        "run: pip install 'continual-crust[avalanche]'."
    )
    assert caught.value.__suppress_context__
