"""Our Adam beside PyTorch's, and what it saves."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import Tensor

from continual_crust.strategies.adam import Adam

LEARNS = """
import sys
from continual_crust.data import Noise, Stream, load_dataset
from continual_crust.models import build_model
from continual_crust.strategies import Sift, Training

dataset = load_dataset("digits")
model = build_model("simple_cnn", dataset.image_shape, dataset.classes)
Sift(model, Training(phase1_epochs=1, phase2_epochs=4, memory_per_class=5)).learn(Stream(dataset, Noise(), 0)[0])
sys.exit("torch._dynamo" in sys.modules)
"""


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def walk(optimizer: Adam | torch.optim.Adam, parameters: list[Tensor], steps: range) -> None:
    """Steps with gradients of their own; one parameter has none."""
    for step in steps:
        for number, parameter in enumerate(parameters[:-1]):
            parameter.grad = some(*parameter.shape, seed=10 * step + number)
        optimizer.step()


def tensors() -> list[Tensor]:
    return [some(3, 4, seed=1), some(5, seed=2), some(2, seed=3)]


def test_its_steps_are_pytorchs() -> None:
    ours, theirs = tensors(), tensors()
    walk(Adam(ours, 1e-2, 1e-3), ours, range(5))
    walk(torch.optim.Adam(theirs, lr=1e-2, weight_decay=1e-3, fused=True), theirs, range(5))
    for found, wanted, start in zip(ours, theirs, tensors(), strict=True):
        assert torch.equal(found, wanted)
        assert torch.equal(found, start) == (found is ours[-1])


def test_it_goes_on_from_a_saved_state() -> None:
    whole, first = tensors(), tensors()
    walk(Adam(whole, 1e-2, 1e-3), whole, range(5))
    before = Adam(first, 1e-2, 1e-3)
    walk(before, first, range(2))
    after = Adam(first, 1e-2, 1e-3)
    after.restore({name: value.clone() for name, value in before.state().items()})
    walk(after, first, range(2, 5))
    assert all(torch.equal(found, wanted) for found, wanted in zip(first, whole, strict=True))


def test_learning_does_not_import_pytorchs_compiler() -> None:
    """It takes seconds, in every process. PyTorch's optimizers import it when they are made."""
    assert subprocess.run([sys.executable, "-c", LEARNS], check=False).returncode == 0
