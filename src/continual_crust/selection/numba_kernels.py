"""Greedy picks on a CPU as one compiled loop. Import only where Numba is installed.

PyTorch goes over the rows of the clients that came closer four times (gather, maximum, minimum, sum) and waits for its
threads after each. Here they are read once, from where they lie, by one thread: nearly as fast as memory delivers them,
and no slower when other programs share the processor.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from continual_crust.selection.distance_table import ROWS_PER_SUM

TAKEN = -(1 << 62)
ABREAST = 4
"""Rows read side by side: the processor waits for all of them at once and not for one after the other."""


@njit(nogil=True, cache=True)
def greedy(table, symmetric, totals, farthest, tie, size):
    """Indices of the picks, their gains in the table's units, and how many distances were read."""
    clients, candidates = table.shape
    gains = clients * farthest - totals
    nearest = np.full(clients, farthest, dtype=np.int32)
    # The clients that came closer; behind them room for some at no distance, which make up the last few to four.
    closer = np.zeros(clients + ABREAST, dtype=np.int64)
    before = np.zeros(clients + ABREAST, dtype=np.int32)
    after = np.zeros(clients + ABREAST, dtype=np.int32)
    sums = np.empty(candidates, dtype=np.int32)
    indices = np.empty(size, dtype=np.int64)
    won = np.empty(size, dtype=np.int64)
    read = 0
    for step in range(size):
        pick = _best(gains, totals, tie)
        indices[step], won[step] = pick, gains[pick]
        reached = table[pick] if symmetric else table[:, pick]
        count = _move(reached, nearest, closer, before, after)
        read += clients + count * candidates
        before[count : count + ABREAST] = after[count : count + ABREAST] = 0
        for start in range(0, count, ROWS_PER_SUM):
            sums[:] = 0
            stop = min(start + ROWS_PER_SUM, count)
            for first in range(start, stop, ABREAST):
                _add_held(table, closer, before, after, first, sums)
            whole = before[start:stop].sum()
            for candidate in range(candidates):
                gains[candidate] -= whole - sums[candidate]
        gains[pick] = TAKEN
    return indices, won, read


@njit(nogil=True, cache=True)
def _best(gains, totals, tie):
    """The candidate with the largest gain; of those within `tie` of it the most central one, then the first."""
    enough = gains.max() - tie
    best = -1
    for candidate in range(len(gains)):
        if gains[candidate] >= enough and (best < 0 or totals[candidate] < totals[best]):
            best = candidate
    return best


@njit(nogil=True, cache=True)
def _move(reached, nearest, closer, before, after):
    """Bring `nearest` up to date; note which clients came closer, from where to where. Returns how many."""
    count = 0
    for client in range(len(nearest)):
        if reached[client] < nearest[client]:
            closer[count], before[count], after[count] = client, nearest[client], reached[client]
            nearest[client] = reached[client]
            count += 1
    return count


@njit(nogil=True, cache=True)
def _add_held(table, closer, before, after, first, sums):
    """Add to `sums` four clients' distances to each candidate, held between where they are and where they were."""
    row0, row1 = table[closer[first]], table[closer[first + 1]]
    row2, row3 = table[closer[first + 2]], table[closer[first + 3]]
    low0, low1, low2, low3 = after[first], after[first + 1], after[first + 2], after[first + 3]
    high0, high1, high2, high3 = before[first], before[first + 1], before[first + 2], before[first + 3]
    for candidate in range(len(sums)):
        sums[candidate] += (
            min(max(row0[candidate], low0), high0)
            + min(max(row1[candidate], low1), high1)
            + min(max(row2[candidate], low2), high2)
            + min(max(row3[candidate], low3), high3)
        )
