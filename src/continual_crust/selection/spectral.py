"""Spectral clustering by cosine, at a cost that grows linearly with the number of points."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from continual_crust.selection.coreset import checked_number, generator_or_fixed
from continual_crust.selection.points import FactoredPoints, Points, blocks, checked, device_of, lengths_or_one
from continual_crust.selection.products import full_precision

RESTARTS = 10
"""Of k-means."""
ITERATIONS = 100
"""Of k-means, at most."""
STANDSTILL = 1e-4
"""k-means ends when its centres have moved less than this, squared and relative to the points' variance."""
SPARE_DIRECTIONS = 4
"""How many more eigenvectors are looked for than needed: the last ones of a block converge slowly."""
LARGEST_BASIS = 240
"""How many directions the search for eigenvectors may collect."""
FEW_DIMENSIONS = 512
"""Up to so many dimensions the eigenvectors come from a matrix of their size, which is cheaper than a search."""


@full_precision()
def spectral_clusters(points: Points, clusters: int, generator: torch.Generator | None = None) -> Tensor:
    """Assign points to clusters by the directions in which they lie.

    The affinity of two points is (1 + cos) / 2. As a matrix it is B Bᵀ with rows B = [1, x/|x|] / √2, so it multiplies
    a vector in n (d+1) steps and its leading eigenvectors come from a few such products; the n x n matrix never exists,
    nor do factored points need to be multiplied out. Then k-means on the eigenvectors, as usual (Shi and Malik's
    relaxation of normalised cuts).

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
    clusters = checked_number(clusters, "make {} clusters", 1)
    points = checked(points)  # and not moved: a direction, unlike a distance, depends on the origin
    if clusters == 1 or len(points) <= 1:
        return torch.zeros(len(points), dtype=torch.int64, device=device_of(points))
    return _k_means(spectral_embedding(points, clusters), clusters, generator_or_fixed(generator))


def spectral_embedding(points: Points, components: int) -> Tensor:
    """Leading eigenvectors of the random walk on the cosine affinity graph, one row for each point."""
    if dimensions_of(points) < min(FEW_DIMENSIONS, len(points)):
        values, vectors, degrees = _eigenvectors_in_few_dimensions(points, components)
    else:
        values, vectors, degrees = _eigenvectors_by_products(points, components)
    # Where the points span fewer dimensions than asked for, the remaining eigenvectors are arbitrary.
    vectors.mul_(values > 1e-9 * values[0])
    # Scaled by the degrees' total, so that the numbers do not shrink as n grows, and rounded to what is known of them,
    # so that equal points have equal rows.
    return vectors.mul_(degrees.rsqrt() * degrees.sum().sqrt()).round_(decimals=9)


def dimensions_of(points: Points) -> int:
    """Length of the points' rows, multiplied out."""
    return points.left.shape[1] * points.right.shape[1] if isinstance(points, FactoredPoints) else points.shape[1]


def _eigenvectors_in_few_dimensions(points: Points, components: int) -> tuple[Tensor, Tensor, Tensor]:
    """Largest eigenvalues, their eigenvectors, and the degrees, of the scaled affinity matrix.

    That matrix is C Cᵀ, where the rows of C are those of B over the roots of their degrees. The small matrix Cᵀ C has
    the same eigenvalues, and C carries its eigenvectors over. Three passes over the points, some rows at a time.
    """
    count, width, device = len(points), dimensions_of(points) + 1, device_of(points)
    components = min(components, width)
    degrees = torch.empty(count, 1, dtype=torch.float64, device=device)
    vectors = torch.empty(count, components, dtype=torch.float64, device=device)
    small = torch.zeros(width, width, dtype=torch.float64, device=device)
    total = torch.zeros(width, dtype=torch.float64, device=device)
    parts = list(blocks(count, 2 * width, device))
    for rows in parts:
        total += _affinity_rows(points[rows]).sum(dim=0)
    for rows in parts:
        part = _affinity_rows(points[rows])
        degrees[rows, 0] = (part @ total).clamp_(min=1e-12)
        part.mul_(degrees[rows].rsqrt())
        small += part.T @ part
    values, inner = torch.linalg.eigh(small)
    values, inner = values.flip(0)[:components].clamp_(min=0), inner.flip(1)[:, :components]
    inner = inner / values.sqrt().clamp(min=1e-150)
    for rows in parts:
        vectors[rows] = (_affinity_rows(points[rows]) @ inner).mul_(degrees[rows].rsqrt())
    return values, vectors, degrees


def _affinity_rows(points: Points) -> Tensor:
    """The rows [1, x/|x|] / √2 whose inner products are affinities, in float64."""
    dense = points.multiplied_out() if isinstance(points, FactoredPoints) else points
    rows = torch.ones(len(dense), dense.shape[1] + 1, dtype=torch.float64, device=dense.device)
    rows[:, 1:] = dense.detach()
    rows[:, 1:] /= lengths_or_one(rows[:, 1:])
    return rows.mul_(0.5**0.5)


def _eigenvectors_by_products(points: Points, components: int) -> tuple[Tensor, Tensor, Tensor]:
    """What :func:`_eigenvectors_in_few_dimensions` finds, from products of the matrix with vectors."""
    directions = _Directions(points)
    ones = torch.ones(len(points), 1, dtype=torch.float64, device=device_of(points))
    degrees = directions.affinity_times(ones).clamp_(min=1e-12)
    scale = degrees.rsqrt()
    values, vectors = _leading_eigenvectors(lambda v: scale * directions.affinity_times(scale * v), ones, components)
    return values, vectors, degrees


