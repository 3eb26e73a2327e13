"""Training on a CPU beside Avalanche's Replay: same network, data, batches and number of steps, turn by turn.

    python benchmarks/training_cpu.py --out results/training_cpu.json

Takes about a minute on two cores; ``make bench`` runs it. Every step of either side trains on 32 new samples and 32
remembered ones. Both sides are timed from the beginning of an experience to its end, filling of the memory included,
and nothing else. Of several repeats of an experience the shortest counts.

Each side has a process of its own: ours is set up as the command line sets up its own, which keeps freed memory,
Avalanche's as Python comes, with the network's layers as PyTorch has them. A third one does for Avalanche what can be
done from outside: the same setting of memory, our network's layers, and Adam's fused steps. A fourth is ours in
bfloat16, which comes to other results.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from avalanche_peers import Budget, SupervisedPlugin, SupervisedTemplate, avalanche_stream, normalization, replay
from continual_crust.data import Dataset, Noise, Stream, load_dataset
from continual_crust.models import build_model
from continual_crust.models.simple_cnn_layers import Dropout, MaxPool2x2
from continual_crust.process_memory import keep_freed_memory
from continual_crust.strategies import Replay, Training
from continual_crust.strategies.network import Network
from continual_crust.strategies.replay import ReplayOptions
from continual_crust.writing import write_json
from selection_cpu import Row, limits_of, machine, shortest

BATCH = 32
Sides = dict[str, tuple[ProcessPoolExecutor, Callable[["Case"], "Clock"]]]


@dataclass(frozen=True)
class Case:
    """What is learned, and for how long."""

    name: str
    dataset: Dataset
    epochs: int
    experiences: int

    @property
    def training(self) -> Training:
        """Memory is enough for every step of an epoch from the start: Avalanche adds none when it has used it up."""
        batches = -(-int(self.dataset.train_labels.bincount().max()) // BATCH)
        return Training(self.epochs, 0, memory_per_class=-(-batches * BATCH // 2), batch_size=BATCH)

    def stream(self) -> Stream:
        return Stream(self.dataset, Noise.parse("none"), seed=0)


@dataclass
class Clock:
    """What each experience took but the first, which has no memory to replay."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    steps: int = 0
    samples: int = 0
    """In all of these steps."""
    running: bool = field(default=False, repr=False)

    def time(self, experience: int, learn: Callable[[], Any]) -> None:
        self.running = experience > 0
        clock, processor = time.perf_counter(), time.process_time()
        learn()
        if self.running:
            self.seconds.append(time.perf_counter() - clock)
            self.cpu_seconds.append(time.process_time() - processor)

    def count(self, samples: int) -> None:
        self.steps += self.running
        self.samples += samples * self.running

    def shorten(self, again: Clock) -> None:
        """Keep the shorter time of each experience."""
        if (self.steps, self.samples) != (again.steps, again.samples):
            raise RuntimeError(f"not the same work: {self} and {again}")
        self.seconds = list(map(min, self.seconds, again.seconds))
        self.cpu_seconds = list(map(min, self.cpu_seconds, again.cpu_seconds))


class Counting(SupervisedPlugin):
    """Counts the steps Avalanche really takes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def after_training_iteration(self, strategy: SupervisedTemplate, **_: object) -> None:
        self._clock.count(len(strategy.mb_y))


def network_of(case: Case) -> torch.nn.Module:
    return build_model("simple_cnn", case.dataset.image_shape, case.dataset.classes, seed=0)


def of_pytorch_alone(network: torch.nn.Module) -> torch.nn.Module:
    """The same network as anyone would write it: PyTorch's own layers, and pooling after the rectifier."""
    layers = [torch.nn.Dropout(layer.p) if isinstance(layer, Dropout) else layer for layer in network.body]
    first = network.body[0]
    layers[0] = torch.nn.Conv2d(first.in_channels, first.out_channels, first.kernel_size)
    layers[0].load_state_dict(first.state_dict())
    pooling = next(place for place, layer in enumerate(layers) if isinstance(layer, MaxPool2x2))
    layers[pooling : pooling + 2] = torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    network.body = torch.nn.Sequential(*layers)
    return network


def ours(case: Case, precision: str = "float32") -> Clock:
    """Our replay, with equal batches of new and remembered samples."""
    clock, training = Clock(), replace(case.training, precision=precision)
    strategy = Replay(network_of(case), training, options=ReplayOptions("equal"))
    for number, experience in enumerate(_first(case.stream(), case.experiences)):
        clock.time(number, lambda experience=experience: strategy.learn(experience))
        for _ in range(case.epochs):
            for start in range(0, len(experience.samples), BATCH):
                clock.count(min(BATCH, len(experience.samples) - start) + BATCH)
    return clock


def avalanche(case: Case, tuned: bool = False) -> Clock:
    """Avalanche's replay, without metrics and loggers, and given normalised images, so that it need not do that."""
    clock, stream, network = Clock(), case.stream(), network_of(case)
    if not tuned:
        network = of_pytorch_alone(network)
    with warnings.catch_warnings(record=True), torch.random.fork_rng(devices=[]):
        strategy = replay(Budget(network, case.training, case.dataset.classes, fused=tuned))
        strategy.plugins.append(Counting(clock))
        experiences = avalanche_stream(stream, normalization(stream, network)).train_stream
        for number, experience in enumerate(_first(experiences, case.experiences)):
            clock.time(number, lambda experience=experience: strategy.train(experience, reset_optimizer_state=True))
    return clock


