"""Results accumulate: nothing is lost, doubled or silently changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from continual_crust.cli import app
from continual_crust.errors import InputError
from continual_crust.studies.collected import Collected, collect
from continual_crust.studies.result import RunResult
from continual_crust.studies.study import METHOD_REVISIONS, REVISION, run_id
from test_report_study_data import config, result_of, write_run


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for text in contents(folder).values() for row in json.loads(text)]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def study_with(folder: Path, *runs: tuple[Any, RunResult | None]) -> Path:
    for run, result in runs:
        write_run(folder, run, result)
    return folder


def one(folder: Path, accuracy: float = 0.8, **changes: Any) -> Path:
    return study_with(folder, (config(), result_of(config(), accuracy, **changes)))


def test_a_row_is_the_result_with_its_id_and_configuration(tmp_path: Path, kept: Path) -> None:
    run = config(noise="label:0.5", dataset="mnist")
    result = result_of(run, accuracy=1 / 3)
    assert collect([study_with(tmp_path / "s", (run, result), (config(seed=9), None))], kept) == {"added": 1}
    (row,) = rows(kept)
    stored = json.loads((tmp_path / "s" / "runs" / "000" / "result.json").read_text())
    assert set(row) == {"run", "config", *stored}
    assert row["run"] == run_id(run)
    assert row["config"] == run.as_dict()
    assert row["accuracy"] == row["accuracy_matrix"][2][0] == 0.33333
    assert row["seconds"] == 12.5
    assert list(contents(kept)) == ["mnist-label.json"]
    assert Collected.read(kept).rows[run_id(run)].config == run


def test_a_run_of_ten_classes_takes_few_kilobytes(tmp_path: Path, kept: Path) -> None:
    names = [f"a class called {number}" for number in range(10)]
    matrix = [[1 / 7] * 9 for _ in range(9)]
    shares = dict.fromkeys(names, 1 / 7)
    one(tmp_path / "s", accuracy_matrix=matrix, purity_per_class=shares, memory_sizes=dict.fromkeys(names, 300))
    collect([tmp_path / "s"], kept)
    assert len(contents(kept)["digits-label.json"]) < 3_500


def test_doing_it_twice_or_in_another_order_changes_nothing(tmp_path: Path, kept: Path) -> None:
    runs = [
        config(method, noise, seed)
        for method in ("crust", "replay")
        for noise in ("label:0.4", "none")
        for seed in (0, 1)
    ]
    first = study_with(tmp_path / "a", *((run, result_of(run)) for run in runs[:5]))
    second = study_with(tmp_path / "b", *((run, result_of(run)) for run in runs[3:]))
    assert collect([first], kept) == {"added": 5}
    assert collect([second], kept) == {"added": 3, "known": 2}
    once = contents(kept)
    assert collect([first, second], kept) == {"known": 10}
    assert contents(kept) == once
    collect([second, first], tmp_path / "other")
    assert contents(tmp_path / "other") == once
    assert all(text.count("\n") == len(json.loads(text)) + 2 for text in once.values())  # a line for each run


def test_what_was_collected_elsewhere_can_be_collected(tmp_path: Path, kept: Path) -> None:
    collect([one(tmp_path / "a")], tmp_path / "elsewhere")
    assert collect([tmp_path / "elsewhere"], kept) == {"added": 1}
    assert contents(kept) == contents(tmp_path / "elsewhere")
    assert collect([tmp_path / "a", tmp_path / "elsewhere"], kept) == {"known": 2}


def test_a_known_run_with_another_end_is_an_error_that_names_it(tmp_path: Path, kept: Path) -> None:
    collect([one(tmp_path / "a", 0.8)], kept)
    before = contents(kept)
    later = study_with(one(tmp_path / "b", 0.7), (config(seed=1), result_of(config(seed=1))))
    with pytest.raises(
        InputError, match=rf"the run {run_id(config())} is known with another accuracy_matrix; pass --repl"
    ):
        collect([later], kept)
    assert contents(kept) == before
    assert collect([later], kept, replace=True) == {"replaced": 1, "added": 1}
    assert [row["accuracy"] for row in rows(kept) if row["seed"] == 0] == [0.7]


def test_the_same_end_after_another_time_is_the_same_run(tmp_path: Path, kept: Path) -> None:
    collect([one(tmp_path / "a", seconds=10.0)], kept)
    assert collect([one(tmp_path / "b", seconds=20.0, device="another")], kept) == {"known": 1}
    assert rows(kept)[0]["seconds"] == 10.0


def test_runs_of_two_revisions_are_two_runs(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect([one(tmp_path / "a", 0.8)], kept)
    monkeypatch.setitem(METHOD_REVISIONS, "crust", 1)
    assert collect([one(tmp_path / "b", 0.7)], kept) == {"added": 1}
    assert {row["revision"]: row["accuracy"] for row in rows(kept)} == {f"{REVISION}": 0.8, f"{REVISION}.1": 0.7}
    assert run_id(config()) == next(row["run"] for row in rows(kept) if row["accuracy"] == 0.7)


def test_a_setting_that_did_not_exist_then_has_its_default(tmp_path: Path, kept: Path) -> None:
    collect([one(tmp_path / "a")], kept)
    plain = rows(kept)
    del plain[0]["config"]["training"]["precision"], plain[0]["config"]["selector"]["clusters"]
    (kept / "digits-label.json").write_text(json.dumps(plain))
    assert list(Collected.read(kept).rows) == [run_id(config())]
    assert collect([tmp_path / "a"], kept) == {"known": 1}


def test_rows_that_are_no_longer_understood_are_kept(tmp_path: Path, kept: Path) -> None:
    collect([one(tmp_path / "a")], kept)
    plain = rows(kept)
    plain[0]["config"]["options"] = {"gone": 1}
    (kept / "digits-label.json").write_text(json.dumps(plain))
    found = Collected.read(kept)
    assert (found.rows, found.obsolete) == ({}, plain)
    assert collect([tmp_path / "a"], kept) == {"added": 1}
    assert plain[0] in rows(kept)
    assert len(rows(kept)) == 2
    # Nor are they lost on the way to another folder.
    assert collect([kept], tmp_path / "other") == {"added": 2}
    assert collect([kept], tmp_path / "other") == {"known": 2}
    assert contents(tmp_path / "other") == contents(kept)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot be read as JSON"),
        ("{}", "holds no list of runs"),
        ("[1]", "row 1 is not a run"),
        ('[{"method": "crust"}]', "row 1 is not a run"),
    ],
)
def test_damaged_rows_are_told(text: str, sentence: str, kept: Path) -> None:
    kept.mkdir()
    (kept / "digits-label.json").write_text(text)
    with pytest.raises(InputError, match=sentence):
        Collected.read(kept)


@pytest.mark.parametrize(
    ("change", "sentence"), [({"seed": 5}, "method, data set or seed"), ({"accuracy": 7}, "accuracy")]
)
def test_rows_that_cannot_be_are_told(change: dict[str, Any], sentence: str, tmp_path: Path, kept: Path) -> None:
    collect([one(tmp_path / "a")], kept)
    plain = rows(kept)
    (kept / "digits-label.json").write_text(json.dumps([plain[0] | change]))
    with pytest.raises(InputError, match=rf"row 1 is not the result of its configuration \({sentence}\)"):
        Collected.read(kept)
    (kept / "digits-label.json").write_text(json.dumps(plain * 2))
    with pytest.raises(InputError, match="row 2 repeats the run digits-crust"):
        Collected.read(kept)


def test_what_is_no_finished_run_is_told(tmp_path: Path, kept: Path) -> None:
    with pytest.raises(InputError, match="there is no finished run below"):
        collect([tmp_path], kept)
    folder = one(tmp_path / "a") / "runs" / "000"
    (folder / "result.json").write_text("{}")
    with pytest.raises(InputError, match=r"000: result\.json is not a result of a run"):
        collect([tmp_path / "a"], kept)
    study_with(tmp_path / "b", (config(dataset="../x"), result_of(config(dataset="../x"))))
    with pytest.raises(InputError, match=r"there is no data set '\.\./x'"):
        collect([tmp_path / "b"], kept)
    assert not kept.exists()


STUDY = """\
id: tiny
title: A tiny study
datasets: [digits]
methods: [naive]
noise: {kind: asymmetric, levels: [0.4]}
seeds: 2
memory: [2]
overrides: {phase1_epochs: 1, phase2_epochs: 0, first_classes: 9, batch_size: 500}
"""


def test_collected_runs_are_not_run_again(tmp_path: Path, kept: Path) -> None:
    def command(*arguments: str | Path) -> str:
        done = CliRunner().invoke(app, ["study", *map(str, arguments)], catch_exceptions=False, env={"COLUMNS": "200"})
        assert done.exit_code == 0
        return done.stdout

    file = tmp_path / "tiny.yaml"
    file.write_text(STUDY)
    run = ("run", file, "--device", "cpu", "--workers", 1, "--known", kept, "--out")
    first = command(*run, tmp_path / "one", "--only", "digits-*-asymmetric-0.4-k2-s1-*")
    assert f"Nothing has been collected in {kept} yet." in first.replace("\n", "")
    assert "1 run, 0 done, 1 to do" in first
    assert "1 added, 0 known already, 0 replaced" in command("collect", tmp_path / "one", "--into", kept)
    assert [row["noise"] for row in rows(kept)] == ["asymmetric:0.4"]
    assert "1 run, 0 done, 1 to do" in command(*run, tmp_path / "two")
    assert "1 added" in command("collect", tmp_path / "one", tmp_path / "two", "--into", kept)
    assert sorted(row["seed"] for row in rows(kept)) == [0, 1]
    assert "0 runs, 0 done, 0 to do" in command(*run, tmp_path / "three")
    with pytest.raises(InputError, match="no run has an id like 'mnist-"):
        command(*run, tmp_path / "four", "--only", "mnist-*")
