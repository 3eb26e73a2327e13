"""``continual-crust theory`` as a person meets it, in this process."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path

import pytest

from continual_crust.cli import report
from continual_crust.theory.jacobian import MEMORY
from continual_crust.theory.learner import MOST_SAMPLES
from field_images import command

QUICK = [
    "--phase1-epochs",
    "1",
    "--phase2-epochs",
    "1",
    "--memory",
    "5",
    "--first-classes",
    "5",
    "--classes-per-experience",
    "5",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CRUST, short and in two experiences."""
    folder = tmp_path_factory.mktemp("theory") / "run"
    arguments = ("--dataset", "digits", "--method", "crust", "--noise", "label:0.3", "--out", folder, *QUICK)
    assert command("run", *arguments) == 0
    return folder


def test_a_run_is_measured(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("theory", finished, "--samples", "8", "--memory", "64", "--out", tmp_path / "new") == 0
    plain = json.loads((tmp_path / "new" / "theory.json").read_text())
    assert sorted(part["name"] for part in plain["classes"]) == [str(digit) for digit in range(10)]
    assert {(part["measured"]["k"], part["measured"]["n"]) for part in plain["classes"]} == {(5, 8)}
    assert "Theorem 1" in capsys.readouterr().out
    assert not (finished / "theory.json").exists()


def test_defaults_are_those_of_the_library() -> None:
    defaults = {name: option.default for name, option in inspect.signature(report.theory).parameters.items()}
    assert (defaults["memory"] << 20, defaults["samples"]) == (MEMORY, MOST_SAMPLES)


def test_what_cannot_be_measured_is_told_in_one_sentence(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def complaint(*arguments: str | Path) -> str:
        assert command("theory", *arguments) == 2
        told = capsys.readouterr()
        assert "Traceback" not in told.err + told.out
        return " ".join(told.err.split())

    assert "either the folder of a run or --sweep" in complaint()
    assert "either the folder of a run or --sweep" in complaint(finished, "--sweep")
    assert "there is no" in complaint(tmp_path / "nowhere")
    assert "there is no device 'abacus'" in complaint(finished, "--device", "abacus")
    assert "Invalid value" in complaint(finished, "--samples", "0")

    broken = tmp_path / "broken"
    shutil.copytree(finished, broken)
    (broken / "result.json").unlink()
    assert "result.json" in complaint(broken)
    (broken / "learner.safetensors").write_bytes(b"no learner")
    assert "is not a learner of this configuration" in complaint(broken)
    (broken / "learner.safetensors").unlink()
    assert "there is no learner at" in complaint(broken)
    (broken / "config.yaml").write_text("- a list")
    assert "is not the configuration of a run" in complaint(broken)

    occupied = tmp_path / "file"
    occupied.write_text("")
    assert "cannot write to" in complaint(finished, "--samples", "6", "--out", occupied)
    assert "cannot write to" in complaint("--sweep", "--out", occupied)


def test_a_method_without_memory_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "naive"
    assert command("run", "--dataset", "digits", "--method", "naive", "--out", folder, *QUICK) == 0
    assert command("theory", folder) == 2
    assert "run of 'naive' kept no memory" in " ".join(capsys.readouterr().err.split())
