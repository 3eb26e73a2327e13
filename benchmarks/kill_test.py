"""Kill a command with SIGKILL at many moments, repeat it, and compare the end with that of one that was never killed.

    python benchmarks/kill_test.py learn --kills 120 --out results/kill_learn.json
    python benchmarks/kill_test.py study --kills 120 --out results/kill_study.json
    python benchmarks/kill_test.py run --kills 120 --out results/kill_run.json

Half of the kills come after a random time; the others at a random one of the moments at which something is forced to
disk or renamed, just before or just after it. After each kill everything that is there must load. Then the same command
is repeated, and killed again at another moment, until the third attempt, which may end. All files must then be the
same, to the bit, as those of a command that was never disturbed; measured times alone may differ.

learn: from a learner of two classes, with a checkpoint after every epoch; a killed one must load as the old or the new
learner. study, run: two small runs on digits, and one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import mmap
import os
import random
import shutil
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from PIL import Image

from continual_crust.cli import app
from continual_crust.data import Noise, load_dataset
from continual_crust.errors import InputError
from continual_crust.field.core import FieldLearner
from continual_crust.field.session import Session
from continual_crust.field.state import StateFolder
from continual_crust.strategies import Training
from continual_crust.studies.config import RunConfig
from continual_crust.studies.result import versions
from continual_crust.studies.work import Workplace, work_on
from continual_crust.tensor_tree import unpack_tree
from continual_crust.writing import write_json

ASKED = {"phase1_epochs": 3, "phase2_epochs": 4, "memory_per_class": 8}
DURABLE = ("fsync", "rename", "replace")
"""Calls of the operating system that make something last."""


class Scene(ABC):
    """Something that is done to a folder, and what the folder becomes when nothing disturbs it."""

    stages: tuple[str, ...]
    """What is being done, from the start to the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.prepare()
        # In a process of its own, as in all that follows, so that timing and threads are the same.
        start = time.perf_counter()
        assert not in_child(lambda: self.work(self.fresh("undisturbed"))), "the undisturbed run was killed"
        self.seconds = time.perf_counter() - start
        self.after = self.content(root / "undisturbed")

    @abstractmethod
    def prepare(self) -> None:
        """Whatever has to be there first."""

    @abstractmethod
    def fresh(self, name: str) -> Path:
        """The folder as it is at the beginning."""

    @abstractmethod
    def work(self, folder: Path, note: Callable[[str], None] = lambda stage: None) -> None:
        """What may be killed; notes its stages."""

    @abstractmethod
    def content(self, folder: Path) -> dict[str, object]:
        """Everything that must be the same in the end."""

    @abstractmethod
    def loads(self, folder: Path) -> bool:
        """Whether everything that is there is whole."""

    @abstractmethod
    def leftovers(self, folder: Path) -> set[str]:
        """Files of a finished folder that should not be there."""


class LearnScene(Scene):
    """Images, and a learner of two classes that is taught a third."""

    stages = (
        "starting",
        "reading images",
        "training on everything",
        "training on what looks right",
        "judging",
        "training on what is kept",
        "looking at what is kept",
        "the end",
    )

    def __init__(self, root: Path, images: int = 60) -> None:
        self.images = images
        super().__init__(root)
        self.before = self.content(root / "two")

    def prepare(self) -> None:
        """Write the images and teach the first two classes."""
        root, images = self.root, self.images
        digits = load_dataset("digits")
        for digit in range(3):
            folder = root / ("new" if digit == 2 else f"old/{digit}")
            folder.mkdir(parents=True)
            own = digits.train_images[digits.train_labels == digit][:images, 0].numpy()
            for number, image in enumerate(own):
                Image.fromarray(image).save(folder / f"{number}.png")
        Session(StateFolder(root / "two"), "cpu").learn_folder(root / "old", None, ASKED)

    def fresh(self, name: str) -> Path:
        """A copy of the learner of two classes."""
        shutil.rmtree(self.root / name, ignore_errors=True)
        shutil.copytree(self.root / "two", self.root / name)
        return self.root / name

    def work(self, folder: Path, note: Callable[[str], None] = lambda stage: None) -> None:
        """Teach it the third class, as the command line does."""
        session = Session(
            StateFolder(folder), "cpu", on_progress=lambda what, done, total: note(what), checkpoint_seconds=0
        )
        session.learn_folder(self.root / "new", "new", {})
        note("the end")

    def content(self, folder: Path) -> dict[str, object]:
        """All files of the newest generation, after it was loaded whole."""
        generation = StateFolder(folder).newest()
        assert not generation.passed_over, generation.passed_over
        FieldLearner.from_generation(generation, device="cpu")
        return {path.name: path.read_bytes() for path in sorted(generation.path.iterdir())}

    def loads(self, folder: Path) -> bool:
        """Whether the state is the old or the new learner, whole."""
        try:
            return self.content(folder) in (self.before, self.after)
        except (InputError, AssertionError):
            return False

    def leftovers(self, folder: Path) -> set[str]:
        """Anything but the generations and the lock."""
        return {path.name for path in folder.iterdir()} - {"generations", "lock"}


