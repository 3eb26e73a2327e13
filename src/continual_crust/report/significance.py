"""The statistical tests of a study over its data sets, ready to be shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from continual_crust.errors import InputError
from continual_crust.evaluation.statistics import (
    Verdict,
    average_ranks,
    complete,
    conover_holm,
    critical_difference,
    friedman,
    significance_against,
)
from continual_crust.report.cells import ACCURACY, FORGETTING, Column, Grid, Measure, noise_words

REFERENCE = "cosine_crust"
"""The method the others are compared with, as in the paper."""
ALPHA = 0.05
"""Largest p-value that counts."""


@dataclass(frozen=True)
class Ranking:
    """How the methods rank by one measure at one noise over all data sets, and which differences are significant."""

    title: str
    reference: str
    """Label of the row the others are compared with."""
    ranks: pd.Series[float]
    """Average rank by label."""
    difference: float
    """Nemenyi's critical difference of these ranks."""
    methods: Mapping[str, str]
    """Method by label."""
    test: str
    """Friedman's test in words."""
    p_values: Mapping[str, float]
    """Conover's against the reference after Holm, by label; empty where the test is not installed."""
    verdicts: Mapping[str, Verdict]
    papers: Mapping[str, str | None] | None
    """The paper's arrows by label, where it prints some: of rows that stand beside its numbers."""
    left_out: tuple[str, ...]
    note: str = ""


def rankings(grid: Grid) -> list[Ranking | str]:
    """A ranking for every noise and measure that has several data sets, or a sentence that says why not."""
    found: list[Ranking | str] = []
    for noise in dict.fromkeys(column.noise for column in grid.columns):
        columns = [column for column in grid.columns if column.noise == noise]
        if len(columns) < 2:
            continue
        for measure in (ACCURACY, FORGETTING):
            try:
                found.append(_ranking(grid, columns, measure))
            except InputError as error:
                found.append(f"{measure.title}, {noise_words(noise)}: {error}")
    return found


def _ranking(grid: Grid, columns: list[Column], measure: Measure) -> Ranking:
    means = grid.means(columns, measure)
    rest = complete(means)
    ranks = average_ranks(rest, measure.higher_is_better)
    methods = {row.label: row.method for row in grid.rows}
    own = [label for label in rest.columns if methods[label] == REFERENCE]
    reference = str(own[0] if own else ranks.idxmin())
    tested = friedman(rest)
    note = ""
    p_values: dict[str, float] = {}
    verdicts: dict[str, Verdict] = {}
    try:
        against = conover_holm(rest)[reference].drop(reference)
        p_values = {str(label): float(value) for label, value in against.items()}
        verdicts = significance_against(rest, reference, ALPHA, measure.higher_is_better)
        if tested.p_value > ALPHA:
            note = (
                f"As Friedman’s p is above {ALPHA:g}, no method is called different from another, however small the "
                "p-value of the pair."
            )
    except InputError as error:
        note = str(error)
    arrows = grid.table.cosine_crust_significantly if grid.table is not None and own else {}
    beside = [row for row in grid.rows if any(grid.summary(row, column, measure).paper for column in columns)]
    return Ranking(
        title=f"{measure.title}, {noise_words(columns[0].noise)}: {reference} against the others",
        reference=reference,
        ranks=ranks,
        difference=critical_difference(rest.shape[1], rest.shape[0]),
        methods=methods,
        test=(
            f"Friedman’s test over {', '.join(map(str, rest.index))}: χ² = {tested.statistic:.1f}, "
            f"p = {tested.p_value:.2g}. p-values of pairs: Conover’s test, Holm’s step-down over all pairs."
        ),
        p_values=p_values,
        verdicts=verdicts,
        papers={row.label: arrows.get(row.method, {}).get(measure.name) for row in beside} if arrows else None,
        left_out=(
            *(str(label) for label in means.columns if label not in rest.columns),
            *(str(name) for name in means.index if name not in rest.index),
        ),
        note=note,
    )
