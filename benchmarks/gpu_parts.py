"""Parts of a benchmark on a GPU, each in a process of its own: one that fails, hangs or breaks the GPU is lost alone.

A script gives its parts to :func:`run_parts`. That starts the script again for each of them, as
``script --part NAME --out FILE``, where :func:`write_part` does the work. Parts that are to share the GPU as processes
get NVIDIA's Multi-Process Service, started for them alone in a temporary folder and stopped after the last.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from continual_crust.writing import write_json

MPS = "nvidia-cuda-mps-control"
Facts = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Something to measure."""

    work: Callable[[], Facts]
    limit: float
    """Seconds after which it is given up."""
    mps: bool = False
    """Whether it needs the Multi-Process Service."""


def write_part(part: Part, out: Path) -> None:
    """Do a part in this process."""
    out.write_text(json.dumps(part.work()), encoding="utf-8")


def run_parts(parts: Mapping[str, Part], arguments: Sequence[str], seconds: float, out: Path, head: Facts) -> None:
    """Do all parts, as far as the time goes; what is known is written after each.

    Parameters
    ----------
    parts
        By name.
    arguments
        What the script needs to be told beside the name of the part.
    seconds
        For everything; a part that would begin later is left out.
    out, head
        Where to write the results, and what to write before them.
    """
    end = time.monotonic() + seconds
    found: dict[str, Facts] = {}
    for service, group in groupby(parts.items(), key=lambda named: named[1].mps):
        try:
            with mps_of_its_own() if service else nullcontext(dict(os.environ)) as environment:
                for name, part in group:
                    found[name] = _in_own_process(name, min(part.limit, end - time.monotonic()), arguments, environment)
                    print(f"{seconds - end + time.monotonic():6.1f} s  {name}: {json.dumps(found[name])}", flush=True)
                    write_json(out, {**head, "parts": found})
        except (OSError, subprocess.SubprocessError) as error:
            print(f"the Multi-Process Service cannot be started or stopped: {error}", flush=True)


@contextmanager
def mps_of_its_own() -> Iterator[dict[str, str]]:
    """The environment for processes that share the GPU, for as long as this lasts."""
    if shutil.which(MPS) is None:
        raise FileNotFoundError(f"there is no {MPS}")
    # It may still be writing when it has been told to end.
    with tempfile.TemporaryDirectory(prefix="mps", ignore_cleanup_errors=True) as folder:
        own = {f"CUDA_MPS_{name}_DIRECTORY": f"{folder}/{name.lower()}" for name in ("PIPE", "LOG")}
        for path in own.values():
            Path(path).mkdir()
        environment = {**os.environ, **own}
        # It goes to the background and keeps what it was given as output open, so it is given none.
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": 30}
        subprocess.run([MPS, "-d"], env=environment, check=True, **quiet)
        try:
            yield environment
        finally:
            subprocess.run([MPS], input=b"quit\n", env=environment, check=False, **quiet)


def _in_own_process(name: str, seconds: float, arguments: Sequence[str], environment: Mapping[str, str]) -> Facts:
    if seconds < 1:
        return {"skipped": "out of time"}
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder) / "result.json", Path(folder) / "log"
        command = [sys.executable, sys.argv[0], *arguments, "--part", name, "--out", str(result)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _kill_group(process)
        if code == 0:
            facts: Facts = json.loads(result.read_text(encoding="utf-8"))
            return facts
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return {
            "failed": f"took more than {seconds:.0f} s" if code is None else f"exit code {code}",
            "last words": last,
        }


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a part and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
