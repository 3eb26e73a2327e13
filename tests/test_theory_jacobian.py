"""Jacobians by rows and by products, and their singular values."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from continual_crust.errors import InputError
from continual_crust.models import build_model
from continual_crust.theory import Outputs
from continual_crust.theory.jacobian import Combination, Dense, Jacobian, Weighted, compressed, difference, written_out
from continual_crust.theory.spectrum import gram, inner_products, lanczos, singular_values, spectral_norm

SMALL = 1 << 12
"""So little memory that every Jacobian here is worked on by blocks of a few rows."""


def linear(weights: Tensor, inputs: Tensor) -> Tensor:
    return inputs @ weights[:, None]


def two_outputs(weights: Tensor, inputs: Tensor) -> Tensor:
    return torch.stack([(inputs @ weights).tanh(), (inputs**2) @ weights], dim=1)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def convolutional(samples: int = 12) -> Jacobian:
    """The paper's small network on images of 8×8 pixels."""
    outputs = Outputs.of(build_model("simple_cnn", (1, 8, 8), 4, seed=3), label=2)
    return Jacobian(outputs, outputs.start, drawn(samples, 1, 8, 8))


def test_the_jacobian_of_a_linear_model_is_the_data() -> None:
    inputs = drawn(5, 3)
    jacobian = Jacobian(linear, drawn(3, seed=1), inputs)
    assert jacobian.shape == (5, 3)
    assert torch.equal(jacobian.rows(0, 5), inputs)
    assert torch.equal(jacobian.rows(1, 3), inputs[1:3])
    assert torch.allclose(jacobian.times(drawn(3)), inputs @ drawn(3))
    assert torch.allclose(jacobian.adjoint_times(drawn(5)), inputs.T @ drawn(5))


def test_rows_of_several_outputs_can_start_anywhere() -> None:
    inputs, weights = drawn(4, 3), drawn(3, seed=1)
    whole = Jacobian(two_outputs, weights, inputs).rows(0, 8)
    slope = 1 - (inputs @ weights).tanh() ** 2
    assert torch.allclose(whole[0::2], slope[:, None] * inputs)
    assert torch.allclose(whole[1::2], inputs**2)
    for start, stop in ((0, 1), (1, 2), (3, 8), (5, 6)):
        assert torch.allclose(Jacobian(two_outputs, weights, inputs).rows(start, stop), whole[start:stop])


def test_products_agree_with_rows_on_a_convolutional_network() -> None:
    jacobian = convolutional(5)
    whole = jacobian.rows(0, 5)
    vector, weights = drawn(jacobian.shape[1]), drawn(5)
    assert torch.allclose(jacobian.times(vector), whole @ vector)
    assert torch.allclose(jacobian.adjoint_times(weights), whole.T @ weights)


def test_rows_are_what_autograd_says() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    outputs = Outputs.of(model, view="raw")
    inputs = drawn(2, 3)
    rows = Jacobian(outputs, outputs.start, inputs).rows(0, 4)
    for sample in range(2):
        for output in range(2):
            slopes = torch.autograd.grad(model(inputs)[sample, output], list(model.parameters()))
            assert torch.allclose(rows[2 * sample + output], torch.cat([slope.flatten() for slope in slopes]))


def test_sums_differences_and_weights() -> None:
    a, b, factors = drawn(3, 4), drawn(3, 4, seed=1), drawn(3, seed=2)
    expected = factors[:, None] * (2 * a - b)
    matrix = Weighted(factors, Combination([(2.0, Dense(a)), (-1.0, Dense(b))]))
    assert matrix.shape == (3, 4)
    assert torch.allclose(matrix.rows(0, 3), expected)
    assert torch.allclose(matrix.times(drawn(4)), expected @ drawn(4))
    assert torch.allclose(matrix.adjoint_times(drawn(3)), expected.T @ drawn(3))
    assert torch.equal(difference(Dense(a), Dense(a)).rows(0, 3), torch.zeros(3, 4))
    assert torch.equal(a, drawn(3, 4))


def test_a_matrix_is_written_out_only_if_it_fits() -> None:
    jacobian = Jacobian(linear, drawn(3), drawn(5, 3))
    assert isinstance(written_out(jacobian, memory=5 * 3 * 8), Dense)
    assert written_out(jacobian, memory=5 * 3 * 8 - 1) is jacobian


