"""Selection on a GPU: the same picks with and without Triton, and how long everything takes.

    python benchmarks/selection_gpu.py results/selection_gpu.json

Each part is timed after a warm-up, best of several; a part that fails is written down with its error and the next one
goes on. Stops starting parts after 80 seconds.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from continual_crust.selection import FactoredPoints, centrality, facility_location, fused, spectral_clusters
from continual_crust.selection.distance_table import DistanceTable
from continual_crust.selection.greedy import TIE, plain_picks
from continual_crust.selection.points import Points, blocks, device_of, distances, prepared
from continual_crust.writing import write_json

BUDGET = 80.0
STARTED = time.perf_counter()
Facts = dict[str, Any]


def spread(count: int, dimensions: int, seed: int = 0) -> Tensor:
    """Points of a normal distribution."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(count, dimensions, generator=generator, device="cuda")


def collapsed(count: int, dimensions: int) -> Tensor:
    """95 % of the points within 1e-4 of one another: the gradients of a network that has fitted its data."""
    points = spread(count, dimensions)
    many = count * 95 // 100
    points[:many] = points[0] + 0.5e-4 * torch.nn.functional.normalize(spread(many, dimensions, seed=1), dim=1)
    return points


KINDS: dict[str, Callable[[int, int], Tensor]] = {"spread": spread, "collapsed": collapsed}


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Shortest of several runs, after one that is not counted."""
    shortest = float("inf")
    for attempt in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if attempt or repeats == 0:
            shortest = min(shortest, time.perf_counter() - start)
    return shortest


def once(work: Callable[[], object]) -> float:
    """One run, not repeated."""
    return seconds(work, repeats=0)


def objective(points: Points, chosen: Tensor, farthest: float) -> tuple[float, float]:
    """F(S) and the total distance to the nearest chosen point."""
    centred = prepared(points)
    medoids = centred[chosen]
    total = torch.zeros((), dtype=torch.float64, device=device_of(points))
    for rows in blocks(len(points), len(chosen), device_of(points)):
        total += distances(centred[rows], medoids).amin(dim=1).sum(dtype=torch.float64)
    return len(points) * farthest - float(total), float(total)


def same_picks() -> Facts:
    """Fused and plain picks, on the GPU and on the CPU, from one table."""
    report: Facts = {}
    generator = torch.Generator(device="cuda").manual_seed(5)
    few = torch.randint(3, (1500, 4), generator=generator, device="cuda").float()
    cases: dict[str, tuple[Points, Points | None]] = {
        "spread": (spread(3000, 32), None),
        "collapsed": (collapsed(3000, 32), None),
        "duplicates": (few, None),
        "odd size": (spread(1237, 7), None),
        "factored": (FactoredPoints(spread(900, 10), spread(900, 33, seed=2)), None),
        "more clients than candidates": (spread(2000, 16), spread(700, 16, seed=3)),
        "more candidates than clients": (spread(700, 16), spread(2000, 16, seed=3)),
    }
    for name, (clients, candidates) in cases.items():
        table = DistanceTable(prepared(clients), None if candidates is None else prepared(candidates), keep=True)
        tie = int(TIE * table.farthest)
        plain = plain_picks(table, tie, 60)
        row: Facts = {"fused_usable": fused.usable(table)}
        if row["fused_usable"]:
            picks = fused.picks(table, tie, 60)
            row["fused_equals_plain"] = bool(torch.equal(picks[0], plain[0]) and torch.equal(picks[1], plain[1]))
        again = DistanceTable(prepared(clients), None if candidates is None else prepared(candidates), keep=False)
        row["recomputed_rows_give_same_picks"] = bool(torch.equal(plain_picks(again, tie, 60)[0], plain[0]))
        report[name] = row
    points = spread(2000, 64)
    on_gpu = facility_location(points, 60).indices.cpu()
    report["gpu_and_cpu_agree_on"] = int((on_gpu == facility_location(points.cpu(), 60).indices).sum())
    report["of"] = 60
    return report


def bandwidth() -> Facts:
    """Bytes per second of reading, and the arithmetic rate of float32 products."""
    read = seconds(torch.zeros(1 << 31, dtype=torch.int32, device="cuda").max, 3)
    a = spread(16384, 4096)
    product = seconds(lambda: a @ a.T, 2)
    return {"read_bytes_per_s": (1 << 33) / read, "float32_flop_per_s": 2 * 16384**2 * 4096 / product}


def facility(kind: str, count: int, dimensions: int, size: int, plain: bool = True) -> Facts:
    """The whole rule, and its stages."""
    points = KINDS[kind](count, dimensions)
    repeats = 7 if count <= 10_000 else 3
    row: Facts = {"kind": kind, "n": count, "d": dimensions, "k": size}
    row["whole_ms"] = 1e3 * seconds(lambda: facility_location(points, size, exact=True), repeats)
    centred = prepared(points)
    row["distances_ms"] = 1e3 * seconds(lambda: DistanceTable(centred, keep=True), repeats)
    table = DistanceTable(centred, keep=True)
    tie = int(TIE * table.farthest)
    if fused.usable(table):
        row["fused_picks_ms"] = 1e3 * seconds(lambda: fused.picks(table, tie, size), repeats)
    if plain:
        table.read = 0
        row["plain_picks_ms"] = 1e3 * once(lambda: plain_picks(table, tie, size))
        row["table_passes"] = table.read / count**2
    return row


def recorded(count: int, size: int) -> Facts:
    """What remains of the fused picks when launches cost nothing: recorded in a graph and replayed."""
    table = DistanceTable(prepared(spread(count, 128)), keep=True)
    tie = int(TIE * table.farthest)
    expected = fused.picks(table, tie, size)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    start = time.perf_counter()
    with torch.cuda.graph(graph):
        found = fused.picks(table, tie, size)
    torch.cuda.synchronize()
    recording = time.perf_counter() - start
    replaying = seconds(graph.replay, 5)
    same = bool(torch.equal(found[0], expected[0]))
    return {"n": count, "k": size, "recording_ms": 1e3 * recording, "replay_ms": 1e3 * replaying, "same": same}


def short_of_memory() -> Facts:
    """50,000 points whose distances are computed again whenever they are needed."""
    points = prepared(spread(50_000, 128))

    def work() -> Tensor:
        table = DistanceTable(points, keep=False)
        return plain_picks(table, int(TIE * table.farthest), 300)[0]

    torch.cuda.reset_peak_memory_stats()
    return {"n": 50_000, "k": 300, "s": once(work), "peak_bytes": torch.cuda.max_memory_allocated()}


def partition_quality() -> Facts:
    """Partition and merge beside exact, where exact can be computed."""
    rows = []
    for kind, count, size in (("spread", 50_000, 300), ("spread", 50_000, 1000), ("collapsed", 50_000, 300)):
        points = KINDS[kind](count, 128)
        table = DistanceTable(prepared(points), keep=False)
        farthest = table.farthest * table.unit
        exact, approximate = (facility_location(points, size, exact=flag).indices for flag in (True, False))
        best, best_distance = objective(points, exact, farthest)
        found, found_distance = objective(points, approximate, farthest)
        rows.append(
            {
                "kind": kind,
                "n": count,
                "k": size,
                "objective_ratio": found / best,
                "total_distance_ratio": found_distance / max(best_distance, 1e-30),
            }
        )
    return {"rows": rows}


def million() -> Facts:
    """A million points, a thousand medoids."""
    points = spread(1_000_000, 128)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    duration = once(lambda: facility_location(points, 1000))
    return {"n": len(points), "k": 1000, "s": duration, "extra_bytes": torch.cuda.max_memory_allocated() - before}


def central(count: int, references: int | None) -> Facts:
    """Centrality, exact or estimated."""
    points = spread(count, 128)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work = lambda: centrality(points, 1000, references=references)  # noqa: E731
    duration = once(work) if count > 100_000 else seconds(work, 3)
    extra = torch.cuda.max_memory_allocated() - before
    return {"n": count, "references": references, "ms": 1e3 * duration, "extra_bytes": extra}


def spectral(count: int) -> Facts:
    """CosineCRUST's clustering."""
    points = spread(count, 128)
    centres = 3 * spread(10, 128, seed=9)
    points += centres[torch.arange(count, device="cuda") % 10]
    return {"n": count, "d": 128, "clusters": 10, "ms": 1e3 * seconds(lambda: spectral_clusters(points, 10), 2)}


