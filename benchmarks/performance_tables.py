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
SELECTION_CPU = ROOT / "results" / "selection_cpu.json"
SELECTION_INTEL = ROOT / "results" / "selection_cpu_intel.json"
MILLION = ROOT / "results" / "selection_million.json"
TRAINING_GPU = ROOT / "results" / "training_gpu.json"
NEWER_STEPS_GPU = ROOT / "results" / "training_gpu_mnist.json"
RUNS_GPU = ROOT / "results" / "training_gpu_runs.json"
KERNELS_GPU = ROOT / "results" / "kernels_gpu.json"
NOT_MEASURED = "Not measured yet."
NETWORKS = {
    "simple_cnn 28x28 float32": "SimpleCNN, 28x28",
    "resnet18 32x32 float32": "ResNet18, 32x32",
    "resnet18 32x32 bfloat16": "ResNet18, 32x32, bfloat16",
}
MNIST = {
    "mnist, one seed": ("one seed, on a fresh machine", 12),
    "mnist, one seed, again": ("one seed, kernels compiled", 12),
    "mnist, five seeds, processes": ("five seeds, processes", 20),
}
"""What the parts are called on the page, and how many seconds were aimed at."""
POINTS = {"spread": "spread", "collapsed": "95 % within 1e-4"}
"""What kinds of points are called on the page."""
TIMES_AIMED_AT = 10
"""How many times faster than its peers selection was to be; what reaches it is printed bold."""
Facts = Mapping[str, Any]


def tables(
    training: Facts | None, newer: Facts | None, whole: Facts | None, step: Facts | None
) -> dict[str, Callable[[], str]]:
    """The tables of training on a GPU, by the names of their places."""
    makers = {
        "machine": (machine, training),
        "steps": (partial(steps, newer=newer), training),
        "MNIST, machine": (machine, whole),
        "MNIST": (mnist, whole),
        "same results": (same_results, whole),
        "kernels": (kernels, step),
    }
    return {
        f"training on a GPU, {name}": (lambda: NOT_MEASURED) if results is None else partial(make, results)
        for name, (make, results) in makers.items()
    }


def selection_tables(selection: Facts, intel: Facts, million: Facts) -> dict[str, Callable[[], str]]:
    """Those of selection on a CPU."""
    return {
        "selection on a CPU, facility location": partial(facility_location, selection),
        "selection on a CPU, another processor": partial(another_processor, intel),
        "selection on a CPU, clusters": partial(clusters, selection),
        "selection on a CPU, partition and merge": partial(partition, selection),
        "selection on a CPU, a million points": partial(million_points, million),
    }


def measured_tables() -> dict[str, Callable[[], str]]:
    """All of them, from the results that are there."""
    paths = (TRAINING_GPU, NEWER_STEPS_GPU, RUNS_GPU, KERNELS_GPU)
    of_a_gpu = (_read(path) if path.exists() else None for path in paths)
    selection = (_read(path) for path in (SELECTION_CPU, SELECTION_INTEL, MILLION))
    return selection_tables(*selection) | tables(*of_a_gpu)


def _read(path: Path) -> Facts:
    facts: Facts = json.loads(path.read_text(encoding="utf-8"))
    return facts


def another_processor(results: Facts) -> str:
    """The same in short."""
    rows = [
        [
            *_points(row),
            f"{min(row['apricot_s'], row['submodlib_s']):.2f} s",
            f"{row['ours_s']:.3f} s",
            _times(row["ratio_s"]),
            f"{100 * row['limit_s'] / row['ours_s']:.0f} %",
        ]
        for row in results["facility_location"]
    ]
    return markdown_table(["points", "d", "the better peer", "ours", "times faster", "of the limit reached"], rows)


def _points(row: Facts) -> list[str]:
    kind = POINTS[row["kind"]]
    return [f"{kind}, gradients", "10 x 128"] if row["factored"] else [kind, f"{row['d']:,}"]


