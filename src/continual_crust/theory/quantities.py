"""Everything the two theorems are made of, measured on one coreset and the data it stands for.

How the paper's symbols are read, where it leaves room:

- A coreset stands for its class by *replacement*: every sample becomes the kept sample nearest to it. J(W, X) minus the
  Jacobian after replacement has the norm ε. The replaced Jacobian has the singular values of diag(√r) J(W, X_S), with r
  the number of samples each kept one stands for. So they lie between α = √r_min σ_min(J(W, X_S)) and
  β = ‖J(W, X)‖ + ε, which is what the proofs need and why the theorem defines α and β as it does.
- Gradient descent runs on the coreset's squared error, each sample counting for the r it stands for. Its residual is
  √r (f - y), its Jacobian diag(√r) J(W, X_S), and everything along the step (L, average Jacobian, E_J) is of these.
- X̃ is what the learner was given, X the same images without the perturbation. E_J1 and E_J2 are measured differences,
  not the Jacobian of the perturbation alone. E_min and E_max are what the perturbation takes from α and adds to β;
  negative where it helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from continual_crust.errors import InputError
from continual_crust.theory.jacobian import (
    MEMORY,
    Combination,
    Dense,
    Function,
    Jacobian,
    Matrix,
    Weighted,
    difference,
    written_out,
)
from continual_crust.theory.spectrum import inner_products, singular_values, spectral_norm

NODES = 4
"""Points of the Gauss-Legendre rule for the average Jacobian: exact for polynomials of degree 7 along the step."""

ROUNDING = 1e-12
"""Changes of singular values below this share of the Jacobian's norm are rounding."""


@dataclass(frozen=True)
class Measurement:
    """The numbers behind the theorems, all finite, for f in units of its labels."""

    k: int
    """Rows of the coreset's Jacobian: samples, times outputs of a sample."""
    n: int
    """Rows of the class data's Jacobian."""
    parameters: int
    """Columns of both, p."""
    margin: float
    """Distance between the labels of two classes, Theorem 1's δ."""
    noise_in_data: float
    """Share of the class data that is flipped or perturbed, Theorem 2's δ."""
    noise_in_coreset: float
    """The same share of the coreset, Theorem 1's ρ."""
    perturbed: bool
    """Whether the noise is in the images, so that clean ones were compared."""
    r_min: int
    """Fewest samples a kept sample stands for."""
    r_max: int
    sigma_min: float
    """Smallest singular value of J(W, X_S), on clean images."""
    sigma_max: float
    """Largest of the same."""
    norm: float
    """‖J(W, X)‖, on clean images."""
    epsilon: float
    """‖J(W, X̃) - its replacement by the coreset‖."""
    e_min: float
    """√r_min times what the perturbation takes from the smallest singular value."""
    e_max: float
    """What the perturbation adds to ‖J(W, X)‖."""
    alpha: float
    """√r_min σ_min(J(W, X_S)) - E_min: a floor under the singular values gradient descent works with."""
    beta: float
    """‖J(W, X)‖ + ε + E_max: a ceiling over them."""
    eta: float | None
    """Step size 1/(2β²); none where the Jacobian vanishes."""
    residual: float
    """‖√r (f - y)‖ on the coreset before the first step, ‖r_0‖."""
    target: float
    """Residual at which every coreset sample is on its label's side, ν: half the margin."""
    smoothness: float | None
    """The larger ‖J(W') - J(W)‖ / ‖W' - W‖ near the start and at the end of the step, a lower bound on L; none where
    there is no step."""
    linearization: float
    """‖average Jacobian along the step - J(W)‖, on the images as given."""
    e_j1: float
    """‖J(W, X̃_S) - J(W, X_S)‖."""
    e_j2: float
    """The same for the average Jacobian along the step."""
    e_gap: float
    """‖E_J2 - E_J1‖."""
    additivity_gap: float | None
    """‖J(W, X̃_S) - J(W, X_S) - J(W, X̃_S - X_S)‖ / ‖E_J1‖: 0 if the Jacobian were additive; none if E_J1 is 0."""


