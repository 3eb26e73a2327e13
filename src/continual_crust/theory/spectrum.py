"""Singular values of matrices that may not fit in memory.

Three ways to the same numbers:

- ``dense``: the matrix is written out and decomposed. Exact to rounding.
- ``gram``: the small matrix J Jᵀ (rows × rows, the network's tangent kernel) is gathered from blocks of rows; its
  eigenvalues are the squared singular values. J itself is never there. Squaring costs half the digits: in double
  precision, singular values below about 1e-7 of the largest are not seen.
- ``lanczos``: J Jᵀ is only ever multiplied with vectors, one vjp and one jvp each. A few products give the largest
  singular value of any number of samples; as many products as rows give them all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from continual_crust.errors import InputError, unknown_name
from continual_crust.theory.jacobian import MEMORY, Dense, Matrix, blocks, fits, rows_in, written_out

METHODS = ("auto", "dense", "gram", "lanczos")
TOLERANCE = 1e-4
"""Relative error, by a bound that is far from tight, at which the largest eigenvalue counts as found."""
MOST_PRODUCTS = 200


def gram(matrix: Matrix, memory: int = MEMORY) -> Tensor:
    """J Jᵀ in double precision, holding about `memory` bytes of rows of J at a time."""
    if isinstance(matrix, Dense):
        return (matrix.matrix @ matrix.matrix.T).double()
    count = matrix.shape[0]
    result = matrix.like.new_empty(count, count, dtype=torch.float64)
    # Most of the memory holds still while small blocks pass by: the fewer the large blocks, the fewer rows are
    # computed again. Computing a block takes a few times its own size, hence the small share for those that pass.
    large, small = rows_in(matrix, memory * 5 // 8), rows_in(matrix, memory // 16)
    for start, stop in blocks(count, large):
        held = matrix.like.new_empty(stop - start, matrix.shape[1])
        for begin, end in blocks(stop - start, small):
            held[begin:end] = matrix.rows(start + begin, start + end)
        result[start:stop, start:stop] = (held @ held.T).double()
        for begin, end in blocks(count - stop, small):
            products = (held @ matrix.rows(stop + begin, stop + end).T).double()
            result[start:stop, stop + begin : stop + end] = products
            result[stop + begin : stop + end, start:stop] = products.T
    return result


def inner_products(a: Matrix, b: Matrix, rows_per_sample: int = 1, memory: int = MEMORY) -> Tensor:
    """Inner product of each sample's rows in `a`, as one long vector, with each sample's in `b`."""
    counts = a.shape[0] // rows_per_sample, b.shape[0] // rows_per_sample
    result = a.like.new_empty(counts, dtype=torch.float64)
    large, small = (max(1, rows_in(b, share) // rows_per_sample) for share in (memory * 5 // 8, memory // 16))
    for start, stop in blocks(counts[1], large):
        held = b.rows(start * rows_per_sample, stop * rows_per_sample).reshape(stop - start, -1)
        for begin, end in blocks(counts[0], small):
            passing = a.rows(begin * rows_per_sample, end * rows_per_sample).reshape(end - begin, -1)
            result[begin:end, start:stop] = (passing @ held.T).double()
    return result


def singular_values(matrix: Matrix, method: str = "auto", memory: int = MEMORY) -> Tensor:
    """One singular value for each row, the largest first, in double precision.

    There are as many as rows even where there are fewer columns: the theorems ask how much of *any* residual
    gradient descent can see, and what it cannot see has the singular value zero. Values that rounding cannot tell from
    zero are zero.

    Parameters
    ----------
    matrix
        What to decompose.
    method
        ``"dense"``, ``"gram"``, ``"lanczos"`` or ``"auto"``: dense if the matrix fits in `memory`, else gram.
    memory
        Bytes of the matrix to hold at a time.
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if method == "auto":
        method = "dense" if fits(matrix, memory) else "gram"
    count, width = matrix.shape
    if not count:
        return matrix.like.double()
    precision = torch.finfo(matrix.like.dtype).eps
    if method == "dense":
        whole = written_out(matrix, memory=count * width * matrix.like.element_size()).rows(0, count)
        values = torch.linalg.svdvals(whole).double()
        values = torch.cat([values, values.new_zeros(count - len(values))])
        return _without_rounding(values, precision * max(count, width))
    if method == "gram":
        eigenvalues = torch.linalg.eigvalsh(gram(matrix, memory)).flip(0)
    else:
        eigenvalues, _ = lanczos(matrix, products=count, tolerance=0.0)
    return _without_rounding(eigenvalues.clamp(min=0).sqrt(), (precision * count) ** 0.5)