class _Directions:
    """Points scaled to unit length, in float64, and what their affinity matrix does to vectors."""

    def __init__(self, points: Points) -> None:
        parts = (points.left, points.right) if isinstance(points, FactoredPoints) else (points,)
        doubles = [part.detach().double() for part in parts]
        self._parts = [part / lengths_or_one(part) for part in doubles]

    def affinity_times(self, vectors: Tensor) -> Tensor:
        """(1 1ᵀ + Z Zᵀ) / 2 times the columns of an (n, k) tensor, where Z holds the unit vectors."""
        return (vectors.sum(dim=0) + self._gram_times(vectors)) / 2

    def _gram_times(self, vectors: Tensor) -> Tensor:
        if len(self._parts) == 1:
            unit = self._parts[0]
            return unit @ (unit.T @ vectors)
        left, right = self._parts
        count, columns = len(left), vectors.shape[1]
        result = torch.zeros_like(vectors)
        wide = left.shape[1] * columns
        pieces = list(blocks(count, wide))
        core = torch.zeros(wide, right.shape[1], dtype=vectors.dtype, device=vectors.device)
        for rows in pieces:
            core += (left[rows, :, None] * vectors[rows, None, :]).flatten(1).T @ right[rows]
        for rows in pieces:
            spread = (right[rows] @ core.T).unflatten(1, (left.shape[1], columns))
            result[rows] = torch.einsum("na,nak->nk", left[rows], spread)
        return result


def _leading_eigenvectors(
    matrix_times: Callable[[Tensor], Tensor], like: Tensor, components: int
) -> tuple[Tensor, Tensor]:
    """Largest eigenvalues, falling, and their eigenvectors, of a symmetric matrix that is known by its products only.

    Block Lanczos with full reorthogonalisation: the space spanned by repeated products grows until the eigenvectors
    within it are eigenvectors of the whole matrix, to nine digits or for as long as that can be afforded.
    """
    count = len(like)
    components = min(components, count)
    width = components + SPARE_DIRECTIONS
    largest = max(LARGEST_BASIS, 4 * width)
    if count <= largest:
        # So few points that all directions can be taken at once.
        block = torch.eye(count, dtype=like.dtype, device=like.device)
    else:
        random = torch.Generator().manual_seed(0)
        start = torch.randn(count, width, dtype=like.dtype, generator=random, device="cpu")
        block = torch.linalg.qr(start.to(like.device)).Q
    basis = images = block[:, :0]
    while True:
        basis, images = torch.cat([basis, block], dim=1), torch.cat([images, matrix_times(block)], dim=1)
        values, inner = torch.linalg.eigh(basis.T @ images)
        values, inner = values.flip(0)[:components], inner.flip(1)[:, :components]
        residual = (images @ inner - basis @ (inner * values)).norm(dim=0)
        if bool((residual <= 1e-9 * values[0]).all()) or basis.shape[1] + width > min(count, largest):
            return values, basis @ inner
        block = images[:, -width:]
        for _ in range(2):  # once is not enough in floating point
            block = torch.linalg.qr(block - basis @ (basis.T @ block)).Q


def _k_means(points: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Lloyd's algorithm from several k-means++ starts side by side; the tightest result wins."""
    centres = _spread_centres(points, clusters, generator)
    still = max(STANDSTILL * float(points.var(dim=0).mean()), 1e-18)
    best, least = torch.zeros(len(points), dtype=torch.int64, device=points.device), torch.inf
    for last in range(ITERATIONS - 1, -1, -1):
        assignment, inertia, means = _nearest_centres(points, centres)
        settled = ((means - centres).square().sum(dim=(1, 2)) <= still) | (last == 0)
        if settled.any():
            tightest = torch.where(settled, inertia, torch.inf).argmin()
            if float(inertia[tightest]) < least:
                best, least = assignment[tightest], float(inertia[tightest])
            if settled.all():
                break
        centres = means[~settled]
    return best


def _nearest_centres(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step of Lloyd's algorithm for several sets of centres.

    Returns the nearest centre of each point, the sum of squared distances to them less that of squared lengths, and
    the means of the points that share a centre; a centre that lost all its points stays where it is.
    """
    starts, clusters, _ = centres.shape
    flat = centres.flatten(0, 1)
    assignment = torch.empty(starts, len(points), dtype=torch.int64, device=points.device)
    inertia = torch.zeros(starts, dtype=points.dtype, device=points.device)
    sums, counts = torch.zeros_like(flat), torch.zeros_like(flat[:, 0])
    for rows in blocks(len(points), len(flat), points.device):
        part = points[rows]
        squares = torch.addmm(flat.square().sum(dim=1), part, flat.T, alpha=-2).unflatten(1, (starts, clusters))
        least, nearest = squares.min(dim=2)
        assignment[:, rows] = nearest.T
        inertia += least.sum(dim=0)
        members = torch.zeros_like(squares).scatter_(2, nearest[..., None], 1).flatten(1)
        sums += members.T @ part
        counts += members.sum(dim=0)
    means = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1), flat)
    return assignment, inertia, means.view_as(centres)


def _spread_centres(points: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++ for all starts: each further centre is drawn in proportion to its squared distance to those before."""
    draws = torch.rand(clusters, RESTARTS, dtype=torch.float32, generator=generator, device="cpu").to(points)
    latest = points[(draws[0] * len(points)).long().clamp_(max=len(points) - 1)]
    centres = [latest]
    squares = torch.full((RESTARTS, len(points)), torch.inf, device=points.device, dtype=points.dtype)
    for draw in draws[1:]:
        squares = torch.minimum(squares, torch.cdist(latest, points).square_())
        reached = squares.cumsum(dim=1)
        positions = torch.searchsorted(reached, (draw * reached[:, -1])[:, None]).flatten()
        latest = points[positions.clamp_(max=len(points) - 1)]
        centres.append(latest)
    return torch.stack(centres, dim=1)
