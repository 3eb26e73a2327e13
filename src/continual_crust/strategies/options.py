"""Hyper-parameters that belong to one method alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from continual_crust.errors import KINDS, InputError, check_types, unknown_name


@dataclass(frozen=True)
class NoOptions:
    """For methods that have none."""


def build_options(method: str, options_type: type, given: Any = None) -> Any:
    """A method's options from what was given: the options themselves, names and values, or nothing.

    Values may be text, as on a command line.
    """
    options = _named(method, options_type, given or {}) if given is None or isinstance(given, Mapping) else given
    if not isinstance(options, options_type):
        raise InputError(f"options are a {type(given).__name__}; give '{method}' a {options_type.__name__} or a dict.")
    check_types(options)
    return options


def _named(method: str, options_type: type, given: Mapping[str, Any]) -> Any:
    known = {field.name: field for field in fields(options_type)}
    values = {}
    for name, value in given.items():
        if name not in known:
            if not known:
                raise InputError(f"method '{method}' has no options of its own; leave out '{name}'.")
            raise unknown_name(f"{method} option", name, known)
        values[name] = _converted(method, name, value, type(known[name].default))
    return options_type(**values)


def _converted(method: str, name: str, value: Any, wanted: type) -> Any:
    """A value of the type that the option has: text is read, and a whole number is a number; nothing is rounded."""
    is_text, is_truth = isinstance(value, str), isinstance(value, bool)
    if wanted is bool and is_text and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if wanted not in KINDS:  # None, a tuple or no default at all: only the options themselves know what they take
        return value
    fits = {int: isinstance(value, Integral) and not is_truth, float: isinstance(value, Real) and not is_truth}
    if fits.get(wanted, isinstance(value, wanted)) or (is_text and wanted is not bool):
        try:
            return wanted(value)
        except ValueError:
            pass
    raise InputError(f"option '{name}' of method '{method}' is '{value}'; give {KINDS[wanted]}.")
