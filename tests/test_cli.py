"""The command line as a person meets it: in a process of its own, or in this one where there is much to refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import field_images
from continual_crust import __version__
from continual_crust.studies.study_file import find_study

Refusal = Callable[..., str]
QUICK = ["--phase1-epochs", "1", "--phase2-epochs", "1", "--memory", "5"]


def command(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "continual_crust", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **environment},
        check=False,
    )


@pytest.fixture
def refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refusal:
    """What is said of a command that must be refused before it writes anything."""

    def told(*arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        assert field_images.command(*arguments) == 2
        assert list(tmp_path.iterdir()) == []
        return capsys.readouterr().err

    return told


def test_the_version_is_told_by_either_door() -> None:
    for door in (["-m", "continual_crust"], ["-c", "from continual_crust.cli import main; main()"]):
        told = subprocess.run([sys.executable, *door, "--version"], capture_output=True, text=True, check=True)
        assert told.stdout == f"continual-crust {__version__}\n"


def test_a_run_leaves_configuration_result_and_figures(tmp_path: Path) -> None:
    done = command("run", "--dataset", "digits", "--method", "crust", "--noise", "label:0.5", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "digits-crust-label-0.5-seed0"
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml",
        "result.json",
        "learner.safetensors",
        "figures",
        "lock",
    }
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".png"}
    result = json.loads((folder / "result.json").read_text())
    assert (result["method"], result["noise"], result["seed"]) == ("crust", "label:0.5", 0)
    assert "crust" in done.stdout
    assert "accuracy" in done.stdout

    again = command("run", "--dataset", "digits", "--method", "crust", "--noise", "label:0.5", *QUICK, cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr.startswith("error: ")
    assert "already holds a result" in again.stderr
    assert "Traceback" not in again.stderr


def test_options_reach_the_configuration(tmp_path: Path) -> None:
    selection = "--method cosine_crust --rule facility_location --space input --clusters 3 --n-a 4"
    training = "--lr 0.002 --batch-size 16 --weight-decay 0 --weighted-loss --model simple_cnn"
    stream = "--first-classes 5 --classes-per-experience 5 --seed 7"
    options = f"{selection} {training} {stream}".split()
    done = command("run", "--dataset", "digits", "--out", tmp_path / "r", *QUICK, *options)
    assert done.returncode == 0, done.stderr
    config = (tmp_path / "r" / "config.yaml").read_text()
    for line in (
        "rule: facility_location",
        "space: input",
        "clusters: 3",
        "min_cluster: 4.0",
        "learning_rate: 0.002",
        "batch_size: 16",
        "weighted_loss: true",
        "first_classes: 5",
        "seed: 7",
    ):
        assert line in config
    assert len(json.loads((tmp_path / "r" / "result.json").read_text())["accuracy_matrix"]) == 2


def test_the_demo_ends_in_a_page(tmp_path: Path) -> None:
    done = command("demo", "--seeds", "1", "--out", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "<html" in page
    for method in ("replay", "crust", "cosine_crust", "sift"):
        assert (tmp_path / "demo" / f"{method}-seed0" / "result.json").exists()
        assert method in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--dataset", "digit"], "did you mean 'digits'"),
        (["--dataset", "digits", "--method", "crus"], "did you mean 'crust'"),
        (["--dataset", "digits", "--noise", "labels:0.5"], "did you mean 'label'"),
        (["--dataset", "digits", "--noise", "label:2"], "outside 0 to 1"),
        (["--dataset", "digits", "--model", "resnet"], "did you mean 'resnet18'"),
        (["--dataset", "digits", "--rule", "x"], "no selection rule 'x'"),
        (["--dataset", "digits", "--space", "output"], "no gradient space 'output'"),
        (["--dataset", "digits", "--lr", "0"], "learning_rate (--lr) is 0.0"),
        (["--dataset", "digits", "--memory", "-3"], "memory_per_class (--memory) is -3; give a number of 0 or more"),
        (["--dataset", "digits", "--download"], "cannot be downloaded"),
        (["--dataset", "mnist", "--data-root", "nowhere"], "nowhere"),
        (["--dataset", "folder"], "which folder"),
        (["--dataset", "digits", "--device", "mps"], "no device 'mps'"),
        (["--dataset", "digits", "--method", "der", "--set", "alpha=nan"], "alpha is nan"),
        (["--dataset", "digits", "--method", "der", "--set", "alpha"], "has no value"),
        (["--dataset", "digits", "--method", "der", "--set", "alpha=1", "--set", "alpha=2"], "gives 'alpha' twice"),
        (["--dataset", "digits", "--method", "naive", "--selector", "crust"], "keeps no memory"),
        (["--dataset", "digits", "--method", "naive", "--rule", "centrality"], "keeps no memory"),
        (["--dataset", "digits", "--method", "joint", "--weighted-loss"], "keeps no memory that could be weighted"),
        (["--dataset", "digits", "--method", "sift", "--mirror"], "leave out mirror, and give its own options"),
        (["--dataset", "digits", "--method", "replay", "--rule", "centrality"], "'random' does not read rule"),
        (["--dataset", "digits", "--method", "crust", "--clusters", "9"], "'crust' does not read clusters"),
        (["--dataset", "digits", "--min-cluster", "nan"], "min_cluster is nan"),
        (["--dataset", "digits", "--pretrained"], "simple_cnn has no pretrained weights"),
        # These two are found out by the first step of training.
        (["--dataset", "digits", "--model", "resnet18", "--batch-size", "1"], "batches of one sample"),
        (["--dataset", "digits", "--shift", "0.01"], "less than half a pixel"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(arguments: list[str], sentence: str, refusal: Refusal) -> None:
    told = refusal("run", *arguments)
    assert told.startswith("error: ")
    assert sentence in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--image-size", "100000"], "--image-size 100000 is too large; give at most 8000 pixels"),
        (["--image-size", "8001"], "--image-size 8001 is too large"),
        (["--image-size", "8000"], "no folder nowhere"),
    ],
)
def test_learning_images_too_large_is_refused_at_once(arguments: list[str], sentence: str, refusal: Refusal) -> None:
    assert sentence in refusal("learn", "state", "nowhere", *arguments)


@pytest.mark.parametrize(
    ("what", "some"), [("methods", {"crust", "cosine_crust", "replay"}), ("datasets", {"digits", "mnist", "folder"})]
)
def test_lists(what: str, some: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert field_images.command(what) == 0
    assert some <= {line.split()[0] for line in capsys.readouterr().out.splitlines()}


def test_a_study_is_shown_as_its_file_is() -> None:
    """Long lines too, whatever the width of the terminal: what is shown is the start of one's own."""
    assert command("study", "show", "sift_digits", COLUMNS="40").stdout == find_study("sift_digits")[1]


