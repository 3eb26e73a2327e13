"""What a step of training costs beyond the network itself, counted in operations: counts do not depend on load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from continual_crust.data import Dataset, Noise, Stream
from continual_crust.models import build_model
from continual_crust.strategies import Replay, Training
from continual_crust.strategies.replay import ReplayOptions
from test_selection_counts import Operations

BATCH = 8


def operations(work: Callable[[], object]) -> Operations:
    with Operations() as counted:
        work()
    return counted


def plain_step(dataset: Dataset, images: int) -> Operations:
    """On a batch that is already there."""
    network = build_model("simple_cnn", dataset.image_shape, dataset.classes)
    adam = torch.optim.Adam(network.parameters(), fused=True)
    batch, labels = torch.rand(images, *dataset.image_shape), torch.zeros(images, dtype=torch.int64)

    def step() -> None:
        adam.zero_grad()
        functional.cross_entropy(network(batch), labels).backward()
        adam.step()

    step()  # the optimizer makes its state
    return operations(step)


def test_a_step_adds_little_to_what_the_network_does(few_digits: Dataset) -> None:
    """Eight fields gathered, four joined, bytes normalised, losses weighted; no more, however many samples."""
    strategy = Replay(
        build_model("simple_cnn", few_digits.image_shape, few_digits.classes),
        Training(phase1_epochs=1, phase2_epochs=0, memory_per_class=BATCH, batch_size=BATCH),
        options=ReplayOptions("equal"),
    )
    stream = Stream(few_digits, Noise.parse("none"), seed=0)
    strategy.learn(stream[0])
    old, new = strategy.remembered(), stream[1].samples
    assert old is not None
    phase = strategy._phase(strategy._loss())
    costs = []
    for batches in (1, 3):
        first = new[torch.arange(batches * BATCH)]
        phase.epoch(first, old)
        costs.append(operations(lambda first=first: phase.epoch(first, old)))
    ours, plain = (costs[1].count - costs[0].count) / 2, plain_step(few_digits, 2 * BATCH).count
    assert plain < ours <= plain + 24


@pytest.mark.parametrize(
    ("model", "shape", "expected"), [("simple_cnn", (1, 28, 28), 2.29), ("resnet18", (3, 32, 32), 106.5)]
)
def test_products_of_a_step_are_as_many_as_the_page_on_performance_says(
    model: str, shape: tuple[int, int, int], expected: float
) -> None:
    network = build_model(model, shape, 10)
    with FlopCounterMode(display=False) as counted:
        functional.cross_entropy(network(torch.rand(2, *shape)), torch.zeros(2, dtype=torch.int64)).backward()
    assert counted.get_total_flops() / 2 * 32 / 1e9 == pytest.approx(expected, rel=0.005)
    assert f"{expected} GFLOP" in (Path(__file__).parents[1] / "docs" / "performance.md").read_text(encoding="utf-8")
