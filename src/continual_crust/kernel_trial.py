"""Compiled kernels that may not work on a machine: tried once on a small case before anything relies on them."""

from __future__ import annotations

import functools
import importlib.util
import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

LOG = logging.getLogger(__name__)
TRITON: Mapping[str, str] = MappingProxyType({"cuda": "triton"})
Trial = Callable[[torch.device], bool]
"""Runs the kernels on a device and tells whether their answer is right."""


def tried_once(purpose: str, compilers: Mapping[str, str] = TRITON) -> Callable[[Trial], Trial]:
    """Turn a trial of kernels into a function that tells whether they can be used on a device.

    They cannot where their compiler is not installed, fails, or gives wrong answers; the last two are logged. The trial
    takes place once for each device. Threads that ask meanwhile wait for it, as compilers load lazily and seldom expect
    company.

    Parameters
    ----------
    purpose
        What the kernels are for, as the log tells it: ``selection``.
    compilers
        The compiler's module for each type of device that has one.
    """

    def decorate(trial: Trial) -> Trial:
        found: dict[torch.device, bool] = {}
        trying = threading.Lock()

        @functools.wraps(trial)
        def works(device: torch.device) -> bool:
            with trying:
                if device not in found:
                    found[device] = _passes(trial, device, purpose, compilers.get(device.type))
                return found[device]

        return works

    return decorate


def _passes(trial: Trial, device: torch.device, purpose: str, compiler: str | None) -> bool:
    if compiler is None or importlib.util.find_spec(compiler) is None:
        return False
    try:
        if trial(device):
            return True
        problem = "wrong answers"
    except Exception as error:  # whatever a compiler, a driver or a version may raise: there is another way
        problem = " ".join(f"{type(error).__name__}: {error}".split())
    LOG.warning("%s cannot be used for %s (%s); it takes longer without.", compiler.capitalize(), purpose, problem)
    return False
