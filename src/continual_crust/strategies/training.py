"""Training: epochs of small steps over samples that already lie on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
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
    """Let every remembered sample count for as many samples as it stands for."""

    def __post_init__(self) -> None:
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

    Fresh because moments gathered on other data mislead the first steps: with Adam's state carried over from one
    phase to the next even a perfectly clean memory loses ten points of accuracy on MNIST.
    """

    def __init__(self, network: Network, loss: Loss, training: Training, generator: torch.Generator) -> None:
        self._network = network
        self._loss = loss
        self._batch_size = training.batch_size
        self._generator = generator
        on_cuda = network.device.type == "cuda"
        self._optimizer = torch.optim.Adam(
            network.model.parameters(),
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            fused=True,
            capturable=on_cuda,
        )
        self._recorded = _RecordedStep(self._step) if on_cuda else None

    def epoch(self, samples: Samples, beside: Samples | None = None) -> None:
        """Visit every sample once, in random order; with `beside`, each batch comes with an equal one drawn from there.

        `beside` is walked through in random order too, again and again for as long as the epoch lasts.
        """
        self._network.model.train()
        sets = [samples] if beside is None or not len(beside) else [samples, beside]
        orders = [self._order(len(samples), len(samples)), *(self._order(len(s), len(samples)) for s in sets[1:])]
        for indices in zip(*(order.split(self._batch_size) for order in orders), strict=True):
            # Batch normalisation cannot work on one sample, so a single left-over one waits for the next epoch.
            if len(indices[0]) == 1 < len(samples):
                continue
            if self._recorded is not None and len(indices[0]) == self._batch_size:
                self._recorded(sets, indices)
            else:
                self._step(*(part[index] for part, index in zip(sets, indices, strict=True)))

    def _order(self, available: int, wanted: int) -> Tensor:
        """`wanted` positions: one random permutation after another."""
        # Drawn on the CPU, so that every device sees the same batches.
        rounds = [torch.randperm(available, generator=self._generator) for _ in range(-(-wanted // available))]
        return torch.cat(rounds)[:wanted].to(self._network.device)

    def _step(self, *batches: Samples) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._loss(*batches).backward()
        self._optimizer.step()


class _RecordedStep:
    """A training step recorded as a CUDA graph after a few plain ones, then replayed on new batches.

    A step of a small network is over a hundred kernels of a few microseconds each; launched one by one they keep the
    GPU waiting most of the time. Recording executes nothing, so every step is a real one and is taken exactly once.
    """

    def __init__(self, step: Callable[..., None]) -> None:
        self._step = step
        self._steps_taken = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Samples] = []

    def __call__(self, sets: list[Samples], indices: tuple[Tensor, ...]) -> None:
        if self._steps_taken < EAGER_STEPS:
            self._steps_taken += 1
            self._on_side_stream([part[index] for part, index in zip(sets, indices, strict=True)])
            return
        if self._graph is None:
            self._inputs = [part[index] for part, index in zip(sets, indices, strict=True)]
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._step(*self._inputs)
        for part, index, batch in zip(sets, indices, self._inputs, strict=True):
            for field in fields(part):
                torch.index_select(getattr(part, field.name), 0, index, out=getattr(batch, field.name))
        self._graph.replay()

    def _on_side_stream(self, batches: list[Samples]) -> None:
        # Recording needs the libraries' workspaces to exist for a stream other than the default one.
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            self._step(*batches)
        main.wait_stream(side)
