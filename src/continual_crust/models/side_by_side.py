"""Layers that lay the channels of a pixel side by side in memory where a CPU is faster for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from continual_crust.models.dropping import LARGE


class FirstConvolution(nn.Conv2d):
    """A network's first convolution.

    On a CPU, PyTorch's convolutions leave channels as they find them, and are no slower, and pooling and its gradients
    are faster, where they lie side by side. So it is enough to begin with that. For grey images it costs nothing: they
    are laid out either way, and need only say so. The last bits of what convolutions come to change with that, so it
    begins where our dropout does, and all else stays as it is.

    Parameters
    ----------
    channels, outputs
        As many as images have, and as many as come out.
    dropped
        How many numbers of each image the network's dropout will see.
    """

    def __init__(self, channels: int, outputs: int, dropped: int) -> None:
        super().__init__(channels, outputs, 3)
        self._dropped = dropped

    def forward(self, images: Tensor) -> Tensor:
        trains = self.training and torch.is_grad_enabled() and images.device.type == "cpu"
        if trains and len(images) * self._dropped >= LARGE:
            images = _side_by_side(images)
        return super().forward(images)


class MaxPool2x2(nn.MaxPool2d):
    """Pooling of 2x2 squares.

    On a CPU, PyTorch pools one channel after the other and looks at one number at a time; where the channels of a pixel
    lie side by side in memory it takes many at once. To bring them there, pool and bring back what is left is several
    times faster, and gives the same bits: a maximum rounds nothing. Gradients have the order of the images, so that the
    convolution before sees nothing of all this.

    Where channels lie side by side already only the way back is left. It is gone where our dropout follows, as linear
    layers want one channel after the other. PyTorch's, of smaller batches, draws in the order of memory, and what was
    drawn once is to be drawn again.

    Parameters
    ----------
    dropped
        How many numbers of each image the network's dropout will see.
    """

    def __init__(self, dropped: int) -> None:
        super().__init__(2)
        self._dropped = dropped

    def forward(self, images: Tensor) -> Tensor:
        keeps_order = not images.is_contiguous() and len(images) * self._dropped < LARGE
        # torch.func, with which someone may ask for derivatives of another kind, knows PyTorch's own alone.
        differentiates = torch.is_grad_enabled() and not self.training
        if images.device.type != "cpu" or keeps_order or differentiates:
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
