"""Many results in few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from continual_crust.errors import InputError
from continual_crust.studies.result import RunResult

MEASURES = ("accuracy", "forgetting", "purity", "seconds")


def summary_table(results: Sequence[RunResult]) -> pd.DataFrame:
    """Mean and standard deviation over seeds of each method on each noisy data set, in order of appearance.

    Returns
    -------
    One row for each data set, noise and method, with the number of ``runs``, and for each of accuracy,
    forgetting, purity and seconds the mean and (as ``accuracy_std`` and so on) the sample standard deviation.
    NaN stands for what was not measured, or cannot be from a single run.
    """
    keys = ["dataset", "noise", "method"]
    frame = pd.DataFrame(
        [{name: getattr(result, name) for name in (*keys, *MEASURES)} for result in results],
        columns=[*keys, *MEASURES],
    )
    # A measure that no run has arrives as None throughout, which pandas would not average.
    frame = frame.astype(dict.fromkeys(MEASURES, "float64"))
    groups = frame.groupby(keys, sort=False)
    table = pd.DataFrame({"runs": groups.size()})
    for name in MEASURES:
        table[name] = groups[name].mean()
        table[f"{name}_std"] = groups[name].std()
    return table.reset_index()


def decimal(value: float, digits: int, sign: bool = False) -> str:
    """A number for people: with a real minus, and never minus zero.

    >>> decimal(-0.0312, 2), decimal(-0.0001, 2), decimal(0.5, 3, sign=True)
    ('−0.03', '0.00', '+0.500')
    """
    return f"{round(value, digits) + 0.0:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def percent(mean: float | None, std: float | None = None, digits: int = 1) -> str:
    """A share for people, with its spread where there is one. Only all of it is 100 % without a further digit.

    >>> percent(0.8724, 0.03), percent(-0.01), percent(0.5, digits=0), percent(0.996, digits=0), percent(None)
    ('87.2 ± 3.0 %', '−1.0 %', '50 %', '99.6 %', '–')
    """
    if mean is None or math.isnan(mean):
        return "–"
    number = decimal(100 * mean, digits)
    if number == "100" and mean < 1:
        number = f"{min(100 * mean, 99.9):.1f}"
    if std is None or math.isnan(std):
        return f"{number} %"
    return f"{number} ± {100 * std:.{digits}f} %"


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> str:
    """A table whose first columns are names and whose others are numbers.

    >>> print(markdown_table(["method", "accuracy"], [["CRUST", "0.86"]]), end="")
    | method | accuracy |
    | --- | ---: |
    | CRUST | 0.86 |
    """
    lines = [headings, ["---"] * names + ["---:"] * (len(headings) - names), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def by_method(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Results that may be compared, by method in order of appearance.

    Raises
    ------
    InputError
        If there is none, or they are of different data or noise, or of streams of different lengths.
    """
    if not results:
        raise InputError("there are no results to show; run something first.")
    for what, values in (
        ("data sets", {result.dataset for result in results}),
        ("noises", {result.noise for result in results}),
        ("numbers of experiences", {len(result.accuracy_matrix[0]) for result in results}),
    ):
        if len(values) > 1:
            found = ", ".join(sorted(map(str, values)))
            raise InputError(f"results of different {what} ({found}) cannot share a figure; show them apart.")
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        groups.setdefault(result.method, []).append(result)
    return groups
