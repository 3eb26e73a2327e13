"""One `learn` from the command line: a folder of images or a review, into the learner kept in STATE.

It can be killed at any moment. What was there before is whole, and the same command goes on: images are read again,
training continues at the last epoch that was saved (`checkpoint`), and the end is the same to the bit. Images that are
known already are not learned twice, so repeating a command that had ended changes nothing. Learning something else
gives up what was not finished, and says so.
"""

from __future__ import annotations

import contextlib
import filecmp
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from continual_crust.data.images import MOST_PIXELS
from continual_crust.errors import InputError, told_name
from continual_crust.field import notes as notes_of
from continual_crust.field.checkpoint import Checkpoint, lesson_key
from continual_crust.field.core import FieldLearner, Incoming
from continual_crust.field.folder import (
    DecodedFiles,
    Form,
    ImageFile,
    Skipped,
    class_name,
    form_of,
    given_name,
    image_files,
    in_folder_called,
    readable,
    shown,
)
from continual_crust.field.generation import Generation
from continual_crust.field.inputs import Label
from continual_crust.field.reports import ClassReport
from continual_crust.field.review import Review
from continual_crust.field.review_file import read_review
from continual_crust.field.rows import ChosenRows
from continual_crust.field.settings import Settings
from continual_crust.field.state import StateFolder, told_as_unwritable
from continual_crust.progress import OnProgress, unwatched

LARGEST_SIDE, LARGEST_PRETRAINED_SIDE = 128, 224
"""Longest side of images when no size is asked for; torchvision's weights were made at the second."""
CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Outcome:
    """What a `learn` did."""

    reports: list[ClassReport] = field(default_factory=list)
    """One for each class that was learned; none if there was nothing new."""
    known: int = 0
    """Images that were learned before, or came twice."""
    skipped: list[Skipped] = field(default_factory=list)
    """Files that are no images."""
    marked: int = 0
    """Marks of a review that were new."""
    unreachable: list[tuple[str, str | None]] = field(default_factory=list)
    """Images a review would bring back or move, that are gone: name and the folder, if they came from one."""
    notes: list[str] = field(default_factory=list)
    """What else should be known."""


