"""Coresets inside Avalanche against Avalanche's own replay, on one noisy stream.

    python benchmarks/avalanche_plugin.py --out results/avalanche_plugin.json

learns digits with 40 % wrong labels in Avalanche 0.6, five seeds for each memory, and writes the table that
``docs/avalanche.md`` shows. Stream, network, initial weights, epochs, batches' size and memory are the same for all;
Adam starts afresh in each experience. Takes ten minutes on one core.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from avalanche_peers import tensor_dataset  # first, because it mends torchvision where Avalanche's import would fail
from continual_crust.data import Dataset, Noise, NoiseKind, Stream, load_dataset
from continual_crust.integrations.avalanche import CoresetReplayPlugin, CoresetSelection
from continual_crust.models import build_model
from continual_crust.randomness import seed_for
from continual_crust.strategies.network import Network
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.result import versions
from continual_crust.writing import write_json

from avalanche.benchmarks.scenarios.deprecated.generic_benchmark_creation import (  # isort: skip
    create_multi_dataset_generic_benchmark,
)
from avalanche.benchmarks.utils import DataAttribute  # isort: skip
from avalanche.evaluation.metrics import accuracy_metrics  # isort: skip
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin  # isort: skip
from avalanche.training.storage_policy import ClassBalancedBuffer, ParametricBuffer  # isort: skip
from avalanche.training.supervised import Naive, Replay  # isort: skip

Maker = Callable[[int, int, dict[str, Any]], Any]
"""From memory, seed and what all strategies are given, a strategy."""


def avalanche_replay(memory: int, seed: int, given: dict[str, Any]) -> Any:
    return Replay(mem_size=memory, **given)


def avalanche_class_balanced(memory: int, seed: int, given: dict[str, Any]) -> Any:
    return Naive(plugins=[ReplayPlugin(memory, storage_policy=ClassBalancedBuffer(memory))], **given)


def with_plugin(
    selector: str, coreset_epochs: int, classes: int | None, memory: int, seed: int, given: dict[str, Any]
) -> Any:
    """With a number of classes each has its share of the memory from the beginning."""
    plugin = CoresetReplayPlugin(
        selector=selector,
        coreset_epochs=coreset_epochs,
        adaptive_size=classes is None,
        total_num_classes=classes,
        seed=seed,
    )
    return Replay(mem_size=memory, plugins=[plugin], **given)


def parametric(selector: str, memory: int, seed: int, given: dict[str, Any]) -> Any:
    selection = CoresetSelection(selector, seed=seed)
    buffer = ParametricBuffer(memory, groupby="class", selection_strategy=selection)
    return Naive(plugins=[ReplayPlugin(memory, storage_policy=buffer)], **given)


def makers(coreset_epochs: int, classes: int) -> dict[str, Maker]:
    """Every memory under its name in the table."""
    table: dict[str, Maker] = {
        "Avalanche's Replay": avalanche_replay,
        "Avalanche's class-balanced buffer": avalanche_class_balanced,
    }
    for name in ("random", "herding", "crust", "cosine_crust"):
        table[f"plugin, {name}"] = partial(with_plugin, name, 0, None)
    for name in ("crust", "cosine_crust"):
        table[f"ParametricBuffer, {name}"] = partial(parametric, name)
        table[f"plugin, {name}, coreset epochs"] = partial(with_plugin, name, coreset_epochs, None)
        table[f"plugin, {name}, coreset epochs, fixed shares"] = partial(with_plugin, name, coreset_epochs, classes)
    return table


@dataclass
class Row:
    """One memory over all seeds."""

    memory: str
    seeds: list[int] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    """Mean over experiences after the last one, by Avalanche's own metric."""
    purity: list[float] = field(default_factory=list)
    """Mean over classes of the share of the final memory that carries its true label."""
    kept: list[int] = field(default_factory=list)
    """Samples in the final memory."""
    seconds: list[float] = field(default_factory=list)
    """Of processor time, on one thread."""
    time_ratio: float = float("nan")
    """Mean seconds of training and selection over those of Avalanche's Replay, in the same process."""


