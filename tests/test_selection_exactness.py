"""What the fast rules promise: the picks of plain greedy, sums that no order changes, approximations that are close."""

from __future__ import annotations

import importlib.util
import math
import sys
from types import ModuleType

import pytest
import torch

from continual_crust.errors import InputError
from continual_crust.kernel_trial import tried_once
from continual_crust.selection import FactoredPoints, centrality, facility_location, fused
from continual_crust.selection.distance_table import LEVELS, ROWS_PER_SUM, DistanceTable
from continual_crust.selection.greedy import TIE, plain_picks
from continual_crust.selection.partition import partitioned_medoids
from continual_crust.selection.points import distances, prepared


def spread(count: int, dimensions: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dimensions, generator=torch.Generator().manual_seed(seed))


def collapsed(count: int, dimensions: int) -> torch.Tensor:
    points = spread(count, dimensions)
    points[: count * 95 // 100] = points[0] + 1e-4 * spread(count * 95 // 100, dimensions, seed=1)
    return points


def objective(points: torch.Tensor, chosen: torch.Tensor) -> float:
    every = torch.cdist(points.double(), points.double())
    return float((every.max() - every[chosen].amin(dim=0)).sum())


@pytest.mark.parametrize("dimensions", [3, 10, 128])
def test_no_pick_falls_behind_the_best_in_double_precision(dimensions: int) -> None:
    """Every pick has the largest gain there is, to within 1e-5 of the largest distance."""
    points = spread(700, dimensions)
    exact = torch.cdist(points.double(), points.double())
    farthest = exact.max()
    tolerance = 1e-5 * float(farthest)
    nearest = torch.full((700,), float(farthest), dtype=torch.float64)
    for pick in facility_location(points, 120).indices.tolist():
        gains = (nearest[:, None] - exact).clamp(min=0).sum(dim=0)
        assert float(gains[pick]) >= float(gains.max()) - tolerance
        nearest = torch.minimum(nearest, exact[pick])


@pytest.mark.parametrize("make", [spread, collapsed])
def test_objective_is_that_of_plain_greedy_in_double_precision(make) -> None:
    points = make(600, 32)
    exact = torch.cdist(points.double(), points.double())
    nearest = torch.full((600,), float(exact.max()), dtype=torch.float64)
    plain = []
    for _ in range(60):
        plain.append(int((nearest[:, None] - exact).clamp(min=0).sum(dim=0).argmax()))
        nearest = torch.minimum(nearest, exact[plain[-1]])
    best = objective(points, torch.tensor(plain))
    assert objective(points, facility_location(points, 60).indices) == pytest.approx(best, rel=1e-6)


def test_gains_add_up_to_the_objective() -> None:
    points = spread(500, 20)
    coreset = facility_location(points, 50)
    assert float(coreset.gains.sum()) == pytest.approx(objective(points, coreset.indices), rel=1e-6)


def test_table_is_the_distances_to_within_rounding() -> None:
    points = prepared(spread(300, 7))
    table = DistanceTable(points, keep=True)
    assert table.kept is not None
    assert torch.equal(table.kept, table.kept.T)
    assert table.kept.diagonal().abs().max() == 0
    assert torch.allclose(table.kept * table.unit, distances(points, points), atol=table.unit, rtol=3e-5)
    assert torch.equal(table.totals, table.kept.sum(dim=0))
    assert table.farthest == table.kept.max()


def test_sums_in_32_bits_cannot_overflow() -> None:
    points = torch.tensor([[-3e4], [3e4]]).repeat(1000, 1)
    table = DistanceTable(prepared(points), keep=True)
    assert LEVELS // 2 <= table.farthest <= LEVELS
    assert LEVELS * ROWS_PER_SUM < 1 << 31
    assert table.totals.tolist() == [1000 * table.farthest] * 2000


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1.0, 1e6, 1e12])
def test_scale_changes_no_pick(scale: float) -> None:
    points = spread(150, 5)
    assert facility_location(points * scale, 30).indices.tolist() == facility_location(points, 30).indices.tolist()


@pytest.mark.parametrize("rule", [facility_location, centrality])
def test_points_too_long_to_measure_are_refused(rule) -> None:
    with pytest.raises(InputError, match="scale them down"):
        rule(spread(20, 3) * 1e25, 2)


@pytest.mark.parametrize("shape", [(90, 150), (150, 90)])
def test_rows_kept_or_computed_again_give_the_same_picks(shape: tuple[int, int]) -> None:
    clients, candidates = prepared(spread(shape[0], 6)), prepared(spread(shape[1], 6, seed=1))
    kept, computed = (DistanceTable(clients, candidates, keep=keep) for keep in (True, False))
    tie = int(TIE * kept.farthest)
    assert torch.equal(plain_picks(kept, tie, 40)[0], plain_picks(computed, tie, 40)[0])
    chosen = plain_picks(kept, tie, 40)[0]
    assert torch.equal(kept.nearest(chosen), computed.nearest(chosen))


@pytest.mark.parametrize("make", [spread, collapsed])
@pytest.mark.parametrize("size", [10, 60])
def test_partition_and_merge_reaches_99_percent_of_exact(make, size: int) -> None:
    points = make(3000, 16)
    exact = facility_location(points, size, exact=True).indices
    merged, _ = partitioned_medoids(prepared(points), size, torch.Generator().manual_seed(0), part=1000)
    assert len(set(merged.tolist())) == size
    assert objective(points, merged) >= 0.99 * objective(points, exact)