@dataclass(frozen=True)
class Session:
    """How to learn."""

    state: StateFolder
    device: str = "auto"
    cache_bytes: int = 8 << 30
    """Size limit of the file of decoded images."""
    on_progress: OnProgress = unwatched
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    """Training is saved after the first epoch that ends this long after it was last saved."""
    before: int | None = None
    """The generation that is to be left to go back to, if that is not the newest: a command may make two."""

    def learn_folder(
        self,
        folder: Path,
        label: str | None,
        asked: Mapping[str, Any],
        image_size: int | None = None,
    ) -> Outcome:
        """Learn a folder of images.

        Parameters
        ----------
        folder, label
            Class folders; or, with a label, images of that one class.
        asked
            Settings that were asked for. A learner that exists already must have the same.
        image_size
            Height and width that were asked for.
        """
        files = self._files(folder, label, image_size)
        with self.state.locked(), self._workplace() as cache:
            learner, notes = self._learner(asked, image_size)
            # A learner may know names that are written in another way, from before or from Python.
            known_as = {class_name(str(label)): str(label) for label in learner.labels}
            named = [replace(file, label=known_as.get(file.label, file.label)) for file in files]
            form = self._form(learner, files, image_size)
            decoded = DecodedFiles(named, form, cache, self.cache_bytes)
            digests, thumbnails, skipped = decoded.decode_all(self.on_progress)
            good, paths = decoded.good, [file.path for file in decoded.good]
            notes += notes_of.larger_than_the_cache(decoded)
            if label is None:
                notes += notes_of.empty_class_folders(folder, files, apart_from=self.state.path)
                notes += notes_of.images_in_no_class_folder(folder)
            notes += notes_of.nearly_flat(decoded)
            memory = {} if learner.strategy is None else learner.strategy.memory
            kept = [samples.images.cpu().numpy() for samples in memory.values()]
            notes += notes_of.on_another_scale(kept, decoded)
            notes += notes_of.filled_up(paths, form)
            notes += notes_of.only_the_first(len(decoded.several.intersection(paths)))
            notes += notes_of.nearly_known_names(learner, named)
            if label is not None:
                notes += notes_of.folders_of_known_classes(learner, folder, label)
            else:
                notes += notes_of.classes_one_folder_deeper(learner, folder, good)
            if not learner.settings.channels:
                notes += notes_of.sizes_of_their_own(good, form)
            else:
                notes += notes_of.lost_to_the_form(paths, form)
            new = _unknown(learner, good, digests)
            notes += notes_of.contradictions(learner, good, digests, new)
            known = len(good) - len(new)
            moved = _moved_here(learner, folder, good, digests)
            notes += [f"{readable(place)} was moved to {folder}; that is remembered." for place in moved]
            if not len(new):
                if moved:
                    notes += self._given_up("")
                    # What `undo` would bring back stays: a new place is nothing to take back.
                    self.state.write(learner.files(), before=self.state.numbers()[0])
                return Outcome(known=known, skipped=skipped, notes=notes)
            rows = ChosenRows(decoded, torch.from_numpy(new))
            labels = [learner.label_called(good[at].label) for at in new]
            notes += notes_of.taken_for_another_class(learner, rows, labels)
            with learner.transaction():
                learner.settings = form.kept_in(learner.settings)
                incoming = learner.record(
                    rows,
                    labels,
                    [good[at].name for at in new],
                    digests[new],
                    [thumbnails[at] for at in new],
                    {"source": str(folder.resolve()), "label": label, "skipped": len(skipped)},
                )
                lesson = f"the learning of {shown(folder.resolve())}"
                lesson += "" if label is None else f" as '{readable(label)}'"
                notes += self._given_up(lesson)
                reports = self._taught(learner, incoming, (), lesson, notes)
                self.state.write(learner.files(), self.before)
        notes += notes_of.second_thoughts(learner) + notes_of.nothing_to_compare_with(learner)
        return Outcome(reports, known, skipped, notes=notes)

    def check(self, folder: Path | None, label: str | None, asked: Mapping[str, Any], image_size: int | None) -> None:
        """Refuse what :meth:`learn_folder` would refuse without looking at an image, where there is no folder too."""
        if folder is not None:
            self._files(folder, label, image_size)
        self._learner(asked, image_size)

    def apply_review(self, file: Path) -> Outcome:
        """Do what a person's marks ask for, and learn anew the classes they change."""
        marks = read_review(file)
        if not self.state.exists():
            raise InputError(f"there is no learner in {self.state.path} to review; learn a folder of images first.")
        with self.state.locked(), self._workplace():
            learner, notes = self._learner({}, None)
            with learner.transaction():
                review = Review(learner)
                for mark in marks:
                    review.apply(mark)
                incoming, unreachable = review.incoming()
                if not review.applied:
                    return Outcome(unreachable=unreachable, notes=notes)
                also = sorted(review.emptied)
                lesson = f"the review {shown(file.resolve())}"
                notes += self._given_up(lesson)
                reports = self._taught(learner, incoming, also, lesson, notes) if len(incoming.ids) or also else []
                self.state.write(learner.files())
        notes += notes_of.made_by_a_review(learner, review.made)
        notes += notes_of.too_many_right(learner) + notes_of.second_thoughts(learner)
        return Outcome(reports, marked=review.applied, unreachable=unreachable, notes=notes)

    def rename(self, old: str, new: str) -> list[str]:
        """Give a class another name; returns what else is to be said."""
        self.state.newest()  # says so where there is no learner
        with self.state.locked(), self._workplace():
            learner, notes = self._learner({}, None)
            learner.rename(learner.label_called(old), learner.label_called(given_name(new, "the new name")))
            notes += self._given_up("")
            self.state.write(learner.files())
        return notes

    def undo(self) -> tuple[Generation, Generation, list[str]]:
        """Take back the last step; returns the generation before, the one after, and what else is to be said."""
        self.state.newest()  # says so where there is no learner
        with self.state.locked(), self._workplace():
            notes = self._given_up("")
            return *self.state.undo(), notes

    def _files(self, folder: Path, label: str | None, image_size: int | None) -> list[ImageFile]:
        """The files to learn, before any of them is opened."""
        if image_size is not None and image_size**2 > MOST_PIXELS:
            raise InputError(f"--image-size {image_size} is too large; give at most {math.isqrt(MOST_PIXELS)} pixels.")
        if folder.is_dir() and folder.resolve() == self.state.path.resolve():
            raise InputError(f"STATE and DIR are both {folder}; give STATE a folder of its own, one that is new.")
        files = image_files(folder, label, apart_from=self.state.path)
        if not files:
            where = folder if label is not None else f"the class folders of {folder}"
            raise InputError(f"there is no file in {where}; give a folder that holds images.")
        return files

    def _learner(self, asked: Mapping[str, Any], image_size: int | None) -> tuple[FieldLearner, list[str]]:
        """The learner in STATE, or a new one; and what is to be said about it."""
        wanted = Settings(**asked)
        if not self.state.exists():
            return FieldLearner(wanted, device=self.device), []
        generation = self.state.newest()
        learner = FieldLearner.from_generation(generation, device=self.device)
        settings, what = learner.settings, f"the learner in {self.state.path}"
        if image_size is not None and image_size not in (settings.height, settings.width):
            raise InputError(
                f"{what} knows images of {settings.width}×{settings.height} pixels, not {image_size}; "
                "leave out --image-size or start another STATE."
            )
        for name in sorted(asked):
            ours, theirs = settings.chosen(name), replace(settings, **{name: asked[name]}).chosen(name)
            if ours != theirs:
                raise InputError(
                    f"{what} was made with {told_name(name)} {ours}, not {theirs}; leave the option out or start "
                    "another STATE."
                )
        return learner, [f"{said}; went on from generation {generation.number}." for said in generation.passed_over]

    def _form(self, learner: FieldLearner, files: Sequence[ImageFile], image_size: int | None) -> Form:
        settings = learner.settings
        if settings.channels:
            return Form.of(settings)
        largest = LARGEST_PRETRAINED_SIDE if settings.pretrained else LARGEST_SIDE
        return form_of(files, image_size, largest, settings.crop, self.on_progress)

    def _given_up(self, lesson: str) -> list[str]:
        """What is to be said about a lesson that another one ends."""
        unfinished = self.state.unfinished()
        if unfinished in (None, lesson):
            return []
        return [f"{unfinished} had not ended and was given up; repeat its command if it is still wanted."]

    def _taught(
        self, learner: FieldLearner, incoming: Incoming, also: Sequence[int], lesson: str, notes: list[str]
    ) -> list[ClassReport]:
        about: dict[str, str | int] = {"lesson": lesson, "generation": self.state.last_number()}
        key = lesson_key(learner, incoming, also)
        checkpoint = Checkpoint(self.state.checkpoint, key, self.checkpoint_seconds, about)
        reports = learner.learn(incoming, also, self.on_progress, checkpoint.resumed, checkpoint.save)
        if checkpoint.was_otherwise:
            notes.append(f"{lesson} had been stopped with other images or options, and started over.")
        return reports

    @contextlib.contextmanager
    def _workplace(self) -> Iterator[Path]:
        """A place for decoded images; `work` is cleared unless there is a lesson in it that can go on."""
        cache = self.state.work / "images"
        with told_as_unwritable(self.state.path):
            self.state.work.mkdir(exist_ok=True)
        try:
            yield cache
        finally:
            with contextlib.suppress(OSError):
                cache.unlink()
            if self.state.unfinished() is None:
                self.state.clear_work()


