"""Joint learning: all classes at once, the upper bound without continual learning.

Trains m + n epochs on the whole noisy training set under cross-entropy. It has no earlier experiences to forget, so
there is no forgetting value.
"""

from __future__ import annotations

from continual_crust.strategies.naive import Naive


class Joint(Naive):
    """All data at once."""

    name = "joint"
    summary = "Joint: all data at once, no forgetting to measure; the upper bound"
    learns_everything_at_once = True
