"""Products behind distances: right for every form of input, by either way, in full precision whatever was allowed."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from continual_crust.selection import FactoredPoints, centrality, facility_location, products
from continual_crust.selection.products import less_twice_products, row_products


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


FORMS = {
    "rows": (numbers(40, 7), numbers(30, 7, seed=1)),
    "one of each": (numbers(1, 1), numbers(1, 1)),
    "none": (numbers(0, 7), numbers(30, 7)),
    "without numbers": (numbers(4, 0), numbers(3, 0)),
    "columns": (numbers(7, 40).T, numbers(7, 30).T),
    "every other row": (numbers(40, 14)[::2, ::2], numbers(30, 7)),
    "one row many times": (numbers(1, 7).expand(5, 7), numbers(30, 7)),
}


@pytest.fixture(params=["one_dnn", "pytorch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "one_dnn" and not products._one_dnn_works():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(products, "_one_dnn_works", lambda: request.param == "one_dnn")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("form", FORMS)
def test_products_are_those_of_double_precision(form: str) -> None:
    a, b = FORMS[form]
    exact = a.double() @ b.double().T
    torch.testing.assert_close(row_products(a, b).double(), exact, rtol=1e-6, atol=1e-5)
    sums = numbers(len(a), len(b), seed=2)
    expected = sums.double() - 2 * exact
    elsewhere = less_twice_products(sums, a, b, out=torch.empty_like(sums))
    torch.testing.assert_close(elsewhere.double(), expected, rtol=1e-6, atol=1e-5)
    assert torch.equal(less_twice_products(sums, a, b, out=sums), elsewhere)


@pytest.mark.parametrize("points", [numbers(600, 40), FactoredPoints(numbers(600, 4), numbers(600, 9, seed=1))])
@pytest.mark.parametrize("rule", [facility_location, centrality])
def test_both_ways_choose_the_same(rule, points, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = rule(points, 60).indices
    monkeypatch.setattr(products, "_one_dnn_works", lambda: False)
    assert torch.equal(rule(points, 60).indices, chosen)


@pytest.mark.parametrize("error", [AttributeError, RuntimeError, TypeError])
def test_without_the_operator_pytorchs_own_products_are_used(error, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        raise error("no such operator")

    products._one_dnn_works.cache_clear()
    monkeypatch.setattr(products, "_one_dnn", absent)
    try:
        assert torch.equal(row_products(numbers(5, 3), numbers(4, 3)), numbers(5, 3) @ numbers(4, 3).T)
    finally:
        products._one_dnn_works.cache_clear()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere PyTorch's own products are used")
def test_this_pytorch_has_the_operator() -> None:
    """It is none of PyTorch's public ones. If a later version takes it away, selection takes up to twice as long."""
    assert torch.backends.mkldnn.is_available() == products._one_dnn_works()


ALLOWING = {
    "nothing": "pass",
    "high": "torch.set_float32_matmul_precision('high')",
    "medium": "torch.set_float32_matmul_precision('medium')",
    "allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = True",
    "fp32_precision": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "fp32_precision of everything": "torch.backends.fp32_precision = 'tf32'",
}
WITHIN = """
import torch
from continual_crust.selection.products import full_precision
{allow}
matmul = torch.backends.cuda.matmul
before = getattr(matmul, "fp32_precision", None) or matmul.allow_tf32
try:
    with full_precision():
        within = matmul.allow_tf32  # what PyTorch asks before it multiplies; it raises where settings contradict
        raise ValueError
except ValueError:
    after = getattr(matmul, "fp32_precision", None) or matmul.allow_tf32
print(within, before == after)
"""


@pytest.mark.parametrize("allow", ALLOWING)
def test_all_digits_are_multiplied_and_fewer_are_allowed_again_afterwards(allow: str) -> None:
    """In a process each, as PyTorch does not forget how it was told."""
    if "fp32" in allow and not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this PyTorch has no such setting")
    program = WITHIN.format(allow=ALLOWING[allow])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
