"""Triton kernels for greedy picks. Import only where Triton is installed.

Each pick takes two launches and no word from the host. `_pick` finds the best candidate with one block of threads.
`_update` lets all candidates know which clients came closer: each program owns some columns of the table, passes over
some of its rows, and loads only the rows of clients that did come closer.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TAKEN = tl.constexpr(-(1 << 62))
NEVER = tl.constexpr(1 << 62)

PICK_BLOCK, PICK_WARPS = 2048, 16
ROWS, COLUMNS, UPDATE_WARPS = 16, 128, 4
PROGRAMS = 1024
"""About how many programs share one update: several for each multiprocessor."""


@triton.jit(do_not_specialize=["tie", "step"])
def _pick(gains, totals, indices, won, candidates, tie, step, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    previous = tl.load(indices + step - 1, mask=step > 0, other=-1)
    tl.store(gains + previous, TAKEN, mask=step > 0)
    best = tl.full((BLOCK,), TAKEN, tl.int64)
    for start in range(0, candidates, BLOCK):
        candidate = start + lanes
        gain = tl.load(gains + candidate, mask=candidate < candidates, other=TAKEN)
        best = tl.maximum(best, tl.where(candidate == previous, TAKEN, gain))
    enough = tl.max(best, axis=0) - tie
    least = tl.full((BLOCK,), NEVER, tl.int64)
    winner = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, candidates, BLOCK):
        candidate = start + lanes
        inside = candidate < candidates
        gain = tl.load(gains + candidate, mask=inside, other=TAKEN)
        total = tl.load(totals + candidate, mask=inside, other=NEVER)
        tied = inside & (gain >= enough) & (candidate != previous)
        total = tl.where(tied, total, NEVER)
        winner = tl.where(total < least, candidate, winner)
        least = tl.minimum(total, least)
    central = tl.min(least, axis=0)
    pick = tl.min(tl.where(least == central, winner, 2147483647), axis=0)
    tl.store(indices + step, pick.to(tl.int64))
    tl.store(won + step, tl.load(gains + pick))


@triton.jit(do_not_specialize=["step"])
def _update(
    table,
    gains,
    nearest,
    indices,
    clients,
    candidates,
    pick_stride,
    client_stride,
    chunk,
    step,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * chunk
    last = tl.minimum(first + chunk, clients)
    pick = tl.load(indices + step)
    now = nearest + (step % 2) * clients
    later = nearest + ((step + 1) % 2) * clients
    lost = tl.zeros((COLUMNS,), tl.int64)
    for start in range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = rows < last
        before = tl.load(now + rows, mask=inside, other=0)
        wide = rows.to(tl.int64)
        reached = tl.load(table + pick * pick_stride + wide * client_stride, mask=inside, other=0)
        after = tl.minimum(before, reached)
        # Programs of the first columns write what the next step reads.
        tl.store(later + rows, after, mask=inside & (tl.program_id(0) == 0))
        closer = inside & (after < before)
        if tl.sum(closer.to(tl.int32), axis=0) > 0:
            wanted = closer[:, None] & (columns < candidates)[None, :]
            tile = tl.load(table + wide[:, None] * candidates + columns[None, :], mask=wanted, other=0)
            held = tl.minimum(tl.maximum(tile, after[:, None]), before[:, None])
            part = tl.where(wanted, before[:, None] - held, 0)
            lost += tl.sum(part, axis=0).to(tl.int64)  # 16 rows of 2²⁶ fit 32 bits
    tl.atomic_add(gains + columns, -lost, mask=columns < candidates)


def greedy(table: Tensor, symmetric: bool, totals: Tensor, farthest: int, tie: int, size: int) -> tuple[Tensor, Tensor]:
    """Greedy picks and their gains from a table of distances (clients, candidates) with its columns' sums."""
    clients, candidates = table.shape
    gains = clients * farthest - totals
    indices = torch.zeros(size, dtype=torch.int64, device=table.device)
    won = torch.zeros(size, dtype=torch.int64, device=table.device)
    nearest = torch.full((2, clients), farthest, dtype=torch.int32, device=table.device)
    # The pick's column lies in one piece where it is a row as well.
    pick_stride, client_stride = (candidates, 1) if symmetric else (1, candidates)
    across = triton.cdiv(candidates, COLUMNS)
    chunk = triton.cdiv(triton.cdiv(clients, max(1, PROGRAMS // across)), ROWS) * ROWS
    grid = (across, triton.cdiv(clients, chunk))
    for step in range(size):
        _pick[(1,)](gains, totals, indices, won, candidates, tie, step, BLOCK=PICK_BLOCK, num_warps=PICK_WARPS)
        _update[grid](
            table,
            gains,
            nearest,
            indices,
            clients,
            candidates,
            pick_stride,
            client_stride,
            chunk,
            step,
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            num_warps=UPDATE_WARPS,
        )
    return indices, won
