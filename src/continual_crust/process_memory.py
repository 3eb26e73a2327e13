"""How the C library deals with memory that a program frees."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""The names of two settings, from malloc.h."""
KEPT, LARGEST_FROM_HEAP = 1 << 30, 1 << 25
"""So many free bytes may stay; blocks up to so many bytes, the most one can ask for, are taken from them."""


def keep_freed_memory() -> bool:
    """Let this process keep memory that it has freed, for its next use. Returns whether the C library could be told so.

    A step of training frees some 80 MB of activations and needs them again at once. glibc gives them back to the system
    in between, which then clears page after page anew: up to a quarter of all time. No number
    changes. It is a setting of the whole process, and therefore one for programs to make at their start, not libraries.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library than glibc
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_FROM_HEAP)) and bool(mallopt(TRIM_THRESHOLD, KEPT))
