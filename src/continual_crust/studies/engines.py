"""Where a study's runs are done: on the cores or the GPU of this machine, or on Ray."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any

import torch

from continual_crust.errors import InputError, trouble_of_the_machine
from continual_crust.process_memory import keep_freed_memory
from continual_crust.studies.config import RunConfig
from continual_crust.studies.run import choose_device
from continual_crust.studies.study import run_id
from continual_crust.studies.work import Report, Workplace, work_on

POLL_SECONDS = 0.2
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


Engine = Callable[[Sequence[RunConfig], Workplace], Iterator[Event]]


def local_engine(workers: int | None) -> Engine:
    """This machine.

    On CPUs a process for each core with one thread each, since small networks gain nothing from more. On a GPU threads
    of this process: steps are recorded graphs, and those of several runs fill the GPU together, where processes would
    take turns on it.
    """

    def engine(configs: Sequence[RunConfig], place: Workplace) -> Iterator[Event]:
        device = choose_device(place.device)
        if device.type == "cuda":
            yield from _in_threads(configs, place, min(workers or _runs_that_fit(device), len(configs)), device)
            return
        count = min(workers or os.cpu_count() or 1, len(configs))
        yield from _in_processes(configs, place, count) if count > 1 else _in_threads(configs, place, 1, device)

    return engine


def _runs_that_fit(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(MOST_RUNS_ON_A_GPU, free // MEMORY_OF_A_RUN))


def _in_threads(configs: Sequence[RunConfig], place: Workplace, workers: int, device: torch.device) -> Iterator[Event]:
    events: Queue[Event] = Queue()
    stopping = threading.Event()
    threads = torch.get_num_threads()

    def attempt(config: RunConfig) -> Event:
        torch.set_num_threads(1)  # as in every other engine: more threads give other last bits
        return _attempt(
            config,
            place,
            lambda run, learned, count: events.put(Event(run, "experience", learned, count)),
            stopping.is_set,
        )

    def use_own_stream() -> None:
        if device.type == "cuda":
            # Steps are replayed on another stream. What is on this one, selection and evaluation, is many small pieces
            # that somebody waits for, and goes first.
            torch.cuda.set_stream(torch.cuda.Stream(device, priority=-1))

    with ThreadPoolExecutor(workers, initializer=use_own_stream) as pool:
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
    context = multiprocessing.get_context("spawn")
    events: Any = context.Queue()
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(events,)) as pool:
        futures = {pool.submit(_attempt_and_tell, config, place) for config in configs}
        try:
            yield from _collect(futures, events)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _collect(open_futures: set[Future[Event]], events: Any) -> Iterator[Event]:
    while open_futures:
        finished, open_futures = wait(open_futures, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        while True:
            try:
                yield events.get_nowait()
            except Empty:
                break
        for future in finished:
            try:
                yield future.result()
            except BrokenProcessPool:
                raise InputError(
                    "a worker process was killed, perhaps for lack of memory; repeat the command to go on, with fewer "
                    "--workers if it happens again."
                ) from None


_events: Any = None


def _start_worker(events: Any) -> None:
    global _events
    _events = events
    torch.set_num_threads(1)
    keep_freed_memory()


def _attempt_and_tell(config: RunConfig, place: Workplace) -> Event:
    return _attempt(config, place, lambda run, learned, count: _events.put(Event(run, "experience", learned, count)))


def _attempt(
    config: RunConfig,
    place: Workplace,
    report: Report | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Event:
    """Do a run; what is wrong with it is told, and the other runs go on."""
    try:
        return Event(run_id(config), work_on(config, place, report, stopped))
    except InputError as error:
        return Event(run_id(config), "failed", problem=str(error))
    except Exception as error:  # a bug or a device failure in one run must not cost a night of others
        problem = trouble_of_the_machine(error) or " ".join(f"{type(error).__name__}: {error}".split())
        return Event(run_id(config), "failed", problem=problem)


def ray_engine(address: str | None, cpus: float, gpus: float, retries: int) -> Engine:
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
        if started_here:
            _connect(ray, address)
        try:
            options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": retries, "retry_exceptions": False}
            task = ray.remote(**options)(_attempt_on_ray)
            events = RayQueue(actor_options={"num_cpus": 0})
            open_tasks = {task.remote(config, place, events): run_id(config) for config in configs}
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


def _attempt_on_ray(config: RunConfig, place: Workplace, events: Any) -> Event:
    return _attempt(config, place, lambda run, learned, count: events.put(Event(run, "experience", learned, count)))


def _connect(ray: Any, address: str | None) -> None:
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot reach Ray at {address} ({str(error).splitlines()[0]}); is it running?") from None
