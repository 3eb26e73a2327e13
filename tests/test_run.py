"""A run from configuration to files."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from continual_crust.data import Dataset, Noise, NoiseKind
from continual_crust.devices import choose_device
from continual_crust.errors import InputError
from continual_crust.evaluation import average_accuracy, forgetting
from continual_crust.strategies import Training
from continual_crust.studies.config import RunConfig
from continual_crust.studies.defaults import Defaults, defaults_for
from continual_crust.studies.folder import claimed
from continual_crust.studies.result import RunResult
from continual_crust.studies.run import (
    CHECKPOINT,
    build_strategy,
    execute,
    load_learner,
    load_run,
    prepare_folder,
    read_config,
    save_learner,
    untouched_if_refused,
)
from continual_crust.studies.study import METHOD_REVISIONS
from continual_crust.tensor_tree import pack_tree, unpack_tree
from continual_crust.writing import write_atomically

QUICK = RunConfig(
    dataset="few_digits",
    method="crust",
    model="simple_cnn",
    noise=Noise(NoiseKind.LABEL, 0.3),
    seed=2,
    training=Training(phase1_epochs=2, phase2_epochs=1, memory_per_class=8),
)


@pytest.fixture(scope="module")
def finished(few_digits: Dataset):
    return execute(QUICK, few_digits, torch.device("cpu"))


def test_result_holds_what_the_run_measured(finished, few_digits: Dataset) -> None:
    result = finished.result
    assert (len(result.accuracy_matrix), len(result.accuracy_matrix[0])) == (3, 3)
    assert result.accuracy == average_accuracy(result.accuracy_matrix)
    assert result.forgetting == forgetting(result.accuracy_matrix)
    assert [len(names) for names in result.experiences] == [2, 1, 1]
    assert set(result.purity_per_class) == set(few_digits.class_names)
    assert result.purity == pytest.approx(sum(result.purity_per_class.values()) / 4)
    assert 0 < result.selection_seconds < result.seconds
    last = finished.strategy.predict(finished.stream.test(2)[0])
    assert result.accuracy_matrix[2][2] == pytest.approx(float((last == finished.stream.test(2)[1]).double().mean()))


def test_result_survives_its_file(finished, tmp_path: Path) -> None:
    finished.result.write(tmp_path / "result.json")
    assert RunResult.read(tmp_path / "result.json") == finished.result
    keys = set(json.loads((tmp_path / "result.json").read_text()))
    asked_for = """method dataset noise seed accuracy_matrix accuracy forgetting purity purity_per_class
        seconds selection_seconds versions"""
    assert keys >= set(asked_for.split())


def test_the_same_configuration_gives_the_same_numbers(finished, few_digits: Dataset) -> None:
    again = execute(QUICK, few_digits, torch.device("cpu")).result
    for name in ("accuracy_matrix", "purity_per_class", "purity_per_experience", "experiences"):
        assert getattr(again, name) == getattr(finished.result, name)


def test_configuration_is_stored_in_plain_words(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "run", QUICK, overwrite=False)
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert stored["noise"] == "label:0.3"
    assert stored["training"]["memory_per_class"] == 8
    assert stored["selector"]["space"] == "parameters"


def test_a_run_can_be_brought_back(finished, few_digits: Dataset, tmp_path: Path) -> None:
    prepare_folder(tmp_path, QUICK, overwrite=False)
    save_learner(finished.strategy, tmp_path / "learner.safetensors")
    finished.result.write(tmp_path / "result.json")
    assert read_config(tmp_path) == QUICK
    again = load_run(tmp_path, few_digits, torch.device("cpu"))
    assert again.result == finished.result
    images = few_digits.test_images
    assert torch.equal(again.strategy.predict_logits(images), finished.strategy.predict_logits(images))
    assert torch.equal(again.stream.truth.flipped, finished.stream.truth.flipped)


@pytest.mark.parametrize("damage", [b"", b"not a learner", None])
def test_what_is_not_a_learner_is_told(damage: bytes | None, finished, few_digits: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "learner.safetensors"
    save_learner(finished.strategy, path)
    path.write_bytes(path.read_bytes()[:2000] if damage is None else damage)
    with pytest.raises(InputError, match="is not a learner of this configuration"):
        load_learner(build_strategy(QUICK, few_digits, torch.device("cpu")), path)
    with pytest.raises(InputError, match="there is no learner at"):
        load_learner(build_strategy(QUICK, few_digits, torch.device("cpu")), tmp_path / "none.safetensors")


@pytest.fixture
def other_digits(few_digits: Dataset) -> Dataset:
    """As many images of the same form."""
    return replace(few_digits, train_images=few_digits.train_images.flip(0).contiguous())


def test_a_learner_is_not_brought_back_with_other_images(finished, other_digits: Dataset, tmp_path: Path) -> None:
    prepare_folder(tmp_path, QUICK, overwrite=False)
    finished.result.write(tmp_path / "result.json")
    save_learner(finished.strategy, tmp_path / "learner.safetensors")
    with pytest.raises(InputError, match="was taught other images than these"):
        load_run(tmp_path, other_digits, torch.device("cpu"))


def test_a_stopped_run_does_not_go_on_with_other_images(few_digits, other_digits: Dataset, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # when the second experience begins
        execute(QUICK, few_digits, torch.device("cpu"), None, lambda number, _: number and stop(), None, tmp_path / "c")
    whole, resumed = (
        execute(QUICK, other_digits, torch.device("cpu"), checkpoint=checkpoint).result
        for checkpoint in (None, tmp_path / "c")
    )
    assert resumed.accuracy_matrix == whole.accuracy_matrix
    unfinished = unpack_tree((tmp_path / "c").read_bytes())
    del unfinished["data"]  # as checkpoints once were
    (tmp_path / "old").write_bytes(pack_tree(unfinished))
    begun: list[int] = []
    execute(QUICK, other_digits, torch.device("cpu"), None, lambda at, _: begun.append(at), None, tmp_path / "old")
    assert begun == []  # it had ended
    assert resumed.data == whole.data == other_digits.fingerprint != few_digits.fingerprint


def test_a_stopped_run_does_not_go_on_in_a_program_that_comes_to_other_results(
    few_digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    for revision in (1, 1, 2):
        monkeypatch.setitem(METHOD_REVISIONS, QUICK.method, revision)
        execute(QUICK, few_digits, torch.device("cpu"), None, lambda at, _: begun.append(at), None, tmp_path / "c")
    assert begun == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("content", ["", "[1]", "a: 1", "noise: label:0.5", "{", "\x00"])
def test_what_is_not_a_configuration_is_told(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(InputError, match=r"config\.yaml.* (not the configuration of a run|is not YAML)"):
        read_config(tmp_path)


def test_an_earlier_result_is_not_overwritten_unasked(finished, tmp_path: Path) -> None:
    finished.result.write(tmp_path / "result.json")
    with pytest.raises(InputError, match="already holds a result; choose another --out or pass --overwrite"):
        prepare_folder(tmp_path, QUICK, overwrite=False)
    prepare_folder(tmp_path, QUICK, overwrite=True)
    assert not (tmp_path / "result.json").exists()


def test_a_refused_run_leaves_the_folder_as_it_was(finished, tmp_path: Path) -> None:
    def refuse(config: RunConfig, learned: bool) -> None:
        with claimed(tmp_path), untouched_if_refused(tmp_path):
            prepare_folder(tmp_path, config, overwrite=True)
            if learned:
                (tmp_path / CHECKPOINT).write_bytes(b"one experience")
            raise InputError("refused")

    def files_after(config: RunConfig, learned: bool = False) -> dict[str, bytes]:
        with pytest.raises(InputError, match="refused"):
            refuse(config, learned)
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert files_after(QUICK) == {}
    prepare_folder(tmp_path, QUICK, overwrite=False)
    finished.result.write(tmp_path / "result.json")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()} | {"lock": b""}
    assert files_after(replace(QUICK, seed=8)) == before
    after = files_after(replace(QUICK, seed=8), learned=True)
    assert set(after) == {"config.yaml", CHECKPOINT, "lock"}
    assert b"seed: 8" in after["config.yaml"]


def test_a_stopped_run_is_not_given_up_unasked(tmp_path: Path) -> None:
    prepare_folder(tmp_path, QUICK, overwrite=False)
    (tmp_path / CHECKPOINT).write_bytes(b"hours of work")
    other = replace(QUICK, seed=3)
    with pytest.raises(InputError, match="holds a run of other settings that was stopped; choose another --out"):
        prepare_folder(tmp_path, other, overwrite=False)
    assert read_config(tmp_path) == QUICK
    for overwrite in (False, True):  # a job that is repeated as it is goes on, whatever it may overwrite
        prepare_folder(tmp_path, QUICK, overwrite)
        assert (tmp_path / CHECKPOINT).exists()
    prepare_folder(tmp_path, other, overwrite=True)
    assert not (tmp_path / CHECKPOINT).exists()


def test_what_a_finished_run_left_does_not_go_on(finished, tmp_path: Path) -> None:
    prepare_folder(tmp_path, QUICK, overwrite=False)
    finished.result.write(tmp_path / "result.json")
    (tmp_path / CHECKPOINT).write_bytes(b"old")
    prepare_folder(tmp_path, QUICK, overwrite=True)
    assert not (tmp_path / CHECKPOINT).exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to"):
        prepare_folder(tmp_path / "file" / "run", QUICK, overwrite=False)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"method": 1}', "\x00"])
def test_what_is_not_a_result_is_told(content: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(InputError, match="is not a result of a run"):
        RunResult.read(tmp_path / "result.json")
    with pytest.raises(InputError, match="there is no result at"):
        RunResult.read(tmp_path / "missing.json")


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file"
    write_atomically(target, "old")

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_text("old")
    link.symlink_to(file)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        heard = pool.submit(pipe.read_text)
        write_atomically(pipe, "said")
        assert heard.result(timeout=10) == "said"
    assert pipe.is_fifo()
    reading, writing = os.pipe()
    write_atomically(Path(f"/dev/fd/{writing}"), "said")  # as /dev/stdout is where it is piped
    assert os.read(reading, 10) == b"said"
    for end in (reading, writing):
        os.close(end)


@pytest.mark.parametrize(
    ("dataset", "noise", "model", "training"),
    [
        ("mnist", NoiseKind.LABEL, "simple_cnn", Training(40, 20, 300, 1e-3, 1e-6, 32)),
        ("mnist", NoiseKind.SALT_AND_PEPPER, "simple_cnn", Training(40, 20, 128, 1e-3, 1e-6, 32)),
        ("fashionmnist", NoiseKind.NONE, "resnet18", Training(40, 20, 300, 3e-2, 1e-6, 32)),
        ("fashionmnist", NoiseKind.UNIFORM, "resnet18", Training(40, 20, 128, 1e-3, 1e-6, 64)),
        ("cifar10", NoiseKind.LABEL, "resnet18", Training(40, 20, 300, 4e-2, 1e-6, 32)),
        ("cifar10", NoiseKind.UNIFORM, "resnet18", Training(40, 20, 300, 4e-2, 1e-6, 32)),
        ("mstar", NoiseKind.LABEL, "efficientnet_v2_s", Training(40, 20, 60, 1e-3, 1e-6, 18)),
        ("mstar", NoiseKind.SALT_AND_PEPPER, "efficientnet_v2_s", Training(40, 20, 30, 1e-3, 1e-6, 18)),
        ("pathmnist", NoiseKind.LABEL, "efficientnet_v2_s", Training(10, 20, 256, 1e-3, 1e-5, 16)),
        ("digits", NoiseKind.LABEL, "simple_cnn", Training(10, 10, 25, 1e-3, 1e-6, 32)),
        ("folder", NoiseKind.LABEL, "resnet18", Training(20, 20, 60, 1e-3, 1e-6, 32)),
    ],
)
def test_defaults_are_the_papers_where_it_has_some(
    dataset: str, noise: NoiseKind, model: str, training: Training
) -> None:
    assert defaults_for(dataset, noise) == Defaults(model, training)


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda")
    with pytest.raises(InputError, match="there is no device 'gpu'"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="sees no CUDA device"):
            choose_device("cuda")


def test_data_that_cannot_tell_what_was_learned_is_refused_before_it_is(few_digits: Dataset) -> None:
    has_test = few_digits.test_labels != 2
    gap = replace(
        few_digits, test_images=few_digits.test_images[has_test], test_labels=few_digits.test_labels[has_test]
    )
    with pytest.raises(InputError, match="'digits_4' has no test image of class '2'"):
        execute(QUICK, gap, torch.device("cpu"), observer=lambda *_: pytest.fail("epochs were spent"))
