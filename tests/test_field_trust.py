"""How likely labels are right, and how noisy a batch is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from continual_crust.field.judge import both_looks
from continual_crust.selection.noise_share import Likeness, NoiseEstimate
from continual_crust.selection.trust import (
    FITTED,
    Assessment,
    Projection,
    View,
    assess,
    right_among_known,
    sample_of,
    second_cloud,
)


def judged(own: np.ndarray, others: list[np.ndarray], known_right: np.ndarray | None = None) -> Assessment:
    """The same points in both views."""
    view = View(own, others)
    projection = Projection.of(view, 8)
    reduced = View(projection(own), [projection(points) for points in others])
    count = len(own)
    known = np.zeros(count, np.bool_) if known_right is None else known_right
    return assess([reduced, reduced], sample_of(count, 0), np.ones(count, np.bool_), known)


def clouds(
    wrong: float, unknown: float, count: int = 200, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """A batch around 0, parts of it around the other class at 6 or an unseen one at -6; which are wrong; the other."""
    random = np.random.default_rng(seed)
    kind = random.choice(3, count, p=[1 - wrong - unknown, wrong, unknown])
    centres = np.zeros((3, 5))
    centres[1, 0], centres[2, 1] = 6, -6
    return centres[kind] + random.normal(size=(count, 5)), kind > 0, [centres[1] + random.normal(size=(30, 5))]


@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.3, 0.45])
@pytest.mark.parametrize("unknown", [0.0, 0.1])
def test_shares_of_known_and_unknown_classes_are_found(wrong: float, unknown: float) -> None:
    for seed in range(3):
        own, is_wrong, others = clouds(wrong, unknown, seed=seed)
        found = judged(own, others)
        assert ((found.right < 0.5) == is_wrong).mean() > 0.95
        assert found.noise is not None
        if wrong or not unknown:
            assert found.noise.estimate == pytest.approx(is_wrong.mean(), abs=0.07)
        assert found.noise.low <= is_wrong.mean() <= found.noise.high


def test_what_is_only_unknown_is_believed_in_part() -> None:
    """It may be another style of the class; so the estimate counts a part and the interval allows for all or none."""
    own, is_wrong, others = clouds(0.0, 0.2)
    with_known, alone = judged(own, others).noise, judged(own, []).noise
    assert with_known is not None
    assert alone is not None
    assert with_known.low == alone.low == 0
    assert 0.02 < with_known.estimate < alone.estimate < is_wrong.mean()
    assert min(with_known.high, alone.high) > is_wrong.mean()


def test_a_class_that_only_resembles_another_is_not_certainly_wrong() -> None:
    """All of it lies beside the other class, some even nearer to that; but nothing lies where most of the other is."""
    random = np.random.default_rng(0)
    own, other = random.normal(size=(200, 5)), random.normal(size=(60, 5))
    own[:100, 0] += 1.5
    other[:, 0] += 4
    noise = judged(own, [other]).noise
    assert noise is not None
    assert noise.low == 0
    assert noise.estimate < 0.15


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
def test_the_certain_share_is_near_the_truth(share: float) -> None:
    random = np.random.default_rng(1)
    of_the_other = random.random(400) < share
    batch = random.normal(size=400) + np.where(of_the_other, 4.0, 0.0)
    likeness = Likeness(batch, random.normal(size=60) + 4)
    assert likeness.most(allowance=0) <= likeness.most(allowance=1)
    assert likeness.most(allowance=1) == pytest.approx(of_the_other.mean(), abs=0.05)


def test_a_larger_batch_gives_a_narrower_interval() -> None:
    widths = []
    for count in (20, 600):
        noise = judged(*clouds(0.3, 0.0, count)[::2]).noise
        assert noise is not None
        widths.append(noise.high - noise.low)
    assert widths[1] < 0.7 * widths[0]


def test_what_a_person_vouched_for_is_right() -> None:
    own, is_wrong, others = clouds(0.3, 0.0)
    known = np.zeros(len(own), np.bool_)
    known[np.flatnonzero(is_wrong)[:5]] = True
    assert (judged(own, others, known).right[known] == 1).all()


def test_nothing_is_said_about_few_images() -> None:
    own, _, others = clouds(0.3, 0.0, count=7)
    assert judged(own, others).noise is None
    assert (judged(own, others).right == 1).all()


@pytest.mark.parametrize("others", [[], [np.full((9, 20), 7.3)]])
def test_nothing_is_said_about_copies_of_one_image(others: list[np.ndarray]) -> None:
    found = judged(np.full((40, 20), 7.3), others)
    assert found.noise is None
    assert (found.right == 1).all()


def test_copies_of_one_image_are_told_from_another_class() -> None:
    found = judged(np.full((40, 20), 7.3), [np.random.default_rng(0).normal(size=(9, 20))])
    assert found.noise is not None
    assert (found.right > 0.5).all()


def test_nothing_is_said_about_few_new_ones_among_many() -> None:
    own, is_wrong, others = clouds(0.3, 0.0)
    view = View(own, others)
    for new, said in ((7, False), (8, True)):
        counted = np.arange(len(own)) < new
        found = assess([view, view], sample_of(len(own), 0), counted, np.zeros(len(own), np.bool_))
        assert (found.noise is not None) == said
        assert ((found.right < 0.5) == is_wrong).mean() > 0.95  # all the same


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5])
def test_a_second_cloud_within_the_class_is_possibly_wrong(share: float) -> None:
    """One class that nobody knows, near enough to be taken for the class itself: the interval must allow for it."""
    random = np.random.default_rng(0)
    far = np.concatenate([np.full(5, 30.0) + random.normal(size=(30, 5))])
    own = random.normal(size=(100, 5))
    assert second_cloud(own) == 0
    own[: int(100 * share), 0] += 7
    assert second_cloud(own) == pytest.approx(share, abs=0.03)
    found = judged(own, [far]).noise
    assert found is not None
    assert found.low <= share <= found.high


@pytest.mark.parametrize("count", [8, 12, 20, 30, 60])
def test_one_cloud_is_one_however_few_its_points(count: int) -> None:
    random = np.random.default_rng(0)
    assert sum(second_cloud(random.normal(size=(count, 5))) > 0 for _ in range(20)) == 0


def test_equal_points_are_one_cloud() -> None:
    assert second_cloud(np.ones((50, 3))) == 0
    assert second_cloud(np.zeros((0, 3))) == 0


@settings(deadline=None, max_examples=12)
@given(
    st.integers(8, 40),
    st.integers(1, 6),
    st.integers(0, 3),
    st.sampled_from(["equal", "line", "wide", "tiny", "normal"]),
)
def test_any_batch_gets_probabilities(count: int, size: int, classes: int, kind: str) -> None:
    """Equal points, points on a line, hardly any dimension: nothing may break or become NaN."""
    random = np.random.default_rng(count)
    points = random.normal(size=(count + 5 * classes, size))
    points = {
        "equal": 0 * points,
        "line": points[:, :1].repeat(size, 1),
        "wide": 1e6 * points,
        "tiny": 1e-9 * points,
    }.get(kind, points)
    others = [points[count + 5 * number : count + 5 * number + 5] for number in range(classes)]
    found = judged(points[:count], others)
    assert ((found.right >= 0) & (found.right <= 1)).all()
    if kind == "equal":
        assert found.noise is None
        return
    assert found.noise is not None
    assert 0 <= found.noise.low <= found.noise.estimate <= found.noise.high <= 1


def test_of_very_many_images_some_are_fitted_and_all_judged() -> None:
    own, is_wrong, others = clouds(0.2, 0.0, count=FITTED + 100)
    assert len(sample_of(len(own), 0)) == FITTED
    assert ((judged(own, others).right < 0.5) == is_wrong).mean() > 0.95


def test_what_is_kept_is_doubted_for_another_known_class_alone() -> None:
    """And not for being unlike the rest: a class may have a rare style, of which few were kept."""
    random = np.random.default_rng(0)
    main, rare, wrong = slice(0, 30), slice(30, 38), slice(38, 44)
    own = random.normal(size=(44, 2))
    own[rare, 1] += 12
    own[wrong, 0] += 12
    other = random.normal(size=(20, 2)) + np.array([12, 0])
    views, vouched = [View(own, [other])] * 2, np.zeros(44, np.bool_)
    at_first = assess(views, np.arange(44), np.ones(44, np.bool_), vouched).right
    assert at_first[main].min() > 0.5 > at_first[rare].max(), "or there is nothing to test"
    by_now = right_among_known(views, vouched)
    assert by_now[:38].min() > 0.5 > by_now[wrong].max()
    vouched[wrong.start] = True
    assert right_among_known(views, vouched)[wrong].round().tolist() == [1, 0, 0, 0, 0, 0]
    # Where too few are kept to tell, none is doubted.
    assert right_among_known([View(own[:5], [other])] * 2, vouched[:5]).tolist() == [1] * 5


def test_a_look_that_leaves_out_the_noise_is_otherwise_the_same() -> None:
    own, _, others = clouds(0.2, 0.1)
    views = [View(own, others)] * 2
    given = views, np.arange(200), np.ones(200, np.bool_), np.zeros(200, np.bool_), 0
    assert assess(*given).noise is not None
    assert assess(*given, with_noise=False).noise is None
    np.testing.assert_array_equal(assess(*given).right, assess(*given, with_noise=False).right)


def test_two_looks_count_alike_but_for_the_noise() -> None:
    first = Assessment(np.array([0.9, 0.5, 0.1, 1.0, 0.0], np.float32), NoiseEstimate(0.3, 0.1, 0.5))
    second = Assessment(np.array([0.1, 0.9, 0.1, 1.0, 0.9], np.float32), NoiseEstimate(0.5, 0.3, 0.9), 0.2)
    pooled = both_looks(first, second)
    np.testing.assert_allclose(pooled.right, [0.5, 0.75, 0.1, 1.0, 0.003], atol=1e-3)
    assert (pooled.noise, pooled.second) == (first.noise, first.second)
    assert both_looks(second, first).right.tolist() == pooled.right.tolist()
