"""Memory that is freed stays with the process, if it asks for that."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
from pathlib import Path
import torch
from continual_crust.process_memory import keep_freed_memory

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

if "keep" in sys.argv:
    assert keep_freed_memory()
before = held()
blocks = [torch.ones(20 << 20, dtype=torch.uint8) for _ in range(5)]
del blocks
print(held() - before)
"""


def megabytes_still_held(*arguments: str) -> int:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_memory_of_one_step_serves_the_next() -> None:
    assert megabytes_still_held("keep") >= 90
    assert megabytes_still_held() <= 30
