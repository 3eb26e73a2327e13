"""The lemma behind both theorems, checked on real gradient descent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from continual_crust.data import Dataset
from continual_crust.errors import InputError
from continual_crust.theory import Outputs, descend, measure
from continual_crust.theory.theorems import contraction


def linear(weights: Tensor, inputs: Tensor) -> Tensor:
    return inputs @ weights[:, None]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def few_images(digits: Dataset, count: int = 8) -> tuple[Tensor, Tensor]:
    """Zeros and ones, centred and of one length, with labels +1 and -1."""
    images = digits.train_images.flatten(1).double()
    images = images - images.mean(dim=0)
    chosen = torch.cat([(digits.train_labels == label).nonzero().flatten()[: count // 2] for label in (0, 1)])
    inputs = 3 * nn.functional.normalize(images[chosen], dim=1)
    return inputs, torch.tensor([1.0] * (count // 2) + [-1.0] * (count // 2), dtype=torch.float64)[:, None]


def network(width: int) -> Outputs:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Outputs.of(nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 1)), view="raw")


def test_a_linear_model_follows_its_closed_form() -> None:
    inputs, targets, start = drawn(3, 6), drawn(3, 1, seed=1), drawn(6, seed=2)
    found = measure(linear, start, inputs, targets, torch.arange(3), margin=2.0)
    descent = descend(linear, start, inputs, targets, steps=20, alpha=found.alpha, beta=found.beta)
    residual = inputs @ start - targets[:, 0]
    shrink = torch.eye(3, dtype=torch.float64) - found.eta * inputs @ inputs.T
    for step in descent.steps:
        assert step.residual == pytest.approx(float(residual.norm()))
        residual = shrink @ residual
        assert step.after == pytest.approx(float(residual.norm()))
        assert step.conditions_hold
        assert step.keeps_bound
        assert step.gap == pytest.approx(0, abs=1e-12)
    assert len(descent.bounds) == 21
    assert descent.bounds[-1] == pytest.approx(descent.steps[0].residual * contraction(found.alpha, found.eta) ** 20)


def test_a_network_decays_under_the_bound_wherever_the_conditions_hold(digits: Dataset) -> None:
    inputs, targets = few_images(digits)
    outputs = network(256)
    found = measure(outputs, outputs.start, inputs, targets, torch.arange(8), margin=2.0)
    # Room to either side, because the Jacobian moves while it is descended on.
    descent = descend(
        outputs, outputs.start, inputs, targets, steps=60, alpha=0.8 * found.alpha, beta=1.25 * found.beta
    )
    assert all(step.conditions_hold for step in descent.steps)
    assert descent.violations == 0
    measured = [step.after for step in descent.steps]
    assert all(after <= bound for after, bound in zip(measured, descent.bounds[1:], strict=True))
    assert measured[-1] < 0.2 * descent.steps[0].residual
    assert not torch.equal(descent.parameters, outputs.start)


def test_weights_count_in_residual_and_bound(digits: Dataset) -> None:
    inputs, targets = few_images(digits, 4)
    outputs, weights = network(128), torch.tensor([1.0, 4.0, 2.0, 1.0])
    descent = descend(outputs, outputs.start, inputs, targets, steps=15, alpha=0.5, beta=20.0, weights=weights)
    expected = weights.double().sqrt() * (outputs(outputs.start, inputs) - targets)[:, 0].detach()
    assert descent.steps[0].residual == pytest.approx(float(expected.norm()))
    assert any(step.conditions_hold for step in descent.steps)
    assert descent.violations == 0


def test_a_step_the_lemma_does_not_speak_about_is_marked(digits: Dataset) -> None:
    inputs, targets = few_images(digits)
    outputs = network(32)
    found = measure(outputs, outputs.start, inputs, targets, torch.arange(8), margin=2.0)
    # A floor above the smallest singular value, and a ceiling below the largest: neither condition holds.
    high = descend(outputs, outputs.start, inputs, targets, steps=2, alpha=1.5 * found.alpha, beta=found.beta)
    low = descend(outputs, outputs.start, inputs, targets, steps=2, alpha=found.alpha, beta=0.5 * found.beta)
    for descent in (high, low):
        assert not descent.steps[0].conditions_hold
        assert descent.violations == 0
        assert descent.bounds == [descent.steps[0].residual]


def test_more_samples_than_parameters_have_no_floor() -> None:
    descent = descend(linear, drawn(2), drawn(5, 2), drawn(5, 1, seed=1), steps=1, alpha=0.1, beta=9.0)
    assert descent.steps[0].sigma_min == 0
    assert not descent.steps[0].conditions_hold


@pytest.mark.parametrize(("steps", "alpha", "beta"), [(0, 1, 2), (1, 0, 2), (1, 3, 2)])
def test_what_cannot_be_descended_is_told(steps: int, alpha: float, beta: float) -> None:
    with pytest.raises(InputError, match="gradient descent needs"):
        descend(linear, drawn(2), drawn(2, 2), drawn(2, 1), steps=steps, alpha=alpha, beta=beta)
