"""A study's folder is read as it is: half-finished, damaged, or full of names nobody expected.

The other tests of the report take their folders from here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from continual_crust.data.noise import Noise
from continual_crust.errors import InputError
from continual_crust.report.study_data import NOT_ASKED_FOR, OTHER_STATE, REPEATED, read_studies
from continual_crust.report.study_sections import leftovers, status
from continual_crust.strategies import strategy_named
from continual_crust.strategies.training import Training
from continual_crust.studies.config import RunConfig
from continual_crust.studies.result import RunResult
from continual_crust.studies.study import revision_of
from continual_crust.studies.study_file import parse_study

WITHOUT_MEMORY = ("naive", "joint", "cumulative")


def config(method="crust", noise="label:0.4", seed=0, dataset="digits", memory=10, rule="centrality", **changes):
    return RunConfig(
        dataset=dataset,
        method=method,
        model="simple_cnn",
        noise=Noise.parse(noise),
        seed=seed,
        training=Training(memory_per_class=memory),
        **{"selector": replace(strategy_named(method).default_selector, rule=rule), **changes},
    )


def result_of(run: RunConfig, accuracy=0.8, classes=("a", "b", "c", "d"), **changes) -> RunResult:
    """A believable result with three experiences."""
    matrix = [[0.9, 0.0, 0.0], [0.7, 0.8, 0.0], [accuracy, accuracy, accuracy]]
    purity = None if run.method in WITHOUT_MEMORY else 0.75
    fields = {
        "method": run.method,
        "dataset": run.dataset,
        "noise": str(run.noise),
        "seed": run.seed,
        "accuracy_matrix": matrix[-1:] if run.method == "joint" else matrix,
        "accuracy": accuracy,
        "forgetting": None if run.method == "joint" else 0.1,
        "purity": purity,
        "purity_per_class": {} if purity is None else dict.fromkeys(classes, purity),
        "purity_per_experience": [purity] * (1 if run.method == "joint" else 3),
        "experiences": [list(classes[:2]), [classes[2]], [classes[3]]],
        "seconds": 12.5,
        "selection_seconds": 2.5,
        "device": "cpu",
        "versions": {"torch": "2"},
        "revision": revision_of(run.method),
    }
    return RunResult(**{**fields, **changes})


def write_run(study: Path, run: RunConfig, result: RunResult | None = None, name: str | None = None) -> Path:
    folder = study / "runs" / (name or f"{len(list((study / 'runs').glob('*'))):03}")
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(run.as_dict()))
    if result is not None:
        result.write(folder / "result.json")
    return folder


def write_study(folder: Path, text="id: small\ntitle: A small study\n") -> Path:
    (folder / "runs").mkdir(parents=True)
    (folder / "study.yaml").write_text(text)
    return folder


def write_memory(folder: Path, names=("a", "b"), wrong: int = 1) -> None:
    """A memory of three images a class as the engine stores it, the first `wrong` of each not clean."""
    count = len(names)
    np.savez_compressed(
        folder / "memory.npz",
        names=np.array(names, dtype=np.str_),
        totals=np.full(count, 3),
        clean=np.full(count, 3 - wrong),
        rows=np.repeat(np.arange(count), 3),
        images=np.full((3 * count, 1, 8, 8), 90, np.uint8),
        is_clean=np.tile(np.arange(3) >= wrong, count),
    )


@pytest.fixture
def study(tmp_path) -> Path:
    return write_study(tmp_path / "study")


def test_runs_are_finished_begun_or_broken(study):
    write_run(study, config(seed=0), result_of(config(seed=0)))
    write_run(study, config(seed=1))
    write_run(study, config(seed=2), name="no_config").joinpath("config.yaml").unlink()
    write_run(study, config(seed=3), name="bad_config").joinpath("config.yaml").write_text("{{{")
    write_run(study, config(seed=4), name="bad_result").joinpath("result.json").write_text('{"method": "crust"')
    (study / "runs" / ".half-written").mkdir()
    (read,) = read_studies(study)
    assert (read.id, read.title, read.table) == ("small", "A small study", None)
    assert [run.config.seed for run in read.runs] == [0, 1]
    assert len(read.finished) == 1
    assert [name for name, _ in read.problems] == ["bad_config", "bad_result", "no_config"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("accuracy", "high"),
        ("accuracy", 87.0),
        ("accuracy_matrix", []),
        ("accuracy_matrix", [[0.5, 0.5], [0.5]]),
        ("accuracy_matrix", [["<b>"]]),
        ("forgetting", [1]),
        ("purity_per_experience", 0.5),
        ("experiences", "abc"),
        ("seconds", None),
        ("versions", []),
        ("seed", 7),
        ("method", "replay"),
        ("noise", "label:0.3"),
        ("noise", "rain"),
        ("noise", 0.4),
    ],
)
def test_a_result_that_cannot_be_is_told_not_shown(study, field, value):
    folder = write_run(study, config(), result_of(config()))
    path = folder / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    (read,) = read_studies(study)
    assert not read.runs
    assert "run it again" in read.problems[0][1]


def test_one_noise_may_be_written_in_two_ways(study):
    write_run(study, config(), result_of(config(), noise="label:0.400"))
    assert len(read_studies(study)[0].finished) == 1


def test_what_was_not_measured_is_fine(study):
    holes = result_of(config(), accuracy_matrix=[[0.5, None], [None, 0.5]], forgetting=None)
    write_run(study, config(), holes)
    assert len(read_studies(study)[0].finished) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": "first"},
        {"dataset": ["a"]},
        {"method": "magic"},
        {"noise": "rain"},
        {"training": 3},
        {"selector": {"space": "outer"}},
    ],
)
def test_a_configuration_that_cannot_be_is_told(study, changed):
    folder = write_run(study, config(), result_of(config()))
    (folder / "config.yaml").write_text(yaml.safe_dump({**config().as_dict(), **changed}))
    (read,) = read_studies(study)
    assert not read.runs
    assert len(read.problems) == 1
    assert str(study) not in read.problems[0][1], "the page must not tell where it was made"


def test_the_same_run_twice_counts_once(study):
    write_run(study, config(), result_of(config()), name="one")
    write_run(study, config(), result_of(config()), name="two")
    (read,) = read_studies(study)
    assert len(read.runs) == 1
    assert (read.problems, read.left_out) == ((), {REPEATED: ["two"]})


def test_results_of_another_state_of_the_program_are_left_out(study):
    """Whatever their folders are called: the first in the alphabet must not win."""
    for number, seed in enumerate((0, 1)):
        run = config(seed=seed)
        write_run(study, run, result_of(run, accuracy=0.1, revision="2"), name=f"{'az'[number]}-old")
        write_run(study, run, result_of(run, accuracy=0.8), name=f"m-{seed}")
    (read,) = read_studies(study)
    assert [run.result.accuracy for run in read.finished] == [0.8, 0.8]
    assert (read.problems, read.left_out) == ((), {OTHER_STATE: ["a-old", "z-old"]})


def test_a_setting_that_nobody_reads_makes_no_other_run(tmp_path):
    text = """id: planned
