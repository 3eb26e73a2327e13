"""Layers that lay the channels of a pixel side by side in memory where a CPU is faster for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from continual_crust.models import dropping

LARGE = 2**20
"""From how many numbers on a first convolution lays its channels side by side. That changes the last bits of what
convolutions come to, and results of smaller batches stay as they are: all those of 32 images of 28x28 pixels, which is
what the paper trains on."""


class FirstConvolution(nn.Conv2d):
    """A network's first convolution.

    On a CPU, PyTorch's convolutions leave channels as they find them, and are no slower, and pooling and its gradients
    are faster, where they lie side by side. So it is enough to begin with that. For grey images it costs nothing: they
    are laid out either way, and need only say so.
    """

    def forward(self, images: Tensor) -> Tensor:
        trains = self.training and torch.is_grad_enabled() and images.device.type == "cpu"
        if trains and self.out_channels * images.numel() >= LARGE * images.shape[1]:
            images = _side_by_side(images)
        return super().forward(images)


class MaxPool2x2(nn.MaxPool2d):
    """Pooling of 2x2 squares.

    On a CPU, PyTorch pools one channel after the other and looks at one number at a time; where the channels of a pixel
    lie side by side in memory it takes many at once. To bring them there, pool and bring back what is left is several
    times faster, and gives the same bits: a maximum rounds nothing. Gradients have the order of the images, so that the
    convolution before sees nothing of all this.

    Where channels lie side by side already only the way back is left. It is gone with large batches, as linear layers
    want one channel after the other. With small ones the order stays as it is: PyTorch's dropout draws in the order of
    memory, and what was drawn once is to be drawn again.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        few = images.shape[:-2].numel() * (height // 2) * (width // 2) < dropping.LARGE
        if images.device.type != "cpu" or (few and not images.is_contiguous()):
            return functional.max_pool2d(images, 2)
        if torch.is_grad_enabled() and not self.training:
            # Someone asks for derivatives of another kind; torch.func knows PyTorch's own alone.
            return functional.max_pool2d(images, 2)
        if not torch.is_grad_enabled():
            return functional.max_pool2d(_side_by_side(images), 2).contiguous()
        pooled: Tensor = _Pooled.apply(images)  # type: ignore[no-untyped-call]
        return pooled


class _Pooled(torch.autograd.Function):
    """Maxima of 2x2 squares, and gradients for the first pixel of each that has its maximum."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        maxima, places = functional.max_pool2d(_side_by_side(images), 2, return_indices=True)
        ctx.order = torch.contiguous_format if images.is_contiguous() else torch.channels_last
        ctx.save_for_backward(images, places.contiguous(memory_format=ctx.order))
        return maxima.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        images, places = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=ctx.order)
        backward = torch.ops.aten.max_pool2d_with_indices_backward
        whole: Tensor = backward(gradient, images, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
        return whole


def _side_by_side(images: Tensor) -> Tensor:
    if images.shape[1] == 1 and images.is_contiguous():
        # PyTorch calls this order both, and takes it for the other one unless the numbers that say so are these.
        _, _, height, width = images.shape
        return images.as_strided(images.shape, (height * width, 1, width, 1))
    return images.contiguous(memory_format=torch.channels_last)