def test_outputs_leave_the_network_alone() -> None:
    model = build_model("simple_cnn", (1, 8, 8), 3).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    outputs = Outputs.of(model, label=0)
    Jacobian(outputs, outputs.start, drawn(2, 1, 8, 8)).rows(0, 2)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float32


def test_views_of_a_classifier() -> None:
    model = nn.Linear(2, 3)
    inputs = drawn(4, 2)
    probabilities = model.double()(inputs).softmax(dim=1).detach()
    odds = Outputs.of(model, label=1)
    assert torch.allclose(odds(odds.start, inputs)[:, 0], (probabilities / (1 - probabilities))[:, 1].log())
    every = Outputs.of(model, view="all")
    assert torch.allclose(every(every.start, inputs), (probabilities / (1 - probabilities)).log())
    share = Outputs.of(model, view="probability", label=1)
    assert torch.allclose(share(share.start, inputs)[:, 0], 2 * probabilities[:, 1] - 1)
    scaled = odds.scaled_to(inputs)
    assert scaled(scaled.start, inputs).square().mean() == pytest.approx(1)
    labels = torch.tensor([1, 0])
    assert odds.targets(labels).tolist() == [[1], [-1]]
    assert every.targets(labels).tolist() == [[-1, 1, -1], [1, -1, -1]]


def test_log_odds_of_a_certain_network_are_finite() -> None:
    model = nn.Linear(1, 3)
    model.weight.data.fill_(0.0)
    model.bias.data = torch.tensor([2000.0, 0.0, 0.0])
    outputs = Outputs.of(model, label=0)
    assert outputs(outputs.start, drawn(1, 1)).item() == pytest.approx(2000 - math.log(2))


def test_wrong_views_and_broken_networks_are_told() -> None:
    with pytest.raises(InputError, match="there is no view 'logit'"):
        Outputs.of(nn.Linear(1, 2), view="logit", label=0)
    with pytest.raises(InputError, match="'all' and 'raw' take no label"):
        Outputs.of(nn.Linear(1, 2))
    broken = nn.Linear(1, 2)
    broken.bias.data.fill_(float("nan"))
    with pytest.raises(InputError, match="it has diverged"):
        Outputs.of(broken, label=0)


def test_exact_and_matrix_free_spectra_agree_on_a_network() -> None:
    jacobian = convolutional()
    exact = singular_values(jacobian, "dense")
    assert exact[-1] > 0
    for method in ("gram", "lanczos"):
        assert torch.allclose(singular_values(jacobian, method, SMALL), exact, rtol=1e-6), method
    assert spectral_norm(jacobian) == pytest.approx(float(exact[0]), rel=1e-6)
    assert spectral_norm(jacobian, SMALL) == pytest.approx(float(exact[0]), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1000))
def test_every_method_finds_the_same_values(rows: int, columns: int, seed: int) -> None:
    matrix = Combination([(1.0, Dense(drawn(rows, columns, seed=seed)))])
    exact = singular_values(matrix, "dense")
    assert len(exact) == rows
    assert (exact[min(rows, columns) :] == 0).all()
    for method in ("gram", "lanczos"):
        found = singular_values(matrix, method, memory=8 * columns)
        assert torch.allclose(found, exact, atol=1e-6 * float(exact[0])), method


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(8, 400))
def test_gram_matrices_do_not_depend_on_the_memory(rows: int, columns: int, memory: int) -> None:
    a, b = drawn(rows, columns), drawn(4, columns, seed=1)
    hidden = Combination([(1.0, Dense(a))])
    assert torch.allclose(gram(hidden, memory), a @ a.T)
    assert torch.allclose(inner_products(hidden, Dense(b), 1, memory), a @ b.T)


def test_memory_is_bounded() -> None:
    width, asked = 64, []

    class Watched(Dense):
        def rows(self, start: int, stop: int) -> Tensor:
            asked.append(stop - start)
            return super().rows(start, stop)

    whole = drawn(40, width)
    matrix = Weighted(torch.ones(40), Watched(whole))
    memory = 16 * width * 8
    assert torch.allclose(gram(matrix, memory), whole @ whole.T)
    # One sixteenth passes by at a time, five eighths are held.
    assert max(asked) == 1
    # Held blocks are of ten rows; each row is computed once for its own block and once for every block before.
    assert len(asked) == 40 + 30 + 20 + 10


