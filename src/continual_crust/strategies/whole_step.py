"""A training step of `SimpleCNN` on a GPU in eight kernels, under plain cross-entropy, where Triton is there.

On a network this small a step's time is the number of its kernels. So nothing here is only moved: bytes are gathered
and normalised by the kernels that convolve, dropout draws where it drops, gradients go to Adam as they come out.
"""

from __future__ import annotations

import copy
import functools
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.kernel_trial import Trial, tried_once
from continual_crust.models import build_model
from continual_crust.models.simple_cnn import DROPPED, SimpleCNN
from continual_crust.strategies.adam import Adam
from continual_crust.strategies.losses import CrossEntropy, Loss
from continual_crust.strategies.network import Network

MOST_CLASSES = 128
"""Whose weights one program's registers hold."""
AGREEMENT = 0.05
"""How far from PyTorch's a gradient may be, as a share of its length: TF32 decides some near-ties of pooling."""


@dataclass(frozen=True)
class _Workspace:
    """What the kernels of a step hand to each other, for batches of one size."""

    hidden: Tensor
    pooled: Tensor
    parts: Tensor
    passed: Tensor
    gradients: Any
    """The kernels' own `Gradients`."""


class WholeStep:
    """Steps of one network and one optimizer, on batches of one set of samples.

    The network's weights are up to date at any time, the optimizer's count of steps only between :meth:`end` and the
    next :meth:`begin`.

    Parameters
    ----------
    network
        With a `SimpleCNN` that does not pool to a fixed size.
    optimizer
        Of all its parameters.
    loss_sum
        A number to which each step adds its loss.
    batch_size
        How many samples each batch but an epoch's last has.
    rates
        Shares that dropout takes away, after pooling and before the head.
    """

    def __init__(
        self,
        network: Network,
        optimizer: Adam,
        loss_sum: Tensor,
        batch_size: int,
        rates: tuple[float, float] = DROPPED,
    ) -> None:
        assert isinstance(network.model, SimpleCNN)
        self._there = _kernels("models.simple_cnn_forward_kernels")
        self._back = _kernels("models.simple_cnn_backward_kernels")
        self._ends = _kernels("strategies.whole_step_kernels")
        self._network, self._batch_size, self._rates, self._loss_sum = network, batch_size, rates, loss_sum
        parameters = [parameter for layer in network.model.layers() for parameter in layer.parameters()]
        self._states = [optimizer.state_of(parameter) for parameter in parameters]
        self._learned = self._ends.Network(
            *(
                self._ends.Learned(parameter.detach(), state["exp_avg"], state["exp_avg_sq"])
                for parameter, state in zip(parameters, self._states, strict=True)
            )
        )
        self._settings = self._ends.Settings.of(*optimizer.constants())
        self._taps = self._there.taps_of(parameters[2].detach())
        self._steps, self._corrections = loss_sum.new_zeros(()), loss_sum.new_zeros(2)
        self._seed = loss_sum.new_zeros((), dtype=torch.int64)
        self._workspaces: dict[int, _Workspace] = {}

    def begin(self) -> None:
        """Before an epoch: take over the state of network and optimizer; draw what dropout's numbers depend on."""
        for held, taps in zip(self._taps, self._there.taps_of(self._learned.second_weight.value), strict=True):
            held.copy_(taps)
        self._steps.copy_(self._states[0]["step"])
        self._seed.random_()

    def take(self, samples: Samples, order: Tensor, counter: Tensor, size: int) -> None:
        """Train on `size` samples, those that `order` names for batch number `counter`, and count this batch."""
        for launch in self.launches(samples, order, counter, size).values():
            launch()

    def launches(self, samples: Samples, order: Tensor, counter: Tensor, size: int) -> dict[str, Callable[[], None]]:
        """What :meth:`take` does, one after the other, by what it is for."""
        if size not in self._workspaces:
            self._workspaces[size] = self._workspace(size, samples.images.shape)
        space, learned, settings = self._workspaces[size], self._learned, self._settings
        source = self._there.Images(
            samples.images, order, counter, self._batch_size, self._network.mean, self._network.std
        )
        draws = self._there.Draws(self._seed, counter)
        progress = self._ends.Progress(counter, self._loss_sum, self._steps, self._corrections)
        gradients = space.gradients
        there, back, ends = self._there, self._back, self._ends
        return {
            "first convolution": partial(
                there.convolve, source, learned.first_weight.value, learned.first_bias.value, space.hidden
            ),
            "second convolution, pooling": partial(
                there.pool, space.hidden, self._taps[0], learned.second_bias.value, draws, self._rates[0], space.pooled
            ),
            "linear layer": partial(there.add_up, space.pooled, learned.linear_weight.value, space.parts),
            "head, loss and their gradients": partial(
                ends.head, space.parts, learned, source, samples.labels, samples.weights, draws, self._rates[1],
                gradients, progress, settings,
            ),
            "back through the linear layer": partial(
                back.pass_on, gradients.upstream, None, space.pooled, learned.linear_weight.value, self._rates,
                space.passed,
            ),
            "both convolutions' gradients": partial(
                back.convolutions, source, space.passed, self._taps[1], space.hidden, gradients.first_parts,
                gradients.second_parts,
            ),
            "the linear layer's gradients, Adam for all weights": partial(
                ends.adam, learned, *self._taps, gradients, space.pooled, progress, settings
            ),
        }  # fmt: skip

    def end(self) -> None:
        """After an epoch: tell the optimizer how many steps it has taken."""
        for state in self._states:
            state["step"].copy_(self._steps)

    def _workspace(self, batch: int, image_shape: torch.Size) -> _Workspace:
        new = self._loss_sum.new_empty
        channels, height, width = image_shape[1:]
        units, inputs = self._learned.linear_weight.value.shape
        pooled = new(batch, inputs)
        return _Workspace(
            hidden=new(batch, height - 2, width - 2, self._there.FIRST),
            pooled=pooled,
            parts=new(self._there.splits_of(inputs), batch, units),
            passed=new(batch, inputs),
            gradients=self._ends.Gradients(
                first_parts=new(self._back.first_parts_of(batch, height, width), channels * 9 + 1, self._there.FIRST),
                second_parts=new(self._back.second_parts_of(pooled), self._back.OF_SECOND),
                upstream=new(batch, units),
                features=new(batch, units),
                slopes=new(batch, len(self._learned.head_bias.value)),
                losses=new(batch),
            ),
        )


