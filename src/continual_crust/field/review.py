"""A person's marks, applied to a learner.

Images that are marked right or as another class's enter that class's memory. Their pixels come from the memory or, for
what was thrown out, from the file they once came from, if it is still there and still the same.
"""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError, unknown_name
from continual_crust.field.core import FieldLearner, Incoming
from continual_crust.field.folder import Form, image_files
from continual_crust.field.review_file import Mark
from continual_crust.field.rows import ArrayRows, Rows, StackedRows
from continual_crust.field.seen import NO_MARK, OTHER, RIGHT, Seen, digest_of


class Review:
    """Marks on their way into a learner's record, which changes only with :meth:`incoming`."""

    def __init__(self, learner: FieldLearner) -> None:
        self._learner = learner
        self._names = {str(label): index for index, label in enumerate(learner.labels)}
        self._seen: dict[int, Seen] = {}
        self._rows: dict[int, dict[str, int]] = {}
        self._moving: list[tuple[int, int, int]] = []
        self.applied = 0
        self.emptied: set[int] = set()
        """Classes whose memory loses an image."""

    def apply(self, mark: Mark) -> None:
        """Write one mark down, if it says anything new."""
        index = self._class(mark.label)
        seen, row = self._record(index), self._row(index, mark)
        if seen.mark[row] == mark.mark:
            return
        target = index if mark.new_label is None else self._class(mark.new_label)
        self.applied += 1
        seen.mark[row] = mark.mark
        if mark.mark == RIGHT:
            seen.score[row] = 1
            self.emptied |= {index} if seen.kept[row] else set()
        elif seen.kept[row]:
            self.emptied.add(index)
        if mark.mark == OTHER or (mark.mark == RIGHT and not seen.kept[row]):
            self._moving.append((index, row, target))

    def incoming(self) -> tuple[Incoming, list[str]]:
        """The images that enter a class by these marks, and the names of those that cannot be found any more."""
        learner = self._learner
        piles: list[Rows] = []
        classes: list[int] = []
        ids: list[int] = []
        unreachable = []
        folders: dict[int, dict[str, Path]] = {}
        for index, row, target in self._moving:
            seen = self._record(index)
            image = self._image(index, row, folders)
            if image is None:
                unreachable.append(seen.names()[row])
                continue
            if target != index:
                row = self._moved(index, row, target)
            piles.append(ArrayRows(image[None]))
            classes.append(target)
            ids.append(row)
        for index, seen in self._seen.items():
            kept = self._memory()[index].ids.cpu().numpy()
            seen.kept[:] = False
            seen.kept[kept[np.isin(seen.mark[kept], (NO_MARK, RIGHT))]] = True
            learner.seen = [*learner.seen[:index], seen, *learner.seen[index + 1 :]]
        shape = learner.settings.image_shape
        rows = StackedRows(piles) if piles else ArrayRows(np.zeros((0, *shape), np.uint8))
        return Incoming(rows, np.array(classes, np.int64), np.array(ids, np.int64)), unreachable

    def _moved(self, index: int, row: int, target: int) -> int:
        """Enter an image into another class's record; returns its row there."""
        seen, there = self._record(index), self._record(target)
        more = Seen.of([seen.files[row]], [seen.thumbnails[row]], seen.digest[row : row + 1], int(seen.batch[row]))
        more.mark[0] = RIGHT
        self._seen[target] = there.extended(more)
        return len(there)

    def _image(self, index: int, row: int, folders: dict[int, dict[str, Path]]) -> NDArray[np.uint8] | None:
        """The pixels: from the memory if they are there, else from the file they once came from."""
        kept = self._memory()[index].to("cpu")
        place = (kept.ids == row).nonzero().flatten()
        if len(place):
            return kept.images[int(place[0])].numpy()
        seen, settings = self._record(index), self._learner.settings
        batch = int(seen.batch[row])
        if batch not in folders:
            about = self._learner.batches[batch]
            folders[batch] = {}
            with contextlib.suppress(InputError):
                if about["source"] is not None:
                    files = image_files(Path(about["source"]), about["label"])
                    folders[batch] = {file.name: file.path for file in files}
        path = folders[batch].get(seen.files[row])
        if path is None:
            return None
        form = Form(settings.channels, settings.height, settings.width, settings.crop)
        try:
            image = form.decoded([path])[0]
        except InputError:
            return None
        return image if np.array_equal(digest_of(image), seen.digest[row]) else None

    def _memory(self) -> dict[int, Samples]:
        assert self._learner.strategy is not None
        return self._learner.strategy.memory

    def _class(self, name: str) -> int:
        if name not in self._names:
            raise unknown_name("class", name, self._names)
        return self._names[name]

    def _row(self, index: int, mark: Mark) -> int:
        if index not in self._rows:
            self._rows[index] = {name: row for row, name in enumerate(self._record(index).names())}
        if mark.file not in self._rows[index]:
            raise InputError(
                f"class '{mark.label}' never had an image '{mark.file}'; is this a review of another STATE?"
            )
        return self._rows[index][mark.file]

    def _record(self, index: int) -> Seen:
        """The class's record, as a copy that may be changed."""
        if index not in self._seen:
            self._seen[index] = copy.deepcopy(self._learner.seen[index])
        return self._seen[index]
