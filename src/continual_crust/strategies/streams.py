"""Streams of a GPU that one thread has for itself.

PyTorch hands out 32 streams of each priority and then the same ones again: a new one for each need would soon be shared
by two threads, and what one of them records would take in what the other one does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

_BESIDE = -2
"""A priority that is used for nothing else."""
_thread = threading.local()


def own_stream(priority: int = 0) -> torch.cuda.Stream:
    """This thread's stream of a priority on the current GPU. Recording is not possible on the default one."""
    streams: dict[tuple[int, int], torch.cuda.Stream] = _thread.__dict__.setdefault("streams", {})
    place = torch.cuda.current_device(), priority
    if place not in streams:
        streams[place] = torch.cuda.Stream(priority=priority)
    return streams[place]


def side_by_side(one: Callable[[], None], other: Callable[[], None]) -> None:
    """Let a GPU do two things at the same time that do not need each other."""
    if not torch.cuda.is_available():  # in Triton's interpreter
        one()
        other()
        return
    here, beside = torch.cuda.current_stream(), own_stream(_BESIDE)
    beside.wait_stream(here)
    with torch.cuda.stream(beside):
        other()
    one()
    here.wait_stream(beside)
