"""Writes the marked tables of docs/performance.md anew from the results of the benchmarks; the rest of the page stays.

python benchmarks/performance_tables.py
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from continual_crust.report.generated_tables import filled
from continual_crust.report.tables import markdown_table
from continual_crust.writing import write_atomically

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
TRAINING_GPU = ROOT / "results" / "training_gpu.json"
MNIST_GPU = ROOT / "results" / "training_gpu_mnist.json"
KERNELS_GPU = ROOT / "results" / "kernels_gpu.json"
NOT_MEASURED = "Not measured yet."
NETWORKS = {
    "simple_cnn 28x28 float32": "SimpleCNN, 28x28",
    "resnet18 32x32 float32": "ResNet18, 32x32",
    "resnet18 32x32 bfloat16": "ResNet18, 32x32, bfloat16",
}
MNIST = {
    "mnist, one seed": ("one seed", 12),
    "mnist, five seeds, processes": ("five seeds, processes", 20),
}
"""What the parts are called on the page, and how many seconds were aimed at."""
Facts = Mapping[str, Any]


def tables(training: Facts | None, whole: Facts | None, step: Facts | None) -> dict[str, Callable[[], str]]:
    """The tables of training on a GPU, by the names of their places."""
    makers = {
        "machine": (machine, training),
        "steps": (steps, training),
        "MNIST, machine": (machine, whole),
        "MNIST": (mnist, whole),
        "same results": (same_results, whole),
        "kernels": (kernels, step),
    }
    return {
        f"training on a GPU, {name}": (lambda: NOT_MEASURED) if results is None else partial(make, results)
        for name, (make, results) in makers.items()
    }


def measured_tables() -> dict[str, Callable[[], str]]:
    """The same, from the results that are there."""
    found = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        for path in (TRAINING_GPU, MNIST_GPU, KERNELS_GPU)
    )
    return tables(*found)


def machine(results: Facts) -> str:
    """On what, and by which command."""
    facts = results["parts"].get("machine", {})
    if "device" not in facts:
        return f"`{results['command']}`"
    return (
        f"One {facts['device']} (driver {facts['driver']}), {facts['cpus']} cores, PyTorch {facts['torch']}: "
        f"`{results['command']}`."
    )


def steps(results: Facts) -> str:
    """Milliseconds a step of plain PyTorch, of one run and of five together."""
    headings = [
        "network",
        "plain PyTorch",
        "ours, one run",
        "times",
        "five threads",
        "times",
        "five processes",
        "times",
    ]
    return markdown_table(headings, [[name, *_step_cells(part, results)] for part, name in NETWORKS.items()])


def _step_cells(part: str, results: Facts) -> list[str]:
    parts, runs = results["parts"], results["together"]
    facts = {**parts.get(part, {}), **parts.get("five processes", {}).get(part, {})}
    plain = facts.get("plain_ms")
    cells = ["–" if plain is None else f"{plain:.2f} ms"]
    for kind, count in (("alone", 1), ("threads", runs), ("processes", runs)):
        ours = facts.get(f"{kind}_ms")
        cells.append("–" if ours is None else f"{ours:.3f} ms")
        cells.append("–" if ours is None or plain is None else f"{count * plain / ours:.1f}")
    return cells


def kernels(results: Facts) -> str:
    """Microseconds of the kernels of a step, and how much of the GPU one of them leaves to others."""
    runs = results["together"]
    rows = [
        [name, f"{facts['alone_us']:.1f} µs", f"{facts['together_us']:.1f} µs", f"{facts['together_us'] / runs:.1f} µs"]
        for name, facts in results["kernels"].items()
    ]
    headings = ["kernel", "one run", f"{runs} runs at the same time", "for each of them"]
    return markdown_table(headings, rows)


def mnist(results: Facts) -> str:
    """Seconds of whole runs."""
    headings = ["runs", "aim", "from start-up to results", "longest run's learning", "of it selection", "start-up"]
    rows = []
    for part, (name, aim) in MNIST.items():
        facts = results["parts"].get(part, {})
        if "runs" not in facts:
            rows.append([name, f"{aim} s", *["–"] * 5])
            continue
        name += "" if part.endswith("processes") == facts["processes"] else ", not as meant"
        keys = ("from_start_up_to_results_s", "learning_s", "selection_s", "start_up_s")
        accuracy = statistics.mean(run["accuracy"] for run in facts["runs"])
        rows.append([name, f"{aim} s", *(f"{facts[key]:.1f} s" for key in keys), f"{accuracy:.3f}"])
    return markdown_table([*headings, "mean accuracy"], rows)


def same_results(results: Facts) -> str:
    """Whether a run measured the same in whatever company."""
    found: dict[int, set[str]] = {}
    runs = [run for part in MNIST for run in results["parts"].get(part, {}).get("runs", [])]
    for run in runs:
        found.setdefault(run["seed"], set()).add(run["measured_sha256"])
    twice = {seed: sums for seed, sums in found.items() if sum(run["seed"] == seed for run in runs) > 1}
    if not twice:
        return "No seed has been run twice."
    differing = [str(seed) for seed, sums in twice.items() if len(sums) > 1]
    if differing:
        return f"Of the {len(twice)} seeds that were run more than once, {', '.join(differing)} came to different ends."
    return (
        f"Seeds that were run more than once: {len(twice)}; all came to the same accuracy and purity, digit by digit."
    )


def main() -> None:
    old = PAGE.read_text(encoding="utf-8")
    new = filled(old, measured_tables())
    if new != old:
        write_atomically(PAGE, new)
    print(f"{PAGE.relative_to(ROOT)}: {'written' if new != old else 'nothing new'}")


if __name__ == "__main__":
    main()
