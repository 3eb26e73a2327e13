"""What images that are moved and mirrored while they are learned change about the paper's methods."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import starmap

from continual_crust.report.cells import ACCURACY, FORGETTING, SHARES, noise_words
from continual_crust.report.departures import is_trained_for, setting_words, training_departures
from continual_crust.report.evidence import NOT_RUN, Cell, Evidence, Place, name_of, spread, table_of_what_was_run
from continual_crust.report.paper_comparison import DATASET_NAMES, READINGS, Comparison
from continual_crust.report.styles import style_of
from continual_crust.strategies.training import PRECISIONS
from continual_crust.studies.config import RunConfig
from continual_crust.studies.paper import PaperTable, paper_table
from continual_crust.studies.study_file import shipped_studies

STUDIES = ("readings_large", "readings_mnist_moved_300", "readings_mnist_moved_100")
"""Those in which images are moved. The large networks first, where it matters most."""


@dataclass(frozen=True)
class Moved:
    """A method at one place, on images as they came and on moved ones."""

    method: str
    """How the paper's tables call what it is a reading of."""
    name: str
    """For people."""
    has_all_data: bool
    """Whether it learns all data of old classes again in phase 1."""
    place: Place
    as_they_came: Cell
    moved: Cell
    paper: PaperTable

    @property
    def accuracies(self) -> tuple[Comparison, Comparison]:
        """The accuracies on images as they came and on moved ones, each beside the paper's."""
        theirs = self._paper(ACCURACY.name)
        came, moved = (Comparison(self.name, self.place, ACCURACY, cell, theirs) for cell in self._cells)
        return came, moved

    def row(self) -> list[str]:
        """The cells of its row in the table."""
        paper = [found and spread(*found, 2) for found in map(self._paper, (ACCURACY.name, FORGETTING.name))]
        verdicts = [
            Comparison(self.name, self.place, measure, self.moved, self._paper(measure.name)).verdict
            for measure in (ACCURACY, FORGETTING)
        ]
        where = f"{DATASET_NAMES[self.place.dataset]}, {noise_words(self.place.noise)}, k = {self.place.memory}"
        return [
            self.name,
            where,
            *map(_three, self._cells),
            ", ".join(filter(None, paper)),
            ", ".join(filter(None, verdicts)),
        ]

    @property
    def _cells(self) -> tuple[Cell, Cell]:
        return self.as_they_came, self.moved

    def _paper(self, measure: str) -> tuple[float, float] | None:
        return self.paper.value(self.method, self.place.noise.level, measure, self.place.dataset)


def moved_table(evidence: Evidence) -> str:
    """Every method that was run on moved images: without and with them, the paper's numbers, and the verdicts."""
    rows = [found.row() for found in all_moved(evidence)]
    # What was run without moved images alone says nothing here.
    rows = [row if row[3] != NOT_RUN else [*row[:2], NOT_RUN, NOT_RUN, "", ""] for row in rows]
    headings = ["method", "where", "as they came", "moved and mirrored", "the paper", "moved: accuracy, forgetting"]
    return table_of_what_was_run(headings, rows, 2)


def all_moved(evidence: Evidence) -> Iterator[Moved]:
    """Every method at every place where a study moves its images, run or not."""
    groups: dict[tuple[str, Place], list[RunConfig]] = {}
    for study in STUDIES:
        for config in shipped_studies()[study].runs():
            if config.training.shift:
                groups.setdefault((_name_of(config), Place.of(config)), []).append(config)
    for (name, place), configs in groups.items():
        came, table = list(map(_unmoved, configs)), _table_of(configs[0])
        method = configs[0].method
        paper_method = _methods_of_readings().get(method, method)
        all_data = paper_method != method
        yield Moved(paper_method, name, all_data, place, evidence.of(came), evidence.of(configs), table)


def _unmoved(config: RunConfig) -> RunConfig:
    return replace(config, training=replace(config.training, shift=0.0, mirror=False))


def _table_of(config: RunConfig) -> PaperTable:
    return paper_table(f"{config.dataset}_label_{config.training.memory_per_class}")


def _name_of(config: RunConfig) -> str:
    """The method's name, with the learning rate where it is not the one it has beside the paper's numbers."""
    came = _unmoved(replace(config, training=replace(config.training, precision=PRECISIONS[0])))
    changed = {} if is_trained_for(_table_of(came).id, came, {}) else training_departures(came, {})
    return ", ".join([name_of(came), *starmap(setting_words, changed.items())])


@cache
def _methods_of_readings() -> dict[str, str]:
    """By each method that is another reading of a method of the paper, that method."""
    labels = {label: method for method, readings in READINGS.items() for label in readings}
    own = ("cumulative_crust", "cumulative_cosine_crust")
    return {reading: labels[style_of(reading).label] for reading in own}


def _three(cell: Cell) -> str:
    """Accuracy, forgetting and purity, as far as they were measured."""
    means = [cell.mean(measure) for measure in SHARES] if cell.results else []
    return ", ".join(spread(mean, math.nan, 3) for mean in means if not math.isnan(mean)) or NOT_RUN
