"""A report on the theorems for people at a terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from continual_crust.theory.learner import TheoryReport, median
from continual_crust.theory.outputs import VIEWS
from continual_crust.theory.tables import TextTable, number, sweep_tables
from continual_crust.theory.theorems import Condition, Iterations, Status

_COLOURS = {Status.HOLDS: "green", Status.FAILS: "red", Status.ILL_POSED: "yellow"}
_NUMBERS: tuple[tuple[str, str], ...] = (
    ("k", "k"),
    ("n", "n"),
    ("r min", "r_min"),
    ("ρ kept", "noise_in_coreset"),
    ("noisy", "noise_in_data"),
    ("σ min", "sigma_min"),
    ("‖J‖", "norm"),
    ("ε", "epsilon"),
    ("α", "alpha"),
    ("β", "beta"),
    ("η", "eta"),
    ("‖r₀‖", "residual"),
    ("L", "smoothness"),
)
_FRAME = 3
"""Characters around a cell: its line and two spaces."""
_PERTURBED: tuple[tuple[str, str], ...] = (
    ("E min", "e_min"),
    ("E max", "e_max"),
    ("E_J1", "e_j1"),
    ("E_J2", "e_j2"),
)


def print_report(report: TheoryReport, console: Console) -> None:
    """Show what was measured, what holds, what the text of the paper gets wrong and what to do."""
    print_wide(measured_table(report), console)
    console.print(conditions_table(report))
    console.print(iterations_table(report))
    for heading, lines in (("Slips in the text", _slips(report)), ("What to do", _remedies(report))):
        if lines:
            console.print(Text(heading, style="bold"))
            for line in lines:
                console.print(Text(f"  {line}"), soft_wrap=True)


def measured_table(report: TheoryReport) -> TextTable:
    """A row for each class."""
    perturbed = any(part.measured.perturbed for part in report.classes)
    columns = _NUMBERS + (_PERTURBED if perturbed else ())
    return TextTable(
        f"{report.method} on {report.dataset}: each class's coreset against its class; f is the "
        f"{VIEWS[report.view].split(',')[0]}",
        ("class", *(heading for heading, _ in columns)),
        tuple((part.name, *(number(getattr(part.measured, name)) for _, name in columns)) for part in report.classes),
    )


def conditions_table(report: TheoryReport) -> Table:
    """A row for each condition and, under it, its corrected form; both sides are medians over the classes."""
    table = Table(title=report.classes[0].theorem.name, title_justify="left")
    for heading in ("condition", "as written", "left", "right", f"of {len(report.classes)} classes"):
        table.add_column(heading, justify="right" if heading in ("left", "right") else "left", overflow="fold")
    for position, condition in enumerate(report.classes[0].theorem.conditions):
        stated = [part.theorem.conditions[position] for part in report.classes]
        table.add_row(condition.name, *_sides(stated))
        corrected = [item.corrected for item in stated if item.corrected is not None]
        if corrected:
            table.add_row(Text("  corrected", style="italic"), *_sides(corrected))
    return table


def iterations_table(report: TheoryReport) -> Table:
    """A row for each formula; the value is the median over the classes for which it has one."""
    table = Table(title="Iterations of gradient descent asked for", title_justify="left")
    for heading in ("formula", "", "median", "without a value"):
        table.add_column(heading, justify="right" if heading == "median" else "left", overflow="fold")
    for position, formula in enumerate(report.classes[0].theorem.iterations):
        every = [part.theorem.iterations[position] for part in report.classes]
        table.add_row(
            formula.name, Text(formula.statement), number(median([item.value for item in every])), _why(every)
        )
    return table


def print_sweep(path: Path, console: Console) -> None:
    """Show the file that :func:`continual_crust.report.theory_sweep.sweep` wrote."""
    for table in sweep_tables(json.loads(path.read_text(encoding="utf-8"))["rows"]):
        print_wide(table, console)


def print_wide(found: TextTable, console: Console) -> None:
    """Show a table; where it is wider than the terminal, in parts, since half a number is no number."""
    columns = list(zip(found.headings, *found.rows, strict=True))
    widths = [max(map(cell_len, column)) + _FRAME for column in columns]
    parts: list[list[int]] = [[]]
    for position in range(1, len(columns)):
        if parts[-1] and 1 + widths[0] + sum(widths[at] for at in (*parts[-1], position)) > console.width:
            parts.append([])
        parts[-1].append(position)
    for part in parts:
        table = Table(title=found.title if part is parts[0] else None, title_justify="left")
        for at in (0, *part):
            table.add_column(found.headings[at], justify="right" if at else "left")
        for row in found.rows:
            table.add_row(*(Text(row[at]) for at in (0, *part)))
        console.print(table)


def _sides(conditions: Sequence[Condition]) -> tuple[Text, str, str, Text]:
    counts = Counter(condition.status for condition in conditions)
    verdict = Text(", ").join(
        Text(f"{status.value} in {counts[status]}", style=_COLOURS[status]) for status in Status if counts[status]
    )
    left, right = (median([getattr(condition, side) for condition in conditions]) for side in ("left", "right"))
    return Text(conditions[0].statement), number(left), number(right), verdict


def _why(every: Sequence[Iterations]) -> Text:
    reasons = Counter(item.reason for item in every if item.value is None)
    if not reasons:
        return Text("")
    reason, _ = reasons.most_common(1)[0]
    return Text(f"{sum(reasons.values())} of {len(every)}, for example: {reason}", style="yellow")


def _slips(report: TheoryReport) -> list[str]:
    theorems = [part.theorem for part in report.classes]
    conditions = [(item.name, item.slip) for theorem in theorems for item in theorem.conditions]
    iterations = [(f"iterations, {item.name}", item.slip) for theorem in theorems for item in theorem.iterations]
    return _told(conditions + iterations)


def _remedies(report: TheoryReport) -> list[str]:
    conditions = [condition for part in report.classes for condition in part.theorem.conditions]
    return _told((item.name, item.remedy) for item in conditions if item.to_go_by.status is not Status.HOLDS)


def _told(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Each text once, in order of appearance, after the name of what it is about."""
    return list(dict.fromkeys(f"{name}: {text}" for name, text in pairs if text))
