"""Facility location and centrality: laws, peers and edges."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import selection_cpu
from continual_crust.errors import InputError
from continual_crust.selection import FactoredPoints, centrality, cosine_crust, crust, facility_location
from continual_crust.selection.distance_table import DistanceTable
from continual_crust.selection.herding import herding
from continual_crust.selection.points import distances, prepared
from continual_crust.selection.selectors import SELECTORS, Candidates, select

RULES = [centrality, facility_location, crust, cosine_crust]


def random_points(count: int, dimensions: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dimensions, generator=torch.Generator().manual_seed(seed))


def table_of(points: torch.Tensor) -> torch.Tensor:
    """All distances, as the rules see them."""
    table = DistanceTable(prepared(points), keep=True)
    assert table.kept is not None
    return table.kept * table.unit


def plain_greedy(distance: torch.Tensor, size: int) -> list[int]:
    """The definition, spelled out in float64: re-evaluate every candidate at every step; ties go to the centre."""
    totals = distance.double().sum(dim=1)
    similarity = distance.double().max() - distance.double()
    covered = torch.zeros(len(distance), dtype=torch.float64)
    picks: list[int] = []
    for _ in range(size):
        gains = (similarity - covered[:, None]).clamp(min=0).sum(dim=0)
        gains[picks] = -1
        tied = gains >= gains.max() - 1e-6 * distance.max()
        picks.append(int(torch.where(tied, totals, torch.inf).argmin()))
        covered = torch.maximum(covered, similarity[:, picks[-1]])
    return picks


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 40), dimensions=st.integers(1, 6), size=st.integers(0, 45), seed=st.integers(0, 10_000))
def test_facility_location_is_plain_greedy(count: int, dimensions: int, size: int, seed: int) -> None:
    points = random_points(count, dimensions, seed)
    coreset = facility_location(points, size)
    assert coreset.indices.tolist() == plain_greedy(table_of(points), min(size, count))


def test_facility_location_is_plain_greedy_on_collapsed_points() -> None:
    points = random_points(400, 16)
    points[:380] = points[0] + 1e-4 * random_points(380, 16, seed=1)
    assert facility_location(points, 60).indices.tolist() == plain_greedy(table_of(points), 60)


def test_first_two_picks_are_optimal_where_greedy_must_be() -> None:
    """Against all pairs: greedy reaches at least 1 - 1/e of the best pair's objective."""
    points = random_points(12, 2, seed=3)
    distance = torch.cdist(points, points).double()
    similarity = distance.max() - distance

    def objective(chosen: tuple[int, ...]) -> float:
        return float(similarity[:, list(chosen)].amax(dim=1).sum())

    best = max(objective(pair) for pair in itertools.combinations(range(12), 2))
    coreset = facility_location(points, 2)
    greedy = objective(tuple(coreset.indices.tolist()))
    assert greedy >= (1 - np.exp(-1)) * best
    assert float(coreset.gains.sum()) == pytest.approx(greedy, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(2, 60), seed=st.integers(0, 10_000))
def test_gains_never_rise(count: int, seed: int) -> None:
    for rule in (facility_location, centrality):
        gains = rule(random_points(count, 5, seed), count).gains
        assert bool((gains.diff() <= 1e-9 * gains[0]).all())


@pytest.mark.parametrize("rule", [facility_location, centrality])
def test_selection_is_equivariant_under_permutation(rule) -> None:
    points = random_points(120, 8)
    order = torch.randperm(120, generator=torch.Generator().manual_seed(1))
    assert order[rule(points[order], 20).indices].tolist() == rule(points, 20).indices.tolist()


@pytest.mark.parametrize("rule", [facility_location, centrality])
def test_selection_ignores_a_common_shift(rule) -> None:
    points = random_points(80, 8)
    assert rule(points + 100, 15).indices.tolist() == rule(points, 15).indices.tolist()


def test_same_picks_as_submodlib() -> None:
    submodlib = pytest.importorskip("submodlib")
    points = random_points(200, 3)  # few dimensions: no two points are alone with each other, which would be a tie
    centred = prepared(points)
    distance = distances(centred, centred)
    similarity = (distance.max() - distance).numpy()
    peer = submodlib.FacilityLocationFunction(n=200, mode="dense", sijs=similarity, separate_rep=False)
    picks = peer.maximize(budget=15, optimizer="NaiveGreedy", show_progress=False)
    assert facility_location(points, 15).indices.tolist() == [index for index, _ in picks]


