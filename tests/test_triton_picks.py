"""Greedy picks by Triton's kernels, on a GPU."""

from __future__ import annotations

import pytest
import torch

from continual_crust.selection.distance_table import DistanceTable
from continual_crust.selection.fused import kernels
from continual_crust.selection.greedy import TIE, plain_picks
from continual_crust.selection.points import prepared
from test_selection_exactness import COMPILED_CASES

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.mark.parametrize("case", list(COMPILED_CASES))
def test_picks_are_the_plain_picks(case: str) -> None:
    clients, candidates = (None if points is None else points.cuda() for points in COMPILED_CASES[case])
    table = DistanceTable(prepared(clients), None if candidates is None else prepared(candidates), keep=True)
    tie, size = int(TIE * table.farthest), min(100, table.shape[1])
    found = kernels("triton").greedy(table.kept, table.symmetric, table.totals, table.farthest, tie, size)
    for ours, expected in zip(found, plain_picks(table, tie, size), strict=True):
        assert torch.equal(ours, expected)