def test_what_the_terminal_cannot_show_is_escaped() -> None:
    done = command("datasets", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert r"8\xd78 grey pixels" in done.stdout


@pytest.mark.parametrize("name", ["run", "learn", "review", "theory", "study run"])
def test_help_fits_eighty_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No option's name is cut off, and no sentence is broken where the source breaks it."""
    monkeypatch.setenv("COLUMNS", "80")
    assert field_images.command(*name.split(), "--help") == 0
    told, _, options = capsys.readouterr().out.partition("╭")
    assert "…" not in options
    for line, below in pairwise(told.splitlines()):
        if line.strip() and below.strip():
            assert len(line.rstrip()) + 1 + len(below.split()[0]) >= 80


def test_a_narrow_terminal_loses_no_number(tmp_path: Path) -> None:
    options = ["--dataset", "digits", "--method", "cumulative_crust", "--first-classes", "9", "--noise", "label:0.1"]
    done = command("run", *options, "--out", tmp_path / "run", *QUICK, COLUMNS="50")
    assert done.returncode == 0, done.stderr
    assert "…" not in done.stdout


def test_a_pipe_gets_no_bars(tmp_path: Path) -> None:
    """Not the empty lines that are left of them, either."""
    done = command("run", "--dataset", "digits", "--method", "naive", "--out", tmp_path / "run", *QUICK)
    assert done.stdout.startswith("digits, noise none")
    assert done.stderr == ""


def test_tables_are_not_written_from_a_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- table: verdicts -->\nold\n<!-- end of table -->\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert field_images.command("study", "tables", page, "--from", "nowhere") == 2
    assert "there is no folder nowhere" in capsys.readouterr().err
    assert "old" in page.read_text(encoding="utf-8")


def test_import_is_quick_and_touches_nothing() -> None:
    """Beyond torch itself, under a second; no seeds, threads, working directory or heavy modules."""
    probe = """
import os, sys, time
import torch
state, threads, folder = torch.get_rng_state(), torch.get_num_threads(), os.getcwd()
path, start = list(sys.path), time.perf_counter()
import continual_crust, continual_crust.selection, continual_crust.strategies, continual_crust.data
seconds = time.perf_counter() - start
assert torch.equal(state, torch.get_rng_state()) and threads == torch.get_num_threads()
assert folder == os.getcwd() and path == sys.path
heavy = {"torchvision", "matplotlib", "pandas", "sklearn", "PIL", "yaml", "typer"} & set(sys.modules)
print(seconds, heavy or "none")
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    seconds, heavy = done.stdout.split(maxsplit=1)
    assert float(seconds) < 1
    assert heavy.strip() == "none"
