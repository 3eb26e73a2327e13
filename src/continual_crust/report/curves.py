"""A run's numbers after each experience. What was not measured is NaN."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from continual_crust.report.drawing import Floats
from continual_crust.studies.result import RunResult


def matrix_of(result: RunResult) -> Floats:
    """The accuracy matrix."""
    return np.array(result.accuracy_matrix, dtype=np.float64)


def learned(matrix: Floats) -> npt.NDArray[np.bool_]:
    """Whether experience j (column) had been learned after row i. Joint training's single row comes after all."""
    after, on = matrix.shape
    return np.tri(after, on, k=on - after).astype(np.bool_)


def seen_so_far(result: RunResult) -> Floats:
    """Mean accuracy on the experiences learned, after each. What has no test images does not count."""
    matrix = matrix_of(result)
    return mean_over_runs(np.where(learned(matrix), matrix, np.nan).T)


def forgotten_so_far(result: RunResult) -> Floats:
    """Mean over all pairs up to each experience of the accuracy lost between the earlier and the later one."""
    matrix = matrix_of(result)
    after, on = matrix.shape
    if after != on:
        return np.full(after, np.nan)
    pairs = np.tri(after, k=-1).astype(np.bool_)
    losses = np.where(pairs, np.diag(matrix)[None, :] - matrix, np.nan)
    # Row i of the cumulative sums holds every pair whose later experience is i or before.
    known = ~np.isnan(losses)
    count = known.sum(axis=1).cumsum()
    total: Floats = np.where(known, losses, 0).sum(axis=1).cumsum()
    return total / np.where(count, count, np.nan)


def purity_so_far(result: RunResult) -> Floats:
    """Purity of the new classes' memory as each experience leaves it."""
    return np.array(result.purity_per_experience, dtype=np.float64)


def mean_over_runs(values: Floats) -> Floats:
    """Mean over the first axis of what is known, without a warning where nothing is."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    mean: Floats = np.where(known, values, 0).sum(axis=0) / np.where(count, count, np.nan)
    return mean


def std_over_runs(values: Floats) -> Floats:
    """Sample standard deviation over the first axis of what is known; NaN where that is fewer than two values."""
    count = (~np.isnan(values)).sum(axis=0)
    squares = mean_over_runs((values - mean_over_runs(values)) ** 2)
    std: Floats = np.sqrt(squares * count / np.where(count > 1, count - 1, np.nan))
    return std
