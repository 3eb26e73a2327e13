"""How a run departs from the usual settings of its method, and the words for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any

from continual_crust.data import SOURCES
from continual_crust.strategies import options_of, strategy_named
from continual_crust.studies.config import RunConfig
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.study import settings_read
from continual_crust.studies.study_file import shipped_studies

UNEXPECTED = {"weighted_loss": "Weighted loss", "shift": "Shift", "mirror": "Mirrored"}
"""Settings of the training of which the paper says nothing, with headings; shown even where a whole study has them."""

STREAM = {"first_classes": "Classes at first", "classes_per_experience": "Classes at a time"}
"""Settings of the stream, with headings. Accuracy and forgetting are means over its experiences, so that in another
number they measure something else."""
UNLIKE_THE_PAPER = {**UNEXPECTED, **STREAM, "crop": "Cropped", "pretrained": "Pretrained"}
"""Settings that make a run another experiment than the paper's where they are not as usual, with headings."""


def departures(config: RunConfig) -> dict[str, Any]:
    """The selector's settings and the method's options that are not its defaults for the data set, by dotted name.

    A run with any must not pass for a usual run of its method. Settings that its selector does not read do not count.
    """
    method, found = strategy_named(config.method), dict[str, Any]()
    if method.remembers:
        read = settings_read(config.selector.name)
        changed = _differing(config.selector, asdict(method.default_selector))
        found |= {f"selector.{name}": value for name, value in changed.items() if name in read}
    usual = defaults_for(config.dataset, config.noise.kind, config.method).options if config.dataset in SOURCES else {}
    changed = _differing(options_of(config.method, config.options), asdict(options_of(config.method, usual)))
    return found | {f"options.{name}": value for name, value in changed.items()}


def training_departures(config: RunConfig, shared: Mapping[str, Any]) -> dict[str, Any]:
    """The same for training: settings that are neither the data set's defaults nor shared by the whole study.

    The size of the memory does not count.
    """
    if config.dataset not in SOURCES:
        return {}
    unread = strategy_named(config.method).unread_training()
    shared = {name: value for name, value in shared.items() if name not in unread}
    usual = asdict(defaults_for(config.dataset, config.noise.kind, config.method).training) | shared
    changed = _differing(config.training, usual | {"memory_per_class": config.training.memory_per_class})
    return {f"training.{name}": value for name, value in changed.items()}


def is_trained_for(table: str, config: RunConfig, shared: Mapping[str, Any]) -> bool:
    """Whether a run is trained as usual, or as our own reproduction of this table of the paper trains the method."""
    changed = training_departures(config, shared)
    return not changed or (config.dataset, config.method, changed) in _trained_for(table)


def has_the_papers_stream(config: RunConfig) -> bool:
    """Whether classes come as in the paper: two at first, then one at a time."""
    usual = {entry.name: entry.default for entry in fields(RunConfig)}
    return all(getattr(config, name) == usual[name] for name in STREAM)


def setting_words(name: str, value: object) -> str:
    """A setting in words: text speaks for itself, other values need the setting's name.

    >>> setting_words("selector.name", "herding"), setting_words("options.mixed", False)
    ('memory by herding', 'without mixed')
    """
    last = "memory" if name == "training.memory_per_class" else name.rpartition(".")[2]
    if isinstance(value, bool):
        return last if value else f"without {last}"
    if isinstance(value, str):
        return f"memory by {value}" if name == "selector.name" else str(getattr(value, "value", value))
    return f"{last} {value}"


@cache
def _trained_for(table: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Data set, method and departures of each run in shipped studies of a table: some rates were tuned for it."""
    runs = (run for study in shipped_studies().values() if study.table == table for run in study.runs())
    return [(run.dataset, run.method, changed) for run in runs if (changed := training_departures(run, {}))]


def _differing(settings: Any, usual: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass that are not as usual."""
    return {name: value for name, value in asdict(settings).items() if value != usual[name]}
