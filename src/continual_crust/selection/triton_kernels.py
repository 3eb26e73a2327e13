"""Triton kernels for greedy picks. Import only where Triton is installed.

Each pick takes two launches and no word from the host. `_pick` finds the best candidate with one block of threads, and
lists the clients that came closer. `_update` lets all candidates know: each program owns some columns of the table and
passes over some of the listed clients' rows. It reads nothing else, so late picks, which few clients follow, are short.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

TAKEN = tl.constexpr(-(1 << 62))
NEVER = tl.constexpr(1 << 62)

PICK_BLOCK, PICK_WARPS = 2048, 16
ROWS, COLUMNS, UPDATE_WARPS = 16, 128, 4
PROGRAMS = 2048
"""About how many programs share one update: several for each multiprocessor."""


class Closer(NamedTuple):
    """The clients that came closer by one pick: how many, which, from where to where."""

    count: Tensor
    client: Tensor
    before: Tensor
    """Their distance to the nearest pick until then."""
    after: Tensor
    """And since."""


@triton.jit(do_not_specialize=["tie", "step"])
def _pick(
    table, gains, totals, nearest, closer, indices, won, clients, candidates, pick_stride, client_stride, tie, step,
    BLOCK: tl.constexpr,
):  # fmt: skip
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
    pick = tl.min(tl.where(least == central, winner, 2147483647), axis=0).to(tl.int64)
    tl.store(indices + step, pick)
    tl.store(won + step, tl.load(gains + pick))
    listed = tl.zeros((), tl.int32)
    for start in range(0, clients, BLOCK):
        client = start + lanes
        inside = client < clients
        before = tl.load(nearest + client, mask=inside, other=0)
        reached = tl.load(table + pick * pick_stride + client.to(tl.int64) * client_stride, mask=inside, other=0)
        came = inside & (reached < before)
        place = listed + tl.cumsum(came.to(tl.int32), axis=0) - 1
        tl.store(closer.client + place, client, mask=came)
        tl.store(closer.before + place, before, mask=came)
        tl.store(closer.after + place, reached, mask=came)
        tl.store(nearest + client, reached, mask=came)
        listed += tl.sum(came.to(tl.int32), axis=0)
    tl.store(closer.count, listed)


@triton.jit
def _update(table, gains, closer, candidates, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    count = tl.load(closer.count)
    lost = tl.zeros((COLUMNS,), tl.int64)
    for start in range(tl.program_id(1) * ROWS, count, tl.num_programs(1) * ROWS):
        place = start + tl.arange(0, ROWS)
        listed = place < count
        client = tl.load(closer.client + place, mask=listed, other=0).to(tl.int64)
        before = tl.load(closer.before + place, mask=listed, other=0)
        after = tl.load(closer.after + place, mask=listed, other=0)
        wanted = listed[:, None] & (columns < candidates)[None, :]
        tile = tl.load(table + client[:, None] * candidates + columns[None, :], mask=wanted, other=0)
        held = tl.minimum(tl.maximum(tile, after[:, None]), before[:, None])
        lost += tl.sum(before[:, None] - held, axis=0).to(tl.int64)  # 16 rows of 2²⁶ fit 32 bits
    if tl.program_id(1) * ROWS < count:
        tl.atomic_add(gains + columns, -lost, mask=columns < candidates)


def greedy(table: Tensor, symmetric: bool, totals: Tensor, farthest: int, tie: int, size: int) -> tuple[Tensor, Tensor]:
    """Greedy picks and their gains from a table of distances (clients, candidates) with its columns' sums."""
    clients, candidates = table.shape
    gains = clients * farthest - totals
    new = partial(torch.zeros, device=table.device)
    indices, won = new(size, dtype=torch.int64), new(size, dtype=torch.int64)
    nearest = torch.full((clients,), farthest, dtype=torch.int32, device=table.device)
    closer = Closer(new(1, dtype=torch.int32), *(new(clients, dtype=torch.int32) for _ in range(3)))
    # The pick's column lies in one piece where it is a row as well.
    pick_stride, client_stride = (candidates, 1) if symmetric else (1, candidates)
    across = triton.cdiv(candidates, COLUMNS)
    grid = (across, min(triton.cdiv(clients, ROWS), triton.cdiv(PROGRAMS, across)))
    for step in range(size):
        _pick[(1,)](
            table, gains, totals, nearest, closer, indices, won, clients, candidates, pick_stride, client_stride, tie,
            step, BLOCK=PICK_BLOCK, num_warps=PICK_WARPS,
        )  # fmt: skip
        _update[grid](table, gains, closer, candidates, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=UPDATE_WARPS)
    return indices, won
