"""How many labels of a batch are wrong: what is certain, what is possible, and what is likely.

A mixture of clouds (`trust`) gives every image a share in its own class, in each other class that is known, and in the
unknown. Adding these up tells too much: a class may have two styles, of which the rarer one looks unknown, and may
resemble another class without having any of its images. So the shares are taken for what they prove:

    certain     If a share p of the batch were of class c, then any region that holds a share a of what is known of c
                would hold at least p·a of the batch. So p is at most the batch's share there over a. The regions are
                those of images that look more like c than the batch's own class does, and the smallest such ratio
                limits the share of c that is believed.
    possible    Everything that is not of the own class by the mixture; for the interval also the smaller part of what
                is, where that is clearly two clouds: a second class that nobody knows, or a second style.
    likely      What is certain and a part of the rest: a quarter, and the more the more is certain (`BELIEVED`,
                `HALF_CERTAIN`). A batch that has images of known classes has likely others that do not belong as well;
                one that has none may just have several styles.

The estimate is what is likely. The interval goes from what is certain to what is possible, each by the worst of 95 % of
refits to resampled batches, and widened by what it was found to be off by even then (`MODEL_ERROR`).
docs/own-images.md tells how often it held the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]

PLACES = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Regions hold what is above these quantiles of a class's likeness to itself."""
BELIEVED = 0.25
"""How much of what is only possible is believed where nothing is certain."""
BELIEVED_ALONE = 0.5
"""The same where no other class is known, so that nothing could be certain."""
HALF_CERTAIN = 0.05
"""Share of certainly wrong labels at which half of the rest is believed as well."""
MODEL_ERROR = (0.03, 0.06)
"""What the interval is widened by below and above."""


@dataclass(frozen=True)
class NoiseEstimate:
    """The share of wrong labels in a batch, with a 95 % interval."""

    estimate: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether some labels are wrong, by all that the interval holds."""
        return self.low > 0

    def __str__(self) -> str:
        return f"{self.estimate:.0%} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True)
class Likeness:
    """How much more images look like another class than like the batch's own: log ratios."""

    batch: Points
    """Of the batch's images."""
    other: Points
    """Of the other class's own."""

    def most(self, allowance: float) -> float:
        """The largest share of the batch that can be of the other class, if each region held `allowance` images more.

        >>> Likeness(batch=np.array([0.0, 0, 0, 5]), other=np.array([5.0, 5, 5])).most(allowance=0)
        0.25
        """
        limits = [1.0]
        for place in PLACES:
            bar = np.quantile(self.other, place)
            inside = ((self.batch >= bar).sum() + allowance) / len(self.batch)
            limits.append(float(inside / (self.other >= bar).mean()))
        return min(limits)


def noise_estimate(
    kinds: Points, refits: Sequence[Points], likenesses: Sequence[Likeness], second: float = 0.0
) -> NoiseEstimate:
    """Put together what is known of a batch.

    Parameters
    ----------
    kinds
        Mean share of each kind in the batch: the own class, every other class, the unknown.
    refits
        The same for resampled batches.
    likenesses
        For every other class.
    second
        What is of the own class by the mixture, but as a second cloud: the share of it.
    """
    others, possible = kinds[1:-1], float(1 - kinds[0])
    # One image more or less in a region is chance; what is certain at least does without it.
    certain, at_least = (
        sum(min(share, likeness.most(allowance)) for share, likeness in zip(others, likenesses, strict=True))
        for allowance in (1, 0)
    )
    believed = BELIEVED + (1 - BELIEVED) * certain / (certain + HALF_CERTAIN) if len(others) else BELIEVED_ALONE
    estimate = float(certain + believed * (possible - certain))
    resampled = np.array([kinds, *refits])
    shrunk = np.quantile(resampled[:, 1:-1].sum(axis=1), 0.025) / max(others.sum(), 1e-12)
    low = at_least * min(1.0, shrunk) - MODEL_ERROR[0]
    # Two styles of one class and two classes of which the second is unknown look the same from here.
    high = max(possible, np.quantile(1 - resampled[:, 0], 0.975)) + MODEL_ERROR[1]
    high += second * float(kinds[0])
    return NoiseEstimate(estimate, float(np.clip(low, 0, estimate)), float(np.clip(high, estimate, 1)))
