"""Spectral clusters by cosine, and the selection built on them."""

from __future__ import annotations

import pytest
import torch
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

from continual_crust.errors import InputError
from continual_crust.selection import FactoredPoints, cosine_crust, spectral_clusters
from continual_crust.selection.crust import proportional_quotas
from continual_crust.selection.spectral import spectral_embedding


def bundles(sizes: list[int], spread: float = 0.3, dimensions: int = 12, seed: int = 0) -> torch.Tensor:
    """Vectors of any length around a few directions."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.eye(dimensions)[: len(sizes)]
    rows = [
        direction + spread * torch.randn(size, dimensions, generator=generator)
        for direction, size in zip(directions, sizes, strict=True)
    ]
    lengths = torch.rand(sum(sizes), 1, generator=generator) * 5 + 0.1
    return torch.cat(rows) * lengths


def test_clusters_agree_with_scikit_learn() -> None:
    points = bundles([200, 120, 80])
    unit = torch.nn.functional.normalize(points.double(), dim=1)
    affinity = ((1 + unit @ unit.T) / 2).clamp(min=0).numpy()
    theirs = SpectralClustering(3, affinity="precomputed", random_state=0).fit_predict(affinity)
    ours = spectral_clusters(points, 3).numpy()
    assert adjusted_rand_score(theirs, ours) >= 0.99


def test_embedding_is_the_exact_one_of_the_dense_affinity() -> None:
    points = bundles([40, 30, 20])
    unit = torch.nn.functional.normalize(points.double(), dim=1)
    affinity = (1 + unit @ unit.T) / 2
    degrees = affinity.sum(dim=1)
    normalized = affinity / (degrees[:, None] * degrees).sqrt()
    _, vectors = torch.linalg.eigh(normalized)
    dense = vectors.flip(1)[:, :3] / degrees.sqrt()[:, None] * degrees.sum().sqrt()
    ours = spectral_embedding(points, 3)
    signs = (dense * ours).sum(dim=0).sign()
    assert torch.allclose(dense * signs, ours, atol=1e-8)


def test_lengths_do_not_matter() -> None:
    points = bundles([60, 40])
    scaled = points * torch.linspace(0.01, 100, 100)[:, None]
    assert adjusted_rand_score(spectral_clusters(points, 2), spectral_clusters(scaled, 2)) == 1


def test_factored_points_cluster_like_the_multiplied_out_ones() -> None:
    factored = FactoredPoints(bundles([50, 30], dimensions=5), bundles([50, 30], dimensions=4, seed=1))
    dense = spectral_clusters(factored.multiplied_out(), 2)
    assert adjusted_rand_score(spectral_clusters(factored, 2), dense) == 1


def test_clusters_are_repeatable_and_follow_their_generator() -> None:
    points = torch.randn(100, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(spectral_clusters(points, 4), spectral_clusters(points, 4))
    seeded = [spectral_clusters(points, 4, torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*seeded)


def test_zero_vectors_are_allowed() -> None:
    points = torch.cat([torch.zeros(5, 3), torch.randn(20, 3, generator=torch.Generator().manual_seed(0))])
    assert spectral_clusters(points, 2).shape == (25,)


def test_more_clusters_than_points_or_directions() -> None:
    assert spectral_clusters(torch.ones(3, 2), 5).max() < 5
    assert spectral_clusters(torch.eye(2), 4).shape == (2,)


def test_no_clusters_is_refused() -> None:
    with pytest.raises(InputError, match="cannot make 0 clusters"):
        spectral_clusters(torch.eye(3), 0)


@pytest.mark.parametrize("dimensions", [3, 60])
def test_short_vectors_have_directions_too(dimensions: int) -> None:
    """In few dimensions and in many, which are clustered in two ways."""
    points = bundles([30, 20], 0.05, dimensions).double()
    assert torch.equal(spectral_clusters(1e-20 * points, 2), spectral_clusters(points, 2))


def test_what_cannot_be_clustered_is_told() -> None:
    points = torch.eye(3)
    for wrong, told in (
        (points.numpy(), "points are a ndarray"),
        (points / 0, "3 of 3 points hold NaN or infinity"),
        (FactoredPoints(points, points[:2]), "the factors are of 3 and 2 points"),
    ):
        with pytest.raises(InputError, match=told):
            spectral_clusters(wrong, 2)
    with pytest.raises(InputError, match=r"cannot make 2\.0 clusters; give a whole number of 1 or more"):
        spectral_clusters(points, 2.0)


def test_small_clusters_are_dropped() -> None:
    points = bundles([80, 15, 5], spread=0.05)
    for floor in (0.1, 10):
        assert (cosine_crust(points, 30, clusters=3, min_cluster=floor).indices < 95).all()
    assert (cosine_crust(points, 30, clusters=3, min_cluster=0.5).indices < 80).all()
    everyone = cosine_crust(points, 100, clusters=3, min_cluster=0)
    assert sorted(everyone.indices.tolist()) == list(range(100))


def test_the_largest_cluster_stays_whatever_the_floor() -> None:
    points = bundles([30, 20], spread=0.05)
    assert (cosine_crust(points, 10, clusters=2, min_cluster=1000).indices < 30).all()


def test_kept_clusters_share_the_budget_by_size() -> None:
    points = bundles([60, 30, 10], spread=0.05)
    indices = cosine_crust(points, 20, clusters=3, min_cluster=0.05).indices
    assert [(indices < 60).sum(), ((indices >= 60) & (indices < 90)).sum(), (indices >= 90).sum()] == [12, 6, 2]


def test_what_was_dropped_is_not_brought_back() -> None:
    points = bundles([12, 8], spread=0.05)
    assert len(cosine_crust(points, 15, clusters=2, min_cluster=0.5)) == 12


@pytest.mark.parametrize(
    ("populations", "size", "quotas"),
    [([60, 30, 10], 10, [6, 3, 1]), ([1, 1, 1], 2, [1, 1, 0]), ([5, 2], 100, [5, 2]), ([], 3, []), ([4], 0, [0])],
)
def test_quotas(populations: list[int], size: int, quotas: list[int]) -> None:
    assert proportional_quotas(populations, size) == quotas


def test_quotas_never_exceed_a_cluster() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        populations = torch.randint(1, 20, (4,), generator=generator).tolist()
        size = int(torch.randint(0, 90, (), generator=generator))
        quotas = proportional_quotas(populations, size)
        assert sum(quotas) == min(size, sum(populations))
        assert all(quota <= population for quota, population in zip(quotas, populations, strict=True))


@pytest.mark.parametrize("count", [3, 16, 20, 27, 60, 300])
def test_embedding_is_exact_for_any_number_of_points(count: int) -> None:
    points = torch.randn(count, 30, generator=torch.Generator().manual_seed(count))
    unit = torch.nn.functional.normalize(points.double(), dim=1)
    affinity = (1 + unit @ unit.T) / 2
    walk = affinity / affinity.sum(dim=1, keepdim=True)
    embedding = spectral_embedding(points, 10)
    image = walk @ embedding
    values = (image * embedding).sum(dim=0) / embedding.square().sum(dim=0)
    assert torch.allclose(image, embedding * values, atol=1e-6)


@pytest.mark.parametrize("points", [None, 3])
def test_what_is_no_points_is_told(points: object) -> None:
    with pytest.raises(InputError, match="points"):
        cosine_crust(points, 5)  # type: ignore[arg-type]


def test_equal_points_are_one_cluster_and_fill_the_memory() -> None:
    points = torch.ones(1000, 5)
    assert spectral_clusters(points, 10).unique().numel() == 1
    assert len(cosine_crust(points, 300)) == 300


def test_two_directions_are_two_clusters_however_many_are_asked_for() -> None:
    points = torch.cat([torch.tensor([[1.0, 0.0]]).repeat(700, 1), torch.tensor([[0.0, 1.0]]).repeat(300, 1)])
    clusters = spectral_clusters(points, 10)
    assert clusters.unique().numel() == 2
    assert len(cosine_crust(points, 300)) == 300
