"""Figures of a study: curves over experiences and noise levels, ranks with their critical difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from continual_crust.report.cells import ACCURACY, Column, Grid, Measure, Row
from continual_crust.report.curves import forgotten_so_far, mean_over_runs, purity_so_far, seen_so_far, std_over_runs
from continual_crust.report.drawing import FAINT, INK, Floats, new_figure, percent_axis, plain, some_of
from continual_crust.report.study_tables import number
from continual_crust.report.styles import style_of
from continual_crust.studies.result import RunResult

DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
"""For rows of one method, which share its colour."""
FILLS = ("full", "left", "bottom")
"""Of the markers of further such rows, when all dashes have been used; wholly hollow ones are the paper's."""

CURVES: Mapping[str, tuple[str, Callable[[RunResult], Floats]]] = {
    "accuracy": ("Accuracy on the experiences so far", seen_so_far),
    "forgetting": ("Accuracy lost so far", forgotten_so_far),
    "purity": ("Clean share of the new memory", purity_so_far),
}


@dataclass(frozen=True)
class Shown:
    """A figure and, for those who cannot see it, what it shows."""

    figure: Figure
    alt: str


def over_experiences(grid: Grid, column: Column, name: str) -> Shown | None:
    """One of `CURVES` after each experience: a line and a band of one standard deviation for each row."""
    title, curve = CURVES[name]
    lines = {row: [curve(result) for result in grid.results(row, column)] for row in grid.rows}
    # Runs of one cell have streams of one length; should they not, those like the first are shown.
    values = {row: np.array([one for one in many if len(one) == len(many[0])]) for row, many in lines.items() if many}
    values = {row: array for row, array in values.items() if not np.isnan(array).all()}
    if not values:
        return None
    length = max(array.shape[1] for array in values.values())
    figure, axes = _canvas(list(values))
    handles, ends = [], []
    for row in _best_first(values, rising=name != "forgetting"):
        array = values[row]
        # Joint training has a single point: after everything.
        x = np.arange(length - array.shape[1], length) + 1
        handles.append(_draw(axes, x, array, row, grid.rows))
        ends.append(f"{row.label} {number(float(mean_over_runs(array)[-1]), ACCURACY)} %")
    axes.set_xticks([at + 1 for at in some_of(length)])
    axes.set_xlim(0.7, length + 0.3)
    axes.set_xlabel("experiences learned")
    lowest = min(float(np.nanmin(array)) for array in values.values())
    percent_axis(axes.yaxis, axes.set_ylim, min(0.0, lowest))
    axes.set_title(title, loc="left")
    _legend(figure, handles)
    return Shown(figure, f"{title} after each experience. At the end: {', '.join(ends)}.")


def against_noise(grid: Grid, dataset: str, measure: Measure) -> Shown | None:
    """A measure at each noise level: a line for each row, the paper's dotted with hollow marks."""
    columns = [column for column in grid.columns if column.dataset == dataset]
    if len({column.noise.kind for column in columns if column.noise.level}) != 1 or len(columns) < 2:
        return None
    levels = np.array([column.noise.level for column in columns])
    cells = {row: [grid.summary(row, column, measure) for column in columns] for row in grid.rows}
    cells = {row: many for row, many in cells.items() if any(cell.seeds for cell in many)}
    if not cells:
        return None
    means = {row: np.array([[cell.mean for cell in many]]) for row, many in cells.items()}
    figure, axes = _canvas(list(means))
    handles, ends, lowest = [], [], 0.0
    for row in _best_first(means, rising=measure.higher_is_better):
        many = cells[row]
        spread = np.array([cell.std for cell in many])
        handles.append(_draw(axes, levels, means[row], row, grid.rows, spread))
        paper = np.array([cell.paper[0] if cell.paper else np.nan for cell in many])
        colour, marker = style_of(row.method).colour, style_of(row.method).marker
        axes.plot(
            levels, paper, color=colour, marker=marker, markerfacecolor="white", linestyle=":", linewidth=1, alpha=0.8
        )
        lowest = float(np.nanmin([lowest, np.nanmin(means[row]), *paper]))
        told = (
            f"{number(cell.mean, measure)} % at {100 * level:g} %"
            for cell, level in zip(many, levels, strict=True)
            if cell.seeds
        )
        ends.append(f"{row.label} {', '.join(told)}")
    axes.set_xticks(levels, [f"{100 * level:g} %" for level in levels])
    axes.set_xlabel("share of the training images that is wrong")
    percent_axis(axes.yaxis, axes.set_ylim, lowest)
    axes.set_title(measure.title, loc="left")
    if any(cell.paper for many in cells.values() for cell in many):
        handles.append(
            Line2D([], [], color=FAINT, linestyle=":", marker="o", markerfacecolor="white", label="the paper’s")
        )
    _legend(figure, handles)
    return Shown(figure, f"{measure.title} by noise level. {'; '.join(ends)}.")


