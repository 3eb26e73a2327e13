"""A person's marks, applied to a learner.

Images that are marked right or as another class's enter that class's memory. Their pixels come from the memory or, for
what was thrown out, from the file they once came from, if it is still there and still the same.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError, unknown_name
from continual_crust.field.core import FieldLearner, Incoming
from continual_crust.field.folder import Form, class_name, image_files, in_folder_called
from continual_crust.field.inputs import Label
from continual_crust.field.review_file import Mark
from continual_crust.field.rows import ArrayRows
from continual_crust.field.seen import NO_MARK, OTHER, RIGHT, WRONG, Seen, digest_of, replaced


class Review:
    """Marks on their way into a learner's record, which changes only with :meth:`incoming`.

    Images are recognised by their pixels. One that was moved before is in the records of both its old and its new
    class, and a later mark on either of the two undoes the move.
    """

    def __init__(self, learner: FieldLearner) -> None:
        self._learner = learner
        self._names = {str(label): index for index, label in enumerate(learner.labels)}
        self._seen: dict[int, Seen] = {}
        self._rows: dict[int, dict[str, int]] = {}
        self._pixels: dict[int, dict[bytes, int]] = {}
        self._entering: dict[tuple[int, int], int | str] = {}
        """By class and row, the class whose memory the image is to enter: its index, or its name if it is new."""
        self._tried_again: set[tuple[int, int]] = set()
        """Of these, the ones a review wanted before and could not find."""
        self._said: dict[bytes, tuple[int | str, Mark]] = {}
        """By pixels, the class that these marks say an image is of, and the first of them."""
        self.applied = 0
        """Marks that said anything new."""
        self.made: list[Label] = []
        """Classes that were not known before."""
        self.emptied: set[int] = set()
        """Classes whose memory loses an image. From what is kept and said to be right there is nothing to learn."""

    def apply(self, mark: Mark) -> None:
        """Write one mark down, if it says anything new."""
        index = self._class(mark.label, mark)
        seen, row = self._record(index), self._row(index, mark)
        target = index if mark.new_label is None else self._target(mark.new_label, mark)
        if mark.mark == OTHER and target == index:
            raise InputError(f"{mark.where} moves {mark.file} to the class it is in; mend or remove the line.")
        if mark.mark != WRONG:
            said, before = self._said.setdefault(seen.digest[row].tobytes(), (target, mark))
            if said != target:
                raise InputError(
                    f"{before.where}, and {mark.where}, put the same image into two classes, "
                    "pixel by pixel; remove one."
                )
        was_moved = seen.mark[row] == OTHER
        elsewhere = dict(self._moved_to(index, row)) if was_moved or mark.mark != WRONG else {}
        if seen.mark[row] == mark.mark and (
            target in elsewhere if mark.mark == OTHER else not self._was_not_found(index, row)
        ):
            return
        if seen.mark[row] == mark.mark and not elsewhere and (index, row) not in self._entering:
            self._tried_again.add((index, row))
        else:
            self.applied += 1
        for other, there in elsewhere.items():
            if other == target:
                continue
            self._record(other).mark[there] = WRONG if mark.mark == WRONG else OTHER
            self.emptied.add(other)
        self._entering.pop((index, row), None)
        seen.mark[row] = mark.mark
        seen.score[row] = mark.mark == RIGHT
        if seen.kept[row] and mark.mark != RIGHT:
            self.emptied.add(index)
        if mark.mark == OTHER or (mark.mark == RIGHT and not seen.kept[row]):
            self._entering[index, row] = target

    def incoming(self) -> tuple[Incoming, list[tuple[str, str | None]]]:
        """The images that enter a class by these marks; and those that cannot be found, by name and former folder."""
        learner = self._learner
        found: dict[tuple[int, int], NDArray[np.uint8]] = {}
        unreachable: list[tuple[str, str | None]] = []
        folders: dict[int, dict[str, Path]] = {}
        for (index, row), target in self._entering.items():
            image = self._image(index, row, folders)
            if image is None:
                seen = self._record(index)
                unreachable.append((seen.names()[row], learner.batches[int(seen.batch[row])]["source"]))
                continue
            self.applied += (index, row) in self._tried_again
            if isinstance(target, str):
                target = self._names[target] if target in self._names else self._make(target)
            found[target, row if target == index else self._moved(index, row, target)] = image
        for index, seen in self._seen.items():
            seen.kept[:] = False
            if index in self._memory():
                kept = self._memory()[index].ids.cpu().numpy()
                seen.kept[kept[np.isin(seen.mark[kept], (NO_MARK, RIGHT))]] = True
            learner.seen = replaced(learner.seen, index, seen)
        images = np.array([*found.values()], np.uint8).reshape(-1, *learner.settings.image_shape)
        classes, ids = np.array([*found], np.int64).reshape(-1, 2).T
        return Incoming(ArrayRows(images), classes, ids), unreachable

    def _was_not_found(self, index: int, row: int) -> bool:
        """Whether an image was called right before and is not kept, although there is room for it."""
        seen, right = self._record(index), self._record(index).mark == RIGHT
        room = (seen.kept & right).sum() < self._learner.settings.memory_per_class
        return bool(right[row] and not seen.kept[row] and room) and (index, row) not in self._entering

    def _moved(self, index: int, row: int, target: int) -> int:
        """Enter an image into another class's record, unless that has seen it too; returns its row there."""
        seen, there = self._record(index), self._record(target)
        known = self._row_of(target, seen.digest[row].tobytes())
        if known is None:
            more = Seen.of([seen.files[row]], [seen.thumbnails[row]], seen.digest[row : row + 1], int(seen.batch[row]))
            known, there = len(there), there.extended(more)
            self._seen[target] = there
            self._pixels[target][seen.digest[row].tobytes()] = known
        there.mark[known], there.score[known] = RIGHT, 1
        return known

    def _moved_to(self, index: int, row: int) -> Iterator[tuple[int, int]]:
        """The other classes in which an image counts as right, each with its row there."""
        digest = self._record(index).digest[row].tobytes()
        for other in range(len(self._learner.labels)):
            there = None if other == index else self._row_of(other, digest)
            if there is not None and self._read(other).mark[there] == RIGHT:
                yield other, there

    def _row_of(self, index: int, digest: bytes) -> int | None:
        """The row of a class's record that has the image of these pixels, if there is one."""
        if index not in self._pixels:
            self._pixels[index] = {pixels.tobytes(): row for row, pixels in enumerate(self._read(index).digest)}
        return self._pixels[index].get(digest)

    def _image(self, index: int, row: int, folders: dict[int, dict[str, Path]]) -> NDArray[np.uint8] | None:
        """The pixels: from any class's memory if they are there, else from the file they once came from."""
        digest = self._record(index).digest[row].tobytes()
        for label, kept in self._memory().items():
            there = row if label == index else self._row_of(label, digest)
            place = [] if there is None else (kept.ids == there).nonzero().flatten().tolist()
            if place:
                return kept.images[place[0]].cpu().numpy()
        seen, settings = self._record(index), self._learner.settings
        batch = int(seen.batch[row])
        if batch not in folders:
            about = self._learner.batches[batch]
            folders[batch] = {}
            with contextlib.suppress(InputError):
                if about["source"] is not None:
                    files = image_files(Path(about["source"]), about["label"])
                    folders[batch] = {file.name: file.path for file in files}
        name = seen.files[row]
        path = folders[batch].get(name) or folders[batch].get(in_folder_called(self._learner.labels[index], name))
        if path is None:
            return None
        try:
            image = Form.of(settings).decoded([path])[0]
        except InputError:
            return None
        return image if np.array_equal(digest_of(image), seen.digest[row]) else None

    def _memory(self) -> dict[int, Samples]:
        assert self._learner.strategy is not None
        return self._learner.strategy.memory

    def _class(self, name: str, mark: Mark) -> int:
        if name not in self._names:
            raise InputError(f"{mark.where}: {unknown_name('class', name, self._names)}")
        return self._names[name]

    def _target(self, name: str, mark: Mark) -> int | str:
        """The class a mark moves to; by name if it is yet to be made, which is when an image of it is found."""
        if name not in self._names and not mark.may_be_new:
            unknown = unknown_name("class", name, self._names)
            raise InputError(f"{mark.where}: {unknown} If it is a new class, mark it as 'new' instead of 'other'.")
        if name not in self._names:
            name = str(self._learner.label_called(class_name(name)))  # where classes are numbers, 07 is 7
        return self._names.get(name, name)

    def _make(self, name: str) -> int:
        """A class of which nothing was seen yet."""
        learner, index = self._learner, len(self._learner.labels)
        learner.add_classes([learner.label_called(name)])
        self.made.append(learner.labels[index])
        self._names[name], self._seen[index] = index, Seen.nothing()
        return index

    def _row(self, index: int, mark: Mark) -> int:
        if index not in self._rows:
            self._rows[index] = {name: row for row, name in enumerate(self._read(index).names())}
        if mark.file not in self._rows[index]:
            raise InputError(
                f"{mark.where}: class '{mark.label}' never had an image '{mark.file}'; "
                "is this a review of another STATE?"
            )
        return self._rows[index][mark.file]

    def _read(self, index: int) -> Seen:
        """The class's record as it is by now, to be looked at only."""
        return self._seen[index] if index in self._seen else self._learner.seen[index]

    def _record(self, index: int) -> Seen:
        """The class's record, as a copy that may be changed."""
        if index not in self._seen:
            self._seen[index] = copy.deepcopy(self._learner.seen[index])
        return self._seen[index]
