"""Hyper-parameters that belong to one method alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from continual_crust.errors import InputError, check_types, unknown_name


@dataclass(frozen=True)
class NoOptions:
    """For methods that have none."""


def build_options(method: str, options_type: type, given: Mapping[str, Any]) -> Any:
    """Make a method's options from names and values; values may be text, as on a command line."""
    known = {field.name: field for field in fields(options_type)}
    values = {}
    for name, value in given.items():
        if name not in known:
            if not known:
                raise InputError(f"method '{method}' has no options of its own; leave out '{name}'.")
            raise unknown_name(f"option of method '{method}'", name, known)
        values[name] = _converted(method, name, value, type(known[name].default))
    options = options_type(**values)
    check_types(options)
    return options


def _converted(method: str, name: str, value: Any, wanted: type) -> Any:
    if wanted is bool and isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise InputError(f"option '{name}' of method '{method}' is '{value}'; give true or false.")
        return value.lower() == "true"
    try:
        return wanted(value)
    except (TypeError, ValueError):
        raise InputError(f"option '{name}' of method '{method}' is '{value}'; give a {wanted.__name__}.") from None
