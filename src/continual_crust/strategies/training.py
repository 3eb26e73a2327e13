"""Training: epochs of small steps over samples that already lie on the device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError, check_types, told_name, unknown_name
from continual_crust.randomness import PrivateRandomness
from continual_crust.strategies.adam import Adam
from continual_crust.strategies.augmentation import moved
from continual_crust.strategies.losses import Loss
from continual_crust.strategies.network import Network, repeatable_convolutions
from continual_crust.strategies.recorded_steps import RecordedSteps
from continual_crust.strategies.whole_step import whole_step

PRECISIONS = ("float32", "bfloat16")


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
    precision: str = "float32"
    """Of training's arithmetic: float32 (on a GPU with products in TF32), or bfloat16, faster for large networks."""
    weighted_loss: bool = False
    """Let remembered samples count in proportion to how many samples they stand for, on average one. Those of a random
    choice stand for equally many, and nothing changes."""
    shift: float = 0.0
    """Move each image, anew in every epoch, by up to this share of its height and width, rounded to whole pixels. What
    is selected among and predicted is not moved. The paper does not say whether its images were; CRUST's released code
    moves and mirrors."""
    mirror: bool = False
    """Also mirror every other image, left to right, anew in every epoch."""

    def __post_init__(self) -> None:
        check_types(self)
        for name, least in (("phase1_epochs", 0), ("phase2_epochs", 0), ("memory_per_class", 0), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{told_name(name)} is {getattr(self, name)}; give a number of {least} or more.")
        if self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)
        if self.epochs < 1:
            raise InputError("phase1_epochs and phase2_epochs are both 0; nothing would be learned.")
        if not 0 < self.learning_rate < float("inf"):
            told = f"{told_name('learning_rate')} is {self.learning_rate}"
            raise InputError(f"{told}; give a number above 0, for example 0.001.")
        if not 0 <= self.weight_decay < float("inf"):
            raise InputError(f"weight_decay is {self.weight_decay}; give 0 or more.")
        if not 0 <= self.shift < 1:
            raise InputError(f"shift is {self.shift}; give a share from 0 to below 1, for example 0.125.")

    @property
    def epochs(self) -> int:
        """Epochs in one experience, of whatever phase."""
        return self.phase1_epochs + self.phase2_epochs


class Trainable(Protocol):
    """What an epoch can walk through: `Samples`, or anything that fetches them batch by batch."""

    def __len__(self) -> int:
        """How many samples there are."""

    def __getitem__(self, index: Tensor, /) -> Samples:
        """The samples at these positions, on the device."""


