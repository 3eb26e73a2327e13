"""Which differences between methods are more than luck.

A *table* is a data frame with a row for each data set and a column for each method; NaN stands for what was not
measured. A data set is one observation, however many seeds its number is the mean of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import import_module
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from continual_crust.errors import InputError, unknown_name

Verdict = Literal["better", "worse"] | None
"""How a method stands to another; None where the difference may be luck."""


DIGITS = 12
"""Decimals by which methods are ranked: means of the same numbers in another order differ in their last bits."""


class Friedman(NamedTuple):
    """Outcome of a Friedman test."""

    statistic: float
    """Chi square with one degree of freedom less than there are methods."""
    p_value: float


def mean_and_std(values: Iterable[float | None]) -> tuple[float, float]:
    """Mean and sample standard deviation of what was measured; None and NaN do not count.

    Returns
    -------
    NaN for the mean of nothing, and for the deviation of fewer than two values.

    >>> mean_and_std([0.5, None, 0.7])
    (0.6, 0.14142135623730948)
    """
    known = _known(values)
    mean = float(known.mean()) if len(known) else math.nan
    return mean, float(known.std(ddof=1)) if len(known) > 1 else math.nan


def bootstrap_interval(
    values: Iterable[float | None], level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean: how far it moves when the values are drawn anew from themselves.

    Of a handful of seeds it is too narrow, because values not seen cannot be drawn: five seeds with `level` 0.95
    cover about 0.85.

    Returns
    -------
    Both ends; NaN where there are fewer than two values.
    """
    if not 0 < level < 1:
        raise InputError(f"the level of a bootstrap interval is {level}; give a share between 0 and 1.")
    if resamples < 1:
        raise InputError(f"resamples is {resamples}; give a number of 1 or more.")
    known = _known(values)
    if len(known) < 2:
        return math.nan, math.nan
    drawn = np.random.default_rng(seed).integers(len(known), size=(resamples, len(known)))
    low, high = np.quantile(known[drawn].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def complete(table: pd.DataFrame) -> pd.DataFrame:
    """The part of a table that can be ranked, rounded to `DIGITS`.

    First the methods go that have no number at all (joint training cannot forget), then the data sets on which
    one of the others has none.

    Raises
    ------
    InputError
        If fewer than three methods or two data sets remain.
    """
    rest = table.astype("float64").dropna(axis="columns", how="all").dropna(axis="index").round(DIGITS)
    if rest.shape[0] < 2 or rest.shape[1] < 3:
        raise InputError(
            f"a Friedman test needs at least 3 methods that all have a result on the same 2 data sets, and here are "
            f"{rest.shape[1]} methods on {rest.shape[0]}; finish more runs."
        )
    return rest


def average_ranks(table: pd.DataFrame, higher_is_better: bool = True) -> pd.Series[float]:
    """Mean over data sets of each method's rank; 1 is the best, equals share their ranks."""
    ranks: pd.Series[float] = complete(table).rank(axis="columns", ascending=not higher_is_better).mean()
    return ranks


def friedman(table: pd.DataFrame) -> Friedman:
    """Test whether all methods rank alike.

    Where every data set calls all methods equal the statistic is 0 and the p-value 1.
    """
    values = complete(table).to_numpy()
    if np.all(values == values[:, :1]):
        return Friedman(0.0, 1.0)
    outcome = stats.friedmanchisquare(*values.T)
    return Friedman(float(outcome.statistic), float(outcome.pvalue))


def conover_holm(table: pd.DataFrame) -> pd.DataFrame:
    """Conover's test of every pair of methods after Friedman's, adjusted by Holm's step-down over all pairs.

    Returns
    -------
    Adjusted p-values, methods by methods. Where all data sets agree on every rank the test knows no error, and
    different methods have p-value 0: look at Friedman's first.
    """
    rest = complete(table)
    try:
        posthocs = import_module("scikit_posthocs")
    except ImportError:
        raise InputError(
            "Conover's test needs scikit-posthocs, which is not installed; run `pip install continual-crust[stats]`."
        ) from None
    with np.errstate(divide="ignore", invalid="ignore"):
        # By position, because two columns of one name would be taken for one method.
        found: pd.DataFrame = posthocs.posthoc_conover_friedman(rest.to_numpy(), p_adjust="holm")
    p_values = found.to_numpy(dtype=np.float64, copy=True)
    if np.isnan(p_values).any():
        sums = stats.rankdata(rest.to_numpy(), axis=1).sum(axis=0)
        p_values = np.isclose(sums[:, None], sums[None, :]).astype(np.float64)
    return pd.DataFrame(p_values, index=rest.columns, columns=rest.columns)


def significance_against(
    table: pd.DataFrame, method: str, alpha: float = 0.05, higher_is_better: bool = True
) -> dict[str, Verdict]:
    """Whether a method is significantly better or worse than each other one: the arrows of the paper's main table.

    Friedman's test comes first: unless it finds that the methods differ at all, no pair does.

    Parameters
    ----------
    table
        Means, a row for each data set and a column for each method.
    method
        The one that is compared.
    alpha
        Largest p-value that counts, after Holm's adjustment.
    higher_is_better
        False for forgetting.

    Returns
    -------
    For every column of the table ``better``, ``worse`` or None. None too for what has no numbers and for `method`
    itself.
    """
    if method not in table.columns:
        raise unknown_name("method", method, map(str, table.columns))
    verdicts: dict[str, Verdict] = dict.fromkeys(map(str, table.columns))
    ranks = average_ranks(table, higher_is_better)
    if method not in ranks.index:
        raise InputError(f"'{method}' has no result to compare the others with; run it first.")
    p_values = conover_holm(table)
    if friedman(table).p_value > alpha:
        return verdicts
    for other in ranks.index:
        if other != method and p_values.loc[method, other] <= alpha:
            verdicts[str(other)] = "better" if ranks[method] < ranks[other] else "worse"
    return verdicts


def critical_difference(methods: int, datasets: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference: average ranks nearer than this may differ by luck.

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    if methods < 2 or datasets < 1:
        raise InputError(
            f"{methods} methods on {datasets} data sets have no critical difference; give 2 and 1 or more."
        )
    # Demšar's q is the studentized range over the square root of two.
    q = float(stats.studentized_range.ppf(1 - alpha, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * datasets))


def _known(values: Iterable[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([value for value in values if value is not None and not math.isnan(value)], dtype=np.float64)