def _moved_here(
    learner: FieldLearner, folder: Path, files: Sequence[ImageFile], digests: NDArray[np.uint8]
) -> list[str]:
    """Folders most of whose images are here and none there, by name and pixels; from now on this is their place.

    What a folder was called may be another's name by now, as that of the one for what is new each week.
    """
    here = {(file.name, digest.tobytes()): file.path for file, digest in zip(files, digests, strict=True)}
    new = str(folder.resolve())
    away = {at: Path(batch["source"]) for at, batch in enumerate(learner.batches) if batch["source"] not in (None, new)}
    images, found_here = Counter[int](), dict[int, list[Path]]()
    for label, seen in zip(learner.labels, learner.seen, strict=True):
        for row in np.flatnonzero(np.isin(seen.batch, [*away])).tolist():
            images[int(seen.batch[row])] += 1
            name, digest = seen.files[row], seen.digest[row].tobytes()
            if path := here.get((name, digest)) or here.get((in_folder_called(label, name), digest)):
                found_here.setdefault(int(seen.batch[row]), []).append(path)
    found = {
        at
        for at, paths in found_here.items()
        if len(paths) > images[at] / 2
        and not any(_is_copy(away[at] / path.relative_to(folder), path) for path in paths)
    }
    places = {learner.batches[at]["source"]: None for at in sorted(found)}
    learner.batches = [{**b, "source": new} if at in found else b for at, b in enumerate(learner.batches)]
    return [*places]


def _is_copy(path: Path, other: Path) -> bool:
    """Whether a file is there and has the same content as another."""
    try:
        return filecmp.cmp(path, other, shallow=False)
    except OSError:
        return False


def _unknown(learner: FieldLearner, files: Sequence[ImageFile], digests: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Positions of the images that their class has not seen yet, each once."""
    labels = [learner.label_called(file.label) for file in files]
    first: dict[tuple[Label, bytes], int] = {}
    for at in learner.unseen(labels, digests):
        first.setdefault((labels[at], digests[at].tobytes()), at)
    return np.array([*first.values()], np.int64)
