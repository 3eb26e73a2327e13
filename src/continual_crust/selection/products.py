"""Products of each row with each other row, in full single precision whatever PyTorch was told, and fast on a CPU."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor


def row_products(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of each row of `a` with each row of `b`."""
    with full_precision():
        return _one_dnn(a, b) if _by_one_dnn(a, b) else a @ b.T


def less_twice_products(sums: Tensor, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """`sums` less twice the inner products of each row of `a` with each row of `b`; `out` may be `sums`."""
    with full_precision():
        if _by_one_dnn(a, b):
            return torch.sub(sums, _one_dnn(a, b), alpha=2, out=out)
        return torch.addmm(sums, a, b.T, alpha=-2, out=out)


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 with all its digits.

    Many programs allow a GPU, and some processors, ten bits of 23 or fewer
    (``torch.set_float32_matmul_precision("high")``), which does training little harm. Distances are small differences
    of large products, and would be lost.
    """
    matmul = torch.backends.cuda.matmul
    allow: Callable[[str], None]
    try:
        allowed, full, allow = torch.get_float32_matmul_precision(), "highest", torch.set_float32_matmul_precision
    except RuntimeError:  # it was allowed through `fp32_precision`, after which PyTorch refuses to be asked like this
        allowed, full, allow = matmul.fp32_precision, "ieee", partial(setattr, matmul, "fp32_precision")
    if allowed == full:
        yield
        return
    allow(full)
    try:
        yield
    finally:
        allow(allowed)


def _by_one_dnn(a: Tensor, b: Tensor) -> bool:
    return a.device.type == "cpu" and a.dtype == torch.float32 and a.numel() * b.numel() > 0 and _one_dnn_works()


def _one_dnn(a: Tensor, b: Tensor) -> Tensor:
    """Products by oneDNN, which PyTorch has for convolutions.

    What PyTorch calls for ``a @ b.T`` is MKL, which keeps to half the width of AMD's processors and takes twice as
    long there.
    """
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return product


@cache
def _one_dnn_works() -> bool:
    """Whether this PyTorch has that operator, which it keeps for its own compiler, and gets a small product right."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    rows = torch.arange(15, dtype=torch.float32, device="cpu").reshape(5, 3)
    try:
        return torch.equal(_one_dnn(rows, rows[:2]), rows @ rows[:2].T)
    except (AttributeError, RuntimeError, TypeError):  # not built in, or of another version with other arguments
        return False
