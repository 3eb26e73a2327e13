"""Selection on a CPU beside the libraries a user would pick instead, in one run, turn by turn.

    python benchmarks/selection_cpu.py --out results/selection_cpu.json
    python benchmarks/selection_cpu.py --out results/selection_million.json --million

The first takes under five minutes on two cores; ``make bench`` runs it. Of several repeats the shortest counts, in
seconds on the clock and in seconds of processor time: on a machine with other work to do the two differ.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score, euclidean_distances
from threadpoolctl import threadpool_limits
from torch import Tensor

from continual_crust.selection import centrality, facility_location, spectral_clusters
from continual_crust.selection.distance_table import DistanceTable
from continual_crust.selection.greedy import TIE, plain_picks
from continual_crust.selection.partition import partitioned_medoids
from continual_crust.selection.points import FactoredPoints, Points, prepared
from continual_crust.selection.products import row_products
from continual_crust.writing import write_json

COUNT, SIZE, DIMENSIONS = 6000, 300, (10, 128, 1280)
CLASSES, FEATURES = 10, 128
NEAR = 1e-4
PART = 4096
Row = dict[str, Any]


def spread(count: int, dimensions: int, seed: int = 0) -> Tensor:
    """Points of a normal distribution."""
    return torch.randn(count, dimensions, generator=torch.Generator().manual_seed(seed))


def collapsed(count: int, dimensions: int) -> Tensor:
    """95 % of the points within 1e-4 of one another: the gradients of a network that has fitted its data."""
    points = spread(count, dimensions)
    many = count * 95 // 100
    points[:many] = points[0] + NEAR / 2 * torch.nn.functional.normalize(spread(many, dimensions, seed=1), dim=1)
    return points


def gradients(kind: str) -> FactoredPoints:
    """Gradients at the last layer of a network of ten classes and 128 features, (p - y) ⊗ h, for samples of one class.

    In as many dimensions as the largest of the points above, and what CRUST chooses from. Where they have collapsed the
    network has fitted 95 % of its samples, and their gradients are within 1e-4 of one another, near zero.
    """
    errors = torch.softmax(spread(COUNT, CLASSES), dim=1)
    errors[:, 0] -= 1
    features = spread(COUNT, FEATURES, seed=1).relu()
    if kind == "collapsed":
        many = COUNT * 95 // 100
        lengths = errors[:many].norm(dim=1, keepdim=True) * features[:many].norm(dim=1, keepdim=True)
        errors[:many] *= NEAR / 2 / lengths
    return FactoredPoints(errors, features)


def bundles(count: int, dimensions: int, clusters: int = 10) -> Tensor:
    """Points around a few directions."""
    centres = 6 * spread(clusters, dimensions, seed=9)
    return (centres[torch.arange(count) % clusters] + spread(count, dimensions)) / dimensions**0.5


KINDS: dict[str, Callable[[int, int], Tensor]] = {"spread": spread, "collapsed": collapsed}


def shortest(works: dict[str, Callable[[], Any]], repeats: int) -> tuple[Row, dict[str, Any]]:
    """Shortest times of several pieces of work done turn by turn, and what they returned."""
    times: Row = {}
    returned = {}
    for _ in range(repeats):
        for name, work in works.items():
            clock, processor = time.perf_counter(), time.process_time()
            returned[name] = work()
            taken = {"s": time.perf_counter() - clock, "cpu_s": time.process_time() - processor}
            for unit, value in taken.items():
                times[f"{name}_{unit}"] = min(times.get(f"{name}_{unit}", float("inf")), value)
    return times, returned


def similarities(points: np.ndarray) -> np.ndarray:
    """d₀ - d, by scikit-learn's products of matrices, in double precision, which apricot asks for."""
    distance = euclidean_distances(points)
    return np.subtract(distance.max(), distance, out=distance)


