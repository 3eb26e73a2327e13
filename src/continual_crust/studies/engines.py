"""Where a study's runs are done: on the cores or the GPU of this machine, or on Ray."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing import connection, spawn
from queue import Empty, Queue
from typing import Any

import torch

from continual_crust.data import SOURCES
from continual_crust.devices import choose_device
from continual_crust.errors import InputError, trouble_of_the_machine
from continual_crust.models import MODELS
from continual_crust.process_memory import keep_freed_memory
from continual_crust.selection.selectors import SELECTORS
from continual_crust.strategies import STRATEGIES
from continual_crust.studies.config import RunConfig
from continual_crust.studies.gpu_sharing import START_MPS, load_linear_algebra, processes_share
from continual_crust.studies.study import run_id
from continual_crust.studies.work import STOPPED, Workplace, work_on

POLL_SECONDS = 0.2
KNOCK_SECONDS = 10
MOST_RUNS_ON_A_GPU = 10
"""More gain nothing: with ten runs of even the smallest network the GPU is full."""
MEMORY_OF_A_RUN = 6 << 30
"""What the largest of our networks needs to train, in bytes."""


@dataclass(frozen=True)
class Event:
    """Something happened to a run."""

    run: str
    """Its id."""
    kind: str
    """``done``, ``skipped``, ``failed``, or ``experience`` for progress within it."""
    learned: int = 0
    count: int = 0
    problem: str = ""
    device_lost: bool = False
    """Whether nothing more can be done on the device by the process in which the run failed."""


Engine = Callable[[Sequence[RunConfig], Workplace], Iterator[Event]]


def local_engine(workers: int | None) -> Engine:
    """This machine.

    On CPUs a process for each core with one thread each, since small networks gain nothing from more. On a GPU
    processes too where they can share it, else threads of this process: steps are recorded graphs, and those of several
    runs fill the GPU together. Results are the same bits either way.
    """

    def engine(configs: Sequence[RunConfig], place: Workplace) -> Iterator[Event]:
        device = choose_device(place.device)
        apart = device.type == "cpu" or processes_share(device)
        count = min(workers or _runs_at_a_time(device, apart), len(configs))
        if apart and count > 1:
            yield from _in_processes(configs, place, count)
        else:
            yield from _in_threads(configs, place, count, device)

    return engine


def sharing_advice(device_name: str, workers: int | None, runs: int) -> str | None:
    """A sentence for somebody whose runs are about to share a GPU as threads, where processes would be faster."""
    device = choose_device(device_name)
    if device.type != "cuda" or processes_share(device):
        return None
    count = min(workers or _runs_at_a_time(device, apart=False), runs)
    if count < 2:
        return None
    return f"{count} runs at a time share the GPU as threads; faster are processes: `{START_MPS}`, then repeat."


def _runs_at_a_time(device: torch.device, apart: bool) -> int:
    cores = os.cpu_count() or 1
    if device.type == "cpu":
        return cores
    free, _ = torch.cuda.mem_get_info(device)
    fitting = max(1, min(MOST_RUNS_ON_A_GPU, free // MEMORY_OF_A_RUN))
    return min(fitting, cores) if apart else fitting


def _in_threads(configs: Sequence[RunConfig], place: Workplace, workers: int, device: torch.device) -> Iterator[Event]:
    events: Queue[Event] = Queue()
    stopping = threading.Event()
    threads = torch.get_num_threads()
    if workers > 1:
        load_linear_algebra(device)

    def attempt(config: RunConfig) -> Event:
        torch.set_num_threads(1)  # as in every other engine: more threads give other last bits
        return _attempt(config, place, events.put, stopping)

    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from _collect({pool.submit(attempt, config) for config in configs}, events)
        except BaseException:
            # A thread cannot be ended from outside; each ends itself after its epoch.
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            torch.set_num_threads(threads)


def _in_processes(configs: Sequence[RunConfig], place: Workplace, workers: int) -> Iterator[Event]:
    # Spawned, not forked: a fork of a process that has used CUDA, or threads, cannot.
    context = multiprocessing.get_context("spawn")
    events: Any = context.Queue()
    stopping = context.Event()
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(events, stopping)) as pool:
        futures = {pool.submit(_attempt_in_worker, config, place) for config in configs}
        try:
            yield from _collect(futures, events)
        except BaseException:
            stopping.set()
            pool.shutdown(cancel_futures=True)  # waits for epochs to end: whoever comes next finds no run locked
            raise


def _collect(open_futures: set[Future[Event]], events: Any) -> Iterator[Event]:
    while open_futures:
        finished, open_futures = wait(open_futures, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        while True:
            try:
                yield events.get_nowait()
            except Empty:
                break
        # The news that the device is lost goes before all that follows from it.
        for event in sorted(map(_outcome, finished), key=lambda event: not event.device_lost):
            yield event
            if event.device_lost:
                raise InputError(f"the GPU can no longer be used ({event.problem}); repeat the command to go on.")


def _outcome(future: Future[Event]) -> Event:
    try:
        return future.result()
    except BrokenProcessPool:
        raise InputError(
            "a worker process was killed, perhaps for lack of memory; repeat the command to go on, with fewer "
            "--workers if it happens again."
        ) from None


_events: Any = None
_stopping: Any = None


def _start_worker(events: Any, stopping: Any) -> None:
    global _events, _stopping
    _events, _stopping = events, stopping
    torch.set_num_threads(1)
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever, and hold its memory of the GPU."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)  # at any moment: writes are atomic, and the lock on a run ends with its process


def _attempt_in_worker(config: RunConfig, place: Workplace) -> Event:
    return _attempt(config, place, _events.put, _stopping)


def _attempt(config: RunConfig, place: Workplace, tell: Callable[[Event], object], stopping: Any) -> Event:
    """Do a run; what is wrong with it is told, and the other runs go on.

    `stopping` is an event of threads or processes. It is set here where the device is lost to this process, which would
    otherwise fail all runs that it is given from then on.
    """

    def report(run: str, learned: int, count: int) -> None:
        tell(Event(run, "experience", learned, count))

    try:
        if stopping.is_set():
            raise InputError(STOPPED)
        with _own_stream(choose_device(place.device)):
            return Event(run_id(config), work_on(config, place, report, stopping.is_set))
    except InputError as error:
        return Event(run_id(config), "failed", problem=str(error))
    except Exception as error:  # a bug or a device failure in one run must not cost a night of others
        problem = trouble_of_the_machine(error) or " ".join(f"{type(error).__name__}: {error}".split())
        lost = _is_lost(choose_device(place.device))
        if lost:
            stopping.set()
        return Event(run_id(config), "failed", problem=problem, device_lost=lost)


_thread = threading.local()


def _own_stream(device: torch.device) -> AbstractContextManager[object]:
    """A CUDA stream of this thread's own, of high priority.

    It is for selection and evaluation: many small kernels, each of which the thread waits for. Training steps are
    replayed on another stream. Each thread keeps its one, as PyTorch hands out 32 streams and then the same ones again.
    """
    if device.type != "cuda":
        return nullcontext()
    if not hasattr(_thread, "stream"):
        _thread.stream = torch.cuda.Stream(device, priority=-1)
    context: AbstractContextManager[object] = torch.cuda.stream(_thread.stream)
    return context


def _is_lost(device: torch.device) -> bool:
    """Whether this process has lost the device: after some errors every later call fails with the same one."""
    if device.type != "cuda":
        return False
    try:
        torch.zeros((), device=device).item()  # and no `synchronize`, which breaks what other threads are recording
    except torch.OutOfMemoryError:
        return False
    except RuntimeError:
        return True
    return False


def ray_engine(address: str | None = None, cpus: float = 1, gpus: float = 0, retries: int = 3) -> Engine:
    """Tasks on a Ray cluster, or on a Ray started here if no address is given.

    Results are files, as everywhere, so the study's folder must be on storage that all nodes share. A task whose worker
    is lost is tried again by Ray, and goes on from the run's last experience.
    """
    try:
        import ray
        from ray.util.queue import Queue as RayQueue
    except ImportError:
        raise InputError("--engine ray needs Ray; pip install 'continual-crust[ray]'.") from None

    def engine(configs: Sequence[RunConfig], place: Workplace) -> Iterator[Event]:
        started_here = not ray.is_initialized()
        cluster = address or os.environ.get("RAY_ADDRESS") or None  # which Ray itself would look up
        if started_here:
            _connect(ray, cluster)
        try:
            if started_here and cluster is None:
                # A cluster may grow to what a run asks for; this machine would keep it waiting for ever.
                _refuse_more_than(ray.cluster_resources(), cpus, gpus)
            options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": retries, "retry_exceptions": False}
            task = ray.remote(**options)(_attempt_on_ray)
            events = RayQueue(actor_options={"num_cpus": 0})
            program = _main_program()
            open_tasks = {task.remote(config, place, events, program): run_id(config) for config in configs}
            while open_tasks:
                ready, _ = ray.wait(list(open_tasks), timeout=POLL_SECONDS)
                yield from events.get_nowait_batch(events.qsize())
                for reference in ready:
                    run = open_tasks.pop(reference)
                    try:
                        yield ray.get(reference)
                    except ray.exceptions.RayError as error:
                        yield Event(run, "failed", problem=str(error).splitlines()[0])
        finally:
            if started_here:
                ray.shutdown()

    return engine


def _refuse_more_than(resources: Mapping[str, float], cpus: float, gpus: float) -> None:
    for option, asked, name in (("--cpus", cpus, "CPU"), ("--gpus", gpus, "GPU")):
        there = resources.get(name, 0)
        if asked > there:
            raise InputError(
                f"{option} {asked:g} is more than the {there:g} that Ray finds on this machine; ask for less, or give "
                "the --address of a cluster."
            )


def _attempt_on_ray(
    config: RunConfig, place: Workplace, events: Any, program: Mapping[str, Any] | None = None
) -> Event:
    torch.set_num_threads(1)  # Ray would have as many as the run was given CPUs, and other last bits
    if program and not _is_known(config):
        try:
            spawn.prepare(dict(program))
        except (ImportError, OSError) as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            problem = f"the program that the study was started with cannot be imported where Ray runs it ({why})"
            return Event(run_id(config), "failed", problem=f"{problem}; put it on storage that all nodes share.")
    return _attempt(config, place, events.put, threading.Event())


def _main_program() -> Mapping[str, Any]:
    """How to import the program that runs here, as processes that it starts do: it may have parts of its own."""
    told = spawn.get_preparation_data("a run")
    return {name: value for name, value in told.items() if name.startswith("init_main_from")}


def _is_known(config: RunConfig) -> bool:
    """Whether this process knows all that a run is made of."""
    return (
        config.dataset in SOURCES
        and config.method in STRATEGIES
        and config.model in MODELS
        and config.selector.name in SELECTORS
    )


def _connect(ray: Any, address: str | None) -> None:
    what, advice = "start Ray on this machine", "mend that, or use --engine local."
    try:
        if address is not None:
            what, advice = f"reach Ray at {address}", "is it running?"
            _knock(address)
            advice = "is it running, and should RAY_AUTH_MODE be token?"
        # Without an address Ray would join whatever Ray of anybody's runs here, if one does.
        ray.init(address=address or "local", log_to_driver=False, include_dashboard=None if address else False)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot {what} ({str(error).splitlines()[0]}); {advice}") from None


def _knock(address: str) -> None:
    """Open a connection to HOST:PORT and close it: where nobody answers, Ray itself tries for many minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()
