"""The handwritten digits that come with scikit-learn: real data without a download."""

from __future__ import annotations

import numpy as np

from continual_crust.data.loading import Request, assemble
from continual_crust.data.samples import Dataset

HOW_TO_GET = "it comes with scikit-learn, so there is nothing to get"
_BRIGHTEST = 16
_TEST_EVERY = 5


def load(request: Request) -> Dataset:
    """1,797 images of 8×8 grey pixels. Of each class every fifth image is for testing, whatever the seed."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    images = np.round(bundle.images * (255 / _BRIGHTEST)).astype(np.uint8)[:, np.newaxis]
    labels = bundle.target
    rank_in_class = np.empty_like(labels)
    for label in range(10):
        members = np.flatnonzero(labels == label)
        rank_in_class[members] = np.arange(len(members))
    test = rank_in_class % _TEST_EVERY == _TEST_EVERY - 1
    names = [str(label) for label in range(10)]
    return assemble("digits", (images[~test], labels[~test]), (images[test], labels[test]), names, HOW_TO_GET)