def measure(
    function: Function,
    parameters: Tensor,
    inputs: Tensor,
    targets: Tensor,
    coreset: Tensor,
    *,
    margin: float,
    noisy: Tensor | None = None,
    clean: Tensor | None = None,
    nodes: int = NODES,
    memory: int = MEMORY,
) -> Measurement:
    """Measure a coreset against the data it was chosen from.

    Parameters
    ----------
    function
        f: from parameters (p,) and n inputs to (n, q) outputs.
    parameters
        W, (p,).
    inputs
        The class data as given, n of them.
    targets
        Given labels as f should show them, (n, q).
    coreset
        Positions of the kept samples among the inputs.
    margin
        Distance between the labels of two classes.
    noisy
        Which of the inputs are flipped or perturbed; none if not given.
    clean
        The inputs without their perturbation, where they have one.
    nodes
        Points of the quadrature along the step.
    memory
        Bytes of Jacobian to hold at a time.
    """
    if not len(coreset):
        raise InputError("the coreset is empty; there is nothing to measure.")
    if margin <= 0:
        raise InputError(f"label margin {margin} is not above 0; labels of different classes must differ.")
    noise = torch.zeros(len(inputs), device="cpu") if noisy is None else noisy.double().cpu()
    jacobian = written_out(Jacobian(function, parameters, inputs), memory)
    stand_in = replacement(jacobian, function, parameters, inputs, coreset, memory)
    chosen, sizes, epsilon = stand_in.chosen, stand_in.sizes, stand_in.epsilon
    norm_given = spectral_norm(jacobian, memory)
    given = singular_values(chosen, memory=memory)

    clean_spectrum, norm = given, norm_given
    if clean is not None:
        norm = spectral_norm(written_out(Jacobian(function, parameters, clean), memory), memory)
        clean_spectrum = singular_values(Jacobian(function, parameters, clean[coreset]), memory=memory)
    root = float(sizes.min()) ** 0.5
    # The two spectra come by different routes; where they differ by rounding alone they do not differ.
    e_min, e_max = (
        0.0 if abs(change) <= ROUNDING * norm_given else change
        for change in (root * float(clean_spectrum[-1] - given[-1]), norm_given - norm)
    )
    beta = norm_given + epsilon

    weights = sizes.to(parameters).sqrt().repeat_interleave(targets.shape[1])
    with torch.no_grad():
        residual = weights * (function(parameters, inputs[coreset]) - targets[coreset]).flatten()
    eta = 1 / (2 * beta**2) if beta > 0 else None
    step = -(eta or 0.0) * Weighted(weights, chosen).adjoint_times(residual)
    path = _Path(function, parameters, step, weights, nodes, memory)
    along = path.measure(inputs[coreset], None if clean is None else clean[coreset])
    return Measurement(
        k=chosen.shape[0],
        n=jacobian.shape[0],
        parameters=len(parameters),
        margin=margin,
        noise_in_data=float(noise.mean()),
        noise_in_coreset=float(noise[coreset.cpu()].mean()),
        perturbed=clean is not None,
        r_min=int(sizes.min()),
        r_max=int(sizes.max()),
        sigma_min=float(clean_spectrum[-1]),
        sigma_max=float(clean_spectrum[0]),
        norm=norm,
        epsilon=epsilon,
        e_min=e_min,
        e_max=e_max,
        alpha=root * float(given[-1]),
        beta=beta,
        eta=eta,
        residual=float(residual.norm()),
        target=margin / 2,
        **along,
    )


def assignment(jacobian: Matrix, chosen: Matrix, coreset: Tensor, samples: int, memory: int = MEMORY) -> Tensor:
    """For each sample the place in the coreset of the kept sample whose Jacobian rows are nearest to its own.

    A kept sample stands for itself, even beside a twin of equal gradient.
    """
    each = jacobian.shape[0] // samples
    products = inner_products(jacobian, chosen, each, memory)
    own = products[coreset, torch.arange(len(coreset), device=coreset.device)]
    # |a - b|² = |a|² - 2 <a, b> + |b|², and |a|² is the same for every b.
    nearest = (own[None, :] - 2 * products).argmin(dim=1)
    nearest[coreset] = torch.arange(len(coreset), device=nearest.device)
    return nearest


