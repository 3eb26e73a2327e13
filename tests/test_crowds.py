"""How near the neighbours of a point are."""

from __future__ import annotations

import pytest
import torch

from continual_crust.selection.crowds import crowding, nearest, votes


def test_the_nearest_of_a_point_are_itself_and_those_next_to_it() -> None:
    line = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    distances, which = nearest(line, 3)
    assert which.tolist() == [[0, 1, 2], [1, 0, 2], [2, 1, 0], [3, 2, 1]]
    assert distances[3].tolist() == [0.0, 4.0, 6.0]


def test_crowding_is_minus_the_log_of_the_mean_distance_to_a_share_of_all() -> None:
    line = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    assert torch.allclose((-crowding(line, 0.5)).exp(), torch.tensor([2.0, 1.5, 2.5, 5.0]), atol=1e-3)


def test_the_middle_of_a_crowd_is_more_crowded_than_what_lies_about() -> None:
    random = torch.Generator().manual_seed(0)
    crowd, stray = torch.randn(90, 5, generator=random), 8 * torch.randn(10, 5, generator=random)
    found = crowding(torch.cat([crowd, stray]), 0.1)
    assert found[:90].median() > found[90:].max()


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_points(count: int) -> None:
    assert crowding(torch.zeros(count, 2), 0.1).shape == (count,)


@pytest.mark.parametrize("copies", [2, 5, 11, 30])
@pytest.mark.parametrize("lone", [0, 1, -1])
def test_no_point_votes_for_itself_where_it_has_copies(copies: int, lone: int) -> None:
    random = torch.Generator().manual_seed(0)
    points = torch.cat([torch.randn(60, 8, generator=random), torch.randn(1, 8, generator=random).expand(copies, 8)])
    labels = torch.tensor([0] * 60 + [1] * copies)
    labels[60:][lone] = 2  # the only one of its class: nobody else could vote for it
    for_it, against_it = (found[60:] for found in votes(points, labels, voters=10))
    assert int(for_it[lone]) == 0
    assert int(against_it[lone]) == max(min(copies - 1, 10), 11 - copies)


def test_a_lone_point_of_the_last_class_has_no_votes_for_it() -> None:
    points = torch.cat([torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), torch.full((1, 2), 50.0)])
    for_it, against_it = votes(points, torch.tensor([0] * 20 + [3]), voters=10)
    assert (int(for_it[-1]), int(against_it[-1])) == (0, 10)
    assert [found.tolist() for found in votes(points[:1], torch.tensor([2]), voters=10)] == [[0], [0]]


def test_distances_have_all_their_digits_whatever_the_program_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    measure = torch.cdist
    monkeypatch.setattr(torch, "cdist", lambda *a: seen.append(torch.get_float32_matmul_precision()) or measure(*a))
    torch.set_float32_matmul_precision("medium")
    try:
        nearest(torch.zeros(4, 2), 2)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == ["highest"]
