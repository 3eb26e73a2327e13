"""The classes of image files, a few files at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from continual_crust.errors import InputError
from continual_crust.field.folder import CHUNK, Form, Skipped, files_under, shown
from continual_crust.field.inputs import Label
from continual_crust.field.learner import ContinualLearner
from continual_crust.field.notes import filled_up, lost_to_the_form, on_another_scale, only_the_first
from continual_crust.field.rows import ArrayRows
from continual_crust.field.state import StateFolder
from continual_crust.progress import OnProgress


@dataclass(frozen=True)
class Prediction:
    """What the learner says about one file."""

    file: str
    label: Label
    probability: float


def predictions(
    state: Path,
    paths: Sequence[Path],
    device: str,
    on_progress: OnProgress,
    skipped: list[Skipped],
    warn: Callable[[str], None],
) -> Iterator[list[Prediction]]:
    """Predict files, and all files in folders, part by part; those that cannot be read go to `skipped`."""
    generation = StateFolder(state).newest()
    for sentence in generation.passed_over:
        warn(f"{sentence}; used generation {generation.number}.")
    learner = ContinualLearner.of_generation(generation, None, device)
    form = Form.of(learner.settings_)
    files = [file for path in paths for file in (files_under(path, apart_from=state) if path.is_dir() else [path])]
    if len(learner.classes_) == 1:
        warn(f"this learner knows only the class '{learner.classes_[0]}' so far, and predicts it for every image.")
    kept = [coreset.images for coreset in learner.coresets.values()]
    told, several = False, set[Path]()

    def skip(path: Path, error: InputError) -> None:
        why = str(error) if os.path.lexists(path) else f"there is no file {shown(path)}; check the path."
        skipped.append(Skipped(shown(path), why))

    for start in range(0, len(files), CHUNK):
        part = files[start : start + CHUNK]
        decoded = form.decoded_if_possible(part, several, skip)
        good, images = [part[at] for at, _ in decoded], [image for _, image in decoded]
        if good and not told:
            rows = ArrayRows(np.stack(images))
            for note in lost_to_the_form(good, form) + filled_up(good, form) + on_another_scale(kept, rows):
                warn(note)
            told = True
        if good:
            probabilities = learner.predict_proba(images)
            best = probabilities.argmax(axis=1)
            labels = learner.classes_[best].tolist()
            yield [
                Prediction(shown(path), label, float(row[place]))
                for path, label, row, place in zip(good, labels, probabilities, best, strict=True)
            ]
        on_progress("predicting", start + len(part), len(files))
    for note in only_the_first(len(several)):
        warn(note)
