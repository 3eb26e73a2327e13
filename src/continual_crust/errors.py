"""The one kind of error that is a person's to mend."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any


class InputError(ValueError):
    """Something given to us is wrong. The message is one sentence: what, where, what to do about it."""


def check_types(settings: Any) -> None:
    """Refuse a dataclass whose values are of another type than its defaults: they may come from a file."""
    for entry in fields(settings):
        value, wanted = getattr(settings, entry.name), type(entry.default)
        if isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool):
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{entry.name} is {value}; give a finite number.")
            continue
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            continue
        kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
        raise InputError(f"{entry.name} is {value!r}; give {kinds.get(wanted, 'another value')}.")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? Known: " if near else "known: "
    return InputError(f"there is no {kind} '{name}'; {hint}{', '.join(names)}.")
