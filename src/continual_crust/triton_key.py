"""How Triton finds out whether kernels that it compiled before are still its own."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path


def recognise_triton_by_its_files() -> bool:
    """Let Triton recognise itself by its files' sizes and times in this process. Returns whether it could be told so.

    Before its first kernel, Triton reads and hashes its own compiler, half a gigabyte, to look for that kernel among
    those on the disk: up to a second at the start of each process. Sizes and times change as well when another Triton
    is installed, and take milliseconds. It is a setting of the whole process, and therefore one for programs to make,
    not libraries. Where Triton keeps the matter elsewhere, nothing is changed.
    """
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        from triton.runtime import cache
    except Exception:  # one that cannot even be imported: the trial of the first kernel tells
        return False
    if not callable(getattr(cache, "triton_key", None)):
        return False
    cache.triton_key = functools.cache(functools.partial(key_of_files, Path(cache.__file__).parents[1]))
    return True


def key_of_files(folder: Path) -> str:
    """A text that is another one as soon as a file in a folder is another one."""
    key = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".so") and path.is_file()):
        facts = path.stat()
        key.update(f"{path.relative_to(folder)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return key.hexdigest()
