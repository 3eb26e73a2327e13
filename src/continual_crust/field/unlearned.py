"""What is said of a learner that has learned nothing yet. Apart, as importing scikit-learn takes time."""

from __future__ import annotations

from sklearn.exceptions import NotFittedError

from continual_crust.errors import InputError


class NothingLearned(InputError, NotFittedError):  # type: ignore[misc]
    """Something was asked that only a learner can tell that has learned.

    It is scikit-learn's error too, which people catch, and which is an AttributeError, so that `hasattr` says no.
    """
