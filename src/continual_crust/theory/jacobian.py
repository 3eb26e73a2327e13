"""Jacobians as things one can take rows of and multiply with, whether or not they fit in memory.

A Jacobian has a row for each output and a column for each parameter: 300 samples of the paper's small network already
make 2.9 GB. Everything here therefore works by blocks of rows, or by products with vectors: J v by forward-mode
differentiation (jvp) and Jᵀ u by backward-mode (vjp), both over some samples at a time. Sums and differences of
Jacobians, at other weights or other images, are again of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.func import jacrev, jvp, vjp, vmap

Function = Callable[[Tensor, Tensor], Tensor]
"""From parameters (p,) and a batch of n inputs to outputs (n, q)."""
MEMORY = 1 << 29
"""Bytes of Jacobian held at a time, unless told otherwise (512 MiB)."""
CHUNK_VALUES = 1 << 16
"""How many input values pass through the network at once."""
MOST_SAMPLES = 256


class Matrix(Protocol):
    """What the spectra need to know of a matrix."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows (outputs) and columns (parameters)."""

    @property
    def like(self) -> Tensor:
        """An empty tensor of the matrix's type, on its device."""

    def rows(self, start: int, stop: int) -> Tensor:
        """Some rows, written out."""

    def times(self, vector: Tensor) -> Tensor:
        """J v, for a v with an entry for each column."""

    def adjoint_times(self, vector: Tensor) -> Tensor:
        """Jᵀ u, for a u with an entry for each row."""


@dataclass(frozen=True)
class Jacobian:
    """The Jacobian of a function's outputs by its parameters, at given ones; never written out as a whole.

    >>> inputs = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> linear = Jacobian(lambda weights, x: x @ weights[:, None], torch.zeros(2), inputs)
    >>> bool((linear.rows(0, 2) == inputs).all())
    True
    """

    function: Function
    parameters: Tensor
    inputs: Tensor

    @property
    def outputs_per_sample(self) -> int:
        """How many rows a sample has."""
        with torch.no_grad():
            return int(self.function(self.parameters, self.inputs[:1]).shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.inputs) * self.outputs_per_sample, len(self.parameters)

    @property
    def like(self) -> Tensor:
        return self.parameters.new_empty(0)

    def rows(self, start: int, stop: int) -> Tensor:
        each = self.outputs_per_sample
        first, last = start // each, -(-stop // each)
        by_sample = vmap(jacrev(self._one), in_dims=(None, 0))
        parts = [by_sample(self.parameters, part) for part in self.inputs[first:last].split(self._chunk)]
        block = (parts[0] if len(parts) == 1 else torch.cat(parts)).flatten(0, 1)
        return block[start - first * each : stop - first * each].detach()

    def times(self, vector: Tensor) -> Tensor:
        parts = []
        for part in self.inputs.split(self._chunk):
            with torch.no_grad():
                moved = jvp(lambda at, part=part: self.function(at, part), (self.parameters,), (vector,))[1]
            parts.append(moved.flatten())
        return torch.cat(parts)

    def adjoint_times(self, vector: Tensor) -> Tensor:
        total = torch.zeros_like(self.parameters)
        by_sample = vector.view(len(self.inputs), -1)
        for inputs, weights in zip(self.inputs.split(self._chunk), by_sample.split(self._chunk), strict=True):
            pull = vjp(lambda at, inputs=inputs: self.function(at, inputs), self.parameters)[1]
            total += pull(weights)[0].detach()
        return total

    def _one(self, parameters: Tensor, sample: Tensor) -> Tensor:
        return self.function(parameters, sample[None])[0]

    @property
    def _chunk(self) -> int:
        return min(MOST_SAMPLES, max(1, CHUNK_VALUES // max(1, self.inputs[0].numel())))


@dataclass(frozen=True)
class Dense:
    """A matrix that is written out."""

    matrix: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.matrix), self.matrix.shape[1]

    @property
    def like(self) -> Tensor:
        return self.matrix.new_empty(0)

    def rows(self, start: int, stop: int) -> Tensor:
        return self.matrix[start:stop]

    def times(self, vector: Tensor) -> Tensor:
        return self.matrix @ vector

    def adjoint_times(self, vector: Tensor) -> Tensor:
        return self.matrix.T @ vector


@dataclass(frozen=True)
class Combination:
    """A weighted sum of matrices of one shape; with two terms of weights 1 and -1 their difference."""

    terms: Sequence[tuple[float, Matrix]]

    @property
    def shape(self) -> tuple[int, int]:
        return self.terms[0][1].shape

    @property
    def like(self) -> Tensor:
        return self.terms[0][1].like

    def rows(self, start: int, stop: int) -> Tensor:
        return self._sum(lambda matrix: matrix.rows(start, stop))

    def times(self, vector: Tensor) -> Tensor:
        return self._sum(lambda matrix: matrix.times(vector))

    def adjoint_times(self, vector: Tensor) -> Tensor:
        return self._sum(lambda matrix: matrix.adjoint_times(vector))

    def _sum(self, part: Callable[[Matrix], Tensor]) -> Tensor:
        weight, first = self.terms[0]
        total = weight * part(first)
        for weight, matrix in self.terms[1:]:
            total.add_(part(matrix), alpha=weight)
        return total


@dataclass(frozen=True)
class Weighted:
    """A matrix each of whose rows is multiplied by a number."""

    factors: Tensor
    matrix: Matrix

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    @property
    def like(self) -> Tensor:
        return self.matrix.like

    def rows(self, start: int, stop: int) -> Tensor:
        return self.factors[start:stop, None] * self.matrix.rows(start, stop)

    def times(self, vector: Tensor) -> Tensor:
        return self.factors * self.matrix.times(vector)

    def adjoint_times(self, vector: Tensor) -> Tensor:
        return self.matrix.adjoint_times(self.factors * vector)


def difference(minuend: Matrix, subtrahend: Matrix) -> Matrix:
    """One matrix minus another."""
    return Combination([(1.0, minuend), (-1.0, subtrahend)])


def written_out(matrix: Matrix, memory: int = MEMORY) -> Matrix:
    """The matrix in memory if it fits in so many bytes, else as it is."""
    if isinstance(matrix, Dense) or not fits(matrix, memory):
        return matrix
    count, width = matrix.shape
    whole = matrix.like.new_empty(count, width)
    for start, stop in blocks(count, rows_in(matrix, memory // 8)):
        whole[start:stop] = matrix.rows(start, stop)
    return Dense(whole)


def compressed(matrix: Matrix) -> Matrix:
    """Fewer columns, and the same inner products between rows, where the matrix is written out; else as it is.

    Choosing, repeating, weighting and subtracting rows then leads to the same singular values as with all columns.
    """
    if not isinstance(matrix, Dense):
        return matrix
    return Dense(torch.linalg.qr(matrix.matrix.T, mode="r").R.T)


def fits(matrix: Matrix, memory: int) -> bool:
    """Whether the whole matrix takes no more than so many bytes."""
    return matrix.shape[0] <= rows_in(matrix, memory)


def rows_in(matrix: Matrix, memory: int) -> int:
    """How many rows so many bytes hold; at least one."""
    return max(1, memory // (matrix.shape[1] * matrix.like.element_size()))


def blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Where each stretch of at most `size` rows starts and stops."""
    for start in range(0, count, size):
        yield start, min(start + size, count)
