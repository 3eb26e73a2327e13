"""Studies that are run, stopped, shared and continued."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Queue

import pytest
import torch

from continual_crust.errors import InputError
from continual_crust.studies import engines
from continual_crust.studies.engines import local_engine, ray_engine
from continual_crust.studies.folder import StudyFolder, claimed
from continual_crust.studies.result import RunResult
from continual_crust.studies.study_file import find_study, parse_study
from continual_crust.studies.work import Workplace, _meanwhile, work_on
from continual_crust.writing import write_atomically
from field_images import command

SMALL = """\
id: small
title: Two methods on digits
datasets: [digits]
methods: [replay, crust]
noise: {kind: label, levels: [0.4]}
memory: [5]
seeds: 2
overrides: {phase1_epochs: 2, phase2_epochs: 1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return StudyFolder.create(tmp_path / "small", parse_study(SMALL, "small"), SMALL)


def measured(path: Path) -> dict[str, dict[str, object]]:
    """Everything a study measured that is not a time."""
    found = {}
    for file in sorted(path.glob("runs/*/result.json")):
        result = json.loads(file.read_text())
        found[file.parent.name] = {key: value for key, value in result.items() if "seconds" not in key}
    return found


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """The study run one by one, never stopped."""
    path = tmp_path_factory.mktemp("reference") / "small"
    folder = StudyFolder.create(path, parse_study(SMALL, "small"), SMALL)
    events = list(local_engine(workers=1)(list(folder.study.runs()), Workplace(path, device="cpu")))
    assert [event.kind for event in events if event.kind != "experience"] == ["done"] * 4
    assert [event.learned for event in events if event.kind == "experience"] == [*range(1, 10)] * 4
    return measured(path)


def test_processes_give_the_results_of_one_by_one(folder: StudyFolder, reference) -> None:
    runs = list(folder.study.runs())
    events = list(local_engine(workers=2)(runs, Workplace(folder.path, device="cpu")))
    assert sorted(event.kind for event in events if event.kind != "experience") == ["done"] * 4
    assert {event.learned for event in events if event.kind == "experience"} == set(range(1, 10))
    assert measured(folder.path) == reference
    leftovers = {file.name for file in folder.path.glob("runs/*/*")}
    assert leftovers == {"config.yaml", "result.json", "memory.npz", "lock"}


def checkpoints(path: Path) -> set[tuple[Path, int]]:
    """Where runs stand, by file and time."""
    found = set()
    for file in path.rglob("checkpoint*"):
        with suppress(FileNotFoundError):  # the run it is of has just ended
            found.add((file, file.stat().st_mtime_ns))
    return found


def test_a_killed_study_goes_on_to_the_same_end(tmp_path: Path, reference) -> None:
    """SIGKILL to the whole process group at several moments, then once to the end."""
    (tmp_path / "small.yaml").write_text(SMALL)
    options = ["--out", "out", "--workers", "1", "--device", "cpu"]
    study = [sys.executable, "-m", "continual_crust", "study", "run", "small.yaml", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = 0
    for seconds in (0.0, 0.1, 0.3):
        before = checkpoints(tmp_path)
        process = subprocess.Popen(
            study, cwd=tmp_path, env=environment, start_new_session=True, stdout=subprocess.DEVNULL
        )
        while process.poll() is None and checkpoints(tmp_path) <= before:
            time.sleep(0.01)
        time.sleep(seconds)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed
    done = subprocess.run(study, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert measured(tmp_path / "out" / "small") == reference


def test_a_stopped_run_goes_on_from_its_last_experience(folder: StudyFolder, reference, monkeypatch) -> None:
    from continual_crust.strategies import ContinualCrust

    config = next(run for run in folder.study.runs() if run.method == "crust")
    learn = ContinualCrust.learn
    lessons: list[int] = []

    def stop_at_the_fifth(self, experience) -> None:
        lessons.append(1)
        if len(lessons) == 5:
            raise KeyboardInterrupt
        learn(self, experience)

    monkeypatch.setattr(ContinualCrust, "learn", stop_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        work_on(config, Workplace(folder.path, device="cpu"))
    assert (folder.run_folder(config) / "checkpoint.safetensors").exists()
    assert work_on(config, Workplace(folder.path, device="cpu")) == "done"
    assert len(lessons) == 5 + 5  # four learned and one stopped, then the remaining five of nine
    name = folder.run_folder(config).name
    assert measured(folder.path)[name] == reference[name]


@pytest.mark.parametrize("workers", [1, 2])
def test_runs_stop_when_nobody_listens_any_more(workers: int, folder: StudyFolder, reference) -> None:
    """One is a thread of this process, two are processes."""
    runs = list(folder.study.runs())
    events = local_engine(workers)(runs, Workplace(folder.path, device="cpu"))
    first = next(events)
    assert first.kind == "experience"
    events.close()  # what an interrupt does to it
    assert len(measured(folder.path)) < len(runs)
    assert list(folder.path.glob("runs/*/checkpoint.safetensors"))
    list(local_engine(workers=1)(runs, Workplace(folder.path, device="cpu")))
    assert measured(folder.path) == reference


def test_two_processes_never_do_the_same_run(folder: StudyFolder) -> None:
    config = next(iter(folder.study.runs()))
    with claimed(folder.run_folder(config)) as is_ours:
        assert is_ours
        other = (
            "from continual_crust.studies.folder import claimed; from pathlib import Path; import sys\n"
            "with claimed(Path(sys.argv[1])) as ours: print(ours)"
        )
        seen = subprocess.run(
            [sys.executable, "-c", other, folder.run_folder(config)], capture_output=True, text=True, check=True
        )
        assert seen.stdout.strip() == "False"
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(work_on, config, Workplace(folder.path, device="cpu")).result() == "under way"
    assert work_on(config, Workplace(folder.path, device="cpu")) == "done"
    assert work_on(config, Workplace(folder.path, device="cpu")) == "skipped"


def test_only_what_was_being_written_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".env", ".gitignore", ".git/config", ".result.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # as if it were killed
        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / "result.json", "half")
    before = {path.name for path in tmp_path.iterdir()}
    with claimed(tmp_path):
        pass
    (left,) = before - {path.name for path in tmp_path.iterdir()}
    assert left.startswith(".result.json.")
    assert (tmp_path / ".git" / "config").read_text() == "mine"
    assert {".env", ".gitignore", ".result.json"} <= {path.name for path in tmp_path.iterdir()}


def test_a_run_finished_by_a_neighbouring_study_is_taken_over(folder: StudyFolder) -> None:
    config = next(iter(folder.study.runs()))
    work_on(config, Workplace(folder.path, device="cpu"))
    text = SMALL.replace("id: small", "id: other").replace("seeds: 2", "seeds: 1")
    other = StudyFolder.create(folder.path.parent / "other", parse_study(text, "other"), text)
    assert work_on(config, Workplace(other.path, device="cpu")) == "skipped"
    assert other.finished(config) == folder.finished(config)


def test_a_neighbours_result_of_other_images_is_not_taken_over(folder: StudyFolder) -> None:
    config = next(iter(folder.study.runs()))
    work_on(config, Workplace(folder.path, device="cpu"))
    result = folder.finished(config)
    assert result is not None
    text = SMALL.replace("id: small", "id: other")
    other = StudyFolder.create(folder.path.parent / "other", parse_study(text, "other"), text)
    assert not other.adopt(config, "of others")
    assert other.adopt(config, result.data)


@pytest.mark.parametrize("damage", ["{", '{"accuracy": "high"}'])
def test_a_neighbours_damaged_result_is_not_taken_over(folder: StudyFolder, damage: str) -> None:
    config = next(iter(folder.study.runs()))
    work_on(config, Workplace(folder.path, device="cpu"))
    result = folder.run_folder(config) / "result.json"
    result.write_text(json.dumps({**json.loads(result.read_text()), **json.loads(damage)}) if "}" in damage else damage)
    assert folder.finished(config) is None
    text = SMALL.replace("id: small", "id: other")
    other = StudyFolder.create(folder.path.parent / "other", parse_study(text, "other"), text)
    assert not other.adopt(config)
    assert not other.run_folder(config).exists()


def test_a_failing_run_does_not_stop_the_others(folder: StudyFolder, monkeypatch) -> None:
    from continual_crust.strategies import Replay

    def fail(self, experience) -> None:
        raise RuntimeError("a device went away")

    monkeypatch.setattr(Replay, "learn", fail)
    events = list(local_engine(workers=1)(list(folder.study.runs()), Workplace(folder.path, device="cpu")))
    assert [event.kind for event in events if event.kind != "experience"] == ["failed", "done"] * 2
    assert "a device went away" in events[0].problem


def test_damaged_files_cost_only_the_time_to_make_them_again(folder: StudyFolder, reference) -> None:
    config = next(iter(folder.study.runs()))
    target = folder.run_folder(config)
    target.mkdir(parents=True)
    (target / "result.json").write_text("{")
    (target / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    assert work_on(config, Workplace(folder.path, device="cpu")) == "done"
    assert measured(folder.path)[target.name] == reference[target.name]


def test_shards_cover_the_study_once(
    tmp_path: Path, reference, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    run = ("study", "run", "small.yaml", "--out", "out", "--workers", 1, "--device", "cpu", "--shard")
    for shard in ("1/2", "2/2"):
        assert command(*run, shard) == 0
        assert "2 runs, 0 done, 2 to do" in capsys.readouterr().out
    assert measured(tmp_path / "out" / "small") == reference
    for shard in ("0/2", "3/2", "x"):
        assert command(*run, shard) == 2
        assert "--shard" in capsys.readouterr().err

    assert command("study", "status", "out/small") == 0
    assert "replay" in capsys.readouterr().out


def test_tensorboard_scalars_are_written(folder: StudyFolder) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = next(iter(folder.study.runs()))
    work_on(config, Workplace(folder.path, device="cpu", tensorboard=True))
    events = reader.EventAccumulator(str(folder.run_folder(config) / "tensorboard"))
    events.Reload()
    assert len(events.Scalars("loss/training")) == 9 * 3
    result = RunResult.read(folder.run_folder(config) / "result.json")
    assert events.Scalars("accuracy/seen so far")[-1].value == pytest.approx(result.accuracy)


def test_another_studys_folder_is_refused(folder: StudyFolder) -> None:
    study, text = find_study("digits")
    with pytest.raises(ValueError, match="is the folder of study 'small'"):
        StudyFolder.create(folder.path, study, text)


def test_a_run_on_ray_has_one_thread_however_many_cpus_it_was_given(
    folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    monkeypatch.setattr(engines, "work_on", lambda *_: found.append(torch.get_num_threads()) or "done")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        engines._attempt_on_ray(next(folder.study.runs()), Workplace(folder.path, device="cpu"), Queue())
    finally:
        torch.set_num_threads(before)
    assert found == [1]


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the [ray] extra is not installed")
def test_what_this_machine_will_never_have_is_refused_and_not_waited_for(folder: StudyFolder) -> None:
    engine = ray_engine(None, cpus=1, gpus=1000, retries=0)
    with pytest.raises(InputError, match=r"--gpus 1000 is more than the . that Ray finds on this machine"):
        list(engine(list(folder.study.runs()), Workplace(folder.path, device="cpu")))


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the [ray] extra is not installed")
@pytest.mark.parametrize(
    ("address", "asked", "told"),
    [
        (None, "local", "cannot start Ray on this machine (no room); mend that, or use --engine local."),
        ("head", "head", "cannot reach Ray at head (no room); is it running, and should RAY_AUTH_MODE be token?"),
    ],
)
def test_without_an_address_no_ray_of_others_is_joined(
    address: str | None, asked: str, told: str, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def init(address: str, **_: object) -> None:
        assert address == asked
        raise RuntimeError("no room")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(InputError) as error:
        list(ray_engine(address)(list(folder.study.runs()), Workplace(folder.path, device="cpu")))
    assert str(error.value) == told


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the [ray] extra is not installed")
@pytest.mark.parametrize("scheme", ["", "ray://"])
@pytest.mark.parametrize("by_environment", [False, True])
def test_an_address_where_no_ray_answers_is_told_at_once(
    scheme: str, by_environment: bool, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:  # bound and not listening, so that nobody else gets its port
        nobody.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{nobody.getsockname()[1]}"
        if by_environment:
            monkeypatch.setenv("RAY_ADDRESS", address)
        engine = ray_engine(None if by_environment else address, 1, 0, 0)
        start = time.monotonic()
        with pytest.raises(InputError, match=f"cannot reach Ray at {address} .*refused.*; is it running"):
            list(engine(list(folder.study.runs()), Workplace(folder.path, device="cpu")))
        assert time.monotonic() - start < 10


OWN_PROGRAM = """\
from continual_crust.cli import main
from continual_crust.selection.selectors import SELECTORS
from continual_crust.strategies import STRATEGIES, Replay

class Mine(Replay):
    name = "mine"
    summary = "Replay under another name"

STRATEGIES["mine"] = Mine
SELECTORS["first"] = SELECTORS["herding"]

if __name__ == "__main__":
    main()
"""


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the [ray] extra is not installed")
def test_ray_knows_the_parts_of_the_program_that_started_the_study(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(OWN_PROGRAM)
    (tmp_path / "own.yaml").write_text(
        SMALL.replace("[replay, crust]", "[mine, {method: crust, selector: {name: first}}]").replace("2\n", "1\n", 1)
    )
    command = [sys.executable, "program.py", "study", "run", "own.yaml", "--engine", "ray", "--device", "cpu"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert "2 done now, 0 done elsewhere, 0 failed" in ran.stdout, ran.stdout + ran.stderr


def test_a_program_that_a_node_does_not_have_is_told(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    config = next(iter(folder.study.runs()))
    monkeypatch.setattr(engines, "STRATEGIES", {})
    program = {"init_main_from_path": str(folder.path / "program.py")}
    event = engines._attempt_on_ray(config, Workplace(folder.path, device="cpu"), Queue(), program)
    assert event.kind == "failed"
    assert event.problem.startswith("the program that the study was started with cannot be imported where Ray runs it")
    assert "program.py" in event.problem


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the [ray] extra is not installed")
def test_ray_gives_the_same_results_and_survives_a_killed_worker(folder: StudyFolder, reference) -> None:
    """A real Ray on loopback. One worker is killed while it works; Ray tries again, from the last experience."""
    import psutil

    events = ray_engine(None, cpus=1, gpus=0, retries=3)(
        list(folder.study.runs()), Workplace(folder.path, device="cpu")
    )
    killed = False
    kinds = []
    import threading

    def kill_a_worker() -> None:
        nonlocal killed
        deadline = time.time() + 180
        while not killed and time.time() < deadline:
            if any(folder.path.glob("runs/*/checkpoint.safetensors")):
                for process in psutil.process_iter(["name", "cmdline"]):
                    if "ray::_attempt" in " ".join(process.info["cmdline"] or []):
                        process.kill()
                        killed = True
                        break
            time.sleep(0.05)

    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    for event in events:
        kinds.append(event.kind)
    killer.join()
    assert killed
    assert [kind for kind in kinds if kind != "experience"] == ["done"] * 4
    assert kinds.count("experience") >= 4 * 9 - 2 * 9  # those told by the killed worker may be lost with it
    assert measured(folder.path) == reference


def test_libraries_are_loaded_while_data_are_read() -> None:
    reading, loaded = threading.Event(), threading.Event()

    def load() -> None:
        assert reading.wait(timeout=10)
        loaded.set()

    with _meanwhile(load):
        reading.set()
    assert loaded.is_set()
    with pytest.raises(InputError, match="no such data"), _meanwhile(loaded.clear):
        raise InputError("no such data")
    assert not loaded.is_set()
