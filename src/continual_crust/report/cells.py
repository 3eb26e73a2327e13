"""Runs sorted into rows and columns, and the numbers of each cell beside the paper's."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from continual_crust.data.noise import Noise, NoiseKind
from continual_crust.evaluation.statistics import bootstrap_interval, mean_and_std
from continual_crust.report.departures import (
    departures,
    has_the_papers_stream,
    is_trained_for,
    setting_words,
    training_departures,
)
from continual_crust.report.study_data import Run, StudyData
from continual_crust.report.styles import style_of
from continual_crust.strategies import STRATEGIES
from continual_crust.studies.config import RunConfig
from continual_crust.studies.paper import PaperTable
from continual_crust.studies.result import RunResult
from continual_crust.studies.study import run_id, settings_read

ROUNDING = 0.005
"""The paper prints two digits; half of the last one is allowed for before a number counts as outside."""


@dataclass(frozen=True)
class Measure:
    """Something that is measured of every run."""

    name: str
    title: str
    is_share: bool = True
    """Shown in percent; otherwise in seconds."""
    higher_is_better: bool = True


ACCURACY = Measure("accuracy", "Accuracy")
FORGETTING = Measure("forgetting", "Forgetting", higher_is_better=False)
PURITY = Measure("purity", "Purity of the memory")
SHARES = (ACCURACY, FORGETTING, PURITY)
SECONDS = Measure("seconds", "Time of a run", is_share=False, higher_is_better=False)
SELECTION = Measure("selection_seconds", "Time for selection", is_share=False, higher_is_better=False)


@dataclass(frozen=True)
class Row:
    """A method, with what distinguishes it from others of its name in the same study."""

    method: str
    detail: str = ""

    @property
    def label(self) -> str:
        """For people."""
        name = style_of(self.method).label
        return f"{name} ({self.detail})" if self.detail else name


@dataclass(frozen=True)
class Column:
    """Noisy data. Without noise there is only one kind of it."""

    dataset: str
    noise: Noise


@dataclass(frozen=True)
class Summary:
    """The numbers of a cell for one measure."""

    mean: float
    std: float
    seeds: int
    """Finished runs that have this measure."""
    finished: int
    """Finished runs. With none that has it the measure makes no sense here: joint training cannot forget."""
    planned: int
    """Runs there should be, as far as is known."""
    interval: tuple[float, float]
    """Bootstrap interval of the mean, 95 %."""
    paper: tuple[float, float] | None = None

    @property
    def difference(self) -> float:
        """Ours less the paper's."""
        return self.mean - self.paper[0] if self.paper else math.nan

    @property
    def outside(self) -> int:
        """1 where ours lies above the paper's mean ± 2 standard deviations, −1 below, 0 inside or unknown."""
        return 0 if self.paper is None or math.isnan(self.mean) else outside_of(self.mean, self.paper)