def whole_step(network: Network, loss: Loss, optimizer: Adam, loss_sum: Tensor, batch_size: int) -> WholeStep | None:
    """The step in eight kernels, or nothing where network, loss or machine need the general one."""
    model = network.model
    if not isinstance(loss, CrossEntropy) or loss.network is not network or not isinstance(model, SimpleCNN):
        return None
    known = not model.shrinks and model.head.out_features <= MOST_CLASSES and not network.low_precision
    if not known or not _trial_of(model.image_shape, model.head.out_features)(network.device):
        return None
    return WholeStep(network, optimizer, loss_sum, batch_size)


def _kernels(module: str) -> ModuleType:
    """A module with kernels. It imports Triton, which need not be installed."""
    return importlib.import_module(f"continual_crust.{module}")


@functools.cache
def _trial_of(image_shape: tuple[int, int, int], classes: int) -> Trial:
    """A trial with these images: what it has to compile is needed anyway."""

    @tried_once("whole training steps")
    def works(device: torch.device) -> bool:
        """One step on two images, and the gradients that Adam saw in it."""
        # PyTorch's answer comes from the CPU: on the GPU it would load libraries that nothing else here needs.
        model = build_model("simple_cnn", image_shape, classes)
        images = torch.arange(2 * math.prod(image_shape)).mul(37).remainder(256).byte().view(2, *image_shape)
        samples = Samples.of(images, torch.arange(2) % classes)
        theirs, network = Network(copy.deepcopy(model).eval(), torch.device("cpu")), Network(model.eval(), device)
        for either in (theirs, network):
            either.measure_normalization(images)
        loss = CrossEntropy(theirs)(samples)
        gradients = torch.autograd.grad(loss, list(theirs.model.parameters()))
        samples, loss = samples.to(device), loss.detach().to(device)
        optimizer = Adam(list(network.model.parameters()), lr=1e-3, weight_decay=0.0)
        found, counter = loss.new_zeros(()), torch.zeros((), dtype=torch.int64, device=device)
        with torch.cuda.device(device):
            step = WholeStep(network, optimizer, found, 16, rates=(0.0, 0.0))
            step.take(samples, torch.arange(2, device=device), counter, 2)
        seen = [optimizer.state_of(parameter)["exp_avg"].cpu() * 10 for parameter in network.model.parameters()]
        return all(
            bool((ours - expected).norm() <= AGREEMENT * expected.norm())
            for ours, expected in zip([found, *seen], [loss, *gradients], strict=True)
        )

    return works
