"""How large the crowd is that a point lies in, and how near its neighbours are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from continual_crust.selection.crowds import NEIGHBOURS, STEPS, crowd_size, crowding


def crowds(*sizes: int) -> Tensor:
    """Groups of points far from each other; the later, the denser."""
    random = torch.Generator().manual_seed(0)
    return torch.cat(
        [
            10.0 * number + torch.randn(size, 5, generator=random) / (number + 1) ** 2
            for number, size in enumerate(sizes)
        ]
    )


def sized(points: Tensor, seed: int = 0) -> Tensor:
    return crowd_size(points, torch.Generator().manual_seed(seed))


def test_a_crowd_is_as_large_as_the_share_of_points_in_it_however_dense() -> None:
    shares = sized(crowds(300, 60, 40)).exp().split([300, 60, 40])
    # In a large crowd so short a walk does not come everywhere.
    assert 0.45 < shares[0].median() < 0.8
    assert shares[1].median() == pytest.approx(0.15, rel=0.15)
    assert shares[2].median() == pytest.approx(0.10, rel=0.15)
    # Crowding says the opposite: the smallest crowd is the densest.
    dense = crowding(crowds(300, 60, 40), 0.05).split([300, 60, 40])
    assert dense[2].median() > dense[1].median() > dense[0].median()


def test_the_estimate_is_that_of_the_walk_itself() -> None:
    points = crowds(50, 25)
    distances = torch.cdist(points, points)
    near = distances.topk(NEIGHBOURS + 1, largest=False).indices
    graph = torch.zeros(75, 75, dtype=torch.float64).scatter_(1, near, 1)
    graph = torch.maximum(graph, graph.T)
    steps = graph / graph.sum(dim=1, keepdim=True)
    returns = torch.linalg.matrix_power(steps, 2 * STEPS).diagonal()
    exact = (graph.sum(dim=1) / graph.sum() / returns).log()
    mean = torch.stack([sized(points, seed).exp() for seed in range(30)]).mean(dim=0).log()
    assert torch.allclose(mean.double(), exact, atol=0.08)


def test_scale_and_place_do_not_matter_and_repetition_changes_nothing() -> None:
    points = crowds(80, 30)
    assert torch.equal(sized(points), sized(points))
    assert torch.equal(sized(points), sized(4 * points))
    assert not torch.equal(sized(points), sized(points, seed=1))


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_points(count: int) -> None:
    assert sized(torch.zeros(count, 2)).shape == (count,)
    assert crowding(torch.zeros(count, 2), 0.1).shape == (count,)
    assert sized(torch.zeros(count, 2)).isfinite().all()
