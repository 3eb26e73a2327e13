"""A machine that is too small or refuses: `run` and `study run` say so in a sentence, and go on when it is mended."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from continual_crust.errors import trouble_of_the_machine
from continual_crust.strategies import Strategy
from field_images import command
from unprivileged import permissions_in_force

STUDY = """\
id: small
title: One run
datasets: [digits]
methods: [replay]
memory: [5]
seeds: 1
overrides: {phase1_epochs: 1, phase2_epochs: 0, first_classes: 5, classes_per_experience: 5}
"""
RUN = ("run", "--dataset", "digits", "--method", "replay", "-m", 1, "-n", 0, "-k", 5, "--device", "cpu")
TWO_EXPERIENCES = ("--first-classes", 5, "--classes-per-experience", 5)

OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee documentation.")
NO_MEMORY_HERE = RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tr")
NO_ROOM = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def arguments(kind: str, folder: Path) -> tuple[object, ...]:
    if kind == "run":
        return *RUN, *TWO_EXPERIENCES, "--out", folder / "run"
    (folder / "small.yaml").write_text(STUDY)
    return "study", "run", folder / "small.yaml", "--out", folder, "--workers", 1, "--device", "cpu"


@pytest.mark.parametrize("kind", ["run", "study"])
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OUT_OF_MEMORY, "the device has not enough memory"),
        (NO_MEMORY_HERE, "the device has not enough memory"),
        (MemoryError(), "there is not enough memory"),
        (NO_ROOM, "checkpoint.safetensors (No space left on device)"),
    ],
)
def test_trouble_is_one_sentence_and_the_same_command_goes_on(
    kind: str,
    error: Exception,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    learned: list[object] = []
    learn = Strategy.learn

    def until_the_second(self: Strategy, experience: object) -> None:
        if learned and error is not NO_ROOM:
            raise error
        learned.append(experience)
        learn(self, experience)
        if error is NO_ROOM and len(learned) == 2:
            broken.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(error))

    with monkeypatch.context() as broken:
        broken.setattr(Strategy, "learn", until_the_second)
        assert command(*arguments(kind, tmp_path)) == 2
    told = capsys.readouterr().err
    assert says in told
    assert "Traceback" not in told
    assert len(told.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("result.json"))
    assert len(list(tmp_path.rglob("checkpoint.safetensors"))) == 1
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]

    learned.clear()
    monkeypatch.setattr(
        Strategy, "learn", lambda self, experience: learned.append(experience) or learn(self, experience)
    )
    assert command(*arguments(kind, tmp_path)) == 0
    assert len(learned) == 1
    assert len(list(tmp_path.rglob("result.json"))) == 1


@pytest.mark.parametrize("kind", ["run", "study"])
def test_a_read_only_folder_is_one_sentence(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = arguments(kind, tmp_path)
    tmp_path.chmod(0o555)
    try:
        with permissions_in_force():
            assert command(*asked) == 2
    finally:
        tmp_path.chmod(0o755)
    told = capsys.readouterr().err
    assert "cannot write to" in told
    assert "Permission denied" in told
    assert len(told.strip().splitlines()) == 1


@pytest.mark.parametrize("error", [OUT_OF_MEMORY, NO_MEMORY_HERE, MemoryError()])
def test_the_remedy_for_too_little_memory_is_one_that_every_command_has(error: Exception) -> None:
    told = trouble_of_the_machine(error)
    assert told is not None
    assert told.endswith("or fewer runs at a time.")
    assert "--" not in told


def test_where_nothing_temporary_can_be_written_it_says_so() -> None:
    told = trouble_of_the_machine(FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"))
    assert told is not None
    assert "set TMPDIR" in told
    assert trouble_of_the_machine(FileNotFoundError(2, "No such file or directory", "x")) is None


def test_what_is_a_bug_is_not_called_trouble() -> None:
    for error in (RuntimeError("shapes differ"), ValueError("out of memory"), BrokenPipeError(errno.EPIPE, "x")):
        assert trouble_of_the_machine(error) is None