class Phase:
    """A stretch of training under one loss with a fresh optimizer.

    Fresh because moments gathered on other data mislead the first steps.
    """

    def __init__(
        self,
        network: Network,
        loss: Loss,
        training: Training,
        generator: torch.Generator,
        randomness: PrivateRandomness | None = None,
    ) -> None:
        self._network = network
        self._loss = loss
        self._batch_size = training.batch_size
        self._shift, self._mirror = training.shift, training.mirror
        self._generator = generator
        self._randomness = randomness
        self._steps = 0
        # Batch normalisation cannot work on one sample, so a single left-over one waits for the next epoch.
        normalizes = any(isinstance(module, _BatchNorm) for module in network.model.modules())
        self._smallest_batch = 2 if normalizes else 1
        if training.batch_size < self._smallest_batch:
            raise InputError("batch normalisation cannot learn from batches of one sample; use --batch-size 2 or more.")
        self._optimizer = Adam(list(network.model.parameters()), training.learning_rate, training.weight_decay)
        self._loss_sum = torch.zeros((), device=network.device)
        self._recorded: RecordedSteps | None = None

    def epoch(self, samples: Trainable, beside: Trainable | None = None) -> None:
        """Visit every sample once, in random order; with `beside`, each batch comes with a full one drawn from there.

        `beside` is walked through in random order too, again and again for as long as the epoch lasts.
        """
        self._network.model.train()
        self._loss_sum.zero_()
        sizes = [self._batch_size] * (len(samples) // self._batch_size)
        if len(samples) % self._batch_size >= self._smallest_batch:
            sizes.append(len(samples) % self._batch_size)
        if not sizes and len(samples):
            raise InputError("batch normalisation cannot learn from one sample alone; give the network more of them.")
        self._steps = len(sizes)
        sets, orders = [self._varied(samples)], [self._order(len(samples), len(samples))]
        if beside is not None and len(beside):
            sets.append(self._varied(beside))
            orders.append(self._order(len(beside), -(-len(samples) // self._batch_size) * self._batch_size))
        resident = [part for part in sets if isinstance(part, Samples)]
        if self._network.device.type == "cuda" and len(resident) == len(sets):
            self._recording().take(resident, orders, sizes)
            return
        with self._drawing():
            for number, size in enumerate(sizes):
                start = number * self._batch_size
                ends = [start + size, start + self._batch_size]
                batches = (part[order[start:end]] for part, order, end in zip(sets, orders, ends, strict=False))
                self._step(*batches)

    def state(self) -> dict[str, Tensor]:
        """Where the optimizer stands, between epochs: what goes on from it goes on bit for bit."""
        return self._optimizer.state()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back a :meth:`state`."""
        self._optimizer.restore(state)
        self._recorded = None  # it would go on from the tensors that were replaced

    def close(self) -> None:
        """Let go of what was recorded: a graph holds memory of the device, and refers back to this phase."""
        if self._recorded is None:
            return
        self._network.synchronize()  # it may still be replayed
        self._recorded = None
        # PyTorch would keep that memory for other graphs of this process. Runs that share a GPU need it.
        with repeatable_convolutions():  # while no other thread records, which must not be disturbed
            torch.cuda.empty_cache()

    def mean_loss(self) -> float:
        """Over the steps of the last epoch. Waits for the device."""
        return float(self._loss_sum) / max(1, self._steps)

    def _recording(self) -> RecordedSteps:
        if self._recorded is None:
            whole = whole_step(self._network, self._loss, self._optimizer, self._loss_sum, self._batch_size)
            self._recorded = RecordedSteps(self._step, self._batch_size, self._drawing, whole)
        return self._recorded

    def _varied(self, samples: Trainable) -> Trainable:
        """The samples as one epoch sees them: moved and mirrored, if that is asked for."""
        if not self._shift and not self._mirror:
            return samples
        assert isinstance(samples, Samples)  # what is fetched batch by batch is trained on as it is
        height, width = samples.images.shape[-2:]
        if self._shift and not round(self._shift * max(height, width)):
            raise InputError(
                f"a shift of {self._shift:g} is less than half a pixel of images of {height}x{width}; give "
                f"{1 / max(height, width):.2g} or more, or 0."
            )
        return moved(samples, self._shift, self._mirror, self._generator)

    def _drawing(self) -> AbstractContextManager[None]:
        """Where layers may draw random numbers."""
        return nullcontext() if self._randomness is None else self._randomness.in_force()

    def _order(self, available: int, wanted: int) -> Tensor:
        """`wanted` positions: one random permutation after another."""
        # Drawn on the CPU, so that every device sees the same batches.
        rounds = [
            torch.randperm(available, generator=self._generator, device="cpu") for _ in range(-(-wanted // available))
        ]
        order = torch.cat(rounds)[:wanted]
        if self._network.device.type != "cuda":
            return order
        # From pinned memory the copy need not wait for the epoch before.
        return order.pin_memory().to(self._network.device, non_blocking=True)

    def _step(self, *batches: Samples) -> None:
        self._optimizer.forget_gradients()
        loss = self._loss(*batches)
        loss.backward()
        self._optimizer.step()
        self._loss_sum += loss.detach()
