"""What images look like without a network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from continual_crust.data import Samples
from continual_crust.selection import look
from continual_crust.selection.look import coarse_pixels, detail, of_spread_one
from continual_crust.strategies import Sift, Training
from continual_crust.strategies.sift import SiftOptions


def textures(count: int, grain: int, side: int = 64, seed: int = 0) -> Tensor:
    """Grey images of random spots, each of `grain` pixels, whose coarse pictures say nothing about them."""
    random = torch.Generator().manual_seed(seed)
    spots = torch.randint(0, 2, (count, 1, side // grain, side // grain), generator=random).float()
    return (28 + 200 * functional.interpolate(spots, scale_factor=grain)).byte()


def test_coarse_pixels_are_means() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert coarse_pixels(images).shape == (1, 64)
    assert coarse_pixels(images)[0, 0] == pytest.approx((0 + 1 + 16 + 17) / 4)


@pytest.mark.parametrize(("side", "scales"), [(4, 0), (8, 0), (9, 1), (16, 1), (28, 2), (32, 2), (224, 5)])
def test_every_doubling_beyond_the_coarse_picture_is_a_scale(side: int, scales: int) -> None:
    images = torch.randint(0, 256, (3, 2, side, side), dtype=torch.uint8)
    assert detail(images).shape == (3, scales * 2 * look.PARTS**2)


def test_images_of_any_shape_and_none_at_all() -> None:
    assert detail(torch.zeros(2, 1, 40, 20, dtype=torch.uint8)).shape == (2, 2 * look.PARTS**2)
    assert detail(torch.zeros(0, 1, 32, 32, dtype=torch.uint8)).shape[0] == 0


def test_detail_is_found_at_its_scale_and_in_its_part() -> None:
    smooth, grainy = torch.full((1, 1, 64, 64), 128, dtype=torch.uint8), textures(1, 2)
    corner = smooth.clone()
    corner[..., :16, :16] = grainy[..., :16, :16]
    fine, nothing = (torch.cat(look._energies(part)) for part in (corner, smooth))
    assert nothing.max() < 1e-4
    assert fine.argmax(dim=1).tolist() == [0, 0, 0]  # the first of 16 parts, at each scale
    by_scale = torch.cat(look._energies(textures(20, 4))).view(3, 20, -1).mean(dim=(1, 2))
    assert by_scale.argmax() == 0  # spots of 4 pixels are gone from a picture of 8 x 8 but not from one of 16 x 16


def test_rows_do_not_depend_on_how_many_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.cat([textures(5, 2), textures(4, 4)])
    together = detail(images)
    monkeypatch.setattr(look, "AT_A_TIME", 2 * 64 * 64)
    assert torch.allclose(together, detail(images), atol=1e-6)


def test_spread_is_one_unless_there_is_none() -> None:
    points = of_spread_one(torch.randn(50, 7) * 12 + 3)
    assert (points - points.mean(dim=0)).square().sum(dim=1).mean() == pytest.approx(1)
    assert of_spread_one(torch.ones(4, 3)).isfinite().all()
    assert of_spread_one(torch.zeros(4, 0)).shape == (4, 0)


def test_with_detail_sift_sees_what_coarse_pixels_do_not() -> None:
    """A few images of a class are so fine-grained that they look alike from afar, most alike of all."""
    images = torch.cat([textures(60, 2), textures(5, 1, seed=1)])
    samples = Samples.of(images, torch.zeros(65, dtype=torch.int64))
    best = {}
    for with_detail in (False, True):
        blind = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16, 2))
        sift = Sift(blind, Training(), options=SiftOptions(detail=with_detail))
        sift.network.measure_normalization(images)
        score, _ = sift._look(samples, torch.zeros(65))
        best[with_detail] = set(score.argsort(descending=True)[:50].tolist())
    strangers = set(range(60, 65))
    assert strangers <= best[False]
    assert not strangers & best[True]