def network_alone(case: Case, limits: Row) -> Row:
    """A step on a batch that is already there: the least that anyone who trains this network in PyTorch can take.

    Beside it, turn by turn, the same network of PyTorch's own layers.
    """
    images, labels = torch.randn(2 * BATCH, *case.dataset.image_shape), torch.arange(2 * BATCH) % 10

    def step(network: torch.nn.Module, adam: torch.optim.Optimizer) -> None:
        adam.zero_grad()
        functional.cross_entropy(network(images), labels).backward()
        adam.step()

    networks = {"ours": network_of(case).train(), "plain": of_pytorch_alone(network_of(case)).train()}
    steps = {
        name: partial(step, network, torch.optim.Adam(network.parameters(), fused=True))
        for name, network in networks.items()
    }
    with FlopCounterMode(display=False) as operations:
        steps["ours"]()
    steps["plain"]()
    times, _ = shortest(steps, 100 if images.numel() < 10_000 else 30)
    row: Row = {}
    for unit in ("s", "cpu_s"):
        row[f"step_{unit}"], row[f"step_of_pytorch_{unit}"] = times[f"ours_{unit}"], times[f"plain_{unit}"]
        row[f"step_products_{unit}"] = operations.get_total_flops() / limits[f"flop_per_{unit}"]
    return row


def evaluation(case: Case) -> Row:
    """Images per second of an evaluation, as before a selection: in parts that a cache holds, and all at once."""
    network, images = Network(network_of(case), torch.device("cpu")), case.dataset.train_images
    network.measure_normalization(images)
    network.model.eval()

    def at_once() -> Any:
        with torch.no_grad():
            return network.features_and_logits(images)

    times, found = shortest({"in_parts": lambda: network.evaluate(images), "at_once": at_once}, 5)
    if not all(map(torch.equal, found["in_parts"], found["at_once"])):
        raise RuntimeError("an evaluation in parts came to other bits than one of all at once")
    units = [("in_parts", "s"), ("in_parts", "cpu_s"), ("at_once", "s"), ("at_once", "cpu_s")]
    return {f"evaluated_{way}_per_{unit}": len(images) / times[f"{way}_{unit}"] for way, unit in units}


def beside_avalanche(case: Case, sides: Sides, repeats: int, limits: Row) -> Row:
    """Steps per second of all sides, taken turn by turn."""
    best: dict[str, Clock] = {}
    for _ in range(repeats):
        for name, (process, learn) in sides.items():
            clock = process.submit(learn, case).result()
            best.setdefault(name, clock).shorten(clock)
    mine = best["ours"]
    row: Row = {
        "case": case.name,
        "image": list(case.dataset.image_shape),
        "steps": mine.steps,
        "samples_per_step": mine.samples / mine.steps,
        "steps_per_epoch": mine.steps / case.epochs / (case.experiences - 1),
    }
    for name, clock in best.items():
        if (clock.steps, clock.samples) != (mine.steps, mine.samples):
            raise RuntimeError(f"not the same work: ours {mine}, {name} {clock}")
        row[f"{name}_steps_per_s"] = clock.steps / sum(clock.seconds)
        row[f"{name}_steps_per_cpu_s"] = clock.steps / sum(clock.cpu_seconds)
        if name != "ours":
            row[f"times_{name}_s"] = sum(clock.seconds) / sum(mine.seconds)
            row[f"times_{name}_cpu_s"] = sum(clock.cpu_seconds) / sum(mine.cpu_seconds)
    process = sides["ours"][0]
    alone = process.submit(network_alone, case, limits).result()
    row |= {f"network_alone_{name}": value for name, value in alone.items()}
    return row | process.submit(evaluation, case).result()


def own_process(threads: int, keeps_memory: bool) -> ProcessPoolExecutor:
    """Where one side trains."""
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=_set_up, initargs=(threads, keeps_memory))


def _set_up(threads: int, keeps_memory: bool) -> None:
    torch.set_num_threads(threads)
    if keeps_memory:
        keep_freed_memory()


def random_images(side: int, per_class: int) -> Dataset:
    """Grey noise in ten classes: speed does not depend on what is to be seen."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (10 * per_class, 1, side, side), generator=generator, dtype=torch.uint8)
    labels = torch.arange(len(images)) % 10
    return Dataset(f"noise {side}x{side}", images, labels, images[:10], labels[:10], tuple("0123456789"))


def _first(experiences: Any, count: int) -> Iterator[Any]:
    for _, experience in zip(range(count), experiences, strict=False):
        yield experience


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the results, as JSON")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for both sides; all cores by default")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    cases = [
        Case("digits, 8x8", load_dataset("digits"), epochs=10, experiences=9),
        Case("noise, 28x28", random_images(28, per_class=160), epochs=2, experiences=4),
    ]
    started = time.perf_counter()
    results: Row = {"machine": machine(arguments.threads, "avalanche-lib"), "load_before": os.getloadavg()[0]}
    sides: Sides = {
        "ours": (own_process(arguments.threads, keeps_memory=True), ours),
        "ours_bfloat16": (own_process(arguments.threads, keeps_memory=True), partial(ours, precision="bfloat16")),
        "avalanche": (own_process(arguments.threads, keeps_memory=False), avalanche),
        "avalanche_tuned": (own_process(arguments.threads, keeps_memory=True), partial(avalanche, tuned=True)),
    }
    results["limits"] = limits_of(10)
    results["rows"] = []
    for case in cases:
        results["rows"].append(beside_avalanche(case, sides, arguments.repeats, results["limits"]))
        results["load_after"], results["seconds"] = os.getloadavg()[0], time.perf_counter() - started
        print(f"{results['seconds']:6.1f} s  {json.dumps(results['rows'][-1])}", flush=True)
    for process, _ in sides.values():
        process.shutdown()
    write_json(arguments.out, results)


if __name__ == "__main__":
    main()
