"""What collected results say about the cells that shipped studies plan."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

from continual_crust.data.noise import Noise
from continual_crust.errors import InputError
from continual_crust.evaluation.statistics import mean_and_std
from continual_crust.report.cells import Measure
from continual_crust.report.departures import departures, setting_words, training_departures
from continual_crust.report.styles import style_of
from continual_crust.report.tables import decimal, markdown_table
from continual_crust.strategies.training import PRECISIONS
from continual_crust.studies.collected import KeptRun
from continual_crust.studies.config import RunConfig
from continual_crust.studies.result import RunResult
from continual_crust.studies.study import Study, revision_of, run_id

NOT_RUN = "not run yet"
NOTHING = "–"
"""Where there is nothing to measure: joint training cannot forget."""


@dataclass(frozen=True)
class Place:
    """Where methods are compared: a noisy stream and a size of the memory."""

    dataset: str
    noise: Noise
    memory: int
    classes_per_experience: int = 1

    @classmethod
    def of(cls, config: RunConfig) -> Place:
        """The place of a run."""
        return cls(config.dataset, config.noise, config.training.memory_per_class, config.classes_per_experience)


@dataclass(frozen=True)
class Cell:
    """The finished runs of one method at one place."""

    results: tuple[RunResult, ...] = ()
    precision: str = PRECISIONS[0]
    """Of the arithmetic of all of them."""

    def mean(self, measure: Measure) -> float:
        """Mean over seeds, NaN where nothing was measured."""
        return mean_and_std(getattr(result, measure.name) for result in self.results)[0]

    def words(self, measure: Measure) -> str:
        """Mean, deviation and number of seeds.

        >>> from continual_crust.report.cells import ACCURACY
        >>> Cell().words(ACCURACY)
        'not run yet'
        """
        if not self.results:
            return NOT_RUN
        values = [getattr(result, measure.name) for result in self.results]
        if all(value is None for value in values):
            return NOTHING
        mean, std = mean_and_std(values)
        note = "" if self.precision == PRECISIONS[0] else f", {self.precision}"
        return f"{spread(mean, std, 3)} ({len(self.results)}{note})"


class Evidence:
    """Collected results, and the runs that studies plan.

    A cell has runs of one precision only: the one of which there are more, float32 if there are as many.

    Raises
    ------
    InputError
        If two of the studies plan different runs for the same cell.
    """

    def __init__(self, studies: Iterable[Study], rows: Iterable[KeptRun]) -> None:
        self._results: dict[str, dict[str, RunResult]] = {precision: {} for precision in PRECISIONS}
        for row in rows:
            if row.result.revision == revision_of(row.config.method):
                self._results[row.config.training.precision][_id_at_any_precision(row.config)] = row.result
        self._planned: dict[tuple[str, Place], dict[int, str]] = {}
        for study in studies:
            for config in study.runs():
                run = _id_at_any_precision(config)
                cell = self._planned.setdefault((name_of(config), Place.of(config)), {})
                if cell.setdefault(config.seed, run) != run:
                    raise InputError(
                        f"{study.id} means another run by {run} than an earlier study; a table cannot show both."
                    )

    def cell(self, name: str, place: Place, seeds: Collection[int]) -> Cell:
        """The finished runs of a method at a place, with some seeds."""
        planned = self._planned.get((name, place), {})
        return self._cell([run for seed, run in planned.items() if seed in seeds])

    def plans(self, name: str, places: Iterable[Place]) -> bool:
        """Whether studies have runs of a method at all of these places."""
        return all((name, place) in self._planned for place in places)

    def of(self, configs: Iterable[RunConfig]) -> Cell:
        """The finished ones of runs that differ in nothing but the seed."""
        return self._cell(list(map(_id_at_any_precision, configs)))

    def _cell(self, runs: Sequence[str]) -> Cell:
        cells = [
            Cell(tuple(results[run] for run in runs if run in results), precision)
            for precision, results in self._results.items()
        ]
        return max(cells, key=lambda cell: len(cell.results))


def table_of_what_was_run(
    headings: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1, tells_missing: bool = True
) -> str:
    """A table of the rows and columns in which anything was run; below it, the names of the others.

    >>> cells = [["Replay", "0.5 (1)", NOT_RUN], ["DER", NOT_RUN, NOT_RUN]]
    >>> print(table_of_what_was_run(["method", "MNIST", "MSTAR"], cells), end="")
    | method | MNIST |
    | --- | ---: |
    | Replay | 0.5 (1) |
    <BLANKLINE>
    Not run yet: DER. Nothing was run yet for: MSTAR.
    """
    lines = [(row, [bool(cell) and not cell.startswith(NOT_RUN) for cell in row[names:]]) for row in rows]
    shown = [row for row, run in lines if any(run)]
    if not shown:
        return f"All of this table is {NOT_RUN}.\n" if tells_missing else ""
    columns = [n for n in range(len(headings)) if n < names or any(run[n - names] for _, run in lines)]
    text = markdown_table([headings[n] for n in columns], [[row[n] for n in columns] for row in shown], names)
    left_out = _by_last_name([row[:names] for row, run in lines if not any(run)])
    places = "; ".join(heading for n, heading in enumerate(headings) if n not in columns)
    missing = [left_out and f"{NOT_RUN.capitalize()}: {left_out}.", places and f"Nothing was run yet for: {places}."]
    return text + (f"\n{' '.join(filter(None, missing))}\n" if tells_missing and any(missing) else "")


def _by_last_name(names: Iterable[Sequence[str]]) -> str:
    """Names of rows in a sentence. What several have in common, the place after the method, is told once.

    >>> _by_last_name([("DER", "MNIST"), ("Replay", "MNIST"), ("DER", "MSTAR")]), _by_last_name([("DER",), ("Replay",)])
    ('MNIST: DER; Replay. MSTAR: DER', 'DER; Replay')
    """
    groups: dict[str, list[str]] = {}
    for *first, last in names:
        groups.setdefault(last if first else "", []).append(", ".join(first) or last)
    return ". ".join((f"{last}: " if last else "") + "; ".join(group) for last, group in groups.items())


def _id_at_any_precision(config: RunConfig) -> str:
    return run_id(replace(config, training=replace(config.training, precision=PRECISIONS[0])))


def name_of(config: RunConfig) -> str:
    """A method's name for people, with what its selector and options depart in from the defaults for the data set.

    >>> from continual_crust.selection.selectors import SelectorConfig
    >>> name_of(RunConfig("mnist", "der", "simple_cnn", selector=SelectorConfig("herding"), options={"alpha": 0.3}))
    'DER, memory by herding, alpha 0.3'
    """
    name = style_of(config.method).label
    changed = departures(config)
    if config.method == "crust" and config.selector.name == "crust":
        as_written = config.selector.rule == "facility_location"
        name += " as written" if as_written else " as released"
        if as_written:
            changed.pop("selector.rule", None)
    return ", ".join([name, *starmap(setting_words, changed.items())])


def full_name_of(config: RunConfig, shared: Mapping[str, Any]) -> str:
    """The same, with what the training departs in from the defaults for the data set and from the whole study."""
    return ", ".join([name_of(config), *starmap(setting_words, training_departures(config, shared).items())])


def spread(mean: float, std: float, digits: int) -> str:
    """A mean and its deviation, if there is one, with spaces at which a narrow column does not break.

    >>> spread(-0.0412, 0.0123, 2), spread(0.5, math.nan, 3)
    ('−0.04\\xa0±\\xa00.01', '0.500')
    """
    text = decimal(mean, digits)
    return text if math.isnan(std) else f"{text}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{std:.{digits}f}"
