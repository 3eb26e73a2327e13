"""How likely each given label is right, and how noisy a batch is.

A batch of one class is taken for a mixture: most images belong to the class, some to each other class the learner
knows, and some to classes it has never seen. Each kind is a cloud of points in two views of an image, what the network
makes of it and what it looks like:

    own class      a Student-t cloud around a centre that is estimated, with a spread shared with the other classes
    other class c  the same cloud around the mean of what is remembered of c
    unknown        a Gaussian with twice the variance of everything together

Expectation maximisation, started from the densest half of the batch, fits the centre, the spread and the shares of the
kinds. The result is, for each image, the probability that it belongs to its own class; `noise_share` makes of it the
share of wrong labels. Student-t, because clean images have outliers too. What it rests on: at least `LEAST_OWN` of the
batch is of one kind. A batch that is mostly wrong is beyond it, as it would be for a person who was never shown the
class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor
from torch.nn import functional

from continual_crust.selection.noise_share import Likeness, NoiseEstimate, noise_estimate

Points = NDArray[np.float64]

FEWEST = 8
"""Below this many images nothing is said about them."""
FREEDOM = 5.0
"""Degrees of freedom of the Student-t clouds: few enough to forgive outliers."""
FIRST_OWN, LEAST_OWN = 0.6, 0.4
"""The share of the own class to begin with, and the least it may fall to: batches are *mostly* one class."""
UNKNOWN_VARIANCE = 2.0
"""Variance of the unknown, as a multiple of that of all points."""
SHRINKAGE = 0.2
"""How far a spread is drawn towards a round one: few images say little about many directions."""
DIRECTIONS = (8, 12)
"""Principal directions kept of the network's view and of the image's."""
LOOK_SIDE = 16
"""Side an image is shrunk to for what it looks like as a whole."""
FITTED = 2000
"""Images of a batch that the mixture is fitted to; more would not change it."""
ITERATIONS, REFITS, REFIT_ITERATIONS = 60, 40, 12
CLEARLY, ENOUGH_FOR_TWO = 0.3, 30
"""By how much the Bayesian information criterion must prefer two clouds to one, for each point, to take them for two
kinds of images; and how many points it takes to tell. Fewer are two clouds by chance too often."""


@dataclass(frozen=True)
class Assessment:
    """A judgement of one batch of one class."""

    right: NDArray[np.float32]
    """For each image the probability that its label is right."""
    noise: NoiseEstimate | None
    """None where there were too few images to say or all were copies of one."""
    second: float = 0.0
    """The share of what seems right that is a kind of its own: another style of the class, or another class."""


@dataclass(frozen=True)
class View:
    """One way of looking at images: points of the batch, and of each other class."""

    own: Points
    others: Sequence[Points]


@dataclass(frozen=True)
class Projection:
    """The leading principal directions of a view, at one scale."""

    centre: Points
    axes: Points

    def __call__(self, points: Points) -> Points:
        """Few numbers for each of the points."""
        projected: Points = (points - self.centre) @ self.axes
        return projected

    @classmethod
    def of(cls, view: View, directions: int) -> Projection:
        """As many directions as asked for, unless there are too few points to tell."""
        everything = np.concatenate([view.own, *view.others]).astype(np.float64)
        centre = everything.mean(axis=0)
        _, sizes, rows = np.linalg.svd(everything - centre, full_matrices=False)
        telling = int((sizes > 1e-6 * max(sizes[0], 1e-12)).sum())
        axes = rows[: max(1, min(directions, len(view.own) // 4, telling))].T
        scale = max(float(((everything - centre) @ axes).std(axis=0).mean()), 1e-12)
        return cls(centre, axes / scale)


def sample_of(count: int, seed: int) -> NDArray[np.int64]:
    """Positions of the images that the mixture is fitted to: all, or `FITTED` at random, in order."""
    if count <= FITTED:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).permutation(count)[:FITTED])


def assess(
    views: Sequence[View],
    fitted: NDArray[np.int64],
    counted: NDArray[np.bool_],
    known_right: NDArray[np.bool_],
    seed: int = 0,
    with_noise: bool = True,
) -> Assessment:
    """Judge a batch of one class.

    Parameters
    ----------
    views
        The network's view and the image's view, projected to few directions.
    fitted
        Positions of the images that the mixture is fitted to, from :func:`sample_of`.
    counted
        Which images the share of wrong labels is about: the new ones.
    known_right
        Images a person has vouched for.
    seed
        Decides the resampling.
    with_noise
        Whether to say how noisy the batch is, which takes most of the time.
    """
    count = len(counted)
    if not counted.any() or not _can_be_told(views):
        return Assessment(np.ones(count, np.float32), None)
    mixtures, fit, shares = _fitted_mixtures(views, fitted, known_right)
    densities = [mixture.densities() for mixture in mixtures]
    kinds = _normalized(sum(densities, np.zeros(1)), shares, known_right)
    right = kinds[:, 0].astype(np.float32)
    if counted.sum() < FEWEST or not with_noise:
        return Assessment(right, None)
    # By its looks alone: a network has learned the other classes' remembered images, and new ones look less like them.
    looks, mixture = densities[-1][counted], mixtures[-1]
    likenesses = [
        Likeness(looks[:, 1 + number] - looks[:, 0], other[:, 1 + number] - other[:, 0])
        for number, other in enumerate(map(mixture.densities, views[-1].others))
    ]
    random, ones = np.random.default_rng(seed), np.ones(len(fitted))
    resampled = []
    for _ in range(REFITS):
        times = random.multinomial(len(fitted), ones / len(fitted)).astype(np.float64)
        again, _ = _fitted(mixtures, fit[:, 0], times, shares, known_right[fitted], REFIT_ITERATIONS)
        about = times * counted[fitted]
        if about.sum():
            resampled.append(about @ again / about.sum())
    second = second_cloud(views[-1].own[counted & (right >= 0.5)])
    return Assessment(right, noise_estimate(kinds[counted].mean(axis=0), resampled, likenesses, second), second)


def right_among_known(views: Sequence[View], known_right: NDArray[np.bool_]) -> NDArray[np.float32]:
    """How likely each image is of its own class rather than of another class that is known.

    Images that are like no known class are not doubted for that. The few that are kept of a class say less about what
    the class can look like than the whole batch did when it was judged.
    """
    count = len(known_right)
    if not _can_be_told(views):
        return np.ones(count, np.float32)
    mixtures, _, shares = _fitted_mixtures(views, np.arange(count), known_right)
    densities = sum((mixture.densities() for mixture in mixtures), np.zeros(1))
    kinds = np.maximum(_normalized(densities, shares, known_right), np.finfo(np.float64).tiny)
    own: NDArray[np.float32] = (kinds[:, 0] / kinds[:, :-1].sum(axis=1)).astype(np.float32)
    return own


def second_cloud(points: Points) -> float:
    """Which share of points is the smaller of two clouds, where they are clearly two; otherwise 0.

    Clearly: two Gaussians of one spread are better than one by the Bayesian information criterion, by `CLEARLY` for
    each of at least `ENOUGH_FOR_TWO` points.
    """
    from sklearn.mixture import GaussianMixture

    if len(points) < ENOUGH_FOR_TWO or np.ptp(points, axis=0).max() < 1e-9:
        return 0.0
    one, two = (
        GaussianMixture(clouds, covariance_type="tied", reg_covar=1e-3, n_init=3, random_state=0).fit(points)
        for clouds in (1, 2)
    )
    is_clear = one.bic(points) - two.bic(points) > CLEARLY * len(points)
    return float(two.weights_.min()) if is_clear else 0.0


def network_view(features: Tensor) -> Points:
    """What a network makes of images, from the input of its last layer: the direction alone."""
    view: Points = functional.normalize(features.double(), dim=1).cpu().numpy()
    return view


def image_view(images: Tensor) -> Points:
    """What images look like as a whole: every one as a row of at most 16 × 16 pixels a channel."""
    height, width = images.shape[2:]
    pixels = images.float()
    if max(height, width) > LOOK_SIDE:
        size = (min(height, LOOK_SIDE), min(width, LOOK_SIDE))
        pixels = functional.interpolate(pixels, size, mode="area")
    view: Points = pixels.flatten(1).double().cpu().numpy()
    return view


def _can_be_told(views: Sequence[View]) -> bool:
    """Whether there are images enough, and different ones."""
    return len(views[0].own) >= FEWEST and any(map(_tells_apart, views))


def _tells_apart(view: View) -> bool:
    """Whether any two images differ: clouds around a single point have no width to go by."""
    return bool(np.ptp(np.concatenate([view.own, *view.others]), axis=0).max() > 1e-12)


class _Mixture:
    """The clouds in one view."""

    def __init__(self, view: View, fitted: NDArray[np.int64]) -> None:
        self._all = view.own
        self.points = view.own[fitted]
        self._means = [points.mean(axis=0) for points in view.others]
        dimensions = self.points.shape[1]
        everything = np.concatenate([self.points, *view.others])
        broad = _round(np.cov(everything.T).reshape(dimensions, dimensions) * UNKNOWN_VARIANCE, 1e-3)
        self._unknown: tuple[Points, Points] = (everything.mean(axis=0), _root(broad))
        # The others' own spread counts half: theirs is a chosen few, and more alike than a batch is.
        scatters = [(points - mean).T @ (points - mean) for points, mean in zip(view.others, self._means, strict=True)]
        self._scatter = 0.5 * sum(scatters, np.zeros((dimensions, dimensions)))
        self._scatter_count = 0.5 * sum(len(points) - 1 for points in view.others)
        self._reliability = np.ones(len(self.points))
        self._own: tuple[Points, Points] = (self.points.mean(axis=0), np.eye(dimensions))

    @property
    def kinds(self) -> int:
        """Own, the other classes, unknown."""
        return len(self._means) + 2

    def place(self, membership: Points) -> None:
        """Fit the own class's cloud to points that belong to it so far."""
        weights = membership * self._reliability
        mean = weights @ self.points / weights.sum()
        apart = self.points - mean
        spread = ((weights[:, None] * apart).T @ apart + self._scatter) / (membership.sum() + self._scatter_count)
        self._own = mean, _root(_round(spread, SHRINKAGE))
        squares = _squares(self.points, *self._own)
        self._reliability = (FREEDOM + len(mean)) / (FREEDOM + squares)

    def densities(self, points: Points | None = None) -> Points:
        """Log density of every kind at each point; at all points of the batch unless others are given."""
        points = self._all if points is None else points
        mean, root = self._own
        clouds = _students(points, [mean, *self._means], root)
        return np.column_stack([clouds, _gaussian(points, *self._unknown)])


