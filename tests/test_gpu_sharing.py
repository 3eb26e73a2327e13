"""How runs share a GPU, as far as that can be seen without one."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from continual_crust.errors import InputError
from continual_crust.studies import engines, gpu_sharing
from continual_crust.studies.engines import Event, local_engine, sharing_advice
from continual_crust.studies.study import run_id
from continual_crust.studies.study_file import parse_study
from continual_crust.studies.work import Workplace
from test_study_engines import SMALL

GPU = torch.device("cuda", 0)
RUNS = list(parse_study(SMALL.replace("seeds: 2", "seeds: 20"), "small").runs())
GIB = 1 << 30


class Driver:
    """What CUDA's driver answers to the three calls that are made."""

    def __init__(self, enabled: int, known: bool = True) -> None:
        self.enabled, self.known = enabled, known

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGet(self, handle: Any, index: int) -> int:
        return 0

    def cuDeviceGetAttribute(self, answer: Any, attribute: int, handle: Any) -> int:
        answer._obj.value = self.enabled
        return 0 if self.known and attribute == 133 else 1


@pytest.mark.parametrize(
    ("driver", "device", "shared"),
    [
        (Driver(1), GPU, True),
        (Driver(0), GPU, False),
        (Driver(1, known=False), GPU, False),
        (OSError("libcuda.so.1: cannot open shared object file"), GPU, False),
        (Driver(1), torch.device("cpu"), False),
    ],
)
def test_the_driver_knows_whether_processes_share(driver, device, shared, monkeypatch) -> None:
    def load(name: str) -> Driver:
        if isinstance(driver, OSError):
            raise driver
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert gpu_sharing.processes_share(device) is shared


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine with a GPU of which only the description exists, and what was asked of it."""
    facts: dict[str, Any] = {"shared": False, "free": 140 * GIB, "cores": 16}

    def noted(kind: str) -> Any:
        def engine(configs: Any, place: Any, workers: int, *device: Any) -> Iterator[Event]:
            facts["asked"] = kind, workers
            return iter(())

        return engine

    monkeypatch.setattr(engines, "choose_device", lambda name: torch.device(name))
    monkeypatch.setattr(engines, "processes_share", lambda device: facts["shared"])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (facts["free"], 140 * GIB))
    monkeypatch.setattr(os, "cpu_count", lambda: facts["cores"])
    monkeypatch.setattr(engines, "_in_processes", noted("processes"))
    monkeypatch.setattr(engines, "_in_threads", noted("threads"))
    return facts


@pytest.mark.parametrize(
    ("facts", "workers", "runs", "asked"),
    [
        ({"shared": True}, None, 40, ("processes", 10)),
        ({"shared": True, "cores": 4}, None, 40, ("processes", 4)),
        ({"shared": True, "free": 20 * GIB}, None, 40, ("processes", 3)),
        ({"shared": True, "free": GIB}, None, 40, ("threads", 1)),
        ({"shared": True}, 16, 40, ("processes", 16)),
        ({"shared": True}, None, 5, ("processes", 5)),
        ({"shared": True}, None, 1, ("threads", 1)),
        ({"shared": False, "cores": 4}, None, 40, ("threads", 10)),
        ({"shared": False}, 3, 40, ("threads", 3)),
    ],
)
def test_runs_are_processes_where_these_share_the_gpu(machine, facts, workers, runs, asked) -> None:
    machine.update(facts)
    list(local_engine(workers)(RUNS[:runs], Workplace(Path("nowhere"), device="cuda")))
    assert machine["asked"] == asked


def test_advice_is_for_threads_that_share_a_gpu(machine) -> None:
    told = sharing_advice("cuda", None, 40)
    assert told is not None
    assert told.startswith("10 runs at a time share the GPU as threads")
    assert "nvidia-cuda-mps-control -d" in told
    assert sharing_advice("cuda", 1, 40) is None
    assert sharing_advice("cuda", None, 1) is None
    assert sharing_advice("cpu", None, 40) is None
    machine["shared"] = True
    assert sharing_advice("cuda", None, 40) is None


@pytest.mark.parametrize("workers", [1, 3])
def test_linear_algebra_is_loaded_before_threads_could_load_it_at_once(workers: int, monkeypatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(engines, "load_linear_algebra", lambda device: order.append(f"loaded for {device.type}"))
    monkeypatch.setattr(engines, "_attempt", lambda config, *rest: order.append("run") or Event("a", "done"))
    assert len(list(engines._in_threads(RUNS[:6], Workplace(Path("nowhere")), workers, GPU))) == 6
    assert order == ["loaded for cuda"] * (workers > 1) + ["run"] * 6


def test_a_lost_gpu_ends_the_study_instead_of_failing_all_its_runs(monkeypatch) -> None:
    tried: list[str] = []

    def fail(config: Any, *rest: Any) -> str:
        tried.append(run_id(config))
        raise RuntimeError("unspecified launch failure")

    monkeypatch.setattr(engines, "work_on", fail)
    monkeypatch.setattr(engines, "_is_lost", lambda device: len(tried) == 3)
    told: list[Event] = []

    def listen() -> None:
        for event in local_engine(1)(RUNS, Workplace(Path("nowhere"), device="cpu")):
            told.append(event)  # one by one: what came before an error counts

    with pytest.raises(InputError, match=r"GPU can no longer be used \(RuntimeError: unspecified.*\); repeat"):
        listen()
    assert told[-1].device_lost
    assert len(tried) == 3


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        (None, False),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
        (RuntimeError("CUDA error: unspecified launch failure"), True),
    ],
)
def test_a_gpu_without_memory_is_not_lost(answer: Exception | None, lost: bool, monkeypatch) -> None:
    def zeros(*shape: Any, device: torch.device) -> torch.Tensor:
        if answer is not None:
            raise answer
        return torch.tensor(0.0)

    monkeypatch.setattr(torch, "zeros", zeros)
    assert engines._is_lost(GPU) is lost
    assert not engines._is_lost(torch.device("cpu"))


WAITING = """\
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from continual_crust.studies.engines import _start_worker
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, initializer=_start_worker, initargs=(context.Queue(), context.Event()))
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(60)
"""


def test_a_worker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    with subprocess.Popen([sys.executable, tmp_path / "waiting.py"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert alive(worker)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(worker)


def alive(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