title: Replay's selector reads no rule
datasets: [digits]
methods: [replay]
noise: {kind: label, levels: [0.4]}
seeds: 1
"""
    study = write_study(tmp_path / "planned", text)
    run = next(iter(parse_study(text, "planned").runs()))
    older = replace(run, selector=replace(run.selector, rule="facility_location"))  # as if the default had been another
    write_run(study, older, result_of(older))
    (read,) = read_studies(study)
    assert [one.result is not None for one in read.runs] == [True]


def test_runs_that_the_study_asks_for_are_known_before_they_begin(tmp_path):
    text = """id: planned
title: Planned
datasets: [digits]
methods: [replay, crust]
noise: {kind: label, levels: [0.4]}
seeds: 2
"""
    study = write_study(tmp_path / "study", text)
    (read,) = read_studies(study)
    assert [(run.config.method, run.config.seed) for run in read.runs] == [
        ("replay", 0),
        ("crust", 0),
        ("replay", 1),
        ("crust", 1),
    ]
    write_run(study, read.runs[1].config, result_of(read.runs[1].config))
    (again,) = read_studies(study)
    assert [run.result is not None for run in again.runs] == [False, True, False, False]


@pytest.mark.parametrize("text", ["{{{", "- a\n- b\n", "", "id: [1]\ntitle: {a: b}\n"])
def test_a_broken_study_file_does_not_hide_the_runs(tmp_path, text):
    study = write_study(tmp_path / "mine", text)
    write_run(study, config(), result_of(config()))
    (read,) = read_studies(study)
    assert (read.id, read.title) == ("mine", "mine")
    assert len(read.finished) == 1


def test_an_unknown_table_is_told(tmp_path):
    study = write_study(tmp_path / "study", "id: a\ntitle: b\ntable: mnist_label_30\n")
    (read,) = read_studies(study)
    assert read.table is None
    assert "did you mean" in read.problems[0][1]


def test_a_folder_of_studies_is_read_in_order(tmp_path):
    for name in ("b", "a"):
        write_study(tmp_path / name, f"id: {name}\ntitle: {name}\n")
    (tmp_path / "report").mkdir()
    assert [study.id for study in read_studies(tmp_path)] == ["a", "b"]


def test_no_study_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match=r"no study\.yaml"):
        read_studies(tmp_path)
    with pytest.raises(InputError, match="cannot read"):
        read_studies(tmp_path / "nowhere")


def test_runs_that_the_study_no_longer_asks_for_are_left_out_and_told(tmp_path: Path) -> None:
    text = "id: small\ntitle: t\ndatasets: [digits]\nmethods: [naive]\nnoise: {kind: label, levels: [0.4]}\nseeds: "
    folder = write_study(tmp_path / "s", text + "2\n")
    for number, run in enumerate(parse_study(text + "2\n", "small").runs()):
        write_run(folder, run, result_of(run), name=f"run{number}")
    assert len(read_studies(folder)[0].finished) == 2
    (folder / "study.yaml").write_text(text + "1\n")
    (data,) = read_studies(folder)
    assert [run.config.seed for run in data.finished] == [0]
    assert (data.problems, data.left_out) == ((), {NOT_ASKED_FOR: ["run1"]})
    assert status(data) == "1 of 1 run finished; 1 left out: not in study.yaml as it is now"
    assert "<summary>1 run left out: not in study.yaml as it is now</summary><ul><li>run1</li></ul>" in leftovers(data)