def test_same_picks_as_apricot(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(np, "in1d"):  # apricot 0.6 still calls what numpy 2.4 removed
        monkeypatch.setattr(np, "in1d", np.isin, raising=False)
    apricot = pytest.importorskip("apricot")
    points = random_points(200, 3)
    centred = prepared(points)
    distance = distances(centred, centred)
    similarity = (distance.double().max() - distance.double()).numpy()
    peer = apricot.FacilityLocationSelection(15, metric="precomputed", optimizer="naive").fit(similarity)
    assert facility_location(points, 15).indices.tolist() == peer.ranking.tolist()


def test_the_benchmark_compiles_apricot_once_and_no_choice_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(np, "in1d"):
        monkeypatch.setattr(np, "in1d", np.isin, raising=False)
    module = pytest.importorskip("apricot.functions.facilityLocation")
    compiler, compiled = module.calculate_gains, []
    monkeypatch.setattr(module, "calculate_gains", lambda *how: compiled.append(how) or compiler(*how))
    selection_cpu._kept_compilers.cache_clear()
    points = random_points(100, 3).double().numpy()
    kept = [selection_cpu.apricot_compiled_once(points) for _ in range(2)]
    assert len(compiled) == 1
    assert kept == [selection_cpu.apricot_lazy(points)] * 2
    assert len(compiled) == 2
    selection_cpu._kept_compilers.cache_clear()


def test_centrality_takes_the_smallest_total_distances() -> None:
    points = random_points(90, 7)
    totals = torch.cdist(points.double(), points.double()).sum(dim=1)
    assert centrality(points, 30).indices.tolist() == totals.argsort()[:30].tolist()


def test_centrality_takes_what_single_precision_cannot_tell_apart_in_its_order() -> None:
    """Gradients of a network that has fitted its data: most nearly zero, some wrong labels far away."""
    fitted = 1e-9 * torch.linspace(1, -1, 80)[:, None] * torch.ones(1, 3)
    wrong = torch.rand(10, 3, generator=torch.Generator().manual_seed(0)) + 1
    points = torch.cat([wrong, -wrong, fitted])
    assert centrality(points, 30).indices.tolist() == list(range(20, 50))
    middle = crust(points, 30, rule="exact_centrality").indices
    assert set(middle.tolist()) == set(centrality(points, 30, resolution=0).indices.tolist())
    assert set(middle.tolist()) != set(range(20, 50))
    assert (middle >= 20).all()


def test_centrality_avoids_what_facility_location_buys() -> None:
    """A tight clean cluster and scattered noise: one rule stays inside, the other pays for coverage."""
    points = torch.cat([0.05 * random_points(60, 4), 3 * random_points(40, 4, seed=1)])
    assert (centrality(points, 20).indices < 60).all()
    assert (facility_location(points, 20).indices < 60).float().mean() < 0.3


@pytest.mark.parametrize("rule", [facility_location, centrality])
def test_factored_points_give_the_picks_of_the_multiplied_out_ones(rule) -> None:
    factored = FactoredPoints(random_points(150, 5), random_points(150, 9, seed=1))
    dense = factored.multiplied_out()
    assert dense.shape == (150, 45)
    assert rule(factored, 30).indices.tolist() == rule(dense, 30).indices.tolist()


@pytest.mark.parametrize("rule", [facility_location, centrality])
def test_blocks_change_nothing(rule, monkeypatch: pytest.MonkeyPatch) -> None:
    points = random_points(130, 6)
    whole = rule(points, 25)
    monkeypatch.setattr("continual_crust.selection.points.BLOCK_ELEMENTS", 1000)
    monkeypatch.setattr("continual_crust.selection.distance_table.CACHED_DISTANCES", 100)
    in_blocks = rule(points, 25)
    assert whole.indices.tolist() == in_blocks.indices.tolist()
    assert torch.equal(whole.weights, in_blocks.weights)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [0, 1, 7, 30, 31, 1000])
def test_budgets(rule, size: int) -> None:
    points = random_points(30, 4)
    coreset = rule(points, size)
    assert len(set(coreset.indices.tolist())) == len(coreset) == len(coreset.weights) == len(coreset.gains)
    if rule is cosine_crust:  # what it drops as noise it does not bring back
        assert len(coreset) <= min(size, 30)
        assert (len(coreset) == 0) == (size == 0)
    else:
        assert len(coreset) == min(size, 30)
        assert coreset.weights.sum() == (30 if size else 0)


@pytest.mark.parametrize("rule", RULES)
def test_negative_budget_is_refused(rule) -> None:
    with pytest.raises(InputError, match="cannot choose -1 points"):
        rule(random_points(3, 2), -1)


@pytest.mark.parametrize("rule", RULES)
def test_what_is_no_tensor_of_real_numbers_or_no_size_is_refused(rule) -> None:
    points = random_points(5, 2)
    with pytest.raises(InputError, match=r"points are a ndarray; give a tensor, as torch\.as_tensor"):
        rule(points.numpy(), 2)
    with pytest.raises(InputError, match="complex"):
        rule(points.to(torch.complex64), 2)
    with pytest.raises(InputError, match=r"sparse tensor; give points\.to_dense\(\)"):
        rule(points.to_sparse(), 2)
    with pytest.raises(InputError, match=r"of type torch\.float8_e4m3fn, which .*; give points\.float\(\)"):
        rule(points.to(torch.float8_e4m3fn), 2)
    with pytest.raises(InputError, match="meta, which holds no numbers"):
        rule(points.to("meta"), 2)
    for size in (2.5, "3"):
        with pytest.raises(InputError, match="give a whole number"):
            rule(points, size)


