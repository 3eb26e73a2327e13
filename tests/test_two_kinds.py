"""Numbers of two kinds, told apart."""

from __future__ import annotations

import pytest
import torch

from continual_crust.selection.two_kinds import upper_kind


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_upper_kind_is_found_however_many_there_are_of_it(share: float) -> None:
    random = torch.Generator().manual_seed(0)
    upper = torch.rand(1000, generator=random) < share
    numbers = torch.randn(1000, generator=random) + 5 * upper
    found = upper_kind(numbers)
    assert float((found > 0.5).eq(upper).double().mean()) > 0.98
    assert float(found.mean()) == pytest.approx(share, abs=0.05)


def test_a_wide_kind_does_not_claim_the_far_end_of_the_other() -> None:
    random = torch.Generator().manual_seed(0)
    wide, narrow = 4 * torch.randn(500, generator=random), 6 + torch.randn(500, generator=random) / 2
    found = upper_kind(torch.cat([wide, narrow, torch.tensor([30.0])]))
    assert found[-1] == 1.0


@pytest.mark.parametrize("numbers", [[], [1.0], [1.0, 2.0, 3.0], [4.0] * 9])
def test_where_there_is_nothing_to_tell_all_are_of_the_upper_kind(numbers: list[float]) -> None:
    assert upper_kind(torch.tensor(numbers)).tolist() == [1.0] * len(numbers)


@pytest.mark.parametrize("count", [5, 11, 49, 300])
def test_equal_numbers_of_any_precision_are_of_one_kind(count: int) -> None:
    for number in (0.1, 1 / 3, 1e4 + 0.7):
        for dtype in (torch.float16, torch.float32, torch.float64):
            assert upper_kind(torch.full((count,), number, dtype=dtype)).eq(1).all(), (number, dtype)
