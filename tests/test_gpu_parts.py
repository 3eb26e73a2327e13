"""A benchmark on a GPU keeps what it has found, whatever happens to a part of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPT = """\
import argparse, json, os, sys, time
from pathlib import Path
from gpu_parts import Part, run_parts, write_part

def wrong():
    raise RuntimeError("the GPU is gone")

def shared():
    folder = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    return {"folder": str(folder), "running": (folder / "control").exists()}

PARTS = {
    "good": Part(lambda: {"answer": 42}, 20),
    "wrong": Part(wrong, 20),
    "shared": Part(shared, 20, mps=True),
    "endless": Part(lambda: time.sleep(60), 1.2),
    "late": Part(lambda: {"answer": 43}, 20),
}
parser = argparse.ArgumentParser()
parser.add_argument("--part")
parser.add_argument("--seconds", type=float)
parser.add_argument("--out", type=Path)
options = parser.parse_args()
if options.part:
    write_part(PARTS[options.part], options.out)
else:
    run_parts(PARTS, [], options.seconds, options.out, {"command": "this"})
"""
SERVICE = """\
#!/bin/sh
if [ "$1" = -d ]; then touch "$CUDA_MPS_PIPE_DIRECTORY/control"; exit 0; fi
read word; echo "$word" > "$NOTES"
"""


@pytest.mark.parametrize("service", [True, False])
def test_parts_fail_alone(service: bool, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    if service:
        (tmp_path / "nvidia-cuda-mps-control").write_text(SERVICE)
        (tmp_path / "nvidia-cuda-mps-control").chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(BENCHMARKS),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "NOTES": str(tmp_path / "notes"),
    }
    command = [sys.executable, tmp_path / "script.py", "--seconds", "100", "--out", tmp_path / "out.json"]
    subprocess.run(command, env=environment, check=True, timeout=90, stdout=subprocess.DEVNULL)
    results = json.loads((tmp_path / "out.json").read_text())
    assert results["command"] == "this"
    parts = results["parts"]
    assert parts["good"] == {"answer": 42}
    assert parts["late"] == {"answer": 43}
    assert parts["wrong"] == {"failed": "exit code 1", "last words": ["RuntimeError: the GPU is gone"]}
    assert parts["endless"]["failed"] == "took more than 1 s"
    assert ("shared" in parts) is service
    if service:
        assert parts["shared"]["running"]
        assert (tmp_path / "notes").read_text() == "quit\n"
        assert not Path(parts["shared"]["folder"]).exists()
