"""Adam whose step keeps a whole GPU busy even where nearly all parameters are one tensor."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from continual_crust.kernel_trial import tried_once

LARGE = 1 << 18
"""PyTorch's fused step gives each 65,536 numbers to one block of threads. A tensor from here on takes a launch of its
own, unless there are so many of them that together they fill a GPU anyway."""
FILLING = 1 << 22


class Adam(torch.optim.Adam):
    """PyTorch's, fused; on a GPU a few large tensors are updated by a kernel of our own, by the same formula."""

    def __init__(self, parameters: list[Tensor], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, fused=True, capturable=parameters[0].is_cuda)

    @functools.cached_property
    def _large(self) -> list[Tensor]:
        parameters: list[Tensor] = self.param_groups[0]["params"]
        few = sum(parameter.numel() for parameter in parameters) < FILLING
        large = [parameter for parameter in parameters if parameter.numel() >= LARGE]
        return large if few and large and _works(parameters[0].device) else []

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
        state = self.state_of(parameter)
        state["step"] += 1
        learned = kernels().Learned(parameter, state["exp_avg"], state["exp_avg_sq"])
        kernels().adam(learned, gradient, state["step"], kernels().Settings.of(*self.constants()))

    def state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        """A parameter's steps and averages, as PyTorch keeps them; before its first step, of none."""
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state

    def constants(self) -> tuple[float, float, tuple[float, float], float]:
        """Learning rate, weight decay, betas and epsilon."""
        group = self.param_groups[0]
        return group["lr"], group["weight_decay"], group["betas"], group["eps"]


def kernels() -> ModuleType:
    """The module with the kernel. It imports Triton, which need not be installed."""
    return importlib.import_module("continual_crust.strategies.adam_kernel")


@tried_once("Adam")
def _works(device: torch.device) -> bool:
    """The first step of a few numbers."""
    ones, step = torch.ones(4, 8, device=device), torch.ones((), device=device)
    learned = kernels().Learned(ones.clone(), torch.zeros_like(ones), torch.zeros_like(ones))
    with torch.cuda.device(device):
        kernels().adam(learned, 2 * ones, step, kernels().Settings.of(0.5, 0.0, (0.9, 0.999), 1e-8))
    return bool(torch.allclose(learned.value, 0.5 * ones) and torch.allclose(learned.mean, 0.2 * ones))
