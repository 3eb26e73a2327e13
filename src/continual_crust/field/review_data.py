"""What a page for looking over a learner's shoulder shows: every image it ever saw, in the order of doubt."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_crust.errors import InputError
from continual_crust.field.generation import Damaged, Generation
from continual_crust.field.persistence import noise_from
from continual_crust.field.seen import NO_MARK, OTHER, RIGHT, Seen


@dataclass(frozen=True)
class ReviewedClass:
    """What the heading of a class tells."""

    name: str
    seen: int
    kept: int
    looks_wrong: int
    noise: str | None
    """Share of wrong labels in its last batch; None where nothing can be said."""


@dataclass(frozen=True)
class ReviewData:
    """All images that are shown: class by class, kept ones first, the most doubtful first.

    The arrays have one entry for each image.
    """

    identity: str
    """The same for all generations of one learner, so that marks can be brought over to the next."""
    generation: str
    """Its number and a fingerprint."""
    classes: list[ReviewedClass]
    label: NDArray[np.int64]
    """The given class, an index into `classes`."""
    names: list[str]
    """As a review file calls the image."""
    folders: list[str | None]
    """Where its file came from, if it came from one."""
    kept: NDArray[np.bool_]
    score: NDArray[np.float64]
    """How likely the label is right."""
    other: NDArray[np.int64]
    """The class the learner would give instead, or -1."""
    other_probability: NDArray[np.float64]
    mark: NDArray[np.uint8]
    """What a person said before: as in `continual_crust.field.seen`."""
    moved: NDArray[np.int64]
    """The class an image was moved to, and counts as right in; -1 if it was not."""
    thumbnails: list[bytes]
    left_out: int
    """Images that are not shown; each is thrown out and less doubtful than any that is shown thrown out."""

    def __len__(self) -> int:
        return len(self.names)


def review_data(generation: Generation, most: int) -> ReviewData:
    """Read from a learner's state what there is to review.

    Parameters
    ----------
    generation
        The learner. It may have been tampered with, so nothing in it is believed.
    most
        How many images to show: all that are kept, and then the most doubtful ones.
    """
    try:
        classes = [_class(entry) for entry in generation.manifest["classes"]]
        records = [generation.seen(index) for index in range(len(classes))]
        sources = [_source(batch) for batch in generation.manifest["batches"]]
    except InputError:
        raise
    except (Damaged, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{generation.path} is not the state of a learner ({error}); restore a copy.") from None
    label = np.repeat(np.arange(len(records)), [len(seen) for seen in records])
    row = np.concatenate([np.arange(0), *(np.arange(len(seen)) for seen in records)])
    kept, score, mark = (_column(records, name) for name in ("kept", "score", "mark"))
    # What a person has spoken about is no longer in doubt.
    score = _share(score)
    order = np.lexsort((row, score, mark != NO_MARK, ~kept, label))
    shown = order[np.sort(np.lexsort((score[order], mark[order] != NO_MARK, ~kept[order]))[:most])]
    other = _column(records, "other").astype(np.int64)
    other[(other < 0) | (other >= len(classes)) | (other == label)] = -1
    names = [seen.names() for seen in records]
    places = list(zip(label[shown].tolist(), row[shown].tolist(), strict=True))
    batches = [int(records[index].batch[at]) for index, at in places]
    return ReviewData(
        identity=_identity(generation, records),
        generation=f"{generation.number}-{_hexdigest(json.dumps(dict(generation.checksums), sort_keys=True))[:8]}",
        classes=classes,
        label=label[shown],
        names=[names[index][at] for index, at in places],
        folders=[sources[batch] if 0 <= batch < len(sources) else None for batch in batches],
        kept=kept[shown],
        score=score[shown],
        other=other[shown],
        other_probability=_share(_column(records, "other_probability"))[shown],
        mark=mark[shown],
        moved=_moved(records)[shown],
        thumbnails=[records[index].thumbnails[at] for index, at in places],
        left_out=len(label) - len(shown),
    )


def _class(entry: dict[str, Any]) -> ReviewedClass:
    seen, kept, looks_wrong = (int(entry[name]) for name in ("seen", "kept", "looks_wrong"))
    noise = noise_from(entry["noise"])
    finite = noise is not None and all(map(math.isfinite, (noise.estimate, noise.low, noise.high)))
    # A number and its sign stay in one line.
    told = str(noise).replace("%", "\u00a0%") if finite else None
    return ReviewedClass(str(entry["name"]), seen, kept, looks_wrong, told)


def _source(batch: dict[str, Any]) -> str | None:
    return None if batch["source"] is None else str(batch["source"])


def _column(records: Sequence[Seen], name: str) -> NDArray[Any]:
    none = getattr(Seen.nothing(), name)
    return np.concatenate([none, *(getattr(seen, name) for seen in records)])


def _moved(records: Sequence[Seen]) -> NDArray[np.int64]:
    """For each image that a person moved, the class in which the same pixels count as right."""
    right = {
        seen.digest[row].tobytes(): index
        for index, seen in enumerate(records)
        for row in np.flatnonzero(seen.mark == RIGHT).tolist()
    }
    places = [np.full(len(seen), -1, np.int64) for seen in records]
    for seen, moved in zip(records, places, strict=True):
        for row in np.flatnonzero(seen.mark == OTHER).tolist():
            moved[row] = right.get(seen.digest[row].tobytes(), -1)
    return np.concatenate([np.arange(0), *places])


def _share(values: NDArray[Any]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = np.nan_to_num(values.astype(np.float64), nan=0.0).clip(0, 1)
    return shares


def _identity(generation: Generation, records: Sequence[Seen]) -> str:
    """The same text for all generations of a learner: from what never changes.

    That is its settings, its first image and the size of its first batch; not the records, to which reviews add.
    """
    settings = {**generation.manifest["settings"], "image_scale": None}  # which comes with the first fractions
    first = (records[0] if records else Seen.nothing()).digest[:1].tobytes().hex()
    counts = [[batch.get("images"), batch.get("skipped")] for batch in generation.manifest["batches"][:1]]
    return _hexdigest(json.dumps([settings, first, counts], sort_keys=True))[:16]


def _hexdigest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
