"""What the theorems are made of, on models with a known answer and on small networks."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from continual_crust.errors import InputError
from continual_crust.theory import Outputs, measure
from continual_crust.theory.jacobian import Dense, Jacobian, Weighted
from continual_crust.theory.quantities import assignment, average_jacobian, quadrature
from continual_crust.theory.spectrum import singular_values

ZERO = torch.zeros(2, dtype=torch.float64)


def linear(weights: Tensor, inputs: Tensor) -> Tensor:
    return inputs @ weights[:, None]


def numbers(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ones(count: int) -> Tensor:
    return torch.ones(count, 1, dtype=torch.float64)


def small_network(seed: int = 0) -> Outputs:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Outputs.of(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2)), label=0)


def test_a_linear_model_on_paper() -> None:
    # Two samples near (3, 0), two near (0, 2); the first of each pair is kept.
    inputs = numbers([3.0, 0.0], [3.0, 1.0], [0.0, 2.0], [0.0, 2.0])
    found = measure(linear, ZERO, inputs, ones(4), torch.tensor([0, 2]), margin=2.0)
    assert (found.k, found.n, found.parameters, found.r_min, found.r_max) == (2, 4, 2, 2, 2)
    assert found.sigma_min == pytest.approx(2)
    assert found.sigma_max == pytest.approx(3)
    # Only the second sample is not its representative: by (0, 1).
    assert found.epsilon == pytest.approx(1)
    assert found.norm == pytest.approx(float(torch.linalg.matrix_norm(inputs, 2)))
    assert found.alpha == pytest.approx(2**0.5 * 2)
    assert found.beta == pytest.approx(found.norm + 1)
    assert found.eta == pytest.approx(1 / (2 * found.beta**2))
    # f = 0 where 1 is wanted, each kept sample counting twice.
    assert found.residual == pytest.approx(2)
    assert found.target == 1
    # A linear model's Jacobian never changes.
    assert (found.smoothness, found.linearization, found.e_j1, found.e_j2) == (0, 0, 0, 0)
    assert (found.e_min, found.e_max, found.perturbed, found.additivity_gap) == (0, 0, False, None)


def test_perturbed_images_of_a_linear_model() -> None:
    clean = numbers([3.0, 0.0], [0.0, 2.0])
    given = numbers([3.0, 0.0], [0.0, 1.5])
    noisy = torch.tensor([False, True])
    found = measure(linear, ZERO, given, ones(2), torch.arange(2), margin=2.0, noisy=noisy, clean=clean)
    assert found.perturbed
    assert (found.noise_in_data, found.noise_in_coreset) == (0.5, 0.5)
    assert (found.sigma_min, found.alpha) == pytest.approx((2, 1.5))
    assert (found.e_min, found.e_max) == pytest.approx((0.5, 0))
    assert (found.e_j1, found.e_j2) == pytest.approx((0.5, 0.5))
    # A linear model is the one case in which the paper's additive Jacobian is right.
    assert found.additivity_gap == pytest.approx(0, abs=1e-9)
    assert found.e_gap == pytest.approx(0, abs=1e-9)


def test_samples_weigh_what_they_stand_for() -> None:
    clean = numbers([1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0])
    given = clean + numbers([0.0, 0.5], [0.0, 0.5], [0.0, 0.5], [0.0, 0.0])
    found = measure(linear, ZERO, given, ones(4), torch.tensor([0, 3]), margin=2.0, clean=clean)
    assert (found.r_min, found.r_max) == (1, 3)
    assert found.e_j1 == pytest.approx(3**0.5 * 0.5)


def test_a_kept_sample_stands_for_itself_beside_its_twin() -> None:
    rows = Dense(numbers([1.0, 0.0], [1.0, 0.0], [0.0, 1.0]))
    coreset = torch.tensor([1, 0])
    assert assignment(rows, Dense(rows.matrix[coreset]), coreset, 3).tolist()[:2] == [1, 0]


def test_memory_does_not_change_the_numbers() -> None:
    outputs = small_network()
    clean, noise = drawn(9, 3), 0.3 * drawn(9, 3, seed=1)
    numbers_of = [
        dataclasses.asdict(
            measure(
                outputs,
                outputs.start,
                clean + noise,
                ones(9),
                torch.tensor([0, 4, 7]),
                margin=2.0,
                clean=clean,
                memory=memory,
            )
        )
        for memory in (1 << 28, 1 << 10)
    ]
    for name, value in numbers_of[0].items():
        assert numbers_of[1][name] == pytest.approx(value, rel=1e-4, abs=1e-9), name


def test_views_with_several_outputs_can_be_measured() -> None:
    outputs = Outputs.of(nn.Linear(3, 4), view="all")
    labels = torch.arange(6) % 4
    found = measure(outputs, outputs.start, drawn(6, 3), outputs.targets(labels), torch.arange(3), margin=2.0)
    assert (found.k, found.n) == (12, 24)
    # 12 residuals and 16 parameters; but log-odds have a direction in which nothing moves.
    assert found.epsilon > 0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 500), st.integers(1, 6), st.floats(0.01, 2))
def test_laws(seed: int, size: int, strength: float) -> None:
    outputs = small_network(seed)
    clean = drawn(8, 3, seed=seed)
    given_inputs = clean + strength * drawn(8, 3, seed=seed + 1)
    coreset = torch.randperm(8, generator=torch.Generator().manual_seed(seed))[:size]
    found = measure(outputs, outputs.start, given_inputs, ones(8), coreset, margin=2.0, clean=clean)
    jacobian = Jacobian(outputs, outputs.start, given_inputs)
    nearest = assignment(jacobian, Jacobian(outputs, outputs.start, given_inputs[coreset]), coreset, 8)
    sizes = torch.bincount(nearest, minlength=size).double()
    weighted = singular_values(Weighted(sizes.sqrt(), Jacobian(outputs, outputs.start, given_inputs[coreset])))
    # What the proofs need: α and β enclose the weighted coreset's singular values.
    assert found.alpha <= weighted[-1] * (1 + 1e-9)
    assert weighted[0] <= found.beta * (1 + 1e-9)
    # Weyl: no singular value moves further than the matrix.
    assert abs(found.e_min) <= found.r_min**0.5 * found.e_j1 + 1e-9
    assert found.sigma_min <= found.sigma_max
    assert 1 <= found.r_min <= found.r_max <= 8 - size + 1


def test_all_data_as_coreset_misses_nothing() -> None:
    outputs = small_network()
    found = measure(outputs, outputs.start, drawn(5, 3), ones(5), torch.arange(5), margin=2.0)
    assert (found.epsilon, found.r_min, found.r_max) == (0, 1, 1)
    assert found.beta == found.norm


def test_the_average_jacobian_explains_a_step_exactly() -> None:
    outputs, inputs, step = small_network(), drawn(4, 3), 0.2 * drawn(98, seed=5)
    average = average_jacobian(outputs, outputs.start, step, inputs, nodes=8)
    moved = outputs(outputs.start + step, inputs) - outputs(outputs.start, inputs)
    assert torch.allclose(average.times(step), moved.flatten(), atol=1e-10)
    at_start = Jacobian(outputs, outputs.start, inputs).times(step)
    assert not torch.allclose(at_start, moved.flatten(), atol=1e-3)


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_quadrature_integrates_polynomials(nodes: int) -> None:
    for degree in range(2 * nodes):
        assert sum(weight * place**degree for place, weight in quadrature(nodes)) == pytest.approx(1 / (degree + 1))


def test_a_fitted_model_takes_no_step() -> None:
    found = measure(linear, numbers(1.0, 0.0), numbers([1.0, 0.0], [1.0, 2.0]), ones(2), torch.arange(2), margin=2.0)
    assert (found.residual, found.smoothness, found.linearization) == (0, None, 0)


def test_a_model_that_ignores_its_weights() -> None:
    found = measure(linear, ZERO, torch.zeros(2, 2, dtype=torch.float64), ones(2), torch.arange(2), margin=2.0)
    assert (found.alpha, found.beta, found.eta, found.smoothness) == (0, 0, None, None)


def test_what_cannot_be_measured_is_told() -> None:
    with pytest.raises(InputError, match="coreset is empty"):
        measure(linear, ZERO, drawn(2, 2), ones(2), torch.arange(0), margin=2.0)
    with pytest.raises(InputError, match="label margin 0"):
        measure(linear, ZERO, drawn(2, 2), ones(2), torch.arange(2), margin=0)
