"""Spectral clustering by cosine, at a cost that grows linearly with the number of points."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from continual_crust.errors import InputError
from continual_crust.selection.points import FactoredPoints, Points, blocks, device_of

RESTARTS = 10
ITERATIONS = 100


def spectral_clusters(points: Points, clusters: int, generator: torch.Generator | None = None) -> Tensor:
    """Assign points to clusters by the directions in which they lie.

    The affinity of two points is (1 + cos) / 2. As a matrix it is B Bᵀ with rows B = [1, x/|x|] / √2, so the leading
    eigenvectors of its normalised form come *exactly* from a (d+1) x (d+1) problem; the n x n matrix never exists.
    Then k-means on the eigenvectors, as usual (Shi and Malik's relaxation of normalised cuts).

    Parameters
    ----------
    points
        An (n, d) tensor or :class:`FactoredPoints`. A zero vector has no direction and counts as orthogonal to all.
    clusters
        How many clusters to look for; some may come out empty.
    generator
        CPU generator for k-means' starting points; fixed ones if not given.

    Returns
    -------
    Tensor
        Cluster number of each point, int64.
    """
    if clusters < 1:
        raise InputError(f"cannot make {clusters} clusters; give a number of 1 or more.")
    if clusters == 1 or len(points) <= 1:
        return torch.zeros(len(points), dtype=torch.int64, device=device_of(points))
    return _k_means(spectral_embedding(points, clusters), clusters, generator or torch.Generator().manual_seed(0))


def spectral_embedding(points: Points, components: int) -> Tensor:
    """Leading eigenvectors of the random walk on the cosine affinity graph, one row for each point."""
    factor_sum = sum((factor.sum(dim=0) for _, factor in _affinity_factor(points)), start=torch.zeros(()))
    degrees = torch.cat([factor @ factor_sum for _, factor in _affinity_factor(points)]).clamp_(min=1e-12)
    gram = sum(
        ((factor / degrees[rows, None]).T @ factor for rows, factor in _affinity_factor(points)), start=torch.zeros(())
    )
    values, vectors = torch.linalg.eigh(gram)
    values, vectors = values.flip(0)[:components], vectors.flip(1)[:, :components]
    # Directions without any variance left would be pure rounding.
    vectors = vectors[:, values > 1e-10 * values[0]] / values[values > 1e-10 * values[0]].sqrt()
    embedding = torch.cat([(factor / degrees[rows, None]) @ vectors for rows, factor in _affinity_factor(points)])
    # Scaled by the degrees' total, so that the numbers do not shrink as n grows.
    return embedding * degrees.sum().sqrt()


def _affinity_factor(points: Points) -> Iterator[tuple[slice, Tensor]]:
    """B such that B Bᵀ is the affinity (1 + cos) / 2, a block of rows at a time, in float64."""
    width = points.left.shape[1] * points.right.shape[1] if isinstance(points, FactoredPoints) else points.shape[1]
    for rows in blocks(len(points), width + 1):
        block = points[rows]
        dense = (block.multiplied_out() if isinstance(block, FactoredPoints) else block).double()
        unit = torch.nn.functional.normalize(dense, dim=1)
        yield rows, torch.cat([unit.new_ones(len(unit), 1), unit], dim=1) / 2**0.5


def _k_means(points: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Lloyd's algorithm from several k-means++ starts at once; the tightest result wins."""
    centres = torch.stack([_spread_centres(points, clusters, generator) for _ in range(RESTARTS)])
    assignment = torch.full((RESTARTS, len(points)), -1, device=points.device)
    for _ in range(ITERATIONS):
        squares = torch.cdist(points.expand(RESTARTS, -1, -1), centres).square()
        previous, assignment = assignment, squares.argmin(dim=2)
        if torch.equal(previous, assignment):
            break
        members = torch.nn.functional.one_hot(assignment, clusters).to(points.dtype)
        counts = members.sum(dim=1)[..., None]
        # A centre that lost all its points stays where it was.
        centres = torch.where(counts > 0, members.transpose(1, 2) @ points / counts.clamp(min=1), centres)
    inertia = squares.amin(dim=2).sum(dim=1)
    return assignment[inertia.argmin()]


def _spread_centres(points: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++: each further centre is drawn in proportion to its squared distance from those before."""
    draws = torch.rand(clusters, generator=generator).tolist()
    centres = [points[int(draws[0] * len(points))]]
    squares = torch.full((len(points),), torch.inf, device=points.device, dtype=points.dtype)
    for draw in draws[1:]:
        squares = torch.minimum(squares, (points - centres[-1]).square().sum(dim=1))
        reached = squares.cumsum(0)
        position = torch.searchsorted(reached, draw * reached[-1])
        centres.append(points[position.clamp_(max=len(points) - 1)])
    return torch.stack(centres)
