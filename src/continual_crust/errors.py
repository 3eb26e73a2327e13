"""The one kind of error that is a person's to mend."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Something given to us is wrong. The message is one sentence: what, where, what to do about it."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? Known: " if near else "known: "
    return InputError(f"there is no {kind} '{name}'; {hint}{', '.join(names)}.")