def spectral_norm(matrix: Matrix, memory: int = MEMORY) -> float:
    """The largest singular value."""
    count = matrix.shape[0]
    if not count:
        return 0.0
    if fits(matrix, memory):
        return float(torch.linalg.eigvalsh(gram(matrix, memory))[-1].clamp(min=0).sqrt())
    values, uncertain = lanczos(matrix, products=min(count, MOST_PRODUCTS), tolerance=TOLERANCE)
    if uncertain > 1e-3 * float(values[0]):
        raise InputError(f"the norm of a {matrix.shape} Jacobian was not found in {MOST_PRODUCTS} products.")
    return float(values[0].clamp(min=0).sqrt())


def lanczos(matrix: Matrix, products: int, tolerance: float = TOLERANCE, seed: int = 0) -> tuple[Tensor, float]:
    """Eigenvalues of J Jᵀ from products with vectors alone.

    Every new direction is made orthogonal to all earlier ones, twice, so that as many products as rows give the whole
    spectrum. Only vectors of the length of a column of J are kept.

    Parameters
    ----------
    matrix
        J.
    products
        The most products with J Jᵀ; no more than J has rows.
    tolerance
        Stop when the largest eigenvalue is known to this relative error; 0 never stops early.
    seed
        Decides the starting vector.

    Returns
    -------
    Eigenvalues, the largest first (at the large end those of J Jᵀ, at the small end only if every product was made),
    and how far the first may be from the truth.
    """
    count = matrix.shape[0]
    generator = torch.Generator().manual_seed(seed)
    basis = matrix.like.new_zeros(min(products, count), count, dtype=torch.float64)
    diagonal: list[float] = []
    beside: list[float] = []
    direction = _fresh(basis[:0], generator)
    values, uncertain = basis.new_zeros(0), 0.0
    for step in range(len(basis)):
        basis[step] = direction
        moved = matrix.times(matrix.adjoint_times(direction.to(matrix.like.dtype))).double()
        diagonal.append(float(direction @ moved))
        rest = _orthogonal(moved, basis[: step + 1])
        length = float(rest.norm())
        # A rest of nothing but rounding: these directions hold eigenvectors whole; go on from a new one.
        exhausted = length <= 1e-12 * max(map(abs, diagonal))
        if tolerance or step == len(basis) - 1:
            values, vectors = torch.linalg.eigh(_tridiagonal(diagonal, beside).to(basis.device))
            uncertain = 0.0 if exhausted else length * abs(float(vectors[-1, -1]))
            if tolerance and uncertain <= tolerance * float(values[-1]):
                break
        if step < len(basis) - 1:
            direction = _fresh(basis[: step + 1], generator) if exhausted else rest / length
            beside.append(0.0 if exhausted else length)
    return values.flip(0), uncertain


def _fresh(basis: Tensor, generator: torch.Generator) -> Tensor:
    """A random unit vector orthogonal to what is there."""
    drawn = torch.randn(basis.shape[1], generator=generator, dtype=torch.float64, device="cpu").to(basis.device)
    drawn = _orthogonal(drawn, basis)
    return drawn / float(drawn.norm())


def _orthogonal(vector: Tensor, basis: Tensor) -> Tensor:
    for _ in range(2):
        vector = vector - basis.T @ (basis @ vector)
    return vector


def _tridiagonal(diagonal: list[float], beside: list[float]) -> Tensor:
    matrix = torch.zeros(len(diagonal), len(diagonal), dtype=torch.float64, device="cpu")
    matrix.diagonal().copy_(torch.tensor(diagonal, dtype=torch.float64, device="cpu"))
    for offset in (1, -1):
        matrix.diagonal(offset).copy_(torch.tensor(beside[: len(diagonal) - 1], dtype=torch.float64, device="cpu"))
    return matrix


def _without_rounding(values: Tensor, relative: float) -> Tensor:
    return torch.where(values > relative * values[0], values, 0)
