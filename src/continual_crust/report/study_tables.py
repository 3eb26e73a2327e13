"""A study's tables, and the same as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from continual_crust.report.cells import (
    ACCURACY,
    FORGETTING,
    PURITY,
    SECONDS,
    SELECTION,
    Column,
    Grid,
    Measure,
    Row,
    Summary,
    noise_words,
    safe_name,
    unique,
)
from continual_crust.report.tables import decimal, markdown_table
from continual_crust.strategies import STRATEGIES

MARKS = {1: "▲", 0: "", -1: "▼"}
"""For numbers above, within and below the paper's mean ± 2 standard deviations."""
LEGEND = (
    "Mean ± sample standard deviation over seeds, in %. n: seeds behind a cell, and of how many. "
    "▲ ▼: above or below the paper's mean ± 2 standard deviations (half of the last digit it prints is allowed for)."
)
PLAIN_LEGEND = "Mean ± sample standard deviation over seeds, in %. n: seeds behind a cell, and of how many."
TIME_LEGEND = "Mean ± sample standard deviation over seeds, in seconds. n: seeds behind a cell, and of how many."
CSV_COLUMNS = (
    *("measure", "dataset", "noise", "method", "label", "mean", "std", "seeds", "planned"),
    *("interval_low", "interval_high", "paper_mean", "paper_std", "difference", "outside"),
)


@dataclass(frozen=True)
class StudyTable:
    """One measure of a study: a row for each method, a column for each noise or data set."""

    name: str
    """Of its files."""
    caption: str
    measure: Measure
    columns: tuple[Column, ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[Row, tuple[Summary, ...]], ...]

    @property
    def has_paper(self) -> bool:
        """Whether there is anything of the paper's to compare with."""
        return any(cell.paper is not None for _, cells in self.rows for cell in cells)

    @property
    def legend(self) -> str:
        """What the numbers and marks mean."""
        if not self.measure.is_share:
            return TIME_LEGEND
        return LEGEND if self.has_paper else PLAIN_LEGEND


def study_tables(study_id: str, grid: Grid) -> list[StudyTable]:
    """The tables of a study: for each measure one, or one for each data set if there are many noises too."""
    datasets = list(dict.fromkeys(column.dataset for column in grid.columns))
    noises = {column.noise for column in grid.columns}
    parts = (
        [[column for column in grid.columns if column.dataset == dataset] for dataset in datasets]
        if len(noises) > 1
        else [list(grid.columns)]
    )
    tables: list[StudyTable] = []
    for measure in (ACCURACY, FORGETTING, PURITY, SECONDS, SELECTION):
        if not grid.measured(measure) and measure is not ACCURACY:
            continue
        for part in parts:
            if part:
                table = _table(study_id, grid, measure, part, len(parts) > 1)
                tables.append(replace(table, name=unique(table.name, [other.name for other in tables])))
    return tables


def number(value: float, measure: Measure, digits: int = 1, sign: bool = False) -> str:
    """A number for people: shares in percent, times in seconds.

    >>> number(-0.0312, FORGETTING), number(0.5, ACCURACY, sign=True), number(float("nan"), ACCURACY)
    ('−3.1', '+50.0', '–')
    """
    if math.isnan(value):
        return "–"
    return decimal(value * 100 if measure.is_share else value, digits, sign)


def ours(cell: Summary, measure: Measure) -> str:
    """Mean and deviation, or that the cell is missing; a dash where there is nothing to measure."""
    if math.isnan(cell.mean):
        return "–" if cell.finished else "missing"
    spread = "" if math.isnan(cell.std) else f" ± {number(cell.std, measure)}"
    return number(cell.mean, measure) + spread


def count(cell: Summary) -> str:
    """Seeds behind a cell.

    >>> count(Summary(0.5, 0.1, seeds=3, finished=3, planned=5, interval=(0.4, 0.6)))
    'n = 3 of 5'
    """
    return f"n = {cell.finished}" if cell.finished >= cell.planned else f"n = {cell.finished} of {cell.planned}"


def papers(cell: Summary, measure: Measure) -> str:
    """The paper's number with the digits it prints; empty where there is none."""
    if cell.paper is None:
        return ""
    return f"{number(cell.paper[0], measure, 0)} ± {number(cell.paper[1], measure, 0)}"


