"""Which readings of the paper's statistics give its arrows, and how often an interval from few seeds holds the mean.

    python benchmarks/statistics_readings.py --out results/statistics_readings.json

compares CosineCRUST with every other method of the paper's main table by several tests. Takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import scikit_posthocs as posthocs
from scipy import stats

from continual_crust.evaluation.statistics import (
    average_ranks,
    bootstrap_interval,
    complete,
    conover_holm,
    critical_difference,
    friedman,
    significance_against,
)
from continual_crust.studies.paper import paper_table
from continual_crust.studies.result import versions
from continual_crust.writing import write_json

MAIN = paper_table("main_label_0.5")
METHOD = "cosine_crust"
ALPHA = 0.05
HALF_A_DIGIT = 0.005
SEEDS = 5
Pair = tuple[str, str]
Name = TypeVar("Name")
Adjusted = Callable[[pd.DataFrame], "pd.Series[float]"]
"""From a table to the p-values of the other methods against CosineCRUST."""


def cells(measure: str, which: int) -> pd.DataFrame:
    """Means (0) or standard deviations (1) of the paper's main table."""
    nothing = (math.nan, math.nan)
    rows = {
        method: [(MAIN.value(method, 0.5, measure, dataset) or nothing)[which] for dataset in MAIN.datasets]
        for method in MAIN.methods
    }
    return pd.DataFrame(rows, index=list(MAIN.datasets))


def holm(p_values: dict[Name, float]) -> dict[Name, float]:
    """Holm's step-down adjustment."""
    adjusted, highest = {}, 0.0
    for done, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[name] * (len(p_values) - done)))
        adjusted[name] = highest
    return adjusted


def conover(table: pd.DataFrame, ties: bool) -> dict[Pair, float]:
    """Conover and Iman's t test on the rank sums of every pair, not adjusted."""
    ranks = pd.DataFrame(stats.rankdata(table.to_numpy(), axis=1), columns=table.columns)
    blocks, methods = ranks.shape
    sums = ranks.sum()
    squares = float((ranks**2).to_numpy().sum()) if ties else blocks * methods * (methods + 1) * (2 * methods + 1) / 6
    freedom = (blocks - 1) * (methods - 1)
    error = math.sqrt(2 * (blocks * squares - (sums**2).sum()) / freedom)
    return {
        (one, other): float(2 * stats.t.sf(abs(sums[one] - sums[other]) / error, freedom))
        for one, other in combinations(map(str, table.columns), 2)
    }


def wilcoxon(table: pd.DataFrame) -> dict[Pair, float]:
    """Wilcoxon's signed-rank test of every pair, not adjusted."""
    pairs = combinations(map(str, table.columns), 2)
    return {(one, other): float(stats.wilcoxon(table[one], table[other]).pvalue) for one, other in pairs}


def against_method(pairs: dict[Pair, float]) -> pd.Series[float]:
    """Of the p-values of all pairs those of CosineCRUST."""
    return pd.Series({(set(pair) - {METHOD}).pop(): p for pair, p in pairs.items() if METHOD in pair})


def as_documented(table: pd.DataFrame) -> pd.Series[float]:
    return conover_holm(table)[METHOD].drop(METHOD)


def without_ties(table: pd.DataFrame) -> pd.Series[float]:
    return against_method(holm(conover(table, ties=False)))


def among_its_own(table: pd.DataFrame) -> pd.Series[float]:
    return pd.Series(holm(dict(against_method(conover(table, ties=True)))))


def signed_ranks(table: pd.DataFrame) -> pd.Series[float]:
    return against_method(holm(wilcoxon(table)))


def by_library(test: str, **options: str | None) -> Adjusted:
    """A test of scikit-posthocs."""

    def adjusted(table: pd.DataFrame) -> pd.Series[float]:
        values = table.to_numpy()
        found = getattr(posthocs, test)(list(values.T) if test == "posthoc_conover" else values, **options)
        return pd.Series(found.to_numpy()[list(table.columns).index(METHOD)], index=table.columns).drop(METHOD)

    return adjusted