def _fitted_mixtures(
    views: Sequence[View], fitted: NDArray[np.int64], known_right: NDArray[np.bool_]
) -> tuple[list[_Mixture], Points, Points]:
    """A mixture in each view, together with the memberships of the fitted points and the kinds' shares."""
    mixtures = [_Mixture(view, fitted) for view in views]
    start = _densest_half([mixture.points for mixture in mixtures]).astype(np.float64)
    shares = np.full(mixtures[0].kinds, (1 - FIRST_OWN) / (mixtures[0].kinds - 1))
    shares[0] = FIRST_OWN
    fit, shares = _fitted(mixtures, start, np.ones(len(fitted)), shares, known_right[fitted], ITERATIONS)
    return mixtures, fit, shares


def _fitted(
    mixtures: Sequence[_Mixture],
    membership: Points,
    times: Points,
    shares: Points,
    known_right: NDArray[np.bool_],
    iterations: int,
) -> tuple[Points, Points]:
    """Memberships of the fitted points in all kinds, and the kinds' shares. `times`: how often each point counts."""
    for _ in range(iterations):
        for mixture in mixtures:
            mixture.place(np.maximum(membership * times, 1e-12))
        densities = sum((mixture.densities(mixture.points) for mixture in mixtures), np.zeros(1))
        kinds = _normalized(densities, shares, known_right)
        membership = kinds[:, 0]
        shares = times @ kinds / times.sum()
        if shares[0] < LEAST_OWN:
            shares[1:] *= (1 - LEAST_OWN) / shares[1:].sum()
            shares[0] = LEAST_OWN
    return kinds, shares