def apricot_lazy(points: np.ndarray) -> list[int]:
    """apricot's lazy greedy. Its own similarities are of squared distances, so it is given the same as all others."""
    import apricot

    selection = apricot.FacilityLocationSelection(min(SIZE, len(points)), metric="precomputed", optimizer="lazy")
    return [int(index) for index in selection.fit(similarities(points)).ranking]


def apricot_compiled_once(points: np.ndarray) -> list[int]:
    """The same without the better part of its time: it compiles itself anew for every choice, and throws that away."""
    with mock.patch.multiple("apricot.functions.facilityLocation", **_kept_compilers()):
        return apricot_lazy(points)


@cache
def _kept_compilers() -> dict[str, Callable[..., Any]]:
    from apricot.functions import facilityLocation

    return {name: cache(getattr(facilityLocation, name)) for name in ("calculate_gains", "calculate_gains_sieve")}


def submodlib_lazy(points: np.ndarray) -> list[int]:
    """submodlib's lazy greedy, which stores similarities as float32."""
    import submodlib

    similarity = similarities(points).astype(np.float32)
    peer = submodlib.FacilityLocationFunction(n=len(points), mode="dense", sijs=similarity, separate_rep=False)
    return [index for index, _ in peer.maximize(budget=SIZE, optimizer="LazyGreedy", show_progress=False)]


def objective(points: Tensor, chosen: list[int], farthest: float) -> float:
    """F(S) in float64."""
    return float((farthest - torch.cdist(points.double(), points[chosen].double()).amin(dim=1)).sum())


def beside_peers(points: Points, repeats: int, limits: Row) -> Row:
    """Facility location from points to picks, ours and theirs; and the limit that the machine sets.

    Factored points are multiplied out for the peers before the clock starts.
    """
    if isinstance(points, FactoredPoints):
        rows, multiplied = points.multiplied_out(), points.left.shape[1] + points.right.shape[1]
    else:
        rows, multiplied = points, points.shape[1]
    array = rows.double().numpy()
    times, picks = shortest(
        {
            "ours": lambda: facility_location(points, SIZE).indices.tolist(),
            "apricot": lambda: apricot_lazy(array),
            "apricot_compiled_once": lambda: apricot_compiled_once(array),
            "submodlib": lambda: submodlib_lazy(array),
            "ours_again": lambda: facility_location(points, SIZE).indices.tolist(),
        },
        repeats,
    )
    for unit in ("s", "cpu_s"):
        times[f"ours_{unit}"] = min(times[f"ours_{unit}"], times.pop(f"ours_again_{unit}"))
        peers = ("apricot", "submodlib"), ("apricot_compiled_once", "submodlib")
        for ratio, names in zip(("ratio", "ratio_compiled_once"), peers, strict=True):
            times[f"{ratio}_{unit}"] = min(times[f"{name}_{unit}"] for name in names) / times[f"ours_{unit}"]
    farthest = float(torch.cdist(rows[::3].double(), rows[::3].double()).max())
    best = objective(rows, picks["apricot"], farthest)
    table = DistanceTable(prepared(points))
    filled = table.computed
    plain_picks(table, int(TIE * table.farthest), SIZE)
    traffic = 4 * (COUNT**2 + table.read)
    return {
        "n": COUNT,
        "k": SIZE,
        "d": rows.shape[1],
        "factored": isinstance(points, FactoredPoints),
        **times,
        "objective_over_apricot": objective(rows, picks["ours"], farthest) / best,
        "picks_shared_with_apricot": len(set(picks["ours"]) & set(picks["apricot"])),
        "distances_computed": filled,
        "distances_read": table.read,
        **_limit(2 * filled * multiplied, traffic, limits),
    }


def _limit(operations: int, traffic: int, limits: Row) -> Row:
    """The least time for the products behind the distances, and for these and writing and reading the table too."""
    row = {}
    for unit in ("s", "cpu_s"):
        row[f"products_{unit}"] = operations / limits[f"flop_per_{unit}"]
        row[f"limit_{unit}"] = row[f"products_{unit}"] + traffic / limits[f"bytes_per_{unit}"]
    return row


