"""Adam whose step keeps a whole GPU busy even where nearly all parameters are one tensor."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.optim.adam import adam

from continual_crust.kernel_trial import tried_once

LARGE = 1 << 18
"""PyTorch's fused step gives each 65,536 numbers to one block of threads. A tensor from here on takes a launch of its
own, unless there are so many of them that together they fill a GPU anyway."""
FILLING = 1 << 22


class Adam:
    """Adam by PyTorch's fused function; on a GPU a few large tensors take a kernel of our own, of the same formula.

    Not one of PyTorch's optimizers, since the first of those that a process makes imports PyTorch's whole compiler,
    which takes seconds and is not needed. Averages and steps are named as theirs are.

    Parameters
    ----------
    parameters
        Of one device.
    lr
        The learning rate.
    weight_decay
        Times which weights are added to their gradients.
    """

    betas = (0.9, 0.999)
    eps = 1e-8

    def __init__(self, parameters: Sequence[Tensor], lr: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.lr, self.weight_decay = lr, weight_decay
        self._states: dict[Tensor, dict[str, Tensor]] = {}

    @functools.cached_property
    def _large(self) -> list[Tensor]:
        few = sum(parameter.numel() for parameter in self.parameters) < FILLING
        large = [parameter for parameter in self.parameters if parameter.numel() >= LARGE]
        return large if few and large and kernel_works(self.parameters[0].device) else []

    def forget_gradients(self) -> None:
        """Before the gradients of the next step."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step, from the gradients at hand."""
        large = [parameter for parameter in self._large if parameter.grad is not None]
        apart = set(large)
        fused = [parameter for parameter in self.parameters if parameter.grad is not None and parameter not in apart]
        states = [self.state_of(parameter) for parameter in fused]
        adam(
            fused,
            [parameter.grad for parameter in fused if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            capturable=self.parameters[0].is_cuda,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.lr,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )
        for parameter in large:
            assert parameter.grad is not None
            self._update(parameter, parameter.grad)

    def _update(self, parameter: Tensor, gradient: Tensor) -> None:
        state = self.state_of(parameter)
        state["step"] += 1
        learned = kernels().Learned(parameter, state["exp_avg"], state["exp_avg_sq"])
        kernels().adam(learned, gradient, state["step"], kernels().Settings.of(*self.constants()))

    def state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        """A parameter's steps and averages; before its first step, of none."""
        if parameter not in self._states:
            self._states[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return self._states[parameter]

    def state(self) -> dict[str, Tensor]:
        """Steps and averages of all parameters that have taken a step; keys are the parameter's number and the name."""
        return {
            f"{number}.{name}": value
            for number, parameter in enumerate(self.parameters)
            for name, value in self._states.get(parameter, {}).items()
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back a :meth:`state`."""
        self._states = {}
        for key, value in state.items():
            number, _, name = key.partition(".")
            self.state_of(self.parameters[int(number)])[name].copy_(value)

    def constants(self) -> tuple[float, float, tuple[float, float], float]:
        """Learning rate, weight decay, betas and epsilon."""
        return self.lr, self.weight_decay, self.betas, self.eps


def kernels() -> ModuleType:
    """The module with the kernel. It imports Triton, which need not be installed."""
    return importlib.import_module("continual_crust.strategies.adam_kernel")


@tried_once("Adam")
def kernel_works(device: torch.device) -> bool:
    """Whether ours can be used on a device, by the first step of a few numbers."""
    ones, step = torch.ones(4, 8, device=device), torch.ones((), device=device)
    learned = kernels().Learned(ones.clone(), torch.zeros_like(ones), torch.zeros_like(ones))
    with torch.cuda.device(device):
        kernels().adam(learned, 2 * ones, step, kernels().Settings.of(0.5, 0.0, (0.9, 0.999), 1e-8))
    return bool(torch.allclose(learned.value, 0.5 * ones) and torch.allclose(learned.mean, 0.2 * ones))
