"""Random numbers that belong to one purpose each, and never to the whole program.

A seed and a purpose ("order", "noise", "model", "training") name a generator. Purposes do not share draws, so
changing the noise leaves the class order, the initial weights and the batches as they were.
"""

from __future__ import annotations

import hashlib
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


class PrivateRandomness:
    """The random state behind layers such as dropout, which can only draw from PyTorch's global generators.

    Inside ``with randomness.in_force():`` the global generators continue this object's own sequence; afterwards
    they are what they were before, so training neither depends on nor disturbs anybody else's random numbers.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        with torch.random.fork_rng(devices=self._cuda_devices()):
            # Not torch.manual_seed: that would seed every GPU of the machine, for good.
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            self._state = self._read()

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Use this sequence for everything that draws from the global generators inside the block."""
        with torch.random.fork_rng(devices=self._cuda_devices()):
            self._write(self._state)
            try:
                yield
            finally:
                self._state = self._read()

    def state(self) -> dict[str, Tensor]:
        """Where the sequence stands."""
        return self._state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved :meth:`state`; the part of a device that is not used here is ignored."""
        self._state = {**self._state, **{name: part.cpu() for name, part in state.items()}}

    def _cuda_devices(self) -> list[torch.device]:
        return [self._device] if self._device.type == "cuda" else []

    def _read(self) -> dict[str, Tensor]:
        state = {"cpu": torch.get_rng_state()}
        if self._device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self._device)
        return state

    def _write(self, state: dict[str, Tensor]) -> None:
        torch.set_rng_state(state["cpu"])
        if self._device.type == "cuda" and "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self._device)
