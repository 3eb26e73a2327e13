"""The folder STATE, in which a learner lives between commands.

::

    STATE/
      lock                        held by whoever learns; the operating system lets go of it with the process
      generations/000007/         the learner as the last command left it
        SHA256SUMS                checksums of all other files, as `sha256sum --check` reads them
        manifest.json             what it is: settings, classes, batches (see `continual_crust.field.generation`)
        learner.safetensors       weights, normalisation, state of the random generators
        memory.safetensors        the coresets: images, labels, ids, weights
        seen-00000.safetensors    every image ever given as class 0: see `continual_crust.field.seen`
        seen-00001.safetensors    … and so on for each class
      generations/000006/         the one before, for the day the newest is damaged
      work/                       of a `learn` under way: decoded images and how far training has come; it may be
                                  deleted at any time, and then that `learn` starts over

A folder that holds anything else, and no learner, is not taken for STATE, and nothing is removed but files named here.

A generation is written beside the others under a name that starts with a dot, forced to disk, and then renamed: it is
there whole or not at all. The newest whose files match their checksums is *the* state; one that does not match is
passed over, with a sentence about it. Only plain numbers, text and JSON are read from any of these files, never a
pickle (`continual_crust.tensor_file` says why in this layout). The same learning gives the same bytes in every file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from continual_crust.data.folder import visible
from continual_crust.errors import InputError
from continual_crust.field.generation import SUMS, Damaged, Generation
from continual_crust.tensor_file import NotATensorFile
from continual_crust.tensor_tree import unpack_tree
from continual_crust.writing import UNFINISHED

NOT_ENDED = "has not ended; if it was stopped, repeat its command to go on"
_NUMBER = re.compile(r"\d{6,12}")


@dataclass(frozen=True)
class StateFolder:
    """The folder; nothing is read or made before it is asked for."""

    path: Path

    @property
    def work(self) -> Path:
        """Where an unfinished `learn` keeps what it has done so far."""
        return self.path / "work"

    @property
    def checkpoint(self) -> Path:
        """How far an unfinished `learn` has come."""
        return self.work / "checkpoint.safetensors"

    def unfinished(self) -> str | None:
        """In words, the lesson that began after the newest generation and did not end, if any of it was saved."""
        try:
            about = unpack_tree(self.checkpoint.read_bytes())["about"]
            return str(about["lesson"]) if about["generation"] == self.last_number() else None
        except (OSError, NotATensorFile, KeyError, TypeError):
            return None

    def last_number(self) -> int:
        """The number of the newest generation, good or damaged; 0 where there is none."""
        return max(self.numbers(), default=0)

    def numbers(self) -> list[int]:
        """The numbers of all generations there are, good or damaged, rising."""
        try:
            entries = list((self.path / "generations").iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise InputError(f"{self.path} cannot be read ({error.strerror}); check its permissions.") from None
        return sorted(int(entry.name) for entry in entries if _NUMBER.fullmatch(entry.name))

    def exists(self) -> bool:
        """Whether anything was ever learned here."""
        return bool(self.numbers())

    def newest(self) -> Generation:
        """The newest generation that is as it was written."""
        passed_over: list[str] = []
        for number in reversed(self.numbers()):
            path = self._place(number)
            try:
                generation = Generation.read(path)
            except Damaged as error:
                passed_over.append(f"generation {number} in {self.path} is damaged ({error})")
                continue
            return Generation(generation.path, generation.manifest, generation.checksums, tuple(passed_over))
        if passed_over:
            raise InputError(f"no generation in {self.path} is whole: {passed_over[0]}; restore it from a copy.")
        if lesson := self.unfinished():
            raise InputError(f"there is no learner in {self.path} yet: {lesson} {NOT_ENDED}.")
        command = f"continual-crust learn {shlex.quote(str(self.path))} DIR"
        raise InputError(f"there is no learner in {self.path}; make one with: {command}.")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that changes this folder, which is made where it is missing."""
        place = self.path / "lock"
        with told_as_unwritable(self.path):
            made, made_lock = not self.path.exists(), not place.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_other_things()
            lock = filelock.FileLock(place, blocking=False)
            try:
                lock.acquire()
            except filelock.Timeout:
                raise InputError(f"another process is learning into {self.path}; wait until it is done.") from None
        try:
            yield
        finally:
            if made_lock and not self.exists():
                self._unmake(made)
            lock.release()

    def _refuse_other_things(self) -> None:
        """A folder of somebody else's is left alone. What a first `learn` that was killed leaves has a lock in it."""
        names, lock = {entry.name for entry in visible(self.path)}, self.path / "lock"
        left_by_learn = names <= {"lock", "work", "generations"} and lock.is_file() and not lock.stat().st_size
        if names and not left_by_learn and not self.exists() and self.unfinished() is None:
            raise InputError(
                f"{self.path} is a folder of other things; give STATE a new folder. Are STATE and DIR swapped?"
            )

    def clear_work(self) -> None:
        """Remove what a lesson leaves in `work`, and that folder if nothing else is in it."""
        unfinished = self.work.glob(f".{self.checkpoint.name}.*{UNFINISHED}")
        with contextlib.suppress(OSError):
            for path in (self.checkpoint, *unfinished):
                path.unlink(missing_ok=True)
            self.work.rmdir()

    def _unmake(self, made: bool) -> None:
        """Take back a folder in which nothing came to be; whatever else is in it stays."""
        with contextlib.suppress(OSError):
            (self.path / "generations").rmdir()
        if not self.work.exists():
            (self.path / "lock").unlink(missing_ok=True)
            if made:
                with contextlib.suppress(OSError):
                    self.path.rmdir()

    def write(self, files: Mapping[str, bytes], before: int | None = None) -> Generation:
        """Add a generation, as a whole or not at all, and forget all others but one.

        The caller holds the lock. `files` are by name, ``manifest.json`` among them. The one that stays is the last
        good one, or the generation `before` it, if that is asked for and still there.
        """
        numbers = self.numbers()
        number = self.last_number() + 1
        keep = {number}
        if numbers:
            keep.add(before if before is not None and before in numbers else self.newest().number)
        place = self._place(number)
        partial = place.with_name(f".{place.name}.partial")
        with told_as_unwritable(self.path):
            shutil.rmtree(partial, ignore_errors=True)
            try:
                partial.mkdir(parents=True)
                sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
                for name, content in files.items():
                    _write_through(partial / name, content)
                _write_through(partial / SUMS, "".join(f"{sums[name]}  {name}\n" for name in sums).encode())
                _sync_folder(partial)
                os.rename(partial, place)
                _sync_folder(place.parent)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        for old in set(numbers) - keep:
            # What cannot be deleted does no harm: a newer generation is there.
            shutil.rmtree(self._place(old), ignore_errors=True)
        return Generation.read(place)

    def undo(self) -> tuple[Generation, Generation]:
        """Make the generation before the newest the newest again, by writing it once more; returns both.

        The caller holds the lock. The one that is taken back is the one before then, so undoing twice changes nothing.
        """
        newest = self.newest()
        older = [number for number in self.numbers() if number < newest.number]
        if not older and newest.passed_over:
            raise InputError(f"{newest.passed_over[0]}; the learner is as it was before that already.")
        if not older:
            raise InputError(f"there is nothing to go back to in {self.path}: this is all it ever learned.")
        try:
            before = Generation.read(self._place(older[-1]))
            files = before.files()
        except Damaged as error:
            raise InputError(f"generation {older[-1]} in {self.path} is damaged ({error}); stayed as it is.") from None
        return newest, self.write(files)

    def _place(self, number: int) -> Path:
        return self.path / "generations" / f"{number:06d}"


@contextmanager
def told_as_unwritable(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "the learner is as it was before; make room and repeat the command"
        else:
            remedy = "the learner is as it was before; choose another folder or mend its permissions"
        raise InputError(f"cannot write to {path} ({error.strerror or error}); {remedy}.") from None


def _write_through(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
