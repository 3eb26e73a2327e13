"""What `study run` and `study tables` refuse: one sentence each, before anything is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from continual_crust.cli.study import _shard
from continual_crust.errors import InputError
from continual_crust.studies.folder import claimed
from continual_crust.studies.study import run_id
from continual_crust.studies.study_file import shipped_studies
from field_images import command

STUDY = """\
id: tiny
title: Small runs
datasets: [DATASETS]
methods: [naive]
noise: {kind: label, levels: [0.0, 0.2, 0.4]}
seeds: 2
overrides: {phase1_epochs: 1, phase2_epochs: 0, first_classes: 9, batch_size: 500}
"""
PAGE = "<!-- table: verdicts -->\nold\n<!-- end of table -->\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path


def study_run(datasets: str, *arguments: object) -> int:
    Path("tiny.yaml").write_text(STUDY.replace("DATASETS", datasets))
    return command("study", "run", "tiny.yaml", "--device", "cpu", "--workers", 1, "--out", "out", *arguments)


def test_samples_are_no_runs_to_choose_from(capsys) -> None:
    assert command("study", "run", "figure_samples", "--only", "x", "--shard", "1/2") == 2
    assert "shows samples and has no runs; leave out --shard and --only." in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("datasets", "arguments", "sentence"),
    [
        ("mnist", (), "there is no 'train-images-idx3-ubyte' in data/mnist"),
        ("folder", (), "needs to know which folder"),
        ("folder", ("--data-root", "nowhere"), "there is no 'train' in nowhere"),
        ("pathmnist", (), "there is no 'pathmnist.npz' in data/pathmnist"),
        ("mstar", ("--download",), "cannot be downloaded"),
        ("digits", ("--only", "zzz"), "no run has an id like 'zzz'"),
        ("digits", ("--only", ""), "no run has an id like ''"),
        ("digits", ("--known", "tiny.yaml"), "--known tiny.yaml is a file"),
        ("digits", ("--shard", "3/2"), "--shard '3/2' is not I/N"),
        ("digits", ("--device", "mps"), "no device 'mps'"),
        ("digits", ("--address", "head:6379"), "--address is for --engine ray"),
        ("digits", ("--gpus", "0.25"), "--gpus is for --engine ray"),
        ("digits", ("--engine", "ray"), "--workers is for --engine local"),
    ],
)
def test_what_cannot_be_run_is_one_sentence_and_leaves_nothing(
    datasets: str, arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study_run(datasets, *arguments) == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert len(told.err.splitlines()) == 1
    assert told.out == ""
    assert not Path("out").exists()


def test_every_data_set_that_is_missing_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert study_run("mnist, cifar10") == 2
    told = capsys.readouterr()
    assert [told.out.count("of mnist, gzipped"), told.err.count("CIFAR-10 binary version")] == [1, 1]
    assert len((told.out + told.err).splitlines()) == 2


def test_data_that_is_there_is_learned_and_what_is_missing_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert study_run("mnist, digits") == 2
    told = capsys.readouterr()
    assert told.out.count("there is no 'train-images-idx3-ubyte'") == 1
    assert "6 done now, 0 done elsewhere, 6 failed." in told.out
    assert "continual-crust report out/tiny" in told.out
    assert "6 of 12 runs failed (there is no 'train-images-idx3-ubyte'" in told.err
    assert len(list(Path("out").rglob("result.json"))) == 6


def test_what_is_done_here_or_next_door_needs_no_data(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise InputError("the digits are gone.")

    only = ("--only", "*-s0-*")
    assert study_run("digits", *only) == 0
    monkeypatch.setattr("continual_crust.data.check_dataset", gone)
    monkeypatch.setattr("continual_crust.studies.work.load_dataset", gone)
    assert study_run("digits", *only) == 0
    (here / "out" / "tiny").rename(here / "out" / "neighbour")
    assert study_run("digits", *only) == 0
    assert "0 done now, 3 done elsewhere, 0 failed." in capsys.readouterr().out
    assert study_run("digits", "--only", "*-s1-*") == 2
    assert capsys.readouterr().err == "error: the digits are gone.\n"


def own_folder(path: Path, seed: int) -> Path:
    """A folder of images in three classes, other ones for another seed."""
    random = np.random.default_rng(seed)
    for part in ("train", "test"):
        for number in range(3):
            (path / part / f"class{number}").mkdir(parents=True)
            for image in range(4):
                pixels = Image.fromarray(random.integers(0, 256, (8, 8), np.uint8))
                pixels.save(path / part / f"class{number}" / f"{image}.png")
    return path


def test_results_of_other_images_do_not_pass_for_these(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"{__name__}.STUDY", STUDY.replace("first_classes: 9", "first_classes: 2, model: simple_cnn"))
    for name, seed in (("a", 0), ("b", 1)):
        own_folder(Path(name), seed)
    only = ("--only", "*-s0-*", "--data-root")
    assert study_run("folder", *only, "a") == 0
    assert study_run("folder", *only, "a") == 0
    assert study_run("folder", *only, "b") == 2
    assert "out/tiny has results of other images than the 'folder' here" in capsys.readouterr().err
    Path("out", "tiny").rename(Path("out", "neighbour"))
    assert command("study", "collect", "out/neighbour", "--into", "kept") == 0
    assert study_run("folder", *only, "b", "--known", "kept") == 2
    assert "kept has results of other images than the 'folder' here; choose another folder" in capsys.readouterr().err
    assert study_run("folder", *only, "a", "--known", "kept") == 0
    assert study_run("folder", *only, "b") == 0
    assert "3 done now, 0 done elsewhere" in capsys.readouterr().out


def test_shards_are_the_same_whatever_has_been_collected_since() -> None:
    for shard in ("1/2", "2/2"):
        assert study_run("digits", "--shard", shard, "--known", "kept") == 0
        assert command("study", "collect", "out/tiny", "--into", "kept") == 0
    assert len(list(Path("out").rglob("result.json"))) == 6


@pytest.mark.parametrize("name", ["cifar10_label_300", "main_label_0.5"])
def test_shards_have_as_many_runs_of_each_method(name: str) -> None:
    runs = list(shipped_studies()[name].runs())
    shards = [_shard(runs, f"{number}/20") for number in range(1, 21)]
    assert sorted(run_id(config) for shard in shards for config in shard) == sorted(map(run_id, runs))
    assert all(shard == [config for config in runs if config in shard] for shard in shards)  # in the study's order
    for kind in {(config.dataset, config.method) for config in runs}:
        counts = {sum((config.dataset, config.method) == kind for config in shard) for shard in shards}
        assert max(counts) - min(counts) <= 1


def test_runs_that_are_left_out_as_known_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert study_run("digits", "--only", "*-label-0.4-*-s0-*") == 0
    assert "Small runs: 1 run, 0 done, 1 to do.\n" in capsys.readouterr().out
    assert command("study", "collect", "out/tiny", "--into", "kept") == 0
    assert study_run("digits", "--known", "kept", "--only", "*-label-0.4-*-s0-*") == 0
    assert "Small runs: 0 runs, 0 done, 0 to do. Left out as known from kept: 1." in capsys.readouterr().out


def test_what_is_told_at_the_end_can_be_typed_and_counts_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    only = ("--only", "*-label-0.4-*-s0-*", "--out", "my runs")
    assert study_run("digits", *only) == 0
    assert "continual-crust report 'my runs/tiny'\n" in capsys.readouterr().out
    (result,) = Path("my runs").rglob("result.json")
    result.unlink()
    with claimed(result.parent):
        assert study_run("digits", *only) == 0
    assert "0 failed. 1 run is under way in another process.\n" in capsys.readouterr().out


def test_runs_that_an_edited_file_no_longer_asks_for_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study_run("digits", "--only", "*-label-0.4-*") == 0
    monkeypatch.setattr(f"{__name__}.STUDY", STUDY.replace(", 0.4]", "]"))
    assert study_run("digits", "--only", "*-s0-*") == 0
    assert "2 finished runs in out/tiny are none that file and program ask for now" in capsys.readouterr().out


def test_a_page_can_have_the_table_of_ones_own_study() -> None:
    assert study_run("digits", "--only", "*-label-0.4-*-s0-*") == 0
    assert command("study", "collect", "out/tiny", "--into", "kept") == 0
    Path("page.md").write_text("Ours:\n\n<!-- table: study tiny.yaml -->\n<!-- end of table -->\n")
    assert command("study", "tables", "page.md", "--from", "kept") == 0
    assert "digits, 40 % flipped labels, k = 25 | 0." in Path("page.md").read_text()


@pytest.mark.parametrize(
    ("page", "results", "sentence"),
    [
        ("no place", "[\n\n]\n", "page.md has no place for a table"),
        (PAGE, None, "there are no results in collected"),
    ],
)
def test_tables_without_a_place_or_without_results_are_told(
    page: str, results: str | None, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("page.md").write_text(page)
    Path("collected").mkdir()
    if results is not None:
        Path("collected", "mnist-label.json").write_text(results)
    assert command("study", "tables", "page.md", "--from", "collected") == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert told.out == ""
    assert Path("page.md").read_text() == page