class LargestTensor(TorchDispatchMode):
    """Remembers the bytes of the largest tensor that any operation made, inside transforms of functions too."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [tensor for tensor in tree_leaves(result) if isinstance(tensor, Tensor)]
        self.bytes = max([self.bytes, *(tensor.numel() * tensor.element_size() for tensor in made)])
        return result


@pytest.mark.parametrize("method", ["auto", "gram", "lanczos"])
def test_no_jacobian_is_written_out_beyond_the_given_memory(method: str) -> None:
    jacobian = convolutional(16)
    whole = 16 * jacobian.shape[1] * 8
    memory = whole // 4
    with LargestTensor() as largest:
        values = singular_values(jacobian, method, memory)
    assert jacobian.shape[1] * 8 <= largest.bytes <= memory
    with LargestTensor() as largest:
        exact = singular_values(jacobian, "dense")
    assert largest.bytes >= whole
    assert torch.allclose(values, exact, rtol=1e-6)


def test_norms_are_bounded_in_memory() -> None:
    jacobian = convolutional(16)
    memory = 4 * jacobian.shape[1] * 8
    changed = difference(jacobian, Jacobian(jacobian.function, 1.1 * jacobian.parameters, jacobian.inputs))
    with LargestTensor() as largest:
        spectral_norm(changed, memory)
        inner_products(jacobian, changed, 1, memory)
    assert largest.bytes <= memory


def test_compressed_rows_keep_their_geometry() -> None:
    rows = drawn(6, 50)
    small = compressed(Dense(rows))
    assert small.shape == (6, 6)
    assert torch.allclose(small.rows(0, 6) @ small.rows(0, 6).T, rows @ rows.T)
    chosen = Dense(small.rows(0, 6)[[4, 1]] - small.rows(0, 6)[[0, 0]])
    expected = singular_values(Dense(rows[[4, 1]] - rows[[0, 0]]))
    assert torch.allclose(singular_values(chosen), expected)
    assert compressed(Dense(drawn(5, 2))).shape == (5, 2)
    hidden = Jacobian(linear, drawn(3), drawn(5, 3))
    assert compressed(hidden) is hidden


def test_inner_products_of_samples_with_several_rows() -> None:
    a, b = drawn(6, 4), drawn(4, 4, seed=1)
    expected = a.view(3, 8) @ b.view(2, 8).T
    assert torch.allclose(inner_products(Dense(a), Dense(b), 2, memory=64), expected)


def test_known_singular_values() -> None:
    matrix = Dense(torch.diag(torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)))
    for method in ("auto", "dense", "gram", "lanczos"):
        assert singular_values(matrix, method).tolist() == pytest.approx([3, 2, 1])


def test_repeated_eigenvalues_and_zero_matrices() -> None:
    assert singular_values(Dense(torch.eye(4, dtype=torch.float64)), "lanczos").tolist() == pytest.approx([1] * 4)
    zero = Dense(torch.zeros(3, 5, dtype=torch.float64))
    for method in ("dense", "gram", "lanczos"):
        assert singular_values(zero, method).tolist() == [0, 0, 0]
    assert spectral_norm(zero, memory=8) == 0
    assert spectral_norm(Dense(torch.zeros(0, 5))) == 0
    assert len(singular_values(Dense(torch.zeros(0, 5)))) == 0


def test_twins_have_the_singular_value_zero_and_not_rounding() -> None:
    rows = drawn(4, 50)
    rows[2] = rows[0]
    for method in ("dense", "gram"):
        assert singular_values(Dense(rows), method)[-1] == 0


def test_lanczos_finds_the_norm_in_few_products() -> None:
    scales = torch.linspace(0.01, 1, 300, dtype=torch.float64)
    scales[-1] = 4
    values, uncertain = lanczos(Dense(torch.diag(scales)), products=40)
    assert float(values[0]) ** 0.5 == pytest.approx(4, rel=1e-6)
    assert uncertain <= 1e-4 * 16
    assert len(values) < 40


def test_unknown_methods_are_told() -> None:
    with pytest.raises(InputError, match="there is no method 'svd'"):
        singular_values(Dense(drawn(2, 2)), "svd")
