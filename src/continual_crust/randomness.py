"""Random numbers that belong to one purpose each, and never to the whole program.

A seed and a purpose ("order", "noise", "model", "training") name a generator. Purposes do not share draws, so
changing the noise leaves the class order, the initial weights and the batches as they were.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def seed_for(seed: int, purpose: str) -> int:
    """A 63-bit seed that depends on both arguments and looks unrelated for any two different pairs."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator_for(seed: int, purpose: str) -> torch.Generator:
    """A fresh CPU generator for one purpose of one seed. CPU, so that every device sees the same draws."""
    return torch.Generator().manual_seed(seed_for(seed, purpose))


_global_generators = threading.RLock()
"""Held by whoever borrows PyTorch's global generators: runs that share a GPU do so from several threads."""


@contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Draws from the global CPU generator start from a seed inside the block; afterwards it is what it was before."""
    with _global_generators, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU too, for good
        yield


class PrivateRandomness:
    """The random state behind layers such as dropout, which can only draw from PyTorch's global generators.

    Inside ``with randomness.in_force():`` the global generators continue this object's own sequence; afterwards
    they are what they were before, so training neither depends on nor disturbs anybody else's random numbers. On a GPU
    a graph recorded inside the block goes on with this sequence wherever it is replayed.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._cpu = torch.Generator().manual_seed(seed).get_state()
        self._cuda = torch.Generator(device).manual_seed(seed) if device.type == "cuda" else None

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Use this sequence for everything that draws from the global generators inside the block."""
        with _global_generators, self._cuda_in_force():
            outside = torch.get_rng_state()
            torch.set_rng_state(self._cpu)
            try:
                yield
            finally:
                self._cpu = torch.get_rng_state()
                torch.set_rng_state(outside)

    @contextmanager
    def _cuda_in_force(self) -> Iterator[None]:
        if self._cuda is None:
            yield
            return
        index = self._cuda.device.index
        shared = torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
        outside = shared.graphsafe_get_state()
        # Not a copy: from here on both are one sequence, also for graphs that are replayed after the block.
        shared.graphsafe_set_state(self._cuda)
        try:
            yield
        finally:
            shared.graphsafe_set_state(outside)

    def state(self) -> dict[str, Tensor]:
        """Where the sequence stands."""
        return {"cpu": self._cpu} if self._cuda is None else {"cpu": self._cpu, "cuda": self._cuda.get_state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved :meth:`state`; the part of a device that is not used here is ignored."""
        self._cpu = state["cpu"].cpu()
        if self._cuda is not None and "cuda" in state:
            self._cuda.set_state(state["cuda"].cpu())
