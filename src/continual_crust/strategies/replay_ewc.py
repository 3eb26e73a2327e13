"""Replay with elastic weight consolidation (Kirkpatrick et al. 2017; online form: Schwarz et al. 2018).

After each experience t the importance of every parameter is the diagonal of the empirical Fisher information on that
experience's samples, F = mean over (x, y) of (∂ log p(y|x) / ∂θ)². Training then minimises

    L(batch of new and remembered samples) + λ/2 Σ F (θ - θ*)²

    separate:  summed over all earlier experiences, each with its own F and θ*
    online:    one F ← γ F + F_t and the latest θ*

A sum of quadratics is one quadratic: the separate form has the gradient λ (ΣF) (θ - ΣFθ*/ΣF), so one importance and one
anchor are all that is ever kept of it, and a step costs the same however long the stream.

Everything else is replay. Where this differs from Avalanche: gradients are squared for each sample, as the definition
says, where Avalanche squares the mean gradient of each batch, which for batches of more than one is a much smaller
number (`fisher_batch` reproduces it); and λ is the source paper's, twice Avalanche's `ewc_lambda`, which lacks the 1/2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError, trouble_of_the_machine
from continual_crust.strategies.losses import Loss
from continual_crust.strategies.network import Network
from continual_crust.strategies.replay import Replay, ReplayOptions

GROUPS_AT_A_TIME = 16
"""How many gradients of the whole network are held at once while their squares are summed."""


@dataclass(frozen=True)
class ReplayEwcOptions(ReplayOptions):
    """Hyper-parameters of replay with EWC."""

    strength: float = 1.0
    """λ, the weight of the penalty."""
    online: bool = False
    """Keep one running importance instead of one for each experience."""
    decay: float = 0.9
    """γ of the online form."""
    fisher_batch: int = 1
    """Samples whose gradients are averaged before they are squared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strength < 0 or not 0 <= self.decay <= 1 or self.fisher_batch < 1:
            raise InputError("replay_ewc needs strength of 0 or more, decay from 0 to 1 and fisher_batch of 1 or more.")


class ReplayEwc(Replay):
    """Replay, with parameters held near their old values where those mattered."""

    name = "replay_ewc"
    summary = "Replay + EWC: a quadratic penalty holds parameters that mattered"
    options_type = ReplayEwcOptions
    options: ReplayEwcOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._importance: list[Tensor] = []
        self._anchor: list[Tensor] = []

    def _own_state(self) -> dict[str, Any]:
        return {"importance": self._importance, "anchor": self._anchor}

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        self._importance, self._anchor = (
            [part.to(self.network.device) for part in own[name]] for name in ("importance", "anchor")
        )

    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        super()._learn(classes, new)
        if len(new):
            self._consolidate(new)

    def _loss(self) -> Loss:
        return lambda *batches: self._cross_entropy(*batches) + self.options.strength / 2 * self._penalty()

    def _penalty(self) -> Tensor:
        if not self._importance:
            return torch.zeros((), device=self.network.device)
        values = list(self.network.model.parameters())
        penalty: Tensor = _Penalty.apply(self._importance, self._anchor, *values)  # type: ignore[no-untyped-call]
        return penalty

    def _consolidate(self, new: Samples) -> None:
        values = [parameter.detach().clone() for parameter in self.network.model.parameters()]
        importance = fisher_diagonal(self.network, new, self.options.fisher_batch)
        if not self._importance:
            self._importance, self._anchor = importance, values
        elif self.options.online:
            self._importance = [
                self.options.decay * old + now for old, now in zip(self._importance, importance, strict=True)
            ]
            self._anchor = values
        else:
            total = [old + now for old, now in zip(self._importance, importance, strict=True)]
            # The mean of old anchor and new value, weighted by what they matter; anything where neither matters.
            self._anchor = [
                torch.lerp(anchor, value, torch.nan_to_num(now / everything))
                for anchor, value, now, everything in zip(self._anchor, values, importance, total, strict=True)
            ]
            self._importance = total


class _Penalty(torch.autograd.Function):
    """Σ F (θ - θ*)² over all parameters at once: a network has dozens, and a GPU takes them in a few kernels."""

    @staticmethod
    def forward(ctx: Any, importance: list[Tensor], anchor: list[Tensor], *values: Tensor) -> Tensor:
        distances = torch._foreach_sub(values, anchor)
        ctx.save_for_backward(*distances)
        ctx.importance = importance
        squares = torch._foreach_mul(torch._foreach_mul(distances, distances), importance)
        return torch.stack([square.sum() for square in squares]).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        slopes = torch._foreach_mul(torch._foreach_mul(ctx.importance, gradient), ctx.saved_tensors)
        torch._foreach_mul_(slopes, 2)
        return None, None, *slopes


def fisher_diagonal(network: Network, samples: Samples, batch: int = 1) -> list[Tensor]:
    """Mean squared gradient of the log-likelihood of the given labels, for each parameter, in evaluation mode.

    With `batch` above 1 gradients are averaged over that many samples before they are squared.
    """
    model = network.model
    was_training = model.training
    model.eval()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def loss(values: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        logits = torch.func.functional_call(model, (values, buffers), (network.normalized(images),))
        return functional.cross_entropy(logits, labels)

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    totals = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    groups = 0
    for images, labels in _grouped(samples, batch):
        try:
            found = gradients(parameters, images, labels)
        except RuntimeError as error:
            if trouble_of_the_machine(error) is not None:
                raise
            why = str(error).partition(". ")[0]
            raise InputError(
                f"replay_ewc needs gradients of single samples, and PyTorch's vmap finds none in "
                f"{type(model).__name__} ({why}); give a network without recurrent layers or buffers that it changes."
            ) from None
        groups += len(labels)
        for name, total in totals.items():
            total += found[name].square().sum(dim=0)
    model.train(was_training)
    return [total / groups for total in totals.values()]


def _grouped(samples: Samples, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images and labels in groups of `batch`, some groups at a time; the last group may be smaller."""
    whole = len(samples) // batch * batch
    for start, end, size in ((0, whole, batch), (whole, len(samples), len(samples) - whole)):
        if start < end:
            images = samples.images[start:end].unflatten(0, (-1, size))
            labels = samples.labels[start:end].unflatten(0, (-1, size))
            yield from zip(images.split(GROUPS_AT_A_TIME), labels.split(GROUPS_AT_A_TIME), strict=True)
