"""The numbers of the paper's tables, to lay beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from continual_crust.errors import unknown_name

MEASURES = {"accuracy": "acc", "forgetting": "forgetting", "purity": "purity"}
"""Our names of what is measured, and those in the file of numbers."""
WITHOUT_MEMORY = ("naive", "joint", "cumulative")
"""Methods that keep nothing, or everything."""


@dataclass(frozen=True)
class PaperSettings:
    """A row of the paper's table of hyper-parameters. Adam throughout."""

    dataset: str
    noise: str
    """``label`` or ``instance``."""
    model: str
    learning_rate: float
    weight_decay: float
    batch_size: int
    phase1_epochs: int
    phase2_epochs: int
    memory_per_class: int


@dataclass(frozen=True)
class PaperTable:
    """One table of results: a mean and a standard deviation over five seeds in each cell."""

    id: str
    noise: str
    """Kind of noise."""
    datasets: tuple[str, ...]
    levels: tuple[float, ...]
    """Noise levels."""
    methods: tuple[str, ...]
    measures: tuple[str, ...]
    """Of ``accuracy``, ``forgetting`` and ``purity`` those it has."""
    cosine_crust_significantly: Mapping[str, Mapping[str, str | None]]
    """By method and measure, whether CosineCRUST is printed as significantly ``better``; empty where nothing is."""
    _memory: int | None
    _cells: Mapping[tuple[str, str, float, str], tuple[float, float]]

    def value(self, method: str, level: float, measure: str, dataset: str) -> tuple[float, float] | None:
        """Mean and standard deviation, or None where the paper has none."""
        if measure not in MEASURES:
            raise unknown_name("measure", measure, MEASURES)
        return self._cells.get((method, dataset, round(level, 6), measure))

    def memory(self, method: str, dataset: str) -> int | None:
        """Samples the paper keeps for each class; None for methods that keep none, or all."""
        if method in WITHOUT_MEMORY:
            return None
        if self._memory is not None:
            return self._memory
        settings = paper_settings(dataset, self.noise)
        return settings.memory_per_class if settings is not None else None


def paper_tables() -> tuple[str, ...]:
    """Ids of all tables, the main one first."""
    return tuple(_tables())


def paper_table(table_id: str) -> PaperTable:
    """A table by its id.

    >>> paper_table("main_label_0.5").value("crust", 0.5, "accuracy", "mnist")
    (0.86, 0.08)
    """
    if table_id not in _tables():
        raise unknown_name("table of the paper", table_id, _tables())
    return _tables()[table_id]


def paper_settings(dataset: str, noise: str) -> PaperSettings | None:
    """The paper's hyper-parameters for a data set and a kind of noise; those for flipped labels if there is none."""
    kind = "instance" if noise in ("salt_and_pepper", "uniform") else "label"
    rows = {row.noise: row for row in _settings() if row.dataset == dataset and row.noise in ("label", kind)}
    return rows.get(kind, rows.get("label"))


@cache
def _file() -> Mapping[str, Any]:
    text = (resources.files("continual_crust.studies") / "paper_results.json").read_text(encoding="utf-8")
    numbers: dict[str, Any] = json.loads(text)
    return numbers


@cache
def _settings() -> tuple[PaperSettings, ...]:
    return tuple(
        PaperSettings(
            dataset=row["dataset"],
            noise=row["noise"],
            model=row["model"],
            learning_rate=row["lr"],
            weight_decay=row["weight_decay"],
            batch_size=row["batch"],
            phase1_epochs=row["phase1_epochs"],
            phase2_epochs=row["phase2_epochs"],
            memory_per_class=row["coreset"],
        )
        for row in _file()["hyperparameters"]
    )


@cache
def _tables() -> Mapping[str, PaperTable]:
    return {entry["id"]: _table(entry) for entry in _file()["tables"]}


def _table(entry: Mapping[str, Any]) -> PaperTable:
    cells: dict[tuple[str, str, float, str], tuple[float, float]] = {}
    for method, rows in entry["results"].items():
        # Either by data set at one level, or a list of levels of one data set.
        places = (
            [(dataset, entry["level"], row) for dataset, row in rows.items()]
            if isinstance(rows, dict)
            else [(entry["dataset"], row["noise"], row) for row in rows]
        )
        for dataset, level, row in places:
            for measure, key in MEASURES.items():
                if row.get(key) is not None:
                    mean, std = row[key]
                    cells[method, dataset, round(level, 6), measure] = (mean, std)
    arrows = entry.get("cosine_crust_significantly", {})
    found = {measure for *_, measure in cells}
    return PaperTable(
        id=entry["id"],
        noise=entry["noise"],
        datasets=tuple(entry.get("datasets") or [entry["dataset"]]),
        levels=tuple(entry.get("levels") or [entry["level"]]),
        methods=tuple(entry["results"]),
        measures=tuple(measure for measure in MEASURES if measure in found),
        cosine_crust_significantly={
            method: {measure: row.get(key) for measure, key in MEASURES.items() if key in row}
            for method, row in arrows.items()
        },
        _memory=entry.get("coreset"),
        _cells=cells,
    )