def test_partition_of_one_part_is_exact() -> None:
    points = spread(400, 8)
    merged = facility_location(points, 25, exact=False)
    exact = facility_location(points, 25)
    assert sorted(merged.indices.tolist()) == sorted(exact.indices.tolist())
    assert torch.allclose(merged.gains, exact.gains)
    assert merged.weights.sum() == 400


def test_partition_follows_its_generator_and_takes_factored_points() -> None:
    points = FactoredPoints(spread(900, 3), spread(900, 4, seed=1))
    first, again, other = (
        partitioned_medoids(points, 20, torch.Generator().manual_seed(seed), part=200)[0] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("count", "partitioned"), [(500, False), (501, True)])
def test_large_sets_are_partitioned_by_themselves(
    count: int, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[facility_location.__module__]
    calls = []

    def recorded(*arguments):
        calls.append(arguments)
        return partitioned_medoids(*arguments)

    monkeypatch.setattr(module, "EXACT_POINTS", 500)
    monkeypatch.setattr(module, "partitioned_medoids", recorded)
    assert len(facility_location(spread(count, 4), 20)) == 20
    assert bool(calls) == partitioned


def test_references_estimate_centrality_as_closely_as_promised() -> None:
    """Hoeffding: 2,000 references put every mean within 5.1 % of the largest distance, with 99.9 % probability."""
    points = spread(3000, 8)
    every = torch.cdist(points, points)
    means, farthest = every.mean(dim=1), float(every.max())
    chosen = centrality(points, 100, references=2000).indices
    assert float(means[chosen].max()) <= float(means.sort().values[99]) + 2 * 0.051 * farthest
    assert len(set(chosen.tolist()) & set(centrality(points, 100).indices.tolist())) >= 80


def test_as_many_references_as_points_is_exact() -> None:
    points = spread(200, 5)
    assert torch.equal(centrality(points, 30, references=200).indices, centrality(points, 30).indices)


def few_places(count: int, dimensions: int) -> torch.Tensor:
    """Many points that are equal to one another."""
    return spread(count // 20, dimensions)[torch.arange(count) % (count // 20)]


COMPILED_CASES = {
    "spread": (spread(1237, 16), None),
    "collapsed": (collapsed(1237, 16), None),
    "duplicates": (few_places(1237, 4), None),
    "one point": (spread(1, 4), None),
    "all in one place": (torch.ones(40, 3), None),
    "more clients than candidates": (spread(1500, 8), spread(301, 8, seed=3)),
    "more candidates than clients": (spread(301, 8), spread(1500, 8, seed=3)),
}


@pytest.mark.parametrize("case", list(COMPILED_CASES))
def test_compiled_picks_are_the_plain_picks(case: str) -> None:
    pytest.importorskip("numba")
    clients, candidates = COMPILED_CASES[case]
    table = DistanceTable(prepared(clients), None if candidates is None else prepared(candidates), keep=True)
    tie, size = int(TIE * table.farthest), min(100, table.shape[1])
    plain, read = plain_picks(table, tie, size), table.read
    for ours, expected in zip(fused.picks(table, tie, size), plain, strict=True):
        assert torch.equal(ours, expected)
    assert table.read == 2 * read


def test_large_tables_are_chosen_from_by_compiled_kernels() -> None:
    pytest.importorskip("numba")
    side = math.isqrt(fused.SMALLEST_ON_CPU)
    assert fused.usable(DistanceTable(spread(side + 1, 2)))
    assert not fused.usable(DistanceTable(spread(side - 1, 2)))
    assert not fused.usable(DistanceTable(spread(side + 1, 2), keep=False))


@pytest.mark.parametrize("fault", ["missing", "broken"])
def test_picks_are_the_same_without_a_compiler(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points = spread(math.isqrt(fused.SMALLEST_ON_CPU) + 1, 8)
    expected = facility_location(points, 30)

    def refuse(compiler: str) -> ModuleType:
        raise ImportError(f"no {compiler} today")

    monkeypatch.setattr(fused, "_works", tried_once("selection", fused.COMPILERS)(fused._works.__wrapped__))
    if fault == "missing":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    else:
        monkeypatch.setattr(fused, "kernels", refuse)
    found = facility_location(points, 30)
    assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in ("indices", "weights", "gains"))
    assert ("no numba today" in caplog.text) == (fault == "broken")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("make", [spread, collapsed])
def test_kernels_give_the_plain_picks(make) -> None:
    table = DistanceTable(prepared(make(1237, 16).cuda()))
    if not fused.usable(table):
        pytest.skip("Triton does not work here")
    tie = int(TIE * table.farthest)
    for ours, plain in zip(fused.picks(table, tie, 100), plain_picks(table, tie, 100), strict=True):
        assert torch.equal(ours, plain)


def test_centrality_tells_collapsed_points_apart() -> None:
    """Gradients of a fitted network: most are a ten-millionth of the others, and their middle still counts."""
    points = FactoredPoints(spread(400, 3), spread(400, 4, seed=1))
    points.left[:380] *= 1e-7
    dense = points.multiplied_out().double()
    truth = torch.cdist(dense, dense, compute_mode="donot_use_mm_for_euclid_dist").sum(dim=1).argsort()[:50]
    assert len(set(truth.tolist()) & set(centrality(points, 50, resolution=0).indices.tolist())) >= 40
