"""Kernels are compiled for a GPU, wherever Triton is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import continual_crust

SOURCE = Path(continual_crust.__file__).parent
LAUNCH = re.compile(r"(_\w+)\[[^\n=]*?\]\(")


def test_every_kernel_that_is_launched_compiles(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)  # else what was compiled once would not be again
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    launched = {
        f"continual_crust.{path.parent.name}.{path.stem}.{kernel}"
        for path in SOURCE.rglob("*.py")
        if "import triton" in (text := path.read_text(encoding="utf-8"))
        for kernel in LAUNCH.findall(text)
    }
    assert launched == set(done.stdout.split())
