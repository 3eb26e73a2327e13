"""Be refused what root is otherwise allowed, so that permissions can be tried by whoever runs the tests."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

import pytest

VERSION = 0x20080522
"""Of Linux's structure of capabilities: two words for each of effective, permitted and inheritable."""
DAC_OVERRIDE = 1
"""The right to pass over permissions, by its number."""


@contextlib.contextmanager
def permissions_in_force() -> Iterator[None]:
    """Let file permissions bind this thread, root or not.

    Root passes over them by a capability, which Linux lets a thread lay down and take up again.
    """
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root can lay down its rights only on Linux")
    libc = ctypes.CDLL(None, use_errno=True)
    header, words = (ctypes.c_uint32 * 2)(VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, words) == 0, os.strerror(ctypes.get_errno())
    before = words[0]
    words[0] = before & ~(1 << DAC_OVERRIDE)
    assert libc.capset(header, words) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        words[0] = before
        assert libc.capset(header, words) == 0, os.strerror(ctypes.get_errno())
