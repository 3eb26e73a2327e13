"""How far a lesson has come, in a file, so that it can go on after it was killed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from continual_crust.field.core import FieldLearner, Incoming
from continual_crust.field.lesson import Lesson
from continual_crust.field.persistence import (
    lesson_from,
    lesson_numbers,
    lesson_tensors,
    network_tensors,
    restore_network,
)
from continual_crust.field.state import told_as_unwritable
from continual_crust.field.strategy import FieldSift
from continual_crust.tensor_file import NotATensorFile, pack
from continual_crust.tensor_tree import pack_tree, unpack_tree
from continual_crust.writing import write_atomically


class Checkpoint:
    """The file.

    Parameters
    ----------
    path
        Where it is.
    key
        Names the lesson; a file of another lesson is not used.
    every
        Seconds between two savings, at least.
    about
        What `StateFolder.unfinished` needs: the lesson in words, and the number of the generation it began from.
    """

    def __init__(self, path: Path, key: str, every: float, about: Mapping[str, str | int] | None = None) -> None:
        self._path, self._key, self._every, self._about = path, key, every, about
        self._saved = time.monotonic()
        self.was_otherwise = False
        """Whether :meth:`resumed` found what the same words name and is not the same: other options or images."""

    def save(self, strategy: FieldSift, lesson: Lesson) -> None:
        """Write down where a lesson stands, if it is time to."""
        if time.monotonic() - self._saved < self._every:
            return
        content = {
            "key": self._key,
            "about": self._about,
            "network": network_tensors(strategy),
            "lesson": lesson_tensors(lesson) | {f"optimizer.{k}": v for k, v in strategy.optimizer_state().items()},
            "numbers": lesson_numbers(lesson),
        }
        with told_as_unwritable(self._path.parent.parent):
            write_atomically(self._path, pack_tree(content))
        self._saved = time.monotonic()

    def resumed(self, strategy: FieldSift) -> Lesson:
        """Bring a strategy and its lesson to where they stood; to the beginning if nothing fitting was saved."""
        try:
            content = unpack_tree(self._path.read_bytes())
            if content["key"] != self._key:
                self.was_otherwise = content["about"] == self._about
                return Lesson()
            lesson = lesson_from(content["lesson"], content["numbers"])
            restore_network(strategy, content["network"])
        except (OSError, NotATensorFile, KeyError, ValueError, TypeError, AttributeError):
            # Nothing of it is needed: the lesson starts over.
            return Lesson()
        return lesson


def lesson_key(learner: FieldLearner, incoming: Incoming, also: Sequence[int]) -> str:
    """Names a lesson: the learner it starts from, every image it is about, and what people have said."""
    hashed = hashlib.sha256(json.dumps([FieldSift.name, learner.settings.as_dict(), *also]).encode())
    if learner.strategy is not None:
        hashed.update(pack(network_tensors(learner.strategy)))
    for seen in learner.seen:  # another review may be about the same classes, with other images of them left
        hashed.update(seen.mark.tobytes())
    for index, row in zip(incoming.classes.tolist(), incoming.ids.tolist(), strict=True):
        hashed.update(f"{index} {row} ".encode() + learner.seen[index].digest[row].tobytes())
    return hashed.hexdigest()
