"""A study's folder: which runs are done, under way, or still to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import filelock

from continual_crust.errors import InputError, told_if_unwritable
from continual_crust.studies.config import RunConfig
from continual_crust.studies.finished import wrong_with
from continual_crust.studies.result import RunResult
from continual_crust.studies.study import Study, run_id
from continual_crust.studies.study_file import parse_study
from continual_crust.writing import UNFINISHED, write_atomically


@dataclass(frozen=True)
class Runs:
    """The folders ``runs/<run id>/``, each with ``config.yaml`` and, when it is finished, ``result.json``."""

    path: Path
    """The study's folder."""

    def run_folder(self, config: RunConfig) -> Path:
        """Where a run belongs."""
        return self.path / "runs" / run_id(config)

    def finished(self, config: RunConfig) -> RunResult | None:
        """The result of a run that is done. One that is damaged or another's counts as not done, and is made again."""
        try:
            result = RunResult.read(self.run_folder(config) / "result.json")
        except InputError:
            return None
        return result if wrong_with(result, config) is None else None

    def done_next_door(self, config: RunConfig, data: str = "") -> Path | None:
        """The folder of the same run, on the same data, in a neighbouring study, if one has finished it."""
        for neighbour in self.path.parent.iterdir() if self.path.parent.is_dir() else ():
            source = Runs(neighbour).run_folder(config)
            there = neighbour != self.path and (source / "result.json").is_file()
            result = Runs(neighbour).finished(config) if there else None
            if result is not None and result.is_of(data):
                return source
        return None

    def adopt(self, config: RunConfig, data: str = "") -> bool:
        """Take over the same run, on the same data, from a neighbouring study, if one has finished it."""
        source, target = self.done_next_door(config, data), self.run_folder(config)
        if source is None:
            return False
        target.mkdir(parents=True, exist_ok=True)
        # The result last: it is what makes a run finished.
        for name in ("config.yaml", "memory.npz", "result.json"):
            if (source / name).is_file():
                write_atomically(target / name, (source / name).read_bytes())
        return True


@dataclass(frozen=True)
class StudyFolder(Runs):
    """A study's folder: ``study.yaml`` beside the runs."""

    study: Study

    @classmethod
    def create(cls, path: Path, study: Study, text: str) -> StudyFolder:
        """Make or open the folder of a study. Another study's folder is refused; its own may have been edited."""
        known = path / "study.yaml"
        if known.exists() and cls.open(path).study.id != study.id:
            raise InputError(f"{path} is the folder of study '{cls.open(path).study.id}'; choose another --out.")
        with told_if_unwritable(path):
            (path / "runs").mkdir(parents=True, exist_ok=True)
            write_atomically(known, text)
        return cls(path, study)

    def left_out(self) -> int:
        """How many finished runs lie here that the study does not ask for."""
        asked = {run_id(config) for config in self.study.runs()}
        return sum(path.parent.name not in asked for path in self.path.glob("runs/*/result.json"))

    @classmethod
    def open(cls, path: Path) -> StudyFolder:
        """An existing folder."""
        file = path / "study.yaml"
        try:
            return cls(path, parse_study(file.read_text(encoding="utf-8"), str(file)))
        except (OSError, UnicodeDecodeError):
            raise InputError(f"there is no readable {file}; give the folder of a study.") from None


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Try to be the only process that works on a run; yields whether that succeeded.

    The operating system holds the claim, so it ends with the process, however that ends. Folders that were made for it
    and in which nothing came to lie go again.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / "lock", blocking=False)
        lock.acquire()
    except filelock.Timeout:
        yield False
        return
    except OSError as error:
        raise InputError(f"cannot write to {folder} ({error.strerror}); choose another --out.") from None
    try:
        for unfinished in folder.glob(f".*{UNFINISHED}"):  # left by a process that was killed as it wrote
            unfinished.unlink()
        yield True
    finally:
        with suppress(OSError):
            if [path.name for path in folder.iterdir()] == ["lock"]:
                (folder / "lock").unlink()
                for path in made:
                    path.rmdir()
        lock.release()