def learn(make: Maker, dataset: Dataset, noise: Noise, seed: int) -> tuple[float, float, int, float]:
    """Accuracy, purity, samples kept and seconds of one run."""
    defaults = defaults_for("digits", NoiseKind.LABEL)
    training = defaults.training
    stream = Stream(dataset, noise, seed)
    model = build_model(defaults.model, dataset.image_shape, dataset.classes, seed=seed_for(seed, "model"))
    benchmark = avalanche_benchmark(stream, model)
    adam = torch.optim.Adam(
        model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=True
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Avalanche's, of its own future
        torch.manual_seed(seed_for(seed, "avalanche"))
        learner = make(
            training.memory_per_class * dataset.classes,
            seed,
            {
                "model": model,
                "optimizer": adam,
                "criterion": nn.CrossEntropyLoss(),
                "train_mb_size": training.batch_size,
                "eval_mb_size": 256,
                "train_epochs": training.epochs,
                "evaluator": EvaluationPlugin(accuracy_metrics(experience=True), loggers=[]),
            },
        )
        start = time.process_time()
        for experience in benchmark.train_stream:
            learner.train(experience, reset_optimizer_state=True)
        seconds = time.process_time() - start
        metrics = learner.eval(benchmark.test_stream)
    accuracy = statistics.mean(value for name, value in metrics.items() if name.startswith("Top1_Acc_Exp/eval"))
    kept = next(plugin.storage_policy.buffer for plugin in learner.plugins if isinstance(plugin, ReplayPlugin))
    labels, ids = torch.tensor(list(kept.targets)), torch.tensor(list(kept.ids))
    clean = stream.truth.is_clean(ids).double()
    purity = statistics.mean(float(clean[labels == label].mean()) for label in labels.unique())
    return accuracy, purity, len(kept), seconds


def avalanche_benchmark(stream: Stream, model: nn.Module) -> Any:
    """Our stream as Avalanche's, each training sample with its id, so that the truth can be looked up."""
    network = Network(model, torch.device("cpu"))
    network.measure_normalization(stream[0].samples.images)
    train = [
        tensor_dataset(network.normalized(part.samples.images), part.samples.labels).update_data_attribute(
            "ids", DataAttribute(part.samples.ids.tolist(), "ids")
        )
        for part in stream
    ]
    tests = [stream.test(index) for index in range(len(stream))]
    return create_multi_dataset_generic_benchmark(
        train, [tensor_dataset(network.normalized(images), labels) for images, labels in tests]
    )


def summary(row: Row) -> str:
    def spread(values: list[float]) -> str:
        deviation = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
        return f"{100 * statistics.mean(values):.1f}{deviation} %"

    return (
        f"| {row.memory} | {spread(row.accuracy)} | {spread(row.purity)} | {statistics.mean(row.kept):.0f} "
        f"| {row.time_ratio:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the table, as JSON")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--noise", default="label:0.4")
    parser.add_argument("--coreset-epochs", type=int, default=10, help="of the 20 epochs of an experience")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset, noise = load_dataset("digits"), Noise.parse(arguments.noise)
    memories = makers(arguments.coreset_epochs, dataset.classes)
    rows = {name: Row(name) for name in memories}
    for seed in range(arguments.seeds):
        for name, make in memories.items():
            row = rows[name]
            accuracy, purity, kept, seconds = learn(make, dataset, noise, seed)
            row.seeds.append(seed)
            row.accuracy.append(round(accuracy, 4))
            row.purity.append(round(purity, 4))
            row.kept.append(kept)
            row.seconds.append(round(seconds, 2))
            print(f"seed {seed}  {name:40} accuracy {accuracy:.3f}  purity {purity:.3f}  {seconds:.1f} s", flush=True)
    reference = statistics.mean(rows["Avalanche's Replay"].seconds)
    for row in rows.values():
        row.time_ratio = round(statistics.mean(row.seconds) / reference, 3)
        print(summary(row))
    table = {
        "dataset": "digits",
        "noise": str(noise),
        "coreset_epochs": arguments.coreset_epochs,
        "threads": 1,
        "versions": {**versions(), "avalanche-lib": version("avalanche-lib")},
        "rows": [asdict(row) for row in rows.values()],
    }
    write_json(arguments.out, table)


if __name__ == "__main__":
    main()
