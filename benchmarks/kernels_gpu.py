"""The kernels of SimpleCNN's training step, one by one: alone, and those of five runs at the same time.

    python benchmarks/kernels_gpu.py --out results/kernels_gpu.json

Each kernel is launched a hundred times from a recorded graph, so that nothing is timed but the GPU. Five runs have a
stream each. Where five take five times as long as one, the GPU is full, and launching them as one would gain nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from continual_crust.data.samples import Samples
from continual_crust.models import build_model
from continual_crust.strategies.adam import Adam
from continual_crust.strategies.network import Network
from continual_crust.strategies.whole_step import WholeStep
from continual_crust.writing import write_json
from gpu_parts import Facts
from training_gpu import BATCH, DEVICE, TOGETHER, WORKLOADS, machine

LAUNCHES, REPEATS = 100, 5
Launch = Callable[[], None]


class Run:
    """A network in training, with a stream of its own."""

    def __init__(self, seed: int) -> None:
        dataset = WORKLOADS[0].dataset()
        samples = Samples.of(dataset.train_images, dataset.train_labels).to(DEVICE)
        network = Network(build_model("simple_cnn", dataset.image_shape, dataset.classes, seed=seed), DEVICE)
        network.measure_normalization(samples.images)
        optimizer = Adam(list(network.model.parameters()), 1e-3, 1e-6)
        self.step = WholeStep(network, optimizer, torch.zeros((), device=DEVICE), BATCH)
        self.step.begin()
        self.stream = torch.cuda.Stream()
        self.counter = torch.zeros((), dtype=torch.int64, device=DEVICE)
        order = torch.randperm(len(samples), device=DEVICE)
        self.launches: dict[str, Launch] = self.step.launches(samples, order, self.counter, BATCH)
        self.launches["the whole step"] = lambda: self.step.take(samples, order, self.counter, BATCH)

    def recorded(self, name: str) -> torch.cuda.CUDAGraph:
        """Many launches in a row."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            self.launches[name]()
            torch.cuda.synchronize()
            self.counter.zero_()
            graph.capture_begin()
            for _ in range(LAUNCHES):
                self.launches[name]()
            graph.capture_end()
        return graph


def microseconds(runs: Sequence[Run], graphs: Sequence[torch.cuda.CUDAGraph]) -> float:
    """From the first launch to the last end, for each launch of a run."""
    shortest = float("inf")
    for _ in range(REPEATS):
        for run in runs:
            run.counter.zero_()  # or batches would end
        torch.cuda.synchronize()
        start = time.perf_counter()
        for run, graph in zip(runs, graphs, strict=True):
            with torch.cuda.stream(run.stream):
                graph.replay()
        torch.cuda.synchronize()
        shortest = min(shortest, time.perf_counter() - start)
    return 1e6 * shortest / LAUNCHES


def measure() -> Facts:
    """Every kernel, and the step."""
    runs = [Run(seed) for seed in range(TOGETHER)]
    for run in runs:
        run.launches["the whole step"]()
    torch.cuda.synchronize()
    found: Facts = {}
    for name in runs[0].launches:
        graphs = [run.recorded(name) for run in runs]
        found[name] = {"alone_us": microseconds(runs[:1], graphs[:1]), "together_us": microseconds(runs, graphs)}
        print(f"{name}: {found[name]['alone_us']:.1f} us, five {found[name]['together_us']:.1f} us", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the results, as JSON")
    out = parser.parse_args().out
    command = "python benchmarks/kernels_gpu.py --out results/kernels_gpu.json"
    results = {"command": command, "batch": BATCH, "together": TOGETHER, "machine": machine(), "kernels": measure()}
    write_json(out, results)


if __name__ == "__main__":
    main()
