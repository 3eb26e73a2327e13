"""The tests are the textbook's, and the paper's table gives the paper's arrows."""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from continual_crust.errors import InputError
from continual_crust.evaluation.statistics import (
    average_ranks,
    bootstrap_interval,
    complete,
    conover_holm,
    critical_difference,
    friedman,
    mean_and_std,
    significance_against,
)
from continual_crust.studies.paper import paper_table

needs_posthocs = pytest.mark.skipif(
    find_spec("scikit_posthocs") is None,
    reason="scikit-posthocs is not installed; it comes with continual-crust[stats]",
)
MAIN = paper_table("main_label_0.5")


def main_table(measure: str) -> pd.DataFrame:
    """The means of the paper's main table."""
    cells = {
        method: [(MAIN.value(method, 0.5, measure, dataset) or (math.nan,))[0] for dataset in MAIN.datasets]
        for method in MAIN.methods
    }
    return pd.DataFrame(cells, index=list(MAIN.datasets))


def textbook_conover_holm(table: pd.DataFrame) -> np.ndarray:
    """Conover and Iman's t on rank sums, ties included, and Holm's adjustment, written out."""
    ranks = stats.rankdata(table.to_numpy(), axis=1)
    n, k = ranks.shape
    sums = ranks.sum(axis=0)
    variance = ((ranks**2).sum() - n * k * (k + 1) ** 2 / 4) / (k - 1)
    chi2 = ((sums - n * (k + 1) / 2) ** 2).sum() / variance
    freedom = (n - 1) * (k - 1)
    error = math.sqrt(2 * n * (k - 1) * variance / freedom * (1 - chi2 / (n * (k - 1))))
    pairs = [(i, j) for i in range(k) for j in range(i)]
    raw = {pair: 2 * stats.t.sf(abs(sums[pair[0]] - sums[pair[1]]) / error, freedom) for pair in pairs}
    adjusted, highest = np.ones((k, k)), 0.0
    for done, (i, j) in enumerate(sorted(pairs, key=raw.__getitem__)):
        highest = max(highest, min(1.0, raw[i, j] * (len(pairs) - done)))
        adjusted[i, j] = adjusted[j, i] = highest
    return adjusted


@needs_posthocs
@pytest.mark.parametrize("measure", ["accuracy", "forgetting"])
def test_the_papers_main_table_gives_the_papers_arrows(measure):
    printed = {method: row[measure] for method, row in MAIN.cosine_crust_significantly.items()}
    ours = significance_against(main_table(measure), "cosine_crust", higher_is_better=measure == "accuracy")
    assert ours == printed
    assert set(printed.values()) == {"better", None}


@needs_posthocs
@pytest.mark.parametrize("measure", ["accuracy", "forgetting"])
def test_the_arrows_do_not_hang_on_the_digits_that_the_paper_rounds_away(measure):
    generator = np.random.default_rng(0)
    table = main_table(measure)
    printed = {method: row[measure] for method, row in MAIN.cosine_crust_significantly.items()}
    for _ in range(5):
        shaken = table + generator.uniform(-0.005, 0.005, table.shape)
        assert significance_against(shaken, "cosine_crust", higher_is_better=measure == "accuracy") == printed


@needs_posthocs
def test_the_worst_method_is_told_to_be_worse():
    verdicts = significance_against(main_table("accuracy"), "naive")
    assert verdicts["joint"] == "worse"
    assert verdicts["naive"] is None


@needs_posthocs
@pytest.mark.parametrize("measure", ["accuracy", "forgetting"])
def test_conover_and_holm_are_the_textbooks(measure):
    table = complete(main_table(measure))
    p_values = conover_holm(table)
    assert list(p_values.index) == list(p_values.columns) == list(table.columns)
    assert np.allclose(p_values, textbook_conover_holm(table))


@needs_posthocs
def test_without_any_disagreement_conover_knows_no_error_and_friedman_decides():
    agreed = pd.DataFrame([[0.1, 0.2, 0.3]] * 2, columns=["a", "b", "c"])
    assert (conover_holm(agreed).to_numpy() == np.eye(3)).all()
    assert friedman(agreed).p_value > 0.05
    assert significance_against(agreed, "c") == {"a": None, "b": None, "c": None}
    more = pd.concat([agreed] * 3)
    assert significance_against(more, "c") == {"a": "better", "b": "better", "c": None}


@needs_posthocs
def test_methods_that_are_all_equal_do_not_differ():
    equal = pd.DataFrame(np.full((4, 3), 0.5), columns=["a", "b", "c"])
    assert friedman(equal) == (0.0, 1.0)
    assert (conover_holm(equal) == 1).all().all()
    assert set(significance_against(equal, "a").values()) == {None}