def as_markdown(table: StudyTable) -> str:
    """The table for a README."""

    def words(cell: Summary) -> str:
        parts = [ours(cell, table.measure), count(cell)]
        if cell.paper is not None:
            parts.append(f"paper {papers(cell, table.measure)}")
            if not math.isnan(cell.mean):
                parts.append(f"{number(cell.difference, table.measure, sign=True)} {MARKS[cell.outside]}".strip())
        return "<br>".join(parts)

    rows = [[_markdown(row.label), *map(words, cells)] for row, cells in table.rows]
    text = markdown_table(["Method", *map(_markdown, table.headings)], rows)
    return f"**{_markdown(table.caption)}**\n\n{text}\n{table.legend}\n"


def as_csv(table: StudyTable) -> str:
    """A line for each cell, numbers as shares and seconds, empty where there is none."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row, cells in table.rows:
        for column, cell in zip(table.columns, cells, strict=True):
            paper = cell.paper or (math.nan, math.nan)
            names = [table.measure.name, column.dataset, str(column.noise), row.method, row.label]
            numbers = [cell.mean, cell.std, cell.seeds, cell.planned, *cell.interval, *paper, cell.difference]
            mark = {1: "above", -1: "below", 0: ""}[cell.outside]
            writer.writerow([*map(_cell, names), *map(_exact, numbers), mark])
    return text.getvalue()


def as_latex(table: StudyTable) -> str:
    """A table for LaTeX."""

    def words(cell: Summary) -> str:
        lines = [_latex(ours(cell, table.measure)), _latex(count(cell))]
        if cell.paper is not None:
            lines.append(_latex(f"paper {papers(cell, table.measure)}"))
            if not math.isnan(cell.mean):
                mark = {1: r" $\blacktriangle$", -1: r" $\blacktriangledown$", 0: ""}[cell.outside]
                lines.append(_latex(number(cell.difference, table.measure, sign=True)) + mark)
        return r"\shortstack[r]{" + r"\\".join(lines) + "}"

    body = [" & ".join([_latex(row.label), *map(words, cells)]) + r" \\ \hline" for row, cells in table.rows]
    return "\n".join(
        [
            *([r"% Needs \usepackage{amssymb} for the triangles."] if table.has_paper else []),
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(table.caption)}. {_latex(table.legend)}}}",
            r"\begin{tabular}{l" + "r" * len(table.headings) + "}",
            r"\hline",
            " & ".join(["Method", *map(_latex, table.headings)]) + r" \\ \hline",
            *body,
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _table(study_id: str, grid: Grid, measure: Measure, columns: Sequence[Column], split: bool) -> StudyTable:
    datasets = {column.dataset for column in columns}
    noises = {column.noise for column in columns}
    kinds = {column.noise.kind for column in columns if column.noise.level}
    where = []
    if len(datasets) == 1:
        where.append(columns[0].dataset)
    if len(noises) == 1:
        where.append(noise_words(columns[0].noise))
    elif len(kinds) == 1:
        where.append(f"share of {noise_words(columns[-1].noise).partition(' % ')[2]}")

    def heading(column: Column) -> str:
        if len(datasets) > 1:
            return column.dataset
        return f"{100 * column.noise.level:g} %" if len(kinds) == 1 and len(noises) > 1 else noise_words(column.noise)

    rows = [(row, tuple(grid.summary(row, column, measure) for column in columns)) for row in grid.rows]
    if measure is PURITY:
        # Rows of nothing, for methods that keep no memory, would look like runs that are missing.
        rows = [
            (row, cells)
            for row, cells in rows
            if any(c.seeds or c.paper or (_remembers(row) and not c.finished) for c in cells)
        ]
    return StudyTable(
        name=safe_name(study_id, *([columns[0].dataset] if split else []), measure.name),
        caption=f"{measure.title}: {', '.join(where)}" if where else measure.title,
        measure=measure,
        columns=tuple(columns),
        headings=tuple(map(heading, columns)),
        rows=tuple(rows),
    )


def _remembers(row: Row) -> bool:
    return row.method not in STRATEGIES or STRATEGIES[row.method].remembers


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", escape(" ".join(text.split()), quote=False))


def _cell(text: str) -> str:
    """A name that a spreadsheet will not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _exact(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    special |= {"−": "$-$", "▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$"}
    return "".join(
        special.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in " ".join(text.split())
    )
