"""Adam whose step keeps a whole GPU busy even where nearly all parameters are one tensor."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
LARGE = 1 << 18
"""PyTorch's fused step gives each 65,536 numbers to one block of threads. A tensor from here on takes a launch of its
own, unless there are so many of them that together they fill a GPU anyway."""
FILLING = 1 << 22


class Adam(torch.optim.Adam):
    """PyTorch's, fused; on a GPU a few large tensors are updated by a kernel of our own, by the same formula."""

    def __init__(self, parameters: list[Tensor], lr: float, weight_decay: float) -> None:
        on_cuda = parameters[0].is_cuda
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, fused=True, capturable=on_cuda)
        few = sum(parameter.numel() for parameter in parameters) < FILLING
        fast = on_cuda and few and _works(parameters[0].device)
        self._large = [parameter for parameter in parameters if fast and parameter.numel() >= LARGE]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step, from the gradients at hand."""
        gradients = [parameter.grad for parameter in self._large]
        for parameter in self._large:
            parameter.grad = None  # PyTorch passes over it
        loss = super().step(closure)
        for parameter, gradient in zip(self._large, gradients, strict=True):
            parameter.grad = gradient
            if gradient is not None:
                self._update(parameter, gradient)
        return loss

    def _update(self, parameter: Tensor, gradient: Tensor) -> None:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        group = self.param_groups[0]
        state["step"] += 1
        kernels().adam(
            parameter, gradient, state["exp_avg"], state["exp_avg_sq"], state["step"], group["lr"],
            group["weight_decay"], group["betas"], group["eps"],
        )  # fmt: skip


def kernels() -> ModuleType:
    """The module with the kernel. It imports Triton, which need not be installed."""
    return importlib.import_module("continual_crust.strategies.adam_kernel")


@functools.cache
def _works(device: torch.device) -> bool:
    """Whether Triton can build and run the kernel here, tried once; it needs a C compiler."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        ones, step = torch.ones(4, 8, device=device), torch.ones((), device=device)
        value, first, second = ones.clone(), torch.zeros_like(ones), torch.zeros_like(ones)
        with torch.cuda.device(device):
            kernels().adam(value, 2 * ones, first, second, step, 0.5, 0.0, (0.9, 0.999), 1e-8)
        return bool(torch.allclose(value, 0.5 * ones) and torch.allclose(first, 0.2 * ones))
    except Exception as error:  # whatever a compiler, a driver or a version may raise: there is another way
        LOG.warning("Triton cannot be used for Adam (%s); the same steps take longer.", error)
        return False