def critical_difference_diagram(ranks: pd.Series[float], difference: float, methods: Mapping[str, str]) -> Shown:
    """Average ranks on a line, best on the left; bars join what lies within the critical difference.

    Parameters
    ----------
    ranks
        By label, as from :func:`continual_crust.evaluation.statistics.average_ranks`.
    difference
        Nemenyi's.
    methods
        By label the method, for its colour.
    """
    ranks = ranks.sort_values()
    count = len(ranks)
    groups = _groups(list(ranks), difference)
    half = math.ceil(count / 2)
    below = 0.35 * len(groups) + 0.45
    figure, axes = new_figure(7.6, 1.5 + 0.34 * half + 0.22 * len(groups), grid=False)
    margin = 0.42 * (count - 1)
    axes.set_xlim(1 - margin, max(count + margin, 1 + 1.1 * difference))
    axes.set_ylim(below + 0.62 * half + 0.2, -1.7)
    axes.set_axis_off()
    axes.plot([1, count], [0, 0], color=INK, linewidth=1.2)
    for tick in range(1, count + 1):
        axes.plot([tick, tick], [-0.14, 0], color=INK, linewidth=1.2)
        axes.text(tick, -0.24, str(tick), ha="center", va="bottom", color=INK, size=9)
    # As long as it is, even where the ranks end before: of few data sets it is longer than their whole line.
    axes.plot([1, 1 + difference], [-1.1, -1.1], color=INK, linewidth=1.6, marker="|", markersize=7)
    axes.text(
        1 + difference / 2, -1.24, f"critical difference {difference:.2f}", ha="center", va="bottom", color=INK, size=9
    )
    for height, (first, last) in enumerate(groups):
        y = 0.28 + 0.35 * height
        axes.plot(
            [ranks.iloc[first] - 0.06, ranks.iloc[last] + 0.06],
            [y, y],
            color=INK,
            linewidth=3.2,
            solid_capstyle="round",
        )
    for place, (label, rank) in enumerate(ranks.items()):
        left = place < half
        y = below + 0.62 * (place if left else count - 1 - place)
        side = 1 - 0.12 * margin if left else count + 0.12 * margin
        colour = style_of(methods[str(label)]).colour
        axes.plot([rank, rank, side], [0, y, y], color=colour, linewidth=1.3)
        axes.plot([rank], [0], color=colour, marker=style_of(methods[str(label)]).marker, markersize=6)
        words = f"{label}  {rank:.2f}"
        axes.text(
            side - 0.1 if left else side + 0.1, y, words, ha="right" if left else "left", va="center", color=INK, size=9
        )
    plain(axes.texts)
    told = ", ".join(f"{label} {rank:.2f}" for label, rank in ranks.items())
    return Shown(figure, f"Average ranks, 1 is best: {told}. Critical difference {difference:.2f}.")


def _groups(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """First and last of every largest stretch of sorted ranks that lies within the difference.

    >>> _groups([1.0, 1.5, 3.0, 3.2], 1.9)
    [(0, 1), (1, 3)]
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(at for at in range(len(ranks)) if ranks[at] <= rank + difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def _canvas(rows: Sequence[Row]) -> tuple[Figure, Axes]:
    return new_figure(5.8, 3.4 + 0.24 * math.ceil(len(rows) / _legend_columns([row.label for row in rows])))


def _draw(axes: Axes, x: Floats, values: Floats, row: Row, rows: Sequence[Row], spread: Floats | None = None) -> Line2D:
    """The mean of some runs, with a band of one standard deviation; the band of a single line may be given."""
    style = style_of(row.method)
    alike = [other for other in rows if other.method == row.method]
    fill, dash = divmod(alike.index(row), len(DASHES))
    mean = mean_over_runs(values)
    (line,) = axes.plot(
        x,
        mean,
        color=style.colour,
        marker=style.marker,
        fillstyle=FILLS[fill % len(FILLS)],
        markerfacecoloralt="white",
        linestyle=DASHES[dash],
        label=row.label,
        clip_on=False,
        markersize=5,
    )
    if spread is None:
        spread = std_over_runs(values)
    if spread is not None:
        axes.fill_between(x, mean - spread, mean + spread, color=style.colour, alpha=0.15, linewidth=0)
    return line


def _best_first(values: Mapping[Row, Floats], rising: bool) -> list[Row]:
    def end(row: Row) -> float:
        known = mean_over_runs(values[row])
        known = known[~np.isnan(known)]
        last = float(known[-1]) if len(known) else 0.0
        return -last if rising else last

    return sorted(values, key=end)


def _legend_columns(labels: Sequence[str]) -> int:
    longest = max(map(len, labels), default=0)
    return 3 if longest <= 14 else 2 if longest <= 30 else 1


def _legend(figure: Figure, handles: Sequence[Line2D]) -> None:
    columns = _legend_columns([str(handle.get_label()) for handle in handles])
    # Long enough to show on both sides of the marker how a line is dashed.
    legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=4)
    plain(legend.get_texts())