@dataclass(frozen=True)
class Grid:
    """All cells of a study."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    runs: Mapping[tuple[Row, Column], Sequence[Run]] = field(repr=False)
    table: PaperTable | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    """Training settings that hold for the whole study."""

    def results(self, row: Row, column: Column) -> list[RunResult]:
        """The finished runs of a cell, by seed."""
        found = [run.result for run in self.runs.get((row, column), ()) if run.result is not None]
        return sorted(found, key=lambda result: result.seed)

    def summary(self, row: Row, column: Column, measure: Measure) -> Summary:
        """The numbers of a cell."""
        values = [getattr(result, measure.name) for result in self.results(row, column)]
        mean, std = mean_and_std(values)
        return Summary(
            mean=mean,
            std=std,
            seeds=sum(value is not None for value in values),
            finished=len(values),
            planned=len(self.runs.get((row, column), ())),
            interval=bootstrap_interval(values, resamples=2000),
            paper=self._paper(row, column, measure),
        )

    def means(self, columns: Sequence[Column], measure: Measure) -> pd.DataFrame:
        """Means for the tests of :mod:`continual_crust.evaluation.statistics`: a row for each of these columns."""
        return pd.DataFrame(
            {
                row.label: [
                    mean_and_std(getattr(result, measure.name) for result in self.results(row, column))[0]
                    for column in columns
                ]
                for row in self.rows
            },
            index=[column.dataset for column in columns],
        )

    def measured(self, measure: Measure) -> bool:
        """Whether there is any number to show, ours or the paper's."""
        if self.table is not None and measure.name in self.table.measures:
            return True
        cells = ((row, column) for row in self.rows for column in self.columns)
        return any(getattr(result, measure.name) is not None for cell in cells for result in self.results(*cell))

    def _paper(self, row: Row, column: Column, measure: Measure) -> tuple[float, float] | None:
        """The paper's number, if this cell is the same experiment: data, noise, classes, method, memory, training.

        A study as a whole may train in another way than the paper, and its page says so.
        """
        if self.table is None or measure.name not in self.table.measures:
            return None
        if column.noise.kind is not NoiseKind.NONE and column.noise.kind.value != self.table.noise:
            return None
        memory = self.table.memory(row.method, column.dataset)
        # Where nothing was run, other columns tell about the row: those of the data set its memory, all its training.
        ours = {of_column: runs for (of_row, of_column), runs in self.runs.items() if of_row == row}
        others = [run for of_column, runs in ours.items() if of_column.dataset == column.dataset for run in runs]
        here = ours.get(column, others)
        if memory is not None and {run.config.training.memory_per_class for run in here} - {memory}:
            return None
        alike = here or [run for runs in ours.values() for run in runs]
        if not all(is_trained_for(self.table.id, run.config, self.shared) for run in alike):
            return None
        if not all(has_the_papers_stream(run.config) for run in alike):
            return None
        if any("selector.name" in departures(run.config) for run in alike):  # CRUST with a random memory is no CRUST
            return None
        return self.table.value(row.method, column.noise.level, measure.name, column.dataset)


def outside_of(mean: float, paper: tuple[float, float]) -> int:
    """1 where a mean lies above the paper's mean ± 2 standard deviations, −1 below, 0 inside.

    >>> outside_of(0.9, (0.86, 0.08)), outside_of(0.116, (0.11, 0.0)), outside_of(0.114, (0.11, 0.0))
    (0, 1, 0)
    """
    difference = mean - paper[0]
    far = abs(difference) > 2 * paper[1] + ROUNDING + 1e-9
    return int(math.copysign(1, difference)) if far else 0


def build_grid(study: StudyData) -> Grid:
    """Sort a study's runs: those that differ in nothing but the seed share a cell."""
    groups: dict[str, list[Run]] = {}
    for run in study.runs:
        described = {**_flat(run.config), "dataset": run.config.dataset, "noise": str(run.config.noise)}
        groups.setdefault(repr(sorted(described.items())), []).append(run)
    cells = _named_cells(list(groups.values()), study)
    rows, columns = list(dict.fromkeys(row for row, _ in cells)), list(dict.fromkeys(column for _, column in cells))
    if study.table is not None:
        # What the paper has and we have not is missing, and shown so; unless it has none of our data sets at all.
        ours, theirs = {row.method for row in rows}, {column.dataset for column in columns}
        is_beside = not theirs or not theirs.isdisjoint(study.table.datasets)
        rows += [Row(method) for method in study.table.methods if is_beside and method not in ours]
        known = set(columns)
        kind = NoiseKind(study.table.noise)
        wanted = [
            Column(dataset, Noise(kind, level) if level else Noise())
            for dataset in study.table.datasets
            for level in study.table.levels
        ]
        columns += [column for column in wanted if is_beside and column not in known]
    methods = {method: number for number, method in enumerate(STRATEGIES)}
    datasets = {name: number for number, name in enumerate(_dataset_order(study, columns))}
    rows.sort(key=lambda row: methods.get(row.method, len(methods)))
    columns.sort(
        key=lambda column: (
            datasets[column.dataset],
            column.noise.kind.value != "none",
            str(column.noise.kind),
            column.noise.level,
        )
    )
    return Grid(tuple(rows), tuple(columns), cells, study.table, study.shared)


