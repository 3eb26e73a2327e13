"""The two theorems as conditions and demanded iterations, each evaluated or found ill-posed.

Every item is first the paper's own text, read to the letter, with the constant of its O(...) taken as one. Where the
text has a slip, the item names it and carries the corrected form beside it. An expression that has no meaning for the
measured numbers (a logarithm of zero, an error below a negative number, a contraction factor below zero) gets no value:
it is ill-posed, and the reason is told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from continual_crust.theory.quantities import Measurement

ADDITIVE = 1e-6
"""Relative error up to which the Jacobian counts as additive."""


class Status(str, Enum):
    """What became of a condition."""

    HOLDS = "holds"
    FAILS = "fails"
    ILL_POSED = "ill-posed"


@dataclass(frozen=True)
class Condition:
    """A condition of a theorem, with both sides as measured."""

    name: str
    statement: str
    left: float | None
    right: float | None
    status: Status
    reason: str = ""
    """Why it is ill-posed."""
    slip: str = ""
    """What is wrong with the text, if anything."""
    remedy: str = ""
    """What to change when it fails."""
    corrected: Condition | None = None
    """The form to go by, where the text has a slip."""

    @property
    def to_go_by(self) -> Condition:
        """The corrected form where there is one."""
        return self.corrected or self


@dataclass(frozen=True)
class Iterations:
    """How many steps of gradient descent a formula asks for."""

    name: str
    statement: str
    value: int | None
    """None where the formula has no meaning."""
    reason: str = ""
    """Why it has none."""
    slip: str = ""
    """What is wrong with the text, if anything."""


@dataclass(frozen=True)
class Theorem:
    """What a theorem says about one coreset."""

    name: str
    conditions: tuple[Condition, ...]
    iterations: tuple[Iterations, ...]
    """As stated first, corrected last."""

    @property
    def applies(self) -> bool:
        """Whether every condition holds, in its corrected form where it has one."""
        return all(condition.to_go_by.status is Status.HOLDS for condition in self.conditions)


@dataclass(frozen=True)
class _Value:
    """A number, or why there is none."""

    number: float | None
    reason: str = ""


def theorem_for(m: Measurement) -> Theorem:
    """Theorem 2 where images are perturbed, Theorem 1 else."""
    return theorem_2(m) if m.perturbed else theorem_1(m)


def theorem_1(m: Measurement) -> Theorem:
    """Robustness to flipped labels."""
    rho, one_sample = m.noise_in_coreset, max(m.noise_in_coreset, 1 / m.k)
    allowed = _compared("Jacobian error", "ε ≤ δα²/(kβ log(√k/ρ))", m.epsilon, allowed_error_1(m, rho))
    if not rho:
        allowed = replace(
            allowed,
            slip="log(√k/ρ) has no value for a clean coreset, ρ = 0",
            corrected=_compared(
                "Jacobian error",
                "ε ≤ δα²/(kβ log(√k/ρ)) with ρ = 1/k, the least share of k samples that can be wrong",
                m.epsilon,
                allowed_error_1(m, one_sample),
            ),
        )
    noise = _compared("noise in the coreset", "ρ < δ/8", rho, _Value(m.margin / 8), strict=True)
    stated = _stated_iterations_1(m, rho)
    return Theorem(
        "Theorem 1: flipped labels",
        (
            replace(noise, remedy="keep fewer samples of each class, or choose them by a stricter rule"),
            _floor(m),
            replace(allowed, remedy=_KEEP_MORE),
            _smoothness(m),
            _step_size(m),
            _linearization(m),
        ),
        (
            Iterations(
                "as stated",
                "τ ≥ log(√n/ρ) / (ηα²)",
                _whole(stated),
                stated.reason,
                slip="its constant is hidden in O(...); and the lemma behind it bounds ‖r‖ where its proof bounds ‖r‖²",
            ),
            _iterations_from_proof(m),
        ),
    )


def theorem_2(m: Measurement) -> Theorem:
    """Robustness to perturbed images."""
    stated, proved = _steps(m, _bracket_as_stated(m)), _steps(m, _bracket_as_derived(m), squared=True)
    return Theorem(
        "Theorem 2: perturbed images",
        (
            _floor(m),
            replace(
                _compared("Jacobian error", "ε ≤ δα²/(kβ log δ)", m.epsilon, allowed_error_2(m, as_stated=True)),
                slip="log δ is negative for every share δ below 1: an error would have to be below a negative number",
                remedy=_KEEP_MORE,
                corrected=_compared(
                    "Jacobian error",
                    "ε ≤ δα²/(kβ log(√k/δ)), with the logarithm of Theorem 1, whose proof is followed",
                    m.epsilon,
                    allowed_error_2(m),
                ),
            ),
            _smoothness(m),
            _step_size(m),
            _additivity(m),
            _linearization_perturbed(m),
        ),
        (
            Iterations(
                "as stated",
                "T ≥ log(‖r₀‖/ν) / (η(α/2 + E_J2 α + E_J1 α - ηE_J2 β³/2 - ηE_J1 β/3))",
                _whole(stated),
                stated.reason,
                slip="α/2 where the proof gives α²/2; β/3 where it gives β³; ‖r‖ where it bounds ‖r‖²; and the "
                "perturbation's terms enter with the sign that helps, which nothing ensures",
            ),
            Iterations(
                "with the proof's own terms",
                "T ≥ 2 log(‖r₀‖/ν) / -log(1 - η(α²/2 + 2(E_J1 + E_J2)(α - ηβ³)))",
                _whole(proved),
                proved.reason,
                slip="the perturbation's terms still enter with the sign that helps",
            ),
            _iterations_from_proof(m),
        ),
    )


def allowed_error_1(m: Measurement, rho: float) -> _Value:
    """The ε that Theorem 1 allows a coreset with this share of flipped labels."""
    if not rho:
        return _Value(None, "no label in the coreset is flipped, so log(√k/ρ) has no value")
    return _allowed(m, m.margin, math.log(m.k**0.5 / rho), "log(√k/ρ)")


def allowed_error_2(m: Measurement, as_stated: bool = False) -> _Value:
    """The ε that Theorem 2 allows, by its own logarithm or by that of Theorem 1."""
    delta = m.noise_in_data
    if not delta:
        return _Value(None, "no image is perturbed, so the logarithm of the share has no value")
    if as_stated:
        return _allowed(m, delta, math.log(delta), "log δ")
    return _allowed(m, delta, math.log(m.k**0.5 / delta), "log(√k/δ)")


def contraction(alpha: float, eta: float) -> float:
    """How much of the residual's norm one step leaves at most, where the lemma's conditions hold.

    The lemma is written for the norm and proved for its square; this is the root of what is proved.
    """
    return math.sqrt(1 - eta * alpha**2 / 2)


_KEEP_MORE = "raise k, so that every sample has a kept one near it"
_SLOWER = "lower the learning rate, or start from weights with a smaller residual"


def _compared(name: str, statement: str, left: float | None, right: _Value, strict: bool = False) -> Condition:
    if left is None or right.number is None:
        reason = right.reason or "the left side was not measured"
        return Condition(name, statement, left, right.number, Status.ILL_POSED, reason)
    holds = left < right.number if strict else left <= right.number
    return Condition(name, statement, left, right.number, Status.HOLDS if holds else Status.FAILS)


def _floor(m: Measurement) -> Condition:
    return Condition(
        "singular values",
        "0 < α ≤ β",
        m.alpha,
        m.beta,
        Status.HOLDS if 0 < m.alpha <= m.beta else Status.FAILS,
        remedy="drop kept samples that are near copies of one another, or use a wider network (p at least k)",
    )


def _smoothness(m: Measurement) -> Condition:
    unmeasured = _Value(None, "the residual is zero, so there is no step along which to measure L")
    written, mended = unmeasured, unmeasured
    if m.smoothness is not None:
        bound = m.alpha * m.beta / math.sqrt(2 * m.k)
        mended = _Value(bound)
        written = _Value(bound / m.smoothness) if m.smoothness else _Value(None, "L = 0, by which it divides")
    return replace(
        _compared("smoothness", "L ≤ αβ/(L√(2k))", m.smoothness, written),
        slip="L is on both sides: solved for L it reads L² ≤ αβ/√(2k), which compares different units",
        remedy="widen the network or use smooth activations; L is measured along one step only, so it is a lower bound",
        corrected=_compared("smoothness", "L ≤ αβ/√(2k)", m.smoothness, mended),
    )


def _step_size(m: Measurement) -> Condition:
    most = _Value(None, "there is no step: the residual or the Jacobian is zero")
    if m.smoothness == 0:
        most = _Value(None, "L = 0: the model is linear and any step size will do")
    elif m.smoothness and m.beta and m.residual:
        most = _Value(m.alpha / (m.smoothness * m.beta * m.residual))
    stated = _compared("step size", "η ≤ α/(Lβ‖r₀‖), for η = 1/(2β²)", m.eta, most)
    if m.smoothness == 0:
        stated = replace(
            stated, corrected=_compared("step size", "Lηβ‖r₀‖ ≤ α", 0.0, _Value(m.alpha)), slip="divides by L = 0"
        )
    return replace(stated, remedy=_SLOWER)


def _linearization(m: Measurement) -> Condition:
    return replace(
        _compared("linearization", "‖J̄ - J‖ ≤ α/2", m.linearization, _Value(m.alpha / 2)),
        remedy=_SLOWER,
    )


def _linearization_perturbed(m: Measurement) -> Condition:
    bound = _Value(None, "the Jacobian is zero")
    if m.beta > 0:
        bound = _Value(m.alpha * (m.beta + m.e_j1) / (2 * m.beta) + m.e_gap)
    return replace(
        _compared("linearization", "‖J̄ - J‖ ≤ α(β + E_J1)/(2β) + ‖E_J2 - E_J1‖", m.linearization, bound),
        slip="the next lemma needs α/2 here and is said to work for any positive constant; its proof does not",
        remedy=_SLOWER,
        corrected=_linearization(m),
    )


def _additivity(m: Measurement) -> Condition:
    nothing = _Value(None, "no kept image is perturbed, so there is no E_J1 to compare with")
    return replace(
        _compared(
            "additivity",
            "‖J(W, X̃) - J(W, X) - J(W, X̃ - X)‖ / ‖E_J1‖ = 0",
            m.additivity_gap,
            nothing if m.additivity_gap is None else _Value(ADDITIVE),
        ),
        slip="assumed without proof; true for linear models only",
        corrected=Condition(
            "additivity",
            "E_J1 = J(W, X̃) - J(W, X), measured; nothing to assume",
            m.e_j1,
            m.e_j1,
            Status.HOLDS,
        ),
    )


def _allowed(m: Measurement, factor: float, logarithm: float, name: str) -> _Value:
    if m.alpha <= 0 or m.beta <= 0:
        return _Value(None, "α is zero: gradient descent cannot see some residuals")
    if logarithm <= 0:
        return _Value(None, f"{name} = {logarithm:.3g} is not positive, so the bound would be negative or infinite")
    return _Value(factor * m.alpha**2 / (m.k * m.beta * logarithm))


def _stated_iterations_1(m: Measurement, rho: float) -> _Value:
    if not rho:
        return _Value(None, "no label in the coreset is flipped, so log(√n/ρ) has no value")
    if m.alpha <= 0 or m.eta is None:
        return _Value(None, "α is zero: no number of iterations is enough")
    return _Value(math.log(m.n**0.5 / rho) / (m.eta * m.alpha**2))


def _iterations_from_proof(m: Measurement) -> Iterations:
    """Until the residual is below its target, by the lemma's proof: no O(...), no word about noise.

    The same for both theorems: α and β are those of the images as they are given, perturbed or not.
    """
    steps = _steps(m, m.alpha**2 / 2, squared=True)
    return Iterations(
        "corrected, from the lemma's proof", "T ≥ 2 log(‖r₀‖/ν) / -log(1 - ηα²/2)", _whole(steps), steps.reason
    )


def _bracket_as_stated(m: Measurement) -> float:
    eta = m.eta or 0.0
    helps = m.alpha / 2 + (m.e_j2 + m.e_j1) * m.alpha
    return helps - eta * m.e_j2 * m.beta**3 / 2 - eta * m.e_j1 * m.beta / 3


def _bracket_as_derived(m: Measurement) -> float:
    return m.alpha**2 / 2 + 2 * (m.e_j1 + m.e_j2) * (m.alpha - (m.eta or 0.0) * m.beta**3)


def _steps(m: Measurement, bracket: float, squared: bool = False) -> _Value:
    """Steps after which a contraction by 1 - η·bracket brings the residual to its target."""
    if m.residual <= m.target:
        return _Value(0.0, "the residual is below its target already")
    if m.eta is None or m.alpha <= 0:
        return _Value(None, "α is zero: no number of iterations is enough")
    if bracket <= 0:
        return _Value(None, f"the bracket is {bracket:.3g}: no contraction is promised")
    if m.eta * bracket >= 1:
        return _Value(None, f"the contraction factor 1 - η(...) = {1 - m.eta * bracket:.3g} is not positive")
    distance = math.log(m.residual / m.target)
    return _Value(2 * distance / -math.log1p(-m.eta * bracket) if squared else distance / (m.eta * bracket))


def _whole(value: _Value) -> int | None:
    return None if value.number is None else math.ceil(value.number)
