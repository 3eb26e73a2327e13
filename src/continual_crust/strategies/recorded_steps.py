"""Training steps on CUDA, recorded once as a graph and replayed.

A step of a small network is a hundred kernels of a few microseconds each; launched one by one they keep the GPU
waiting most of the time. A record gathers its own batch, at a place in the epoch that a counter on the device tells, so
a replay is one launch and nothing else. Recording executes nothing: every step is taken exactly once.

Replays need neither Python nor anything that is shared, so runs in several threads, each on a stream of its own, fill
the GPU together and come to the same result as alone. A record holds several steps, so that threads seldom need the
interpreter; and no thread runs far ahead of the GPU, since one that fills the driver's queue holds up all others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from itertools import groupby

import torch
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.strategies.network import repeatable_convolutions
from continual_crust.strategies.whole_step import WholeStep

STRETCH = 8
"""Steps in one record."""
AHEAD = 2
"""Records a thread may hand to the GPU before the first of them is done."""


class RecordedSteps:
    """Takes an epoch's steps. The first of each batch size runs as it is, for libraries to set themselves up.

    Parameters
    ----------
    step
        Takes one batch of each set.
    batch_size
        Of all steps but the last of an epoch.
    drawing
        Makes the random generators the step's own, for as long as it is executed or recorded.
    whole
        The same step by kernels that gather a batch of one set themselves, where there are such.
    """

    def __init__(
        self,
        step: Callable[..., None],
        batch_size: int,
        drawing: Callable[[], AbstractContextManager[None]],
        whole: WholeStep | None = None,
    ) -> None:
        self._step = step
        self._batch_size = batch_size
        self._drawing = drawing
        self._whole = whole
        self._stream = _own_stream()
        self._tried: set[int] = set()
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._replayed = [torch.cuda.Event(blocking=True) for _ in range(AHEAD)]
        self._replays = 0
        self._sources: list[Samples] = []
        self._sets: list[Samples] = []
        self._orders: list[Tensor] = []
        self._within_batch = torch.arange(0)
        self._counter = torch.zeros(())

    def take(self, sets: Sequence[Samples], orders: Sequence[Tensor], sizes: Sequence[int]) -> None:
        """Train on batches of these sizes of the first set, and full ones of the second if there is one."""
        main = torch.cuda.current_stream()
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            self._load(sets, orders)
            with self._between_begin_and_end():
                for size, steps in groupby(sizes):
                    self._take_equal(size, len(list(steps)))
        main.wait_stream(self._stream)

    @contextmanager
    def _between_begin_and_end(self) -> Iterator[None]:
        if self._whole is None or len(self._sets) > 1:
            yield
            return
        with self._drawing():
            self._whole.begin()
        yield
        self._whole.end()

    def _take_equal(self, size: int, steps: int) -> None:
        if size not in self._tried:
            with self._drawing(), repeatable_convolutions():
                self._step_at_counter(size)
            self._tried.add(size)
            steps -= 1
        for _ in range(steps // STRETCH):
            self._replay(size, STRETCH)
        for _ in range(steps % STRETCH):
            self._replay(size, 1)

    def _replay(self, size: int, steps: int) -> None:
        if (size, steps) not in self._graphs:
            self._graphs[size, steps] = self._record(size, steps)
        done = self._replayed[self._replays % AHEAD]
        done.synchronize()
        self._graphs[size, steps].replay()
        done.record()
        self._replays += 1

    def _record(self, size: int, steps: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with self._drawing(), repeatable_convolutions():
            # Other threads may go on allocating memory meanwhile.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for _ in range(steps):
                    self._step_at_counter(size)
            finally:
                graph.capture_end()
        return graph

    def _load(self, sets: Sequence[Samples], orders: Sequence[Tensor]) -> None:
        """Put an epoch's data where the record looks for it."""
        fits = len(self._sets) == len(sets) and all(
            len(new) <= len(held) and len(order) <= len(held_order)
            for new, held, order, held_order in zip(sets, self._sets, orders, self._orders, strict=True)
        )
        if not fits:
            self._tried, self._graphs = set(), {}
            self._sources = []
            self._sets = [part[torch.arange(len(part), device=part.labels.device)] for part in sets]
            self._orders = [order.clone() for order in orders]
            self._within_batch = torch.arange(self._batch_size, device=orders[0].device)
            self._counter = torch.zeros((), dtype=torch.int64, device=orders[0].device)
        for number, (part, order) in enumerate(zip(sets, orders, strict=True)):
            self._orders[number][: len(order)].copy_(order)
            if len(self._sources) <= number or self._sources[number] is not part:
                for field in fields(part):
                    getattr(self._sets[number], field.name)[: len(part)].copy_(getattr(part, field.name))
        self._sources = list(sets)
        self._counter.zero_()

    def _step_at_counter(self, size: int) -> None:
        if self._whole is not None and len(self._sets) == 1:
            self._whole.take(self._sets[0], self._orders[0], self._counter, size)
            return
        sizes = [size, self._batch_size]
        start = self._counter * self._batch_size
        places = zip(self._sets, self._orders, sizes, strict=False)
        self._step(*(part[order[start + self._within_batch[:length]]] for part, order, length in places))
        self._counter += 1


_thread = threading.local()


def _own_stream() -> torch.cuda.Stream:
    """A stream for recording, which is not possible on the default one; one for each thread and GPU.

    PyTorch hands out 32 streams and then the same ones again: one for each phase would soon be shared by two threads.
    """
    streams: dict[int, torch.cuda.Stream] = _thread.__dict__.setdefault("streams", {})
    device = torch.cuda.current_device()
    if device not in streams:
        streams[device] = torch.cuda.Stream()
    return streams[device]
