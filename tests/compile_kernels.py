"""Compiles every Triton kernel for a GPU that need not be there: the interpreter takes what the compiler refuses.

Prints the name of each kernel that it compiled. In a process of its own, since Triton interprets or compiles, not both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from continual_crust.data.samples import Samples
from continual_crust.models import batch_norm_fused, build_model, gated, simple_cnn_fused
from continual_crust.selection import fused
from continual_crust.strategies import adam
from continual_crust.strategies.adam import Adam
from continual_crust.strategies.network import Network
from continual_crust.strategies.whole_step import WholeStep
from continual_crust.triton_key import recognise_triton_by_its_files

CPU = torch.device("cpu")


class NoDevice:
    """As much of a driver as compiling asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


compiled: set[str] = set()


def compiles(kernel: Any, grid: Any) -> Any:
    """What a launch does instead."""

    def launch(*args: Any, **options: Any) -> None:
        kernel.warmup(*args, grid=grid, **options)
        compiled.add(f"{kernel.__module__}.{kernel.__name__}")

    return launch


def whole_steps() -> None:
    images = torch.zeros(64, 1, 28, 28, dtype=torch.uint8)
    samples = Samples.of(images, torch.zeros(64, dtype=torch.int64))
    network = Network(build_model("simple_cnn", (1, 28, 28), 10), CPU)
    network.measure_normalization(images)
    optimizer = Adam(list(network.model.parameters()), 1e-3, 1e-6)
    step = WholeStep(network, optimizer, torch.zeros(()), 32)
    step.begin()
    step.take(samples, torch.arange(64), torch.zeros((), dtype=torch.int64), 32)
    step.end()


def fused_network() -> None:
    model = build_model("simple_cnn", (1, 28, 28), 10)
    pairs = [tuple(layer.parameters()) for layer in model.layers()[:-1]]
    images, kernels = torch.zeros(32, 1, 28, 28), simple_cnn_fused.kernels()
    found, *between = kernels.forward(images, *pairs, torch.tensor(1), (0.25, 0.5))
    kernels.backward(torch.zeros(32, 128), images, pairs[2][0], (0.25, 0.5), found, *between)


def batch_norms() -> None:
    kernels = batch_norm_fused.kernels()
    running = torch.zeros(16), torch.ones(16), torch.zeros((), dtype=torch.int64)
    affine = torch.ones(16), torch.zeros(16)
    single, half = torch.float32, torch.bfloat16
    layers = (
        (4, "relu", False, single),
        (32, "relu", True, half),
        (112, "silu", False, half),
        (32, "none", True, single),
    )
    for side, activation, residual, dtype in layers:
        images = torch.zeros(18, 16, side, side, dtype=dtype).contiguous(memory_format=torch.channels_last)
        beside = images if residual else None
        output, measured = kernels.forward(images, beside, affine, running, 1e-5, 0.1, activation)
        needed = output if residual and activation != "none" else None
        kernels.backward(images, images, needed, measured, affine, activation)


def gates() -> None:
    kernels = gated.kernels()
    for channels, side, hidden, dtype in ((960, 14, 40, torch.float32), (1536, 7, 64, torch.bfloat16)):
        fc1, fc2 = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)
        images = torch.zeros(18, channels, side, side, dtype=dtype).contiguous(memory_format=torch.channels_last)
        layers = kernels.Layers(*(value.detach().to(dtype) for layer in (fc1, fc2) for value in layer.parameters()))
        _, kept = kernels.forward(images, layers)
        kernels.backward(images, images, kept, layers)


def steps_of_adam() -> None:
    kernels = adam.kernels()
    learned = kernels.Learned(*(torch.zeros(512, 512) for _ in range(3)))
    kernels.adam(learned, torch.zeros(512, 512), torch.ones(()), kernels.Settings.of(1e-3, 1e-6, (0.9, 0.999), 1e-8))


def picks() -> None:
    table = torch.zeros(300, 300, dtype=torch.int32)
    for symmetric in (True, False):
        fused.kernels("triton").greedy(table, symmetric, table.sum(dim=0), 9, 0, 5)


if __name__ == "__main__":
    assert recognise_triton_by_its_files()  # as in a run: kernels must be found under such a name as well
    driver.set_active(NoDevice())
    JITFunction.__getitem__ = compiles
    for part in (batch_norms, gates, steps_of_adam, picks, fused_network, whole_steps):
        part()
    print("\n".join(sorted(compiled)))
