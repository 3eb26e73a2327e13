"""Errors that a person can mend: wrong input, and a machine that is too small for the task."""

from __future__ import annotations

import errno
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any


class InputError(ValueError):
    """Something given to us is wrong. The message is one sentence: what, where, what to do about it."""


_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "alloc_failed")
"""How PyTorch's errors tell that memory has run out, of a GPU or of the machine."""
_REFUSALS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EMFILE, errno.ENFILE, errno.ESTALE),
}
"""What operating systems say when it is not the program's fault."""
KINDS: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
"""What to call a value of each type."""
_OPTIONS = {"memory_per_class": "--memory", "learning_rate": "--lr"}
"""Settings whose option on the command line is another word."""


def trouble_of_the_machine(error: BaseException) -> str | None:
    """One sentence about memory that has run out or a disk that refuses; None for what is likely a bug.

    >>> trouble_of_the_machine(OSError(28, "No space left on device", "runs/result.json"))
    'cannot read or write runs/result.json (No space left on device); make room or mend permissions, and repeat.'
    """
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; use smaller images, a smaller data set, or fewer runs at a time."
    if isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _OUT_OF_MEMORY):
        return "the device has not enough memory for this; use smaller batches or images, or fewer runs at a time."
    if isinstance(error, OSError) and error.errno in _REFUSALS:
        what = f"read or write {error.filename}" if error.filename else "write"
        return f"cannot {what} ({error.strerror}); make room or mend permissions, and repeat."
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
        return "there is no folder for temporary files that can be written to; make room, or set TMPDIR to one."
    return None


@contextmanager
def told_if_unwritable(path: Path, option: str = "--out") -> Iterator[None]:
    """Turn the operating system's refusal to write into one sentence: which path, why, and the option to change."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {path} ({error.strerror}); choose another {option}.") from None


def first_few(names: Sequence[str], most: int) -> str:
    """Names for a sentence, where there may be too many of them for one.

    >>> first_few(["cat", "dog", "fox"], 2)
    'cat, dog, …'
    """
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def told_name(setting: str) -> str:
    """A setting's name for messages: with its option on the command line too, where that is another word.

    >>> told_name("learning_rate"), told_name("batch_size")
    ('learning_rate (--lr)', 'batch_size')
    """
    return f"{setting} ({_OPTIONS[setting]})" if setting in _OPTIONS else setting


def is_number(value: object) -> bool:
    """Whether a value can be compared with numbers, whatever its type hint promised."""
    return isinstance(value, Real)


def check_types(settings: Any) -> None:
    """Refuse a dataclass with values of another type than its fields' defaults; they may come from a file.

    NumPy's numbers become Python's, and whole numbers become floating-point ones where the default is one. Fields whose
    default is no number, truth value or text, as None, are not checked.
    """
    for entry in fields(settings):
        value, wanted = getattr(settings, entry.name), type(entry.default)
        if wanted not in KINDS:
            continue
        if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of NumPy's, as searches have them
            value = value.item()
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):  # so that 0 and 0.0 are one run
            value = float(value) if abs(value) <= sys.float_info.max else math.inf
        object.__setattr__(settings, entry.name, value)
        if isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool):
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{told_name(entry.name)} is {value}; give a finite number.")
            continue
        raise InputError(f"{told_name(entry.name)} is {value!r}; give {KINDS[wanted]}.")


def unknown_name(kind: str, name: object, known: Iterable[str]) -> InputError:
    """Build the error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    if not names:
        return InputError(f"there is no {kind} '{name}', as there is none at all; leave it out.")
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? Known: " if near else "known: "
    return InputError(f"there is no {kind} '{name}'; {hint}{', '.join(names)}.")