def spectral_beside_scikit_learn(dimensions: int, repeats: int) -> Row:
    """CosineCRUST's clustering against scikit-learn's, which is given the affinity for nothing."""
    points = bundles(COUNT, dimensions)
    unit = torch.nn.functional.normalize(points.double(), dim=1)
    affinity = ((1 + unit @ unit.T) / 2).clamp_(min=0).numpy()
    times, clusters = shortest(
        {
            "ours": lambda: spectral_clusters(points, 10),
            "scikit_learn": lambda: SpectralClustering(10, affinity="precomputed", random_state=0).fit_predict(
                affinity
            ),
            "ours_again": lambda: spectral_clusters(points, 10),
        },
        repeats,
    )
    for unit_name in ("s", "cpu_s"):
        times[f"ours_{unit_name}"] = min(times[f"ours_{unit_name}"], times.pop(f"ours_again_{unit_name}"))
        times[f"ratio_{unit_name}"] = times[f"scikit_learn_{unit_name}"] / times[f"ours_{unit_name}"]
    agreement = float(adjusted_rand_score(clusters["scikit_learn"], clusters["ours"].numpy()))
    return {"n": COUNT, "d": dimensions, "clusters": 10, **times, "adjusted_rand": agreement}


def growth(repeats: int) -> dict[str, list[Row]]:
    """How cost grows with the number of points, the budget and the dimensions."""

    def facility(count: int, size: int, dimensions: int) -> Row:
        points = spread(count, dimensions)
        times, _ = shortest({"ours": lambda: facility_location(points, size, exact=True)}, repeats)
        table = DistanceTable(prepared(points))
        plain_picks(table, int(TIE * table.farthest), size)
        return {"n": count, "k": size, "d": dimensions, **times, "passes": table.read / count**2}

    def central(count: int) -> Row:
        points = spread(count, 128)
        return {"n": count, "d": 128, **shortest({"ours": lambda: centrality(points, SIZE)}, repeats)[0]}

    def spectral(count: int) -> Row:
        points = bundles(count, 128)
        return {"n": count, "d": 128, **shortest({"ours": lambda: spectral_clusters(points, 10)}, 2)[0]}

    return {
        "facility_location_n": [facility(count, SIZE, 128) for count in (500, 1000, 2000, 4000, 8000, 16000)],
        "facility_location_k": [facility(COUNT, size, 128) for size in (10, 30, 100, 300, 1000, 3000)],
        "facility_location_d": [facility(COUNT, SIZE, dimensions) for dimensions in (2, 10, 32, 128, 512, 1280)],
        "centrality_n": [central(count) for count in (1000, 2000, 4000, 8000, 16000, 32000)],
        "spectral_n": [spectral(count) for count in (2000, 6000, 20000, 60000, 200000)],
    }


def partition_quality() -> list[Row]:
    """Partition and merge, in parts far smaller than usual, beside exact."""
    rows = []
    for kind, size in (("spread", 100), ("spread", 300), ("collapsed", 300)):
        points = prepared(KINDS[kind](16_000, 128))
        assert isinstance(points, Tensor)
        table = DistanceTable(points)
        farthest = table.farthest * table.unit
        exact = facility_location(points, size, exact=True).indices.tolist()
        found = partitioned_medoids(points, size, torch.Generator().manual_seed(0), part=PART)[0].tolist()
        best, ours = (objective(points, chosen, farthest) for chosen in (exact, found))
        whole = len(points) * farthest
        rows.append(
            {
                "kind": kind,
                "n": len(points),
                "k": size,
                "part": PART,
                "objective_ratio": ours / best,
                "total_distance_ratio": (whole - ours) / (whole - best),
            }
        )
    return rows


