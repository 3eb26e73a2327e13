"""What about a run is not as its method has it unless asked for something else."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from continual_crust.data import SOURCES
from continual_crust.strategies import options_of, strategy_named
from continual_crust.studies.config import RunConfig
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.study import SELECTOR_FIELDS, SETTINGS_READ


def departures(config: RunConfig) -> dict[str, Any]:
    """Settings of selection and of the method's own that are not its default for the data set, by their dotted names.

    A reader would take such a run for the method as it is otherwise. Settings that nobody reads are no departure.
    """
    method, found = strategy_named(config.method), dict[str, Any]()
    if method.remembers:
        read = {"name"} | SETTINGS_READ.get(config.selector.name, SELECTOR_FIELDS)
        changed = differing(config.selector, method.default_selector)
        found |= {f"selector.{name}": value for name, value in changed.items() if name in read}
    usual = defaults_for(config.dataset, config.noise.kind, config.method).options if config.dataset in SOURCES else {}
    changed = differing(options_of(config.method, config.options), options_of(config.method, usual))
    return found | {f"options.{name}": value for name, value in changed.items()}


def differing(settings: Any, usual: Any) -> dict[str, Any]:
    """Fields of a dataclass that are not as usual."""
    names = [entry.name for entry in fields(settings)]
    return {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(usual, name)}