PARTS: dict[str, Callable[[], Facts]] = {
    "same_picks": same_picks,
    "facility spread 6000 d128": lambda: facility("spread", 6000, 128, 300),
    "facility collapsed 6000 d128": lambda: facility("collapsed", 6000, 128, 300),
    "facility spread 50000 d128": lambda: facility("spread", 50_000, 128, 300),
    "million d128 k1000": million,
    "facility spread 6000 d10": lambda: facility("spread", 6000, 10, 300),
    "facility spread 6000 d1280": lambda: facility("spread", 6000, 1280, 300),
    "bandwidth": bandwidth,
    "recorded 6000": lambda: recorded(6000, 300),
    "recorded 50000": lambda: recorded(50_000, 300),
    "facility collapsed 50000 d128": lambda: facility("collapsed", 50_000, 128, 300, plain=False),
    "facility spread 50000 d1280": lambda: facility("spread", 50_000, 1280, 300, plain=False),
    "centrality 6000": lambda: central(6000, None),
    "centrality 50000": lambda: central(50_000, None),
    "spectral 6000": lambda: spectral(6000),
    "spectral 50000": lambda: spectral(50_000),
    "spectral 200000": lambda: spectral(200_000),
    "partition_quality": partition_quality,
    "short_of_memory 50000": short_of_memory,
    "centrality 1000000 references 16384": lambda: central(1_000_000, 16_384),
    "centrality 200000": lambda: central(200_000, None),
    "centrality 1000000": lambda: central(1_000_000, None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where to write the results, as JSON")
    parser.add_argument("--only", default="*", help="a pattern for the names of the parts, for example 'centrality*'")
    arguments = parser.parse_args()
    properties = torch.cuda.get_device_properties(0)
    machine = {
        "device": properties.name,
        "memory_bytes": properties.total_memory,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }
    command = f"benchmarks/selection_gpu.py --only '{arguments.only}'"
    results: Facts = {"command": command, "machine": machine, "parts": {}}
    for name, part in PARTS.items():
        if not fnmatch(name, arguments.only):
            continue
        start = time.perf_counter()
        if start - STARTED > BUDGET:
            facts: Facts = {"skipped": "out of time"}
        else:
            try:
                facts = part()
            except Exception as error:  # the other parts are worth having
                facts = {"error": f"{type(error).__name__}: {error}"[:600]}
        torch.cuda.empty_cache()
        results["parts"][name] = facts
        shown = {key: round(value, 3) if isinstance(value, float) else value for key, value in facts.items()}
        print(f"{time.perf_counter() - start:6.2f} s  {name}: {shown}", flush=True)
        write_json(arguments.out, results)


if __name__ == "__main__":
    main()