def noise_words(noise: Noise) -> str:
    """What is wrong with the data.

    >>> noise_words(Noise.parse("label:0.5"))
    '50 % flipped labels'
    """
    kinds = {
        NoiseKind.LABEL: "flipped labels",
        NoiseKind.ASYMMETRIC: "labels flipped to the next class",
        NoiseKind.SALT_AND_PEPPER: "salt-and-pepper images",
        NoiseKind.UNIFORM: "images of uniform noise",
    }
    return f"{100 * noise.level:g} % {kinds[noise.kind]}" if noise.kind in kinds else "no noise"


def safe_name(*parts: str) -> str:
    """A file name from names that could be anything.

    >>> safe_name("main_label_0.5", "accuracy"), safe_name("../<b>", "x")
    ('main_label_0.5-accuracy', '_b_-x')
    """
    return "-".join(re.sub(r"[^A-Za-z0-9._-]+", "_", part).lstrip(".-")[:48] or "_" for part in parts)


def unique(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it if it is taken: names that differ may become one file name."""
    again, found = 1, name
    while found in taken:
        again += 1
        found = f"{name}-{again}"
    return found


def _column(config: RunConfig) -> Column:
    return Column(config.dataset, config.noise if config.noise.level else Noise())


def _flat(config: RunConfig) -> dict[str, Any]:
    """Every field but the seed and what a column tells, by its dotted name."""
    flat: dict[str, Any] = {}
    read = settings_read(config.selector.name)
    for name, value in config.as_dict().items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": item for inner, item in value.items() if name != "selector" or inner in read}
        elif name not in ("seed", "dataset", "method", "noise"):
            flat[name] = value
    flat["method"] = config.method
    if not config.noise.level:
        # "none" and "label:0" share a column, but are two configurations.
        flat["noise"] = str(config.noise)
    return flat


def _named_cells(groups: Sequence[Sequence[Run]], study: StudyData) -> dict[tuple[Row, Column], Sequence[Run]]:
    """Rows are named by the settings in which their runs depart from what is usual for the data set.

    So a method is one row, although other settings are usual for other data sets. A setting that a variant of the study
    changes may be the usual one for some of its data sets; it is part of the row's name for all of them. Where two
    variants come to the same runs, both rows have them.
    """
    configs = [runs[0].config for runs in groups]
    telling = _telling(configs, study.shared)
    variants = [[number] for number in range(len(groups))]
    if study.plan is not None:
        numbers = {run_id(run.config): number for number, runs in enumerate(groups) for run in runs}
        parts = (replace(study.plan, variants=(variant,)) for variant in study.plan.variants)
        variants = [list(dict.fromkeys(numbers[run_id(config)] for config in part.runs())) for part in parts]
    cells: dict[tuple[Row, Column], Sequence[Run]] = {}
    for variant in variants:
        names = dict.fromkeys(name for number in variant for name in telling[number])
        for number in variant:
            settings = _flat(configs[number])
            words = [setting_words(name, settings[name]) for name in names if name in settings]
            cells[Row(configs[number].method, ", ".join(words)), _column(configs[number])] = groups[number]
    return cells


def _telling(configs: Sequence[RunConfig], shared: Mapping[str, Any]) -> list[list[str]]:
    """For each configuration, the fields that its row is named by.

    These are the fields that depart from the usual and, where configurations of one method depart in the same way, the
    fields that differ between them within a column. Values that only differ between columns, as the sizes of memory of
    two data sets do, distinguish no rows.
    """
    changed = [departures(config) | training_departures(config, shared) for config in configs]
    kinds = [repr((config.method, settings)) for config, settings in zip(configs, changed, strict=True)]
    values: dict[tuple[str, Column, str], set[str]] = {}
    for kind, config in zip(kinds, configs, strict=True):
        for name, value in _flat(config).items():
            values.setdefault((kind, _column(config), name), set()).add(repr(value))
    several: dict[str, list[str]] = {}
    for (kind, _, name), found in values.items():
        if len(found) > 1:
            several.setdefault(kind, []).append(name)
    return [[*several.get(kind, ()), *settings] for kind, settings in zip(kinds, changed, strict=True)]


def _dataset_order(study: StudyData, columns: Sequence[Column]) -> list[str]:
    """The paper's order, then that in which they appear."""
    first = study.table.datasets if study.table is not None else ()
    return list(dict.fromkeys([*first, *(column.dataset for column in columns)]))