def _normalized(densities: Points, shares: Points, known_right: NDArray[np.bool_]) -> Points:
    logs = densities + np.log(np.maximum(shares, 1e-12))
    kinds = np.exp(logs - logs.max(axis=1, keepdims=True))
    kinds /= kinds.sum(axis=1, keepdims=True)
    kinds[known_right] = np.eye(kinds.shape[1])[0]
    normalized: Points = kinds
    return normalized


def _densest_half(views: Sequence[Points]) -> NDArray[np.bool_]:
    crowding = np.zeros(len(views[0]))
    neighbours = max(3, len(crowding) // 10)
    for points in views:
        norms = np.square(points).sum(axis=1)
        squares = norms[:, None] + norms[None, :] - 2 * points @ points.T
        near = np.partition(squares, neighbours, axis=1)[:, : neighbours + 1].sum(axis=1).clip(min=0)
        crowding += near / max(float(np.median(near)), 1e-12)
    dense: NDArray[np.bool_] = crowding <= np.median(crowding)
    return dense


def _round(spread: Points, share: float) -> Points:
    """A covariance drawn towards a ball of the same size."""
    size = len(spread)
    ball = np.eye(size) * max(float(np.trace(spread)) / size, 1e-9)
    rounded: Points = (1 - share) * spread + share * ball
    return rounded


def _root(spread: Points) -> Points:
    root: Points = np.linalg.cholesky(spread).astype(np.float64)
    return root


def _squares(points: Points, mean: Points, root: Points) -> Points:
    squares: Points = np.square(np.linalg.solve(root, (points - mean).T)).sum(axis=0)
    return squares


def _students(points: Points, means: Sequence[Points], root: Points) -> Points:
    """Log densities of clouds of one spread around several centres, one column for each."""
    size = points.shape[1]
    constant = gammaln((FREEDOM + size) / 2) - gammaln(FREEDOM / 2) - size / 2 * np.log(FREEDOM * np.pi)
    white, centres = np.linalg.solve(root, points.T).T, np.linalg.solve(root, np.stack(means).T).T
    squares = np.square(white[:, None] - centres[None]).sum(axis=2)
    logs: Points = constant - np.log(np.diag(root)).sum() - (FREEDOM + size) / 2 * np.log1p(squares / FREEDOM)
    return logs


def _gaussian(points: Points, mean: Points, root: Points) -> Points:
    logs: Points = -_squares(points, mean, root) / 2 - np.log(np.diag(root)).sum() - len(mean) / 2 * np.log(2 * np.pi)
    return logs
