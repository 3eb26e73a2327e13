"""Layers of `SimpleCNN` that do what PyTorch's do, faster on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LARGE = 2**19
"""Batches are large if at least so many numbers of them reach the first dropout. In smaller ones there is less to gain,
and they are computed exactly as by PyTorch's layers, so that earlier results can be repeated: among them all of 32
images of 28x28 pixels, which is what the paper trains on."""


class Dropout(nn.Dropout):
    """Dropout that draws a single byte for each number of a large batch on a CPU.

    The share must be a whole number of 256ths. What PyTorch draws for 64 images of 28x28 pixels takes about an eighth
    of SimpleCNN's whole training step. Here one random number of 64 bits decides about eight numbers, each with exactly
    the probability asked for.
    """

    def __init__(self, share: float) -> None:
        super().__init__(share)
        self._bound = round(share * 256)
        if self._bound != share * 256:
            raise ValueError(f"dropout takes whole 256ths, not {share}")

    def forward(self, numbers: Tensor) -> Tensor:
        if not self.training or numbers.device.type != "cpu" or numbers.numel() < LARGE:
            return functional.dropout(numbers, self.p, self.training)
        drawn = torch.empty(-(-numbers.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        kept = drawn.view(torch.uint8)[: numbers.numel()].view(numbers.shape) >= self._bound
        return numbers * kept.to(numbers.dtype).div_(1 - self.p)


class FirstConvolution(nn.Conv2d):
    """A first convolution that, on a CPU, lays the channels of large batches side by side in memory.

    PyTorch's convolutions keep the order of channels that they are given and are as fast in either. Max pooling and its
    gradient are faster where the channels of a pixel lie side by side, so it is enough to begin with that order. For
    grey images it costs nothing: both orders are the same bytes, and only the strides have to say so. As the order
    changes the last bits of a convolution's results, small batches keep theirs.

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
    """Max pooling of 2x2 squares, several times faster on a CPU.

    PyTorch pools channel after channel, one number at a time; where the channels of a pixel lie side by side in memory
    it takes many numbers at once. So images are brought into that order, pooled and brought back. This gives the same
    bits, since a maximum rounds nothing, and gradients come in the order of the images, so that the layer before
    notices nothing.

    Large batches have that order already (:class:`FirstConvolution`) and are only brought back, for the linear layers,
    which want one channel after the other. A small batch that comes in that order keeps it: PyTorch's dropout follows,
    which draws in the order of memory, and earlier results should be found again.

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
