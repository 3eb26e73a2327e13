"""How far a lesson has come, in a file, so that it can go on after it was killed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from continual_crust.field.core import FieldLearner, Incoming
from continual_crust.field.persistence import (
    lesson_from,
    lesson_numbers,
    lesson_tensors,
    network_tensors,
    restore_network,
)
from continual_crust.field.state import told_as_unwritable
from continual_crust.field.strategy import FieldCrust, Lesson
from continual_crust.field.tensor_file import NotATensorFile, pack, unpack
from continual_crust.studies.result import write_atomically

_PREFIX = "lesson."


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
    """

    def __init__(self, path: Path, key: str, every: float) -> None:
        self._path, self._key, self._every = path, key, every
        self._saved = time.monotonic()

    def save(self, strategy: FieldCrust, lesson: Lesson) -> None:
        """Write down where a lesson stands, if it is time to."""
        if time.monotonic() - self._saved < self._every:
            return
        about = json.dumps({"key": self._key, **lesson_numbers(lesson)}).encode()
        parts = lesson_tensors(lesson) | {f"optimizer.{k}": v for k, v in strategy.optimizer_state().items()}
        tensors = network_tensors(strategy) | {_PREFIX + name: value for name, value in parts.items()}
        tensors["about"] = torch.frombuffer(bytearray(about), dtype=torch.uint8)
        with told_as_unwritable(self._path.parent.parent):
            write_atomically(self._path, pack(tensors))
        self._saved = time.monotonic()

    def resumed(self, strategy: FieldCrust) -> Lesson:
        """Bring a strategy and its lesson to where they stood; to the beginning if nothing fitting was saved."""
        try:
            tensors = unpack(self._path.read_bytes())
            about = json.loads(tensors["about"].numpy().tobytes())
            if about["key"] != self._key:
                return Lesson()
            own = {name.removeprefix(_PREFIX): part for name, part in tensors.items() if name.startswith(_PREFIX)}
            lesson = lesson_from(own, about)
            restore_network(strategy, tensors)
        except (OSError, NotATensorFile, KeyError, ValueError, TypeError):
            # Nothing of it is needed: the lesson starts over.
            return Lesson()
        return lesson


def lesson_key(learner: FieldLearner, incoming: Incoming, also: Sequence[int]) -> str:
    """Names a lesson: the learner it starts from, and every image it is about."""
    hashed = hashlib.sha256(json.dumps([learner.settings.as_dict(), *also]).encode())
    if learner.strategy is not None:
        hashed.update(pack(network_tensors(learner.strategy)))
    for index, row in zip(incoming.classes.tolist(), incoming.ids.tolist(), strict=True):
        hashed.update(f"{index} {row} ".encode() + learner.seen[index].digest[row].tobytes())
    return hashed.hexdigest()