@pytest.mark.parametrize("references", [0, -1, 2.0])
def test_references_that_are_no_number_of_points_are_refused(references: float) -> None:
    with pytest.raises(InputError, match=rf"cannot compare points with {references} references; give a whole number"):
        centrality(random_points(5, 2), 3, references=references)


def test_herding_of_short_vectors_and_of_what_has_no_features() -> None:
    points = random_points(20, 3).double()
    assert herding(1e-20 * points, 5).indices.tolist() == herding(points, 5).indices.tolist()
    with pytest.raises(InputError, match="herding compares the features themselves"):
        herding(FactoredPoints(points, points), 5)


@pytest.mark.parametrize("rule", [facility_location, centrality])
def test_points_in_double_precision_may_lie_far_away(rule) -> None:
    points = random_points(40, 3).double()
    assert rule(points * 1e-4 + 1e4, 5).indices.tolist() == rule(points, 5).indices.tolist()


@pytest.mark.parametrize("rule", RULES)
def test_no_points_give_an_empty_coreset(rule) -> None:
    assert len(rule(torch.zeros(0, 4), 5)) == 0


@pytest.mark.parametrize("rule", RULES)
def test_single_point(rule) -> None:
    coreset = rule(torch.tensor([[1.0, 2.0]]), 3)
    assert coreset.indices.tolist() == [0]
    assert coreset.weights.tolist() == [1.0]


@pytest.mark.parametrize("rule", RULES)
def test_all_equal_points_are_taken_in_order(rule) -> None:
    coreset = rule(torch.full((9, 3), 0.1), 4)
    assert coreset.indices.tolist() == [0, 1, 2, 3]


def test_duplicates_are_covered_once() -> None:
    points = torch.cat([torch.zeros(5, 2), torch.full((3, 2), 9.0)])
    coreset = facility_location(points, 2)
    assert coreset.indices.tolist() == [0, 5]
    assert coreset.weights.tolist() == [5.0, 3.0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_points_that_are_not_numbers_are_refused_by_row(rule, bad: float) -> None:
    points = random_points(10, 3)
    points[4, 1] = bad
    with pytest.raises(InputError, match=r"1 of 10 points .* row 4.*learning rate"):
        rule(points, 3)


@pytest.mark.parametrize("rule", RULES)
def test_points_must_be_rows(rule) -> None:
    with pytest.raises(InputError, match=r"shape \(n, d\), not \(4, 2, 2\)"):
        rule(torch.zeros(4, 2, 2), 2)


def test_inputs_are_left_alone() -> None:
    points = random_points(40, 5).requires_grad_()
    before = points.detach().clone()
    for rule in RULES:
        assert not rule(points, 10).weights.requires_grad
    assert torch.equal(points.detach(), before)


def test_weights_count_the_points_nearest_to_each_medoid() -> None:
    points = random_points(70, 3)
    coreset = facility_location(points, 6)
    nearest = torch.cdist(points, points[coreset.indices]).argmin(dim=1)
    assert coreset.weights.tolist() == torch.bincount(nearest, minlength=6).tolist()


@pytest.mark.parametrize("generator", [3, np.random.default_rng(0)])
@pytest.mark.parametrize(
    "drawing", [cosine_crust, partial(centrality, references=3), partial(facility_location, exact=False)]
)
def test_generators_are_pytorchs(drawing, generator: object) -> None:
    with pytest.raises(InputError, match="give one of PyTorch's for the CPU"):
        drawing(random_points(9, 2), 2, generator=generator)


@pytest.mark.parametrize("name", SELECTORS)
def test_selectors_by_name_draw_nothing_of_the_programs_own(name: str) -> None:
    features = random_points(30, 4)
    candidates = Candidates(features, random_points(30, 3), torch.zeros(30, dtype=torch.int64), random_points(3, 4))
    before = torch.get_rng_state()
    first, again = (select(name, candidates, 7).indices.tolist() for _ in range(2))
    assert first == again
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(InputError, match="give one of PyTorch's for the CPU"):
        select(name, candidates, 7, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [-1.0, float("nan"), "0.1", None])
def test_shares_that_are_none_are_refused(share: object) -> None:
    with pytest.raises(InputError, match=r"min_cluster is .*; give a share below 1"):
        cosine_crust(random_points(9, 2), 2, min_cluster=share)
    with pytest.raises(InputError, match=r"resolution is .*; give a share"):
        centrality(random_points(9, 2), 2, resolution=share)
    with pytest.raises(InputError, match="no selection rule"):
        crust(random_points(9, 2), 2, rule=share)


def test_unknown_rule_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'centrality'"):
        crust(random_points(5, 2), 2, rule="centralty")
