"""What selection costs, counted rather than timed: distances, operations and memory. Counts do not depend on load."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from continual_crust.selection import centrality, fused, partition, spectral_clusters
from continual_crust.selection.distance_table import DistanceTable
from continual_crust.selection.greedy import TIE, plain_picks
from continual_crust.selection.partition import partitioned_medoids
from continual_crust.selection.points import BLOCK_ELEMENTS, prepared


def spread(count: int, dimensions: int = 16) -> torch.Tensor:
    return torch.randn(count, dimensions, generator=torch.Generator().manual_seed(0))


def collapsed(count: int, dimensions: int = 16) -> torch.Tensor:
    points = spread(count, dimensions)
    points[: count * 95 // 100] = points[0] + 1e-4 * spread(count * 95 // 100, dimensions)
    return points


class Operations(TorchDispatchMode):
    """Counts the operations that run, and the numbers they produce."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.numbers = self.largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not function.is_view:
            self.count += 1
            self.numbers += result.numel()
            self.largest = max(self.largest, result.numel())
        return result


def picks(table: DistanceTable, size: int) -> torch.Tensor:
    return plain_picks(table, int(TIE * table.farthest), size)[0]


@pytest.mark.parametrize("keep", [True, False])
def test_each_pair_of_points_is_measured_once(keep: bool) -> None:
    count = 3000
    table = DistanceTable(prepared(spread(count)), keep=keep)
    diagonal_tiles = 512 * count
    assert count * (count - 1) / 2 <= table.computed <= count**2 / 2 + diagonal_tiles


@pytest.mark.parametrize("size", [30, 300])
def test_greedy_looks_at_each_distance_about_log_k_times(size: int) -> None:
    """Plain greedy looks at each one k times."""
    count = 2000
    table = DistanceTable(prepared(spread(count)))
    picks(table, size)
    assert count**2 <= table.read <= (2 + math.log(size)) * count**2


def test_points_that_collapsed_cost_less_and_not_more() -> None:
    count = 2000
    reads = []
    for points in (spread(count), collapsed(count)):
        table = DistanceTable(prepared(points))
        picks(table, 100)
        reads.append(table.read)
    assert reads[1] <= reads[0]
    assert reads[1] <= 2 * count**2


def test_rows_that_are_not_kept_are_computed_only_when_read() -> None:
    count = 1500
    table = DistanceTable(prepared(spread(count)), keep=False)
    first_pass = table.computed
    picks(table, 50)
    assert table.computed - first_pass == table.read


def test_compiled_picks_read_what_plain_ones_read() -> None:
    pytest.importorskip("numba")
    for points in (spread(1500), collapsed(1500)):
        table = DistanceTable(prepared(points))
        picks(table, 100)
        plain, table.read = table.read, 0
        fused.picks(table, int(TIE * table.farthest), 100)
        assert table.read == plain


def test_points_are_gone_over_a_few_times_before_they_are_compared() -> None:
    """Centred, scaled, squared three times in small blocks: in high dimensions this is what costs beside products."""
    points = spread(4096, 1024)
    with Operations() as operations:
        table = DistanceTable(prepared(points), points[:1])
    assert table.shape == (4096, 1)
    assert operations.numbers <= 5.1 * points.numel()


def test_operations_per_pick_do_not_grow_with_the_points() -> None:
    per_pick = []
    for count in (200, 2000):
        table = DistanceTable(prepared(collapsed(count)))
        counts = []
        for size in (40, 80):
            with Operations() as operations:
                picks(table, size)
            counts.append(operations.count)
        per_pick.append((counts[1] - counts[0]) / 40)
    assert max(per_pick) <= 70


def test_centrality_holds_one_block_of_distances_at_a_time() -> None:
    with Operations() as operations:
        centrality(spread(3000), 100)
    assert operations.largest <= max(BLOCK_ELEMENTS, 3000 * 100)


def test_centrality_by_references_measures_those_only() -> None:
    points = spread(4000)
    costs = []
    for references in (100, 200, None):
        with Operations() as operations:
            centrality(points, 10, references=references)
        costs.append(operations.numbers)
    assert costs[0] < 0.1 * costs[2]
    assert costs[1] < 2.2 * costs[0]


def test_partition_costs_grow_linearly_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[DistanceTable] = []

    class Recorded(DistanceTable):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            tables.append(self)

    monkeypatch.setattr(partition, "DistanceTable", Recorded)
    costs = []
    for count in (4000, 8000):
        tables.clear()
        partitioned_medoids(spread(count), 20, torch.Generator().manual_seed(0), part=500)
        assert max(table.shape[0] * table.shape[1] for table in tables) <= 500**2
        costs.append(sum(table.computed + table.read for table in tables))
    assert costs[1] <= 2.3 * costs[0]


def test_spectral_clusters_cost_grows_linearly() -> None:
    costs = []
    for count in (2000, 4000):
        points = spread(count) + 4 * torch.eye(16)[torch.arange(count) % 4]
        with Operations() as operations:
            spectral_clusters(points, 4)
        costs.append(operations.numbers)
    assert costs[1] <= 2.5 * costs[0]