def facility_location(results: Facts) -> str:
    """Seconds beside the peers, and beside what the machine could do at most."""
    headings = ["points", "d", "apricot, lazy", "the same, compiled once", "submodlib, lazy", "ours", "times faster"]
    headings += ["with apricot compiled once", "limit", "of it reached", "times at the limit", "passes over the table"]
    rows = []
    for row in results["facility_location"]:
        at_limit = min(row["apricot_s"], row["submodlib_s"]) / row["limit_s"]
        rows.append(
            [
                *_points(row),
                *(f"{row[f'{name}_s']:.2f} s" for name in ("apricot", "apricot_compiled_once", "submodlib")),
                f"{row['ours_s']:.3f} s",
                *(_times(row[name]) for name in ("ratio_s", "ratio_compiled_once_s")),
                f"{row['limit_s']:.3f} s",
                f"{100 * row['limit_s'] / row['ours_s']:.0f} %",
                f"{at_limit:.{0 if at_limit > 20 else 1}f}",
                f"{row['distances_read'] / row['n'] ** 2:.1f}",
            ]
        )
    return markdown_table(headings, rows, names=2)


def _times(ratio: float) -> str:
    return f"**{ratio:.1f}**" if ratio >= TIMES_AIMED_AT else f"{ratio:.1f}"


def clusters(results: Facts) -> str:
    """Seconds of spectral clustering beside scikit-learn's, and how they grow."""
    rows = [
        [
            str(row["d"]),
            f"{row['scikit_learn_s']:.2f} s",
            f"{row['ours_s']:.3f} s",
            f"{row['ratio_s']:.0f}",
            f"{row['adjusted_rand']:.3f}",
        ]
        for row in results["spectral"]
    ]
    table = markdown_table(["d", "scikit-learn", "ours", "times faster", "adjusted Rand"], rows)
    growth = {row["n"]: row["ours_s"] for row in results["growth"]["spectral_n"]}
    few, many = results["spectral"][0]["n"], max(growth)
    longer = growth[many] / growth[few]
    return f"{table}\n{many:,} points take {growth[many]:.2f} s, {longer:.0f} times as long as {few:,}."


def partition(results: Facts) -> str:
    """What is lost by partition and merge."""
    rows = [
        [POINTS[row["kind"]], str(row["k"]), f"{row['objective_ratio']:.4f}", f"{row['total_distance_ratio']:.4f}"]
        for row in results["partition"]
    ]
    headings = ["points", "k", "objective, share of exact", "total distance to the nearest medoid, times exact"]
    return markdown_table(headings, rows)


def million_points(results: Facts) -> str:
    """Seconds and memory."""
    facts = results["million"]
    medoids, central = facts["facility_location"], facts["centrality"]
    return (
        f"{facts['n']:,} points in {facts['d']} dimensions, k = {facts['k']:,}: {medoids['ours_s']:.0f} s on "
        f"{results['machine']['threads']} threads and {medoids['extra_bytes'] / 1e9:.1f} GB beyond the points. The "
        f"{facts['k']:,} most central, by {central['references']:,} references: {central['ours_s']:.1f} s."
    )


def machine(results: Facts) -> str:
    """On what, and by which command."""
    facts = results["parts"].get("machine", {})
    if "device" not in facts:
        return f"`{results['command']}`"
    return (
        f"One {facts['device']} (driver {facts['driver']}), {facts['cpus']} cores, PyTorch {facts['torch']}: "
        f"`{results['command']}`."
    )


def steps(results: Facts, newer: Facts | None = None) -> str:
    """Milliseconds a step of plain PyTorch, of one run and of five together; a row is from one run of the benchmark.

    Networks that a newer one has measured have its numbers.
    """
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
    sources = {part: newer if newer and "plain_ms" in newer["parts"].get(part, {}) else results for part in NETWORKS}
    return markdown_table(headings, [[name, *_step_cells(part, sources[part])] for part, name in NETWORKS.items()])


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
