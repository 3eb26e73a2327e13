"""A live line that says how far a run has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

OnProgress = Callable[[str, int, int], None]
"""Is told what is being done, how much of it is done and how much there is."""


def unwatched(what: str, done: int, total: int) -> None:
    """An :data:`OnProgress` where nobody wants to know."""


class Count:
    """Tells how far something has come that is done piece by piece."""

    def __init__(self, on_progress: OnProgress, what: str, total: int, done: int = 0) -> None:
        self._on_progress, self._what, self._total, self._done = on_progress, what, total, done

    def add(self, count: int) -> None:
        """So much more is done."""
        self._done = min(self._done + count, self._total)
        self._on_progress(self._what, self._done, self._total)


class RunProgress:
    """Follows one run: which experience, which phase, which epoch, how long still."""

    def __init__(self, progress: Progress, epochs_per_experience: int, title: str = "") -> None:
        self._progress = progress
        self._epochs = epochs_per_experience
        self._title = title
        self._task = progress.add_task(title or "starting", total=None)
        self._experience = ""

    def experience(self, number: int, count: int) -> None:
        """An experience is about to be learned; counted from 0."""
        self._experience = f"{self._title}experience {number + 1}/{count}"
        self._progress.update(self._task, description=self._experience, total=self._epochs * count)

    def epoch(self, phase: str, epoch: int, epochs: int, loss: Callable[[], float]) -> None:
        """An epoch of a phase is done."""
        now = f"{self._experience}, {phase}, epoch {epoch}/{epochs}, loss {loss():.3f}"
        self._progress.update(self._task, description=now, advance=1)

    def finish(self) -> None:
        """The run is over; its line goes away."""
        self._progress.remove_task(self._task)


class _Description(ProgressColumn):
    """What is being done, cut off where the line is too short for it."""

    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True, overflow="ellipsis")


@contextmanager
def progress_bar(console: Console) -> Iterator[Progress]:
    """Bars with elapsed and remaining time, gone when the block ends; none in a file or a pipe."""

    def whole() -> Column:
        return Column(no_wrap=True)

    with Progress(
        _Description(),
        BarColumn(max(6, min(40, console.width - 105)), table_column=whole()),
        MofNCompleteColumn(table_column=whole()),
        TimeElapsedColumn(table_column=whole()),
        TextColumn("left:"),
        TimeRemainingColumn(table_column=whole()),
        console=console,
        transient=True,
        disable=not console.is_interactive,
    ) as progress:
        yield progress
