"""Dropout that draws a byte for each number where PyTorch, on a CPU, draws much more."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

LARGE = 2**19
"""From how many numbers on bytes are drawn. With fewer there is less to gain, and results that were made with PyTorch's
draws stay as they are: all those of 32 images of 28x28 pixels, which is what the paper trains on."""


class Dropout(nn.Dropout):
    """Dropout of a share that is a whole number of 256ths.

    What PyTorch draws for 64 images of 28x28 pixels takes about an eighth of SimpleCNN's whole step. Eight bytes of one
    random number do for eight decisions, and each is as likely as asked for, exactly.
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