def test_friedman_is_scipys_and_finds_the_difference():
    table = main_table("accuracy")
    found = friedman(table)
    assert np.allclose(found, stats.friedmanchisquare(*table.to_numpy().T))
    assert found.p_value < 0.001


def test_what_has_no_number_at_all_is_left_out_then_data_sets_with_holes():
    table = main_table("forgetting")
    assert "joint" not in complete(table).columns
    table.loc["mstar", "der"] = math.nan
    assert list(complete(table).index) == ["mnist", "fashionmnist", "cifar10", "pathmnist"]


@pytest.mark.parametrize("shape", [(1, 5), (5, 2), (0, 0)])
def test_too_small_a_table_is_refused_in_a_sentence(shape):
    for test in (friedman, average_ranks, complete, conover_holm):
        with pytest.raises(InputError, match="at least 3 methods"):
            test(pd.DataFrame(np.ones(shape)))


def test_a_method_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="did you mean 'cosine_crust'"):
        significance_against(main_table("accuracy"), "cosine_crus")
    with pytest.raises(InputError, match="'joint' has no result"):
        significance_against(main_table("forgetting"), "joint", higher_is_better=False)


def test_without_scikit_posthocs_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scikit_posthocs", None)
    with pytest.raises(InputError, match=r"pip install continual-crust\[stats\]"):
        conover_holm(main_table("accuracy"))
    assert friedman(main_table("accuracy")).p_value < 0.001


def test_means_of_the_same_numbers_in_another_order_share_their_rank():
    forth, back = mean_and_std([0.1, 0.2, 0.3])[0], mean_and_std([0.3, 0.2, 0.1])[0]
    assert forth != back
    table = pd.DataFrame({"forth": [forth, 0.1], "back": [back, 0.2], "best": [0.5, 0.5]})
    assert average_ranks(table).to_dict() == {"forth": 2.75, "back": 2.25, "best": 1.0}
    assert friedman(table) == friedman(table.replace(back, forth))


def test_ranks_start_with_the_best():
    ranks = average_ranks(main_table("accuracy"))
    assert ranks.idxmin() == "joint"
    assert ranks["naive"] == 9
    assert average_ranks(main_table("forgetting"), higher_is_better=False)["naive"] == 8


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(3, 7))
def test_ranks_depend_on_order_alone(seed, datasets, methods):
    values = pd.DataFrame(np.random.default_rng(seed).normal(size=(datasets, methods)))
    ranks = average_ranks(values)
    assert np.isclose(ranks.sum(), methods * (methods + 1) / 2)
    assert np.allclose(average_ranks(np.exp(values)), ranks)
    assert np.allclose(average_ranks(-values, higher_is_better=False), ranks)
    backwards = list(reversed(values.columns))
    assert np.allclose(average_ranks(values[backwards])[list(values.columns)], ranks)


# Demšar (2006), table 5: critical values for 2 to 10 classifiers.
@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_differences_are_demsars(methods, q):
    assert math.isclose(critical_difference(methods, 1) / math.sqrt(methods * (methods + 1) / 6), q, abs_tol=6e-4)


def test_more_data_sets_make_smaller_differences_count():
    assert math.isclose(critical_difference(5, 40), critical_difference(5, 10) / 2)
    with pytest.raises(InputError, match="no critical difference"):
        critical_difference(1, 5)


def test_mean_and_sample_deviation_of_what_was_measured():
    mean, std = mean_and_std([0.2, None, 0.4, math.nan, 0.6])
    assert math.isclose(mean, 0.4)
    assert math.isclose(std, 0.2)
    assert math.isnan(mean_and_std([0.5])[1])
    assert all(map(math.isnan, mean_and_std([None])))


def test_a_bootstrap_interval_holds_the_mean_and_widens_with_its_level():
    values = [0.81, 0.84, 0.79, None, 0.9, 0.82]
    low, high = bootstrap_interval(values)
    assert 0.79 <= low < mean_and_std(values)[0] < high <= 0.9
    narrow = bootstrap_interval(values, level=0.5)
    assert low < narrow[0] < narrow[1] < high
    assert all(map(math.isnan, bootstrap_interval([0.5])))
    assert bootstrap_interval([0.5, 0.5]) == (0.5, 0.5)


def test_a_bootstrap_interval_has_a_generator_of_its_own():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert bootstrap_interval([0.1, 0.5, 0.9]) == bootstrap_interval([0.1, 0.5, 0.9])
    many = np.linspace(0, 1, 20) ** 2
    assert bootstrap_interval(many, seed=1) != bootstrap_interval(many, seed=2)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


@pytest.mark.parametrize("wrong", [{"level": 1.0}, {"level": 0.0}, {"resamples": 0}])
def test_impossible_intervals_are_refused(wrong):
    with pytest.raises(InputError):
        bootstrap_interval([0.1, 0.2], **wrong)
