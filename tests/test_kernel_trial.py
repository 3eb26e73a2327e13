"""Kernels are used only where a trial has shown that they work."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from continual_crust.kernel_trial import tried_once

CPU = torch.device("cpu")
ALWAYS_THERE = {"cpu": "json"}


def failing(device: torch.device) -> bool:
    raise RuntimeError("no C compiler\nwas found")


@pytest.mark.parametrize(
    ("trial", "compilers", "usable", "told"),
    [
        (lambda device: True, ALWAYS_THERE, True, ""),
        (lambda device: False, ALWAYS_THERE, False, "Json cannot be used for tests (wrong answers)"),
        (failing, ALWAYS_THERE, False, "Json cannot be used for tests (RuntimeError: no C compiler was found)"),
        (failing, {"cpu": "no_such_compiler"}, False, ""),
        (failing, {"cuda": "json"}, False, ""),
    ],
)
def test_what_fails_or_is_not_there_is_not_used(trial, compilers, usable, told, caplog) -> None:
    assert tried_once("tests", compilers)(trial)(CPU) is usable
    assert told in caplog.text
    assert bool(caplog.text) == bool(told)


def test_threads_wait_for_one_trial_of_each_device() -> None:
    tried: list[torch.device] = []

    @tried_once("tests", {**ALWAYS_THERE, "meta": "json"})
    def works(device: torch.device) -> bool:
        time.sleep(0.05)
        tried.append(device)
        return device == CPU

    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(works(CPU))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    assert not works(torch.device("meta"))
    assert tried == [CPU, torch.device("meta")]
