"""What a lesson tells of classes that it was not about: now that more is known, some of what was kept looks wrong."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from continual_crust.data.samples import Samples
from continual_crust.field.inputs import Label
from continual_crust.field.lesson import Lesson
from continual_crust.field.reports import second_opinion
from continual_crust.field.rows import ArrayRows
from continual_crust.field.seen import LIKELY, RIGHT, Seen, replaced
from continual_crust.progress import OnProgress
from continual_crust.strategies.sift import ENOUGH, VOTERS

if TYPE_CHECKING:
    from continual_crust.field.core import FieldLearner

FORGOTTEN = 1 - ENOUGH / VOTERS
"""How likely the label of what was forgotten is right at most: no more of its neighbours had the same."""


def forgotten(
    learner: FieldLearner, lesson: Lesson, learned: Sequence[int], before: Mapping[int, Samples]
) -> dict[Label, int]:
    """Count and record what the lesson has let go of other classes than those learned, from the memory `before`."""
    counts = {}
    for label, ids in lesson.forgotten.items():
        if label not in learned:
            gone = before[label][torch.isin(before[label].ids.cpu(), ids)].to("cpu")
            right = np.minimum(learner.seen[label].score[gone.ids.numpy()], FORGOTTEN)
            seen = _doubted(learner, label, gone, right)
            seen.kept[gone.ids.numpy()] = False
            learner.seen = replaced(learner.seen, label, seen)
            counts[learner.labels[label]] = len(gone)
    return counts


def doubted(learner: FieldLearner, learned: Sequence[int], on_progress: OnProgress) -> dict[Label, int]:
    """Count and record the kept images of other classes that now look more like another class that is known.

    They stay: a memory that lost them was cleaner in trials, but smaller, and the learner hardly better.
    """
    assert learner.strategy is not None
    memory = learner.strategy.memory
    rows = {label: memory[label].ids.cpu().numpy() for label in memory if label not in learned}
    pinned = {label: learner.seen[label].mark[ids] == RIGHT for label, ids in rows.items()}
    counts = {}
    for label, right in learner.strategy.judge.judged_again(pinned, on_progress).items():
        changed = (right < LIKELY) & (learner.seen[label].score[rows[label]] >= LIKELY)
        if changed.any():
            seen = _doubted(learner, label, memory[label][torch.from_numpy(changed)].to("cpu"), right[changed])
            learner.seen = replaced(learner.seen, label, seen)
            counts[learner.labels[label]] = int(changed.sum())
    return counts


def _doubted(learner: FieldLearner, label: int, images: Samples, right: NDArray[np.float32]) -> Seen:
    """A class's record with a new word on some of its images."""
    assert learner.strategy is not None
    seen, rows = copy.deepcopy(learner.seen[label]), images.ids.numpy()
    logits = learner.strategy.judge.logits(ArrayRows(images.images.numpy()), torch.arange(len(images)))
    seen.score[rows] = right
    seen.other[rows], seen.other_probability[rows] = second_opinion(logits.double(), label)
    return seen
