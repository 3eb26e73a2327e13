"""The lemma both theorems rest on, watched at work: plain gradient descent on the mean-squared error.

One step of size η ≤ 1/(2β²) leaves at most √(1 - ηα²/2) of the residual's norm, if

- the Jacobian's singular values lie between α and β, and those of the average Jacobian along the step under β;
- the average Jacobian is within α/2 of the Jacobian at the start of the step.

:func:`descend` takes real steps, measures all of this at each, and says whether the step kept to the bound. Meant for
small networks: it writes out every Jacobian.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from continual_crust.errors import InputError
from continual_crust.theory.jacobian import Dense, Function, Jacobian
from continual_crust.theory.quantities import NODES, average_jacobian
from continual_crust.theory.spectrum import singular_values, spectral_norm
from continual_crust.theory.theorems import contraction

ROUNDING = 1e-9
"""Relative error up to which a comparison of measured norms forgives rounding."""


@dataclass(frozen=True)
class Step:
    """One step of gradient descent."""

    residual: float
    """Norm before."""
    after: float
    """Norm after."""
    bound: float
    """What the lemma allows for the norm after."""
    sigma_min: float
    """Smallest singular value of the Jacobian, one for each output."""
    sigma_max: float
    """Largest singular value, of the Jacobian and of the average Jacobian along the step."""
    gap: float
    """‖average Jacobian - Jacobian‖."""
    conditions_hold: bool
    """Whether the lemma speaks about this step."""

    @property
    def keeps_bound(self) -> bool:
        """Whether the residual shrank as far as the lemma says."""
        return self.after <= self.bound * (1 + ROUNDING)


@dataclass(frozen=True)
class Descent:
    """Some steps, and the α, β and η they were judged by."""

    alpha: float
    beta: float
    eta: float
    steps: tuple[Step, ...]
    parameters: Tensor
    """W after the last step."""

    @property
    def violations(self) -> int:
        """Steps the lemma speaks about and that broke its bound. Anything but 0 refutes the lemma."""
        return sum(step.conditions_hold and not step.keeps_bound for step in self.steps)

    @property
    def bounds(self) -> list[float]:
        """The lemma's bound on the residual from the first step on, for as long as its conditions hold."""
        factor = contraction(self.alpha, self.eta)
        bounds = [self.steps[0].residual]
        for step in self.steps:
            if not step.conditions_hold:
                break
            bounds.append(bounds[-1] * factor)
        return bounds


def descend(
    function: Function,
    parameters: Tensor,
    inputs: Tensor,
    targets: Tensor,
    *,
    steps: int,
    alpha: float,
    beta: float,
    weights: Tensor | None = None,
    nodes: int = NODES,
) -> Descent:
    """Take steps of η = 1/(2β²) on ½ Σ r (f - y)², measuring the lemma's conditions at each.

    Parameters
    ----------
    function
        f: from parameters (p,) and n inputs to (n, q) outputs.
    parameters
        W before the first step, (p,).
    inputs, targets
        What to fit: n inputs, (n, q) labels.
    steps
        How many steps to take.
    alpha, beta
        Floor and ceiling of the singular values to go by, as :func:`~continual_crust.theory.measure` gives them.
    weights
        How much each sample counts, r; one if not given.
    nodes
        Points of the quadrature along each step.
    """
    if steps < 1 or not 0 < alpha <= beta:
        raise InputError(f"gradient descent needs steps ({steps}) and 0 < alpha ({alpha}) <= beta ({beta}).")
    eta = 1 / (2 * beta**2)
    ones = torch.ones(len(inputs), device=inputs.device) if weights is None else weights
    root = ones.to(parameters).sqrt().repeat_interleave(targets.shape[1])
    rows, forgiven = len(root), 1 + ROUNDING

    def residual_at(place: Tensor) -> Tensor:
        with torch.no_grad():
            return root * (function(place, inputs) - targets).flatten()

    taken = []
    residual = residual_at(parameters)
    for _ in range(steps):
        jacobian = root[:, None] * Jacobian(function, parameters, inputs).rows(0, rows)
        step = -eta * (jacobian.T @ residual)
        average = root[:, None] * average_jacobian(function, parameters, step, inputs, nodes).rows(0, rows)
        spectrum = singular_values(Dense(jacobian), "dense")
        lowest, highest = float(spectrum[-1]), max(float(spectrum[0]), spectral_norm(Dense(average)))
        gap = spectral_norm(Dense(average - jacobian))
        parameters = parameters + step
        before, residual = float(residual.norm()), residual_at(parameters)
        taken.append(
            Step(
                residual=before,
                after=float(residual.norm()),
                bound=contraction(alpha, eta) * before,
                sigma_min=lowest,
                sigma_max=highest,
                gap=gap,
                conditions_hold=alpha <= lowest * forgiven and highest <= beta * forgiven and gap <= alpha / 2,
            )
        )
    return Descent(alpha, beta, eta, tuple(taken), parameters)