class StudyScene(Scene):
    """Two small runs, one after the other."""

    stages = ("starting", "learning", "the end")

    def prepare(self) -> None:
        """The data is in memory before anything is killed."""
        load_dataset("digits")
        training = Training(phase1_epochs=1, phase2_epochs=1, memory_per_class=5)
        self.configs = [
            RunConfig("digits", method, "simple_cnn", Noise.parse("label:0.4"), 0, training)
            for method in ("replay", "crust")
        ]

    def fresh(self, name: str) -> Path:
        """An empty folder."""
        shutil.rmtree(self.root / name, ignore_errors=True)
        (self.root / name / "study").mkdir(parents=True)
        return self.root / name

    def work(self, folder: Path, note: Callable[[str], None] = lambda stage: None) -> None:
        """What every engine does."""
        for config in self.configs:
            work_on(config, Workplace(folder / "study", device="cpu"), lambda run, learned, count: note("learning"))
        note("the end")

    def content(self, folder: Path) -> dict[str, object]:
        """Results without their times, memories and weights."""
        readers = {".json": _without_times, ".yaml": Path.read_bytes, ".npz": Path.read_bytes, ".safetensors": _weights}
        return {
            str(path.relative_to(folder)): readers[path.suffix](path)
            for path in sorted(folder.rglob("*"))
            if path.name in ("result.json", "config.yaml", "memory.npz", "learner.safetensors")
        }

    def loads(self, folder: Path) -> bool:
        """Whether every file that counts is there whole or not at all."""
        return all(self.after.get(name) == content for name, content in self.content(folder).items())

    def leftovers(self, folder: Path) -> set[str]:
        """Anything beside a run's own files."""
        own = {"result.json", "config.yaml", "memory.npz", "lock"}
        return {path.name for path in folder.glob("study/runs/*/*")} - own


class RunScene(StudyScene):
    """`continual-crust run`."""

    def work(self, folder: Path, note: Callable[[str], None] = lambda stage: None) -> None:
        """One run by its command."""
        note("learning")
        out = folder / "run"
        asked = "--dataset digits --method crust --noise label:0.4 -m 1 -n 1 --memory 5 --device cpu --out"
        if not (out / "result.json").exists():  # a person would see that it is done, and not repeat it
            with contextlib.redirect_stdout(io.StringIO()):
                app(["run", *asked.split(), str(out)], standalone_mode=False)
        note("the end")

    def leftovers(self, folder: Path) -> set[str]:
        """Anything beside the run's own files."""
        own = {"result.json", "config.yaml", "learner.safetensors", "figures", "lock"}
        return {path.name for path in folder.glob("run/*")} - own


def _weights(path: Path) -> object:
    weights = unpack_tree(path.read_bytes())["network"]["model"]
    return {name: value.tolist() for name, value in weights.items()}


SCENES: dict[str, type[Scene]] = {"learn": LearnScene, "study": StudyScene, "run": RunScene}


def _without_times(path: Path) -> object:
    return {key: value for key, value in json.loads(path.read_text()).items() if "seconds" not in key}


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
        stage[0] = scene.stages.index(what)

    for _ in range(2):
        stage[0] = 0
        by_time = random_numbers.random() < 0.5
        seconds = random_numbers.uniform(0, scene.seconds) if by_time else None
        call = None if by_time else random_numbers.randrange(most_calls)
        if in_child(lambda: scene.work(state, note), seconds, call):
            tally.struck[scene.stages[stage[0]]] += 1
        tally.unloadable += not scene.loads(state)
    assert not in_child(lambda: scene.work(state, note)), "nobody killed this one"
    tally.different_ends += scene.content(state) != scene.after
    tally.left_behind += bool(scene.leftovers(state))


def calls_of(scene: Scene) -> int:
    """How many moments there are for `durable_call`."""
    counted = mmap.mmap(-1, 8)

    def count() -> None:
        calls = _die_at(-1)
        scene.work(scene.fresh("counted"))
        counted[:8] = calls().to_bytes(8, "little")

    assert not in_child(count), "nobody killed this one"
    return int.from_bytes(counted[:8], "little")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=SCENES)
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    random_numbers, tally, rounds = random.Random(options.seed), Tally(), 0
    with tempfile.TemporaryDirectory() as folder:
        scene = SCENES[options.what](Path(folder))
        moments = calls_of(scene)
        while tally.struck.total() < options.kills:
            one_round(scene, random_numbers, moments, tally)
            rounds += 1
            print(f"{tally.struck.total()} kills in {rounds} rounds", flush=True)
    result = {
        "command": f"python benchmarks/kill_test.py {options.what} --kills {options.kills} --seed {options.seed}",
        "kills": tally.struck.total(),
        "rounds": rounds,
        "states_that_did_not_load": tally.unloadable,
        "ends_that_differed": tally.different_ends,
        "rounds_that_left_something_behind": tally.left_behind,
        "kills_by_stage": {stage: tally.struck[stage] for stage in scene.stages},
        "durable_moments": moments,
        "versions": versions(),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.out, result)


if __name__ == "__main__":
    main()
