"""Max pooling by the faster of PyTorch's two ways to do it on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class MaxPool2x2(nn.MaxPool2d):
    """Pooling of 2x2 squares.

    On a CPU, PyTorch pools one channel after the other and looks at one number at a time; where the channels of a pixel
    lie side by side in memory it takes many at once. To bring them there, pool and bring back what is left is several
    times faster, and gives the same bits: a maximum rounds nothing. Gradients go the usual way, from the places that
    were found, so that the convolution before sees nothing of all this.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, images: Tensor) -> Tensor:
        if images.device.type != "cpu" or not images.is_contiguous():
            return functional.max_pool2d(images, 2)
        if not torch.is_grad_enabled():
            return functional.max_pool2d(images.contiguous(memory_format=torch.channels_last), 2).contiguous()
        if not self.training:  # Someone asks for derivatives of another kind; torch.func knows PyTorch's own alone.
            return functional.max_pool2d(images, 2)
        pooled: Tensor = _Pooled.apply(images)  # type: ignore[no-untyped-call]
        return pooled


class _Pooled(torch.autograd.Function):
    """Maxima of 2x2 squares, and gradients for the first pixel of each that has its maximum."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        side_by_side = images.contiguous(memory_format=torch.channels_last)
        maxima, places = functional.max_pool2d(side_by_side, 2, return_indices=True)
        ctx.save_for_backward(images, places.contiguous())
        return maxima.contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        images, places = ctx.saved_tensors
        backward = torch.ops.aten.max_pool2d_with_indices_backward
        gradient: Tensor = backward(gradients[0].contiguous(), images, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
        return gradient
