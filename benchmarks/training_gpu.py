"""Training on a GPU: plain PyTorch, one run of ours, and five together, as threads and as processes.

    python benchmarks/training_gpu.py --out results/training_gpu.json [--data-root data] [--mps] [--only PATTERN]

Steps are timed on random images, since what is in them does not change the time. With ``--data-root``, Continual CRUST
also learns real MNIST with the paper's settings (50 % wrong labels, m = 40, n = 20, k = 300), selection included: one
seed, and five together. With ``--mps``, five runs are also timed as processes that share the GPU; the Multi-Process
Service is started for that and stopped afterwards. Takes at most 200 seconds; parts that fail are told, and the others
go on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import platform
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from continual_crust.data import Dataset, Noise, Stream
from continual_crust.models import build_model
from continual_crust.strategies import Naive, Training
from continual_crust.studies.engines import local_engine
from continual_crust.studies.gpu_sharing import processes_share
from continual_crust.studies.result import RunResult
from continual_crust.studies.study_file import parse_study
from continual_crust.studies.work import Workplace
from gpu_parts import Facts, Part, run_parts, write_part

DEVICE = torch.device("cuda")
SECONDS = 195.0
TOGETHER = 5
BATCH = 32
WARM_UP, TIMED = 2, 3
"""Epochs before the clock starts, in which steps are recorded, and epochs that count."""
LOADER_WORKERS = 4
MNIST = """\
id: training_gpu
title: Continual CRUST on MNIST, for its time
datasets: [mnist]
methods: [crust]
noise: {kind: label, levels: [0.5]}
seeds: [%s]
"""


@dataclass(frozen=True)
class Workload:
    """A network and its images."""

    model: str
    shape: tuple[int, int, int]
    steps: int
    """In an epoch."""
    precision: str = "float32"

    def __str__(self) -> str:
        return f"{self.model} {self.shape[1]}x{self.shape[2]} {self.precision}"

    def dataset(self) -> Dataset:
        """Random images of ten classes."""
        random = torch.Generator().manual_seed(0)
        images = torch.randint(0, 256, (self.steps * BATCH, *self.shape), dtype=torch.uint8, generator=random)
        labels = torch.arange(len(images)) % 10
        return Dataset("noise", images, labels, images[:10], labels[:10], tuple("0123456789"))


WORKLOADS = (
    Workload("simple_cnn", (1, 28, 28), 200),
    Workload("resnet18", (3, 32, 32), 100),
    Workload("resnet18", (3, 32, 32), 100, "bfloat16"),
)


def plain(workload: Workload) -> float:
    """Seconds a step takes in the loop everybody writes: a DataLoader with workers, eager PyTorch, Adam."""
    dataset = workload.dataset()
    data = TensorDataset((dataset.train_images.float() - 127) / 64, dataset.train_labels)
    loader: DataLoader[tuple[torch.Tensor, ...]] = DataLoader(
        data, BATCH, shuffle=True, num_workers=LOADER_WORKERS, pin_memory=True, persistent_workers=True
    )
    model = build_model(workload.model, workload.shape, 10).cuda().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = 0.0
    for epoch in range(WARM_UP + TIMED):
        if epoch == WARM_UP:
            torch.cuda.synchronize()
            start = time.perf_counter()
        for images, labels in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=workload.precision == "bfloat16"):
                logits = model(images.cuda(non_blocking=True))
            functional.cross_entropy(logits.float(), labels.cuda(non_blocking=True)).backward()
            optimizer.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / (TIMED * workload.steps)


def train(workload: Workload, seed: int, everybody_is_ready: Callable[[], object]) -> tuple[float, float]:
    """Moments at which the epochs that count begin and end."""
    moments: list[float] = []

    def after_epoch(phase: str, epoch: int, epochs: int, loss: Callable[[], float]) -> None:
        loss()  # the epoch is over when its loss is there
        if epoch == WARM_UP:
            everybody_is_ready()
        moments.append(time.perf_counter())

    stream = Stream(workload.dataset(), Noise(), seed, first_classes=10)
    training = Training(WARM_UP + TIMED, 0, batch_size=BATCH, precision=workload.precision)
    model = build_model(workload.model, workload.shape, 10, seed=seed)
    with torch.cuda.stream(torch.cuda.Stream(priority=-1)):  # as the engine does it
        Naive(model, training, seed=seed, device=DEVICE, observer=after_epoch).learn(stream[0])
    return moments[WARM_UP - 1], moments[-1]


def step_seconds(moments: Sequence[tuple[float, float]], workload: Workload) -> float:
    """From the first beginning to the last end, for each step of a run."""
    begins, ends = zip(*moments, strict=True)
    return (max(ends) - min(begins)) / (TIMED * workload.steps)


def in_threads(workload: Workload, runs: int) -> float:
    """Seconds a step takes when so many runs train together, each in a thread of this process."""
    barrier = threading.Barrier(runs, timeout=60)
    with ThreadPoolExecutor(runs) as pool:
        moments = pool.map(partial(train, workload, everybody_is_ready=barrier.wait), range(runs))
        return step_seconds(list(moments), workload)


def in_processes(workloads: Sequence[Workload], runs: int) -> Facts:
    """Milliseconds a step takes with a process for each run, the same processes for all workloads."""
    found: Facts = {}
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(runs, timeout=30)
    with ProcessPoolExecutor(runs, context, initializer=_start_process, initargs=(barrier,)) as pool:
        for workload in workloads:
            moments = pool.map(partial(train_beside_others, workload), range(runs))
            try:
                found[str(workload)] = {"processes_ms": 1e3 * step_seconds(list(moments), workload)}
            except Exception as error:  # the others are worth having
                found[str(workload)] = {"failed": f"{type(error).__name__}: {error}"}
    return found


def train_beside_others(workload: Workload, seed: int) -> tuple[float, float]:
    """In a process of :func:`in_processes`."""
    return train(workload, seed, _barrier.wait)


_barrier: Any = None


def _start_process(barrier: Any) -> None:
    global _barrier
    _barrier = barrier
    torch.set_num_threads(1)


def steps(workload: Workload) -> Facts:
    """Plain, ours alone, ours together as threads."""
    eager, alone, together = plain(workload), in_threads(workload, 1), in_threads(workload, TOGETHER)
    return {"plain_ms": 1e3 * eager, "alone_ms": 1e3 * alone, "threads_ms": 1e3 * together}


def steps_in_processes() -> Facts:
    """Ours together as processes."""
    return {"processes": processes_share(DEVICE), **in_processes(WORKLOADS, TOGETHER)}


def mnist(data_root: Path, seeds: int) -> Facts:
    """Continual CRUST, as `study run` does it.

    Start-up ends when every run has begun: its process has been started, has imported everything and has a context on
    the GPU. Learning is training and selection, of the run that took longest; what it takes beyond that until the last
    result is there is reading the data, evaluation and files.
    """
    runs = list(parse_study(MNIST % ", ".join(map(str, range(seeds))), "training_gpu").runs())
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        for event in local_engine(None)(runs, Workplace(Path(folder), data_root, device=DEVICE.type)):
            if event.kind == "failed":
                raise RuntimeError(event.problem)
        whole = time.time() - start
        begun = [path.stat().st_mtime - start for path in Path(folder).glob("runs/*/config.yaml")]
        ended = [path.stat().st_mtime - start for path in Path(folder).glob("runs/*/result.json")]
        results = [RunResult.read(path) for path in Path(folder).glob("runs/*/result.json")]
    return {
        "processes": seeds > 1 and processes_share(DEVICE),
        "whole_s": whole,
        "start_up_s": max(begun),
        "from_start_up_to_results_s": max(ended) - max(begun),
        "learning_s": max(result.seconds for result in results),
        "selection_s": max(result.selection_seconds for result in results),
        "runs": [_outcome(result) for result in sorted(results, key=lambda result: result.seed)],
    }


def _outcome(result: RunResult) -> Facts:
    measured = json.dumps([result.accuracy_matrix, result.purity_per_class])
    return {
        "seed": result.seed,
        "accuracy": result.accuracy,
        "purity": result.purity,
        "measured_sha256": hashlib.sha256(measured.encode()).hexdigest(),
    }


def machine() -> Facts:
    """What it was measured on."""
    properties = torch.cuda.get_device_properties(0)
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    return {
        "device": properties.name,
        "memory_bytes": properties.total_memory,
        "driver": driver,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def parts_for(data_root: Path | None, mps: bool) -> dict[str, Part]:
    """What there is to measure, the most important first."""
    parts = {"machine": Part(machine, 30), str(WORKLOADS[0]): Part(partial(steps, WORKLOADS[0]), 50)}
    if data_root is not None:
        parts["mnist, one seed"] = Part(partial(mnist, data_root, 1), 50)
        if mps:
            parts["mnist, five seeds, processes"] = Part(partial(mnist, data_root, TOGETHER), 60, mps=True)
        # By now every kernel is compiled, which Triton keeps on the disk: as from the second run on a machine on.
        parts["mnist, one seed, again"] = Part(partial(mnist, data_root, 1), 50)
    if mps:
        parts["five processes"] = Part(steps_in_processes, 60, mps=True)
    parts |= {str(workload): Part(partial(steps, workload), 40) for workload in WORKLOADS[1:]}
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the results, as JSON")
    parser.add_argument("--data-root", type=Path, help="a folder that holds mnist/")
    parser.add_argument("--mps", action="store_true", help="also time processes that share the GPU")
    parser.add_argument("--only", default="*", help="a pattern for the names of the parts, for example 'm*'")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    parts = parts_for(options.data_root and options.data_root.resolve(), options.mps)
    if options.part is not None:
        write_part(parts[options.part], options.out)
        return
    told = (["--data-root", str(options.data_root)] if options.data_root else []) + ["--mps"] * options.mps
    only = [f"--only '{options.only}'"] if options.only != "*" else []
    command = " ".join(["python benchmarks/training_gpu.py --out", f"results/{options.out.name}", *told, *only])
    parts = {name: part for name, part in parts.items() if fnmatch(name, options.only)}
    facts = {"command": command, "batch": BATCH, "together": TOGETHER, "loader_workers": LOADER_WORKERS}
    run_parts(parts, told, SECONDS, options.out, facts)


if __name__ == "__main__":
    main()
