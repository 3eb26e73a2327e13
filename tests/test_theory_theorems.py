"""The theorems' conditions and iterations: values, slips, and what has no value."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from continual_crust.theory import (
    Condition,
    Iterations,
    Measurement,
    Status,
    Theorem,
    descend,
    measure,
    theorem_1,
    theorem_2,
    theorem_for,
)
from continual_crust.theory.theorems import contraction

FLIPPED = Measurement(
    k=25,
    n=100,
    parameters=1000,
    margin=2.0,
    noise_in_data=0.4,
    noise_in_coreset=0.2,
    perturbed=False,
    r_min=1,
    r_max=9,
    sigma_min=2.0,
    sigma_max=5.0,
    norm=9.0,
    epsilon=1.0,
    e_min=0.0,
    e_max=0.0,
    alpha=2.0,
    beta=10.0,
    eta=1 / 200,
    residual=5.0,
    target=1.0,
    smoothness=0.5,
    linearization=0.4,
    e_j1=0.0,
    e_j2=0.0,
    e_gap=0.0,
    additivity_gap=None,
)
PERTURBED = replace(FLIPPED, perturbed=True, e_j1=0.3, e_j2=0.2, e_gap=0.1, additivity_gap=1.4)


def condition(theorem: Theorem, name: str) -> Condition:
    return next(item for item in theorem.conditions if item.name == name)


def iterations(theorem: Theorem, name: str) -> Iterations:
    return next(item for item in theorem.iterations if item.name.startswith(name))


def test_theorem_1_by_hand() -> None:
    theorem = theorem_1(FLIPPED)
    noise = condition(theorem, "noise in the coreset")
    assert (noise.left, noise.right, noise.status) == (0.2, 0.25, Status.HOLDS)
    error = condition(theorem, "Jacobian error")
    assert error.right == pytest.approx(2 * 4 / (25 * 10 * math.log(5 / 0.2)))
    assert (error.left, error.status, error.corrected) == (1.0, Status.FAILS, None)
    assert condition(theorem, "linearization").right == 1.0
    assert iterations(theorem, "as stated").value == math.ceil(math.log(10 / 0.2) / (4 / 200))
    exact = 2 * math.log(5) / -math.log(1 - 4 / 400)
    assert iterations(theorem, "corrected").value == math.ceil(exact)


def test_the_share_of_noise_must_be_below_the_margin() -> None:
    # Strictly: an eighth of the margin is too much.
    assert condition(theorem_1(replace(FLIPPED, noise_in_coreset=0.25)), "noise in the coreset").status is Status.FAILS


def test_a_clean_coreset_has_no_logarithm() -> None:
    theorem = theorem_1(replace(FLIPPED, noise_in_coreset=0.0))
    error = condition(theorem, "Jacobian error")
    assert (error.right, error.status) == (None, Status.ILL_POSED)
    assert "no label in the coreset is flipped" in error.reason
    assert "ρ = 0" in error.slip
    assert error.corrected is not None
    assert error.corrected.right == pytest.approx(2 * 4 / (25 * 10 * math.log(5 * 25)))
    stated = iterations(theorem, "as stated")
    assert (stated.value, bool(stated.reason)) == (None, True)


def test_smoothness_has_l_on_both_sides() -> None:
    smoothness = condition(theorem_1(FLIPPED), "smoothness")
    bound = 20 / math.sqrt(50)
    assert (smoothness.left, smoothness.right) == pytest.approx((0.5, bound / 0.5))
    assert "both sides" in smoothness.slip
    assert smoothness.corrected is not None
    assert (smoothness.corrected.left, smoothness.corrected.right) == pytest.approx((0.5, bound))
    # The two forms can disagree: L = 2 is above αβ/(L√(2k)) and below αβ/√(2k).
    rough = condition(theorem_1(replace(FLIPPED, smoothness=2.0)), "smoothness")
    assert rough.status is Status.FAILS
    assert rough.to_go_by.status is Status.HOLDS


def test_a_linear_model_divides_by_no_l() -> None:
    theorem = theorem_1(replace(FLIPPED, smoothness=0.0, linearization=0.0))
    for name in ("smoothness", "step size"):
        assert condition(theorem, name).status is Status.ILL_POSED
        assert condition(theorem, name).right is None
        assert condition(theorem, name).to_go_by.status is Status.HOLDS


def test_log_delta_is_never_printed() -> None:
    for share in (0.1, 0.4, 0.99, 1.0):
        error = condition(theorem_2(replace(PERTURBED, noise_in_data=share)), "Jacobian error")
        assert (error.right, error.status) == (None, Status.ILL_POSED)
        assert "is not positive" in error.reason
        assert "log δ is negative" in error.slip
        assert error.corrected is not None
        assert error.corrected.right == pytest.approx(share * 4 / (25 * 10 * math.log(5 / share)))
    nothing = condition(theorem_2(replace(PERTURBED, noise_in_data=0.0)), "Jacobian error")
    assert nothing.status is nothing.to_go_by.status is Status.ILL_POSED


def test_theorem_2_iterations_by_hand() -> None:
    theorem = theorem_2(PERTURBED)
    bracket = 1 + 0.2 * 2 + 0.3 * 2 - 0.2 * 1000 / 200 / 2 - 0.3 * 10 / 200 / 3
    stated = iterations(theorem, "as stated")
    assert stated.value == math.ceil(200 / bracket * math.log(5))
    for slip in ("α²/2", "β³", "‖r‖²", "sign"):
        assert slip in stated.slip
    assert iterations(theorem, "corrected") == iterations(theorem_1(FLIPPED), "corrected")
    # With the proof's own terms the bracket is 2 + 2 · 0.5 · (2 - 5) < 0.
    own = iterations(theorem, "with the proof's own terms")
    assert own.value is None
    assert "no contraction is promised" in own.reason
    gentle = iterations(theorem_2(replace(PERTURBED, e_j1=0.1, e_j2=0.1)), "with the proof's own terms")
    assert gentle.value == math.ceil(2 * math.log(5) / -math.log(1 - (2 - 1.2) / 200))


def test_a_contraction_below_zero_is_ill_posed() -> None:
    # For small Jacobians η α/2 exceeds one: the stated factor 1 - η α/2 would be negative.
    tiny = replace(PERTURBED, alpha=0.1, beta=0.1, eta=50.0, e_j1=0.0, e_j2=0.0)
    stated = iterations(theorem_2(tiny), "as stated")
    assert stated.value is None
    assert "is not positive" in stated.reason
    assert iterations(theorem_2(tiny), "corrected").value is not None


def test_linearization_of_perturbed_images_must_be_below_half_of_alpha() -> None:
    linearization = condition(theorem_2(replace(PERTURBED, linearization=1.05)), "linearization")
    assert linearization.right == pytest.approx(2 * 10.3 / 20 + 0.1)
    assert linearization.status is Status.HOLDS
    assert linearization.to_go_by.status is Status.FAILS
    assert linearization.to_go_by.right == 1.0


def test_additivity_is_an_assumption_that_fails() -> None:
    additivity = condition(theorem_2(PERTURBED), "additivity")
    assert (additivity.left, additivity.status) == (1.4, Status.FAILS)
    assert additivity.to_go_by.status is Status.HOLDS
    untouched = condition(theorem_2(replace(PERTURBED, e_j1=0.0, additivity_gap=None)), "additivity")
    assert untouched.status is Status.ILL_POSED


@pytest.mark.parametrize("theorem", [theorem_1, theorem_2])
def test_without_alpha_nothing_is_promised(theorem) -> None:
    blind = theorem(replace(PERTURBED, alpha=0.0))
    assert condition(blind, "singular values").status is Status.FAILS
    assert condition(blind, "Jacobian error").to_go_by.status is Status.ILL_POSED
    assert not blind.applies
    assert all(item.value is None and item.reason for item in blind.iterations)


def test_a_residual_below_its_target_needs_no_iterations() -> None:
    done = theorem_2(replace(PERTURBED, residual=0.5))
    assert {item.value for item in done.iterations} == {0}


def test_without_a_step_nothing_is_compared() -> None:
    still = theorem_1(replace(FLIPPED, residual=0.0, smoothness=None, linearization=0.0))
    for name in ("smoothness", "step size"):
        assert condition(still, name).to_go_by.status is Status.ILL_POSED


def test_a_theorem_applies_when_every_corrected_condition_holds() -> None:
    assert not theorem_1(FLIPPED).applies
    assert theorem_1(replace(FLIPPED, epsilon=0.001)).applies
    assert theorem_2(replace(PERTURBED, epsilon=0.001)).applies
    assert theorem_for(FLIPPED).name.startswith("Theorem 1")
    assert theorem_for(PERTURBED).name.startswith("Theorem 2")


@pytest.mark.parametrize("theorem", [theorem_1, theorem_2])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"alpha": 0.0},
        {"noise_in_coreset": 0.0, "noise_in_data": 0.0},
        {"noise_in_coreset": 1.0, "noise_in_data": 1.0},
        {"alpha": 0.0, "beta": 0.0, "eta": None, "smoothness": None},
        {"k": 1, "n": 1, "noise_in_coreset": 1.0, "noise_in_data": 1.0},
        {"residual": 0.0},
    ],
)
def test_what_has_no_value_says_why_and_nothing_is_infinite(theorem, change: dict[str, float]) -> None:
    found = theorem(replace(PERTURBED, **change))
    for item in found.conditions:
        for form in filter(None, (item, item.corrected)):
            assert (form.status is Status.ILL_POSED) == (form.left is None or form.right is None)
            assert bool(form.reason) == (form.status is Status.ILL_POSED)
            assert all(side is None or (math.isfinite(side) and side >= 0) for side in (form.left, form.right))
    for steps in found.iterations:
        assert steps.value is None or steps.value >= 0
        assert steps.value is not None or steps.reason


def linear(weights: Tensor, inputs: Tensor) -> Tensor:
    return inputs @ weights[:, None]


def test_the_stated_contraction_is_refuted_and_the_corrected_one_is_not() -> None:
    # One sample of length 0.3: α = β = 0.3, and a step halves the residual, whatever the length.
    inputs, targets = torch.tensor([[0.3]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    start = torch.zeros(1, dtype=torch.float64)
    found = measure(linear, start, inputs, targets, torch.arange(1), margin=2.0)
    step = descend(linear, start, inputs, targets, steps=1, alpha=found.alpha, beta=found.beta).steps[0]
    assert step.after == pytest.approx(0.5)
    assert found.eta is not None
    stated_squared = 1 - found.eta * found.alpha / 2
    assert step.after**2 > stated_squared > 0
    assert step.after <= contraction(found.alpha, found.eta)
    # Nor does the lemma's text hold, which drops the square of its proof, for residuals of the slowest direction.
    assert contraction(found.alpha, found.eta) > 1 - found.eta * found.alpha**2 / 2
