"""Kill `learn` with SIGKILL at many moments, repeat it, and compare the end with that of one that was never killed.

    python benchmarks/kill_test.py --kills 120 --out results/kill_test.json

Each round starts from a learner of two classes and teaches it a third, with a checkpoint after every epoch. Half of the
kills come after a random time; the others at a random one of the moments at which something is forced to disk or
renamed, just before or just after it. After each kill the state must load as the old or the new learner. Then the same
command is repeated, and killed again at another moment, until the third attempt, which may end. All files must then
be the same, to the bit, as those of a learner that was never disturbed.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from PIL import Image

from continual_crust.data import load_dataset
from continual_crust.errors import InputError
from continual_crust.field.core import FieldLearner
from continual_crust.field.session import Session
from continual_crust.field.state import StateFolder
from continual_crust.studies.result import versions, write_atomically

ASKED = {"phase1_epochs": 3, "phase2_epochs": 4, "memory_per_class": 8}
STAGES = ("starting", "reading images", "training on everything", "judging", "training on what is kept", "the end")
DURABLE = ("fsync", "rename", "replace")
"""Calls of the operating system that make something last."""


class Scene:
    """Images, a learner of two classes, and what it becomes when nothing disturbs it."""

    def __init__(self, root: Path, images: int = 60) -> None:
        self.root = root
        digits = load_dataset("digits")
        for digit in range(3):
            folder = root / ("new" if digit == 2 else f"old/{digit}")
            folder.mkdir(parents=True)
            own = digits.train_images[digits.train_labels == digit][:images, 0].numpy()
            for number, image in enumerate(own):
                Image.fromarray(image).save(folder / f"{number}.png")
        Session(StateFolder(root / "two"), "cpu").learn_folder(root / "old", None, ASKED)
        # In a process of its own, as in all that follows, so that timing and threads are the same.
        start = time.perf_counter()
        assert not in_child(lambda: self.learn(self.fresh("undisturbed"))), "the undisturbed run was killed"
        self.seconds = time.perf_counter() - start
        self.before, self.after = self.content(root / "two"), self.content(root / "undisturbed")

    def fresh(self, name: str) -> Path:
        """A copy of the learner of two classes."""
        shutil.rmtree(self.root / name, ignore_errors=True)
        shutil.copytree(self.root / "two", self.root / name)
        return self.root / name

    def learn(self, state: Path, note: Callable[[str], None] = lambda stage: None) -> None:
        """Teach it the third class, as the command line does."""
        session = Session(
            StateFolder(state), "cpu", on_progress=lambda what, done, total: note(what), checkpoint_seconds=0
        )
        session.learn_folder(self.root / "new", "new", {})
        note("the end")

    @staticmethod
    def content(state: Path) -> dict[str, bytes]:
        """All files of the newest generation, after it was loaded whole."""
        generation = StateFolder(state).newest()
        assert not generation.passed_over, generation.passed_over
        FieldLearner.from_generation(generation, device="cpu")
        return {path.name: path.read_bytes() for path in sorted(generation.path.iterdir())}

    def loads(self, state: Path) -> bool:
        """Whether the state is the old or the new learner, whole."""
        try:
            return self.content(state) in (self.before, self.after)
        except (InputError, AssertionError):
            return False


def in_child(work: Callable[[], None], seconds: float | None = None, durable_call: int | None = None) -> bool:
    """Do something in a process of its own, killing it in time; tells whether it was.

    Parameters
    ----------
    work
        What to do.
    seconds
        Kill it from outside after this time.
    durable_call
        Kill it from inside at this one of the calls that force something to disk or rename it, counted from 0 and
        twice each: just before and just after.
    """
    process = os.fork()
    if process == 0:
        try:
            if durable_call is not None:
                _die_at(durable_call)
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return _was_killed(status)
            time.sleep(0.002)
        os.kill(process, signal.SIGKILL)
    return _was_killed(os.waitpid(process, 0)[1])


def _was_killed(status: int) -> bool:
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "learning failed"
    return os.WIFSIGNALED(status)


def _die_at(moment: int) -> Callable[[], int]:
    """Make this process kill itself at a moment; tells how many there have been."""
    calls = 0

    def wrapped(original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal calls
            if calls == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **options)
            if calls + 1 == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 2
            return result

        return call

    for name in DURABLE:
        setattr(os, name, wrapped(getattr(os, name)))
    return lambda: calls


@dataclass
class Tally:
    """What became of the kills."""

    struck: Counter[str] = field(default_factory=Counter)
    """In which stage each came."""
    unloadable: int = 0
    different_ends: int = 0
    left_behind: int = 0


def one_round(scene: Scene, random_numbers: random.Random, most_calls: int, tally: Tally) -> None:
    """Kill, check, repeat, compare."""
    state, stage = scene.fresh("killed"), mmap.mmap(-1, 1)

    def note(what: str) -> None:
        stage[0] = STAGES.index(what)

    for _ in range(2):
        stage[0] = 0
        by_time = random_numbers.random() < 0.5
        seconds = random_numbers.uniform(0, scene.seconds) if by_time else None
        call = None if by_time else random_numbers.randrange(most_calls)
        if in_child(lambda: scene.learn(state, note), seconds, call):
            tally.struck[STAGES[stage[0]]] += 1
        tally.unloadable += not scene.loads(state)
    assert not in_child(lambda: scene.learn(state, note)), "nobody killed this one"
    tally.different_ends += scene.content(state) != scene.after
    tally.left_behind += {path.name for path in state.iterdir()} != {"generations", "lock"}


def calls_of(scene: Scene) -> int:
    """How many moments there are for `durable_call`."""
    counted = mmap.mmap(-1, 8)

    def count() -> None:
        calls = _die_at(-1)
        scene.learn(scene.fresh("counted"))
        counted[:8] = calls().to_bytes(8, "little")

    assert not in_child(count), "nobody killed this one"
    return int.from_bytes(counted[:8], "little")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/kill_test.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    random_numbers, tally, rounds = random.Random(options.seed), Tally(), 0
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        moments = calls_of(scene)
        while tally.struck.total() < options.kills:
            one_round(scene, random_numbers, moments, tally)
            rounds += 1
            print(f"{tally.struck.total()} kills in {rounds} rounds", flush=True)
    result = {
        "command": f"python benchmarks/kill_test.py --kills {options.kills} --seed {options.seed}",
        "kills": tally.struck.total(),
        "rounds": rounds,
        "states_that_did_not_load": tally.unloadable,
        "ends_that_differed": tally.different_ends,
        "rounds_that_left_something_behind": tally.left_behind,
        "kills_by_stage": {stage: tally.struck[stage] for stage in STAGES},
        "durable_moments": moments,
        "versions": versions(),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