def million() -> Row:
    """A million points in 128 dimensions: a thousand medoids by partition and merge, and the most central thousand."""
    points = spread(1_000_000, 128)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    location, chosen = shortest({"ours": lambda: facility_location(points, 1000)}, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    central, _ = shortest({"ours": lambda: centrality(points, 1000, references=4096)}, 1)
    return {
        "n": len(points),
        "d": 128,
        "k": 1000,
        "points_bytes": points.numel() * 4,
        "facility_location": {**location, "extra_bytes": (peak - before) * 1024},
        "weights_sum": float(chosen["ours"].weights.sum()),
        "centrality": {**central, "references": 4096},
    }


FIRST_USE = """
import time, torch
from continual_crust.selection import facility_location
points = torch.randn(1500, 2)
start = time.perf_counter()
facility_location(points, 1)
print(time.perf_counter() - start)
"""


def first_use() -> Row:
    """What a process pays for its first compiled picks: to import Numba and, if nobody did before, to compile them."""
    row = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first_process_s", "later_process_s"):
            command, environment = [sys.executable, "-c", FIRST_USE], {**os.environ, "NUMBA_CACHE_DIR": folder}
            row[name] = float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    return row


def limits_of(repeats: int) -> Row:
    """What a second gives, on the clock and of processor time: float32 products, and bytes read in one go.

    Products are measured as we compute them, which sets the limit, and as PyTorch does when asked for ``a @ b.T``.
    """
    a, b = spread(2048, 2048), spread(2048, 2048, seed=1)
    long = torch.zeros(1 << 26, dtype=torch.int32)
    amounts = {"flop": 2 * 2048**3, "pytorch_flop": 2 * 2048**3, "bytes": 4 * len(long)}
    works = {"flop": lambda: row_products(a, b), "pytorch_flop": lambda: a @ b.T, "bytes": lambda: long.max()}
    times, _ = shortest(works, repeats)
    return {
        f"{name}_per_{unit}": amount / times[f"{name}_{unit}"]
        for name, amount in amounts.items()
        for unit in ("s", "cpu_s")
    }


def machine(threads: int, *packages: str) -> Row:
    """What the numbers depend on, the versions of some packages among it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", *packages)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the results, as JSON")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for everyone; all cores by default")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--million", action="store_true", help="only the million points; takes many minutes")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    if not hasattr(np, "in1d"):
        np.in1d = np.isin  # noqa: NPY201  # apricot 0.6 still calls what numpy 2.4 removed
    torch.set_num_threads(arguments.threads)
    import numba

    numba.set_num_threads(arguments.threads)
    packages = ("numba", "scikit-learn", "apricot-select", "submodlib-py")
    results: Row = {"machine": machine(arguments.threads, *packages), "load_before": os.getloadavg()[0]}
    started = time.perf_counter()

    def done(name: str, value: Any) -> None:
        results[name] = value
        results["load_after"], results["seconds"] = os.getloadavg()[0], time.perf_counter() - started
        print(f"{results['seconds']:6.1f} s  {name}: {json.dumps(value)[:400]}", flush=True)
        write_json(arguments.out, results)

    with threadpool_limits(arguments.threads):
        if arguments.million:
            done("million", million())
            return
        done("first_use", first_use())
        # What is compiled once is compiled before the clock starts, theirs and ours.
        apricot_compiled_once(np.random.default_rng(0).random((400, 4)))
        torch.set_num_threads(arguments.threads)  # importing apricot made it all cores
        facility_location(spread(1500, 2), 1)
        limits = limits_of(10)
        done("limits", limits)
        rows = []
        for kind, make in KINDS.items():
            for points in (*(make(COUNT, dimensions) for dimensions in DIMENSIONS), gradients(kind)):
                rows.append({"kind": kind, **beside_peers(points, arguments.repeats, limits)})
                done("facility_location", rows)
        done("spectral", [spectral_beside_scikit_learn(dimensions, 2) for dimensions in (10, 128)])
        done("partition", partition_quality())
        done("growth", growth(arguments.repeats))


if __name__ == "__main__":
    main()
