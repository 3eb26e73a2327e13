"""What several commands print in the same way."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import TaskID
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from continual_crust.studies.engines import Event
    from continual_crust.studies.result import RunResult

console = Console()


def counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def new_table(*headings: str) -> Table:
    table = Table()
    for number, heading in enumerate(headings):
        text = number == 0 or heading in ("class", "wrong labels, estimated")
        table.add_column(heading, justify="left" if text else "right", overflow="fold")
    return table


def say(sentence: str) -> None:
    # As plain text: a file name may look like markup.
    console.print(Text(printable(sentence)), soft_wrap=True)


def tell_where(before: str, place: object, after: str = "") -> None:
    """Name a file or folder, which stands out between the words."""
    console.print(Text.assemble((before, "dim"), str(place), (after, "dim")), soft_wrap=True)


def warn(sentence: str) -> None:
    print(printable(sentence), file=sys.stderr)


def printable(text: str) -> str:
    """File names may hold what a terminal would obey."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_results(results: list[RunResult]) -> None:
    """A line for each method: means over seeds, with standard deviations where there are several."""
    from continual_crust.report.tables import percent, summary_table

    table = Table(title=f"{results[0].dataset}, noise {results[0].noise}", title_justify="left")
    for heading in ("method", "seeds", "accuracy %", "forgetting %", "purity %", "seconds"):
        table.add_column(heading, justify="left" if heading == "method" else "right", overflow="fold")
    for row in summary_table(results).to_dict("records"):
        shares = (percent(row[name], row[f"{name}_std"]) for name in ("accuracy", "forgetting", "purity"))
        measures = (share.removesuffix(" %") for share in shares)
        table.add_row(row["method"], str(row["runs"]), *measures, f"{row['seconds']:.1f}")
    console.print(table)


def follow_runs(title: str, events: Iterable[Event], runs: int) -> tuple[Counter[str], Counter[str]]:
    """Show how far runs have come until all are over; counts how they ended, and what was wrong with those that failed.

    Each problem is printed when it first occurs.
    """
    from continual_crust.progress import progress_bar

    outcomes: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    with progress_bar(console) as bar:
        overall = bar.add_task(title, total=runs)
        under_way: dict[str, TaskID] = {}
        for event in events:
            if event.kind == "experience":
                if event.run not in under_way:
                    under_way[event.run] = bar.add_task(event.run, total=event.count)
                bar.update(under_way[event.run], completed=event.learned)
                continue
            if event.run in under_way:
                bar.remove_task(under_way.pop(event.run))
            outcomes[event.kind] += 1
            bar.advance(overall)
            if event.kind == "failed":
                problems[event.problem] += 1
                if problems[event.problem] == 1:
                    bar.console.print(Text(f"{event.run}: {event.problem}"), soft_wrap=True)
    return outcomes, problems
