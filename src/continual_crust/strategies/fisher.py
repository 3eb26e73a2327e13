"""How much each parameter of a network matters for what it has learned: the diagonal of the Fisher information."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from continual_crust.data.samples import Samples
from continual_crust.strategies.network import Network

_Pair = int | tuple[int, int]
GROUPS_AT_A_TIME = 16
"""How many gradients of the whole network are held at once while their squares are summed."""


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
    with ConvolutionsAsProducts() if network.device.type == "cuda" else nullcontext():
        for images, labels in _grouped(samples, batch):
            found = gradients(parameters, images, labels)
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


class ConvolutionsAsProducts(TorchFunctionMode):
    """Within it a convolution is a product of matrices, of its weights and of the patches they are laid over.

    A GPU takes the gradients of a convolution's weights, one for each sample, as a convolution with as many groups as
    there are samples, which is slow beyond measure; those of a product are one batch of products.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is torch.conv2d:
            function = _convolution
        return function(*args, **(kwargs or {}))


def _convolution(
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Pair = 1,
    padding: _Pair | str = 0,
    dilation: _Pair = 1,
    groups: int = 1,
) -> Tensor:
    """What `torch.conv2d` computes."""
    if isinstance(padding, str):
        return torch.conv2d(images, weight, bias, stride, padding, dilation, groups)
    patches = functional.unfold(images, weight.shape[2:], dilation, padding, stride).unflatten(1, (groups, -1))
    values: Tensor = (weight.flatten(1).unflatten(0, (groups, -1)) @ patches).flatten(1, 2)
    rows, step, border, gap = images.shape[2], *(_first(pair) for pair in (stride, padding, dilation))
    height = (rows + 2 * border - gap * (weight.shape[2] - 1) - 1) // step + 1
    if bias is not None:
        values = values + bias[:, None]
    shaped: Tensor = values.unflatten(2, (height, -1))
    return shaped


def _first(pair: _Pair) -> int:
    return pair if isinstance(pair, int) else pair[0]
