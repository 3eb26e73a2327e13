"""Training: epochs of small steps over samples that already lie on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError, check_types
from continual_crust.strategies.network import Network

Loss = Callable[..., Tensor]
"""From one batch of each set of samples that is trained on to a number. It may depend on nothing else that changes
during a phase, except through tensors changed in place: on a GPU it is recorded once and replayed."""

EAGER_STEPS = 3
"""Steps taken one by one before a GPU's steps are recorded: libraries set themselves up during these."""


@dataclass(frozen=True)
class Training:
    """How a strategy trains. The same for all strategies, so that they can be compared."""

    phase1_epochs: int = 40
    """Epochs on all new data of an experience, the paper's m."""
    phase2_epochs: int = 20
    """Epochs on coresets, re-selected before each, the paper's n. Strategies without phases train m + n epochs."""
    memory_per_class: int = 300
    """Samples remembered for each class, the paper's k."""
    learning_rate: float = 1e-3
    """Of Adam."""
    weight_decay: float = 1e-6
    """Of Adam."""
    batch_size: int = 32
    """Samples in a step."""
    weighted_loss: bool = False
    """Let remembered samples count in proportion to how many samples they stand for, on average one."""

    def __post_init__(self) -> None:
        check_types(self)
        for name, least in (("phase1_epochs", 0), ("phase2_epochs", 0), ("memory_per_class", 0), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}; give a number of {least} or more.")
        if self.epochs < 1:
            raise InputError("phase1_epochs and phase2_epochs are both 0; nothing would be learned.")
        if not 0 < self.learning_rate < float("inf"):
            raise InputError(f"learning_rate is {self.learning_rate}; give a number above 0, for example 0.001.")
        if not 0 <= self.weight_decay < float("inf"):
            raise InputError(f"weight_decay is {self.weight_decay}; give 0 or more.")

    @property
    def epochs(self) -> int:
        """Epochs in one experience, of whatever phase."""
        return self.phase1_epochs + self.phase2_epochs


class Phase:
    """A stretch of training under one loss with a fresh optimizer.

    Fresh because moments gathered on other data mislead the first steps.
    """

    def __init__(self, network: Network, loss: Loss, training: Training, generator: torch.Generator) -> None:
        self._network = network
        self._loss = loss
        self._batch_size = training.batch_size
        self._generator = generator
        self._steps = 0
        # Batch normalisation cannot work on one sample, so a single left-over one waits for the next epoch.
        normalizes = any(isinstance(module, _BatchNorm) for module in network.model.modules())
        self._smallest_batch = 2 if normalizes else 1
        if training.batch_size < self._smallest_batch:
            raise InputError("batch normalisation cannot learn from batches of one sample; use --batch-size 2 or more.")
        on_cuda = network.device.type == "cuda"
        self._optimizer = torch.optim.Adam(
            network.model.parameters(),
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            fused=True,
            capturable=on_cuda,
        )
        self._loss_sum = torch.zeros((), device=network.device)
        self._recorded = _RecordedSteps(self._step, self._batch_size) if on_cuda else None

    def epoch(self, samples: Samples, beside: Samples | None = None) -> None:
        """Visit every sample once, in random order; with `beside`, each batch comes with a full one drawn from there.

        `beside` is walked through in random order too, again and again for as long as the epoch lasts.
        """
        self._network.model.train()
        self._loss_sum.zero_()
        self._steps = 0
        sets, orders = [samples], [self._order(len(samples), len(samples))]
        if beside is not None and len(beside):
            steps = -(-len(samples) // self._batch_size)
            sets.append(beside)
            orders.append(self._order(len(beside), steps * self._batch_size))
        if self._recorded is not None:
            taken = self._recorded.take_full_batches(sets, orders)
            orders = [order[taken:] for order in orders]
            self._steps += taken // self._batch_size
        for indices in zip(*(order.split(self._batch_size) for order in orders), strict=True):
            if len(indices[0]) >= self._smallest_batch:
                self._step(*(part[index] for part, index in zip(sets, indices, strict=True)))
                self._steps += 1

    def close(self) -> None:
        """Let go of what was recorded: a graph holds memory of the device, and refers back to this phase."""
        self._recorded = None

    def mean_loss(self) -> float:
        """Over the steps of the last epoch. Waits for the device."""
        return float(self._loss_sum) / max(1, self._steps)

    def _order(self, available: int, wanted: int) -> Tensor:
        """`wanted` positions: one random permutation after another."""
        # Drawn on the CPU, so that every device sees the same batches.
        rounds = [torch.randperm(available, generator=self._generator) for _ in range(-(-wanted // available))]
        return torch.cat(rounds)[:wanted].to(self._network.device)

    def _step(self, *batches: Samples) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._loss(*batches)
        loss.backward()
        self._optimizer.step()
        self._loss_sum += loss.detach()


class _RecordedSteps:
    """Training steps on CUDA: a few are taken one by one, then one is recorded as a graph and replayed.

    A step of a small network is a hundred kernels of a few microseconds each; launched one by one they keep the GPU
    waiting most of the time. The record gathers its own batch, at a place in the epoch that a counter on the device
    tells, so a replay is one launch and nothing else. Recording executes nothing: every step is taken exactly once.
    """

    def __init__(self, step: Callable[..., None], batch_size: int) -> None:
        self._step = step
        self._batch_size = batch_size
        self._eager_steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._sources: list[Samples] = []
        self._sets: list[Samples] = []
        self._orders: list[Tensor] = []
        self._within_batch = torch.arange(0)
        self._counter = torch.zeros(())

    def take_full_batches(self, sets: list[Samples], orders: list[Tensor]) -> int:
        """Train on all batches of full size; returns how many samples that were."""
        count = len(orders[0]) // self._batch_size
        if not count:
            return 0
        device = orders[0].device
        self._load(sets, orders)
        # Trying out convolution algorithms pays for a shape that is used thousands of times, and only for that.
        flags = torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True)
        with torch.cuda.device(device), flags:
            for _ in range(count):
                if self._eager_steps < EAGER_STEPS:
                    self._eager_steps += 1
                    self._on_side_stream()
                    continue
                if self._graph is None:
                    self._graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(self._graph):
                        self._step_at_counter()
                self._graph.replay()
        return count * self._batch_size

    def _load(self, sets: list[Samples], orders: list[Tensor]) -> None:
        """Put an epoch's data where the record looks for it."""
        fits = len(self._sets) == len(sets) and all(
            len(new) <= len(held) and len(order) <= len(held_order)
            for new, held, order, held_order in zip(sets, self._sets, orders, self._orders, strict=True)
        )
        if not fits:
            self._graph = None
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

    def _step_at_counter(self) -> None:
        positions = self._counter * self._batch_size + self._within_batch
        self._step(*(part[order[positions]] for part, order in zip(self._sets, self._orders, strict=True)))
        self._counter += 1

    def _on_side_stream(self) -> None:
        # Recording needs the libraries' workspaces to exist for a stream other than the default one.
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            self._step_at_counter()
        main.wait_stream(side)