NOT_CONTINUAL = ["naive", "joint", "cumulative"]
AFTER_KRUSKAL = by_library("posthoc_conover", p_adjust="holm")
READINGS: dict[str, tuple[Adjusted, list[str]]] = {
    "as documented": (as_documented, []),
    "without correction for ties": (without_ties, []),
    "Holm over the comparisons with CosineCRUST alone": (among_its_own, []),
    "no adjustment": (by_library("posthoc_conover_friedman", p_adjust=None), []),
    "Tukey's single step in place of Holm": (by_library("posthoc_conover_friedman", p_adjust="single-step"), []),
    "without joint": (as_documented, ["joint"]),
    "without naive, joint and cumulative": (as_documented, NOT_CONTINUAL),
    "Conover after Kruskal and Wallis, Holm": (AFTER_KRUSKAL, []),
    "Conover after Kruskal and Wallis, Holm, without naive, joint and cumulative": (AFTER_KRUSKAL, NOT_CONTINUAL),
    "Nemenyi": (by_library("posthoc_nemenyi_friedman"), []),
    "Wilcoxon's signed ranks, Holm": (signed_ranks, []),
}


def reading(name: str, measure: str) -> dict[str, object]:
    """Which of the paper's arrows a reading gives, which it loses and which it adds, with p-values."""
    adjusted, dropped = READINGS[name]
    table = complete(cells(measure, 0).drop(columns=dropped))
    p_values = adjusted(table)
    printed = {method for method, row in MAIN.cosine_crust_significantly.items() if row[measure]} & set(table.columns)
    found = {str(method) for method, p in p_values.items() if p <= ALPHA}
    return {
        "reading": name,
        "measure": measure,
        "arrows": sorted(found & printed),
        "lost": {method: float(p_values[method]) for method in sorted(printed - found)},
        "added": {method: float(p_values[method]) for method in sorted(found - printed)},
        "p_values": {str(method): float(p) for method, p in p_values.items()},
    }


def shaken(measure: str, draws: int) -> int:
    """In how many draws the arrows stay when every mean is moved within half of its last digit."""
    printed = {method: row[measure] for method, row in MAIN.cosine_crust_significantly.items()}
    generator, table, same = np.random.default_rng(0), cells(measure, 0), 0
    for _ in range(draws):
        moved = table + generator.uniform(-HALF_A_DIGIT, HALF_A_DIGIT, table.shape)
        same += significance_against(moved, METHOD, higher_is_better=measure == "accuracy") == printed
    return same


def seeds_as_observations(draws: int) -> dict[str, int]:
    """In how many draws CosineCRUST is significantly worse than a method in accuracy, if each seed is a block."""
    means, deviations = cells("accuracy", 0), cells("accuracy", 1)
    generator, worse = np.random.default_rng(0), {str(method): 0 for method in means.columns}
    for _ in range(draws):
        blocks = pd.concat([means + deviations * generator.standard_normal(means.shape) for _ in range(SEEDS)])
        for method, verdict in significance_against(blocks.reset_index(drop=True), METHOD).items():
            worse[method] += verdict == "worse"
    return {method: count for method, count in worse.items() if count}


def joint_that_forgets(value: float) -> float:
    """The adjusted p-value of joint against CosineCRUST if it is given a forgetting."""
    table = cells("forgetting", 0)
    table["joint"] = value
    return float(conover_holm(table).loc["joint", METHOD])


def coverage(seeds: int, draws: int) -> float:
    """How often a 95 % interval of the mean of normal numbers holds the true one."""
    generator, held = np.random.default_rng(seeds), 0
    for draw in range(draws):
        low, high = bootstrap_interval(generator.standard_normal(seeds), resamples=1000, seed=draw)
        held += low <= 0 <= high
    return held / draws


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the results, as JSON")
    arguments = parser.parse_args()
    measures = ("accuracy", "forgetting")
    results = {
        "versions": versions(),
        "friedman": {measure: friedman(cells(measure, 0))._asdict() for measure in measures},
        "average_ranks": {
            measure: dict(average_ranks(cells(measure, 0), higher_is_better=measure == "accuracy"))
            for measure in measures
        },
        "readings": [reading(name, measure) for name in READINGS for measure in measures],
        "same_arrows_when_shaken": {"draws": 2000, **{measure: shaken(measure, 2000) for measure in measures}},
        "worse_with_seeds_as_observations": {"draws": 200, **seeds_as_observations(200)},
        "joint_against_cosine_crust": {
            "forgets 0": joint_that_forgets(0.0),
            "forgets least": joint_that_forgets(-1.0),
        },
        "critical_difference": critical_difference(len(MAIN.methods), len(MAIN.datasets)),
        "coverage_of_95_percent": {str(seeds): coverage(seeds, 4000) for seeds in (3, 5, 10, 20)},
    }
    write_json(arguments.out, results)
    for row in results["readings"]:
        print(row["measure"], row["reading"], "lost", row["lost"], "added", row["added"])
    print({name: value for name, value in results.items() if name != "readings"})


if __name__ == "__main__":
    main()