@dataclass(frozen=True)
class Replacement:
    """A class's Jacobian after every sample became the kept sample nearest to it."""

    chosen: Matrix
    """The kept samples' rows."""
    sizes: Tensor
    """How many samples each kept one stands for, r."""
    epsilon: float
    """The norm of what the replacement changed."""


def replacement(
    jacobian: Matrix, function: Function, parameters: Tensor, inputs: Tensor, coreset: Tensor, memory: int = MEMORY
) -> Replacement:
    """Let the coreset stand in for all inputs, whose Jacobian is given too, as it may be in memory already."""
    chosen = _picked(jacobian, function, parameters, inputs, coreset)
    nearest = assignment(jacobian, chosen, coreset, len(inputs), memory)
    replaced = _picked(jacobian, function, parameters, inputs, coreset[nearest])
    return Replacement(
        chosen=chosen,
        sizes=torch.bincount(nearest, minlength=len(coreset)),
        epsilon=spectral_norm(difference(jacobian, replaced), memory),
    )


def average_jacobian(
    function: Function, start: Tensor, step: Tensor, inputs: Tensor, nodes: int = NODES
) -> Combination:
    """∫ J(W + t step) dt over t from 0 to 1, by Gauss-Legendre quadrature."""
    return Combination(
        [(weight, Jacobian(function, start + place * step, inputs)) for place, weight in quadrature(nodes)]
    )


def quadrature(nodes: int) -> Sequence[tuple[float, float]]:
    """Places in 0 to 1 and their weights, which add up to one.

    >>> quadrature(1)
    [(0.5, 1.0)]
    """
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return [(float(0.5 * (place + 1)), float(0.5 * weight)) for place, weight in zip(places, weights, strict=True)]


class _Along(TypedDict):
    """The part of a measurement that needs a step; the names are those of :class:`Measurement`."""

    smoothness: float | None
    linearization: float
    e_j1: float
    e_j2: float
    e_gap: float
    additivity_gap: float | None


@dataclass(frozen=True)
class _Path:
    """One step of gradient descent, and how the weighted Jacobian changes along it."""

    function: Function
    start: Tensor
    step: Tensor
    weights: Tensor
    nodes: int
    memory: int

    def measure(self, given: Tensor, clean: Tensor | None) -> _Along:
        at_start, average = self._at(0.0, given), self._average(given)
        size = between_averages = gap = 0.0
        additivity = None
        if clean is not None:
            e_j1 = difference(at_start, self._at(0.0, clean))
            e_j2 = difference(average, self._average(clean))
            size, between_averages, gap = (self._norm(matrix) for matrix in (e_j1, e_j2, difference(e_j2, e_j1)))
            if size > 0:
                additivity = self._norm(difference(e_j1, self._at(0.0, given - clean))) / size
        return {
            "smoothness": self._smoothness(at_start, given),
            "linearization": self._norm(difference(average, at_start)),
            "e_j1": size,
            "e_j2": between_averages,
            "e_gap": gap,
            "additivity_gap": additivity,
        }

    def _smoothness(self, at_start: Matrix, inputs: Tensor) -> float | None:
        length = float(self.step.norm())
        if length == 0:
            return None
        places = (quadrature(self.nodes)[0][0], 1.0)
        return max(self._norm(difference(self._at(place, inputs), at_start)) / (place * length) for place in places)

    def _at(self, place: float, inputs: Tensor) -> Matrix:
        plain = Jacobian(self.function, self.start + place * self.step, inputs)
        return written_out(Weighted(self.weights, plain), self.memory // 8)

    def _average(self, inputs: Tensor) -> Matrix:
        plain = average_jacobian(self.function, self.start, self.step, inputs, self.nodes)
        return written_out(Weighted(self.weights, plain), self.memory // 8)

    def _norm(self, matrix: Matrix) -> float:
        return spectral_norm(matrix, self.memory)


def _picked(whole: Matrix, function: Function, parameters: Tensor, inputs: Tensor, positions: Tensor) -> Matrix:
    """The rows of some samples, repeated where a sample is; from memory if they are there."""
    if isinstance(whole, Dense):
        by_sample = whole.matrix.view(len(inputs), -1, whole.shape[1])
        return Dense(by_sample[positions].flatten(0, 1))
    return Jacobian(function, parameters, inputs[positions])
