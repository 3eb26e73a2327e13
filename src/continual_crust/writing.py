"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import math
import os
import tempfile
from enum import Enum
from pathlib import Path
from typing import Any

UNFINISHED = ".unfinished"
"""How the names of files end that are being written; what is left of one can be thrown away."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that it is there whole or not at all, whenever the program or the machine stops.

    A link stays a link, and what is no file, such as a device or a pipe, is written to and not replaced.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)  # /dev/stdout may be a link to what has no name
        else:
            _write_beside_and_rename(path.resolve(), data)
    except OSError as error:
        # Of a full disk the system does not say which file it was.
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write_beside_and_rename(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Store a nested value as JSON, whole or not at all."""
    write_atomically(path, json.dumps(finite(value), indent=1, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """A nested value as JSON can hold it: enum members by their values, NaN and infinity as None."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
