"""Whatever a file holds, its reader gives something usable or one sentence, never anything else.

The formats that have no tests of their own kind elsewhere: those of studies and runs, of a learner's manifest and
checkpoints, CIFAR-10, and the images beside a result. Of idx, PathMNIST's npz, image files, tensor files, records and
reviews tell `test_idx`, `test_pathmnist`, `test_folder`, `test_field_state` and `test_tensor_tree`.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from continual_crust import ContinualLearner
from continual_crust.data import Dataset, Noise, NoiseKind, cifar10
from continual_crust.data.loading import Request
from continual_crust.errors import InputError
from continual_crust.field.checkpoint import Checkpoint
from continual_crust.field.generation import Damaged, _parsed_sums
from continual_crust.field.lesson import Lesson
from continual_crust.field.review_data import review_data
from continual_crust.field.state import StateFolder
from continual_crust.field.strategy import FieldSift
from continual_crust.models import build_model
from continual_crust.selection.trust import Assessment
from continual_crust.strategies import STRATEGIES, Training
from continual_crust.studies import memory
from continual_crust.studies.config import RunConfig
from continual_crust.studies.finished import read_finished
from continual_crust.studies.memory import load_memory, save_memory
from continual_crust.studies.result import RunResult
from continual_crust.studies.run import _resume, build_strategy, execute, load_learner, read_config, save_learner
from continual_crust.studies.study_file import parse_study
from continual_crust.tensor_tree import pack_tree, unpack_tree
from field_images import command, numbers_of

some = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from(["label", "crust", "digits", "label:0.5", "..", "../x", "1e400", "2001-99-99", -1, 10**30])
)  # fmt: skip
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)

CONFIG = RunConfig(
    "digits", "crust", "simple_cnn", Noise(NoiseKind.LABEL, 0.4), 0, Training(1, 0, memory_per_class=3), first_classes=3
)
STUDY = {
    "id": "mine",
    "title": "A study",
    "datasets": ["digits"],
    "methods": ["replay", {"method": "crust", "selector": {"rule": "centrality"}, "training": {"learning_rate": 0.1}}],
    "noise": {"kind": "label", "levels": [0.0, 0.4]},
    "memory": [5],
    "seeds": 2,
    "overrides": {"phase1_epochs": 2},
}


@st.composite
def changed(draw: st.DrawFn, whole: Any) -> Any:
    """A document of which some part, at any depth, is something else, missing or there twice."""
    document = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 2))):
        place = document
        while True:
            inside = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not inside:
                break
            key = draw(st.sampled_from(inside))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
                continue
            what = draw(st.sampled_from(["replace", "remove", "add"]))
            if what == "remove":
                del place[key]
            elif what == "add" and isinstance(place, list):
                place.append(draw(VALUES))
            elif what == "add":
                place[draw(st.text(max_size=5))] = draw(VALUES)
            else:
                place[key] = draw(VALUES)
            break
    return document


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes that are cut off, changed or doubled somewhere."""
    start = draw(st.integers(0, len(whole)))
    end = draw(st.integers(start, min(len(whole), start + 40)))
    return whole[:start] + draw(st.binary(max_size=20)) + (whole[end:] if draw(st.booleans()) else b"")


# ---- Studies and runs --------------------------------------------------------------------------------------------


@some
@given(
    st.text(max_size=60) | damaged(yaml.safe_dump(STUDY).encode()).map(lambda content: content.decode(errors="replace"))
)
def test_any_text_is_a_study_or_one_sentence(text: str) -> None:
    with contextlib.suppress(InputError):
        study = parse_study(text, "here")
        assert Path("runs", study.id).parent == Path("runs")


@some
@given(changed(STUDY))
def test_any_document_is_a_study_or_one_sentence(document: Any) -> None:
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(InputError):
        patch.setattr(yaml.SafeDumper, "ignore_aliases", lambda *_: True)
        study = parse_study(yaml.safe_dump(document), "here")
        assert all(run.method in STRATEGIES for run in study.runs())


@pytest.fixture(scope="module")
def run(few_digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("run")
    finished = execute(CONFIG, few_digits, torch.device("cpu"), checkpoint=folder / "checkpoint.safetensors")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG.as_dict()))
    finished.result.write(folder / "result.json")
    save_learner(finished.strategy, folder / "learner.safetensors")
    save_memory(finished, folder / "memory.npz")
    return folder


@some
@given(data=st.data())
def test_any_configuration_is_one_or_one_sentence(tmp_path: Path, data: st.DataObject) -> None:
    whole = CONFIG.as_dict()
    text = data.draw(changed(whole).map(yaml.safe_dump).map(str.encode) | damaged(yaml.safe_dump(whole).encode()))
    (tmp_path / "config.yaml").write_bytes(text)
    with contextlib.suppress(InputError):
        assert isinstance(read_config(tmp_path), RunConfig)


@some
@given(data=st.data())
def test_any_result_is_one_or_one_sentence(run: Path, tmp_path: Path, data: st.DataObject) -> None:
    whole = (run / "result.json").read_bytes()
    content = data.draw(changed(json.loads(whole)).map(lambda found: json.dumps(found).encode()) | damaged(whole))
    (tmp_path / "result.json").write_bytes(content)
    shutil.copy(run / "config.yaml", tmp_path / "config.yaml")
    with contextlib.suppress(InputError):
        RunResult.read(tmp_path / "result.json")
    with contextlib.suppress(InputError):
        _, result = read_finished(tmp_path)
        assert result is not None
        assert len(result.accuracy_matrix[0]) >= len(result.accuracy_matrix)


@pytest.mark.parametrize("content", [b"[" * 1500, b'{"a":' * 1500, b"\xff", b"- " * 1500])
def test_nests_without_end_are_one_sentence(content: bytes, tmp_path: Path) -> None:
    for name, read in (
        ("config.yaml", lambda: read_config(tmp_path)),
        ("result.json", lambda: RunResult.read(tmp_path / "result.json")),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError):
            read()
    if content != b"\xff":
        with pytest.raises(InputError):
            parse_study(content.decode(), "here")


@some
@given(data=st.data())
def test_a_damaged_learner_is_one_sentence(run: Path, few_digits: Dataset, tmp_path: Path, data: st.DataObject) -> None:
    whole = (run / "learner.safetensors").read_bytes()
    content = data.draw(damaged(whole))
    (tmp_path / "learner").write_bytes(content)
    strategy = build_strategy(CONFIG, few_digits, torch.device("cpu"))
    if content == whole:
        load_learner(strategy, tmp_path / "learner")
        return
    with pytest.raises(InputError, match="is not a learner of this configuration"):
        load_learner(strategy, tmp_path / "learner")


@settings(some, max_examples=25)
@given(data=st.data())
def test_a_forged_learner_is_refused_or_a_learner(
    run: Path, few_digits: Dataset, tmp_path: Path, data: st.DataObject
) -> None:
    whole = unpack_tree((run / "learner.safetensors").read_bytes())
    (tmp_path / "learner").write_bytes(pack_tree(data.draw(changed(whole))))
    strategy = build_strategy(CONFIG, few_digits, torch.device("cpu"))
    try:
        load_learner(strategy, tmp_path / "learner")
    except InputError:
        return
    assert strategy.predict(few_digits.test_images[:2]).shape == (2,)
    strategy.remembered()


@settings(some, max_examples=5)
@given(data=st.data())
def test_a_damaged_checkpoint_costs_time_and_nothing_else(
    run: Path, few_digits: Dataset, tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(data.draw(damaged((run / "checkpoint.safetensors").read_bytes())))
    result = execute(CONFIG, few_digits, torch.device("cpu"), checkpoint=path).result
    assert result.accuracy_matrix == RunResult.read(run / "result.json").accuracy_matrix


@some
@given(data=st.data())
def test_a_forged_checkpoint_is_refused_or_a_checkpoint(
    run: Path, few_digits: Dataset, tmp_path: Path, data: st.DataObject
) -> None:
    whole = unpack_tree((run / "checkpoint.safetensors").read_bytes())
    (tmp_path / "checkpoint").write_bytes(pack_tree({**whole, "progress": data.draw(changed(whole["progress"]))}))
    with contextlib.suppress(InputError):
        strategy = build_strategy(CONFIG, few_digits, torch.device("cpu"))
        progress = _resume(strategy, tmp_path / "checkpoint", few_digits.fingerprint, whole["revision"])
        assert len(progress.accuracy_matrix) == len(progress.purities)
        assert isinstance(progress.seconds + sum(map(sum, progress.accuracy_matrix)), int | float)


@some
@given(data=st.data())
def test_any_images_beside_a_result_are_shown_or_left_out(run: Path, tmp_path: Path, data: st.DataObject) -> None:
    whole = (run / "memory.npz").read_bytes()
    (tmp_path / "memory.npz").write_bytes(data.draw(damaged(whole)))
    for one in load_memory(tmp_path / "memory.npz") or []:
        assert one.images.ndim == 4


def test_images_beside_a_result_cannot_fill_the_memory(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small archive may unpack to any size; what it says of itself is looked at first."""
    assert load_memory(run / "memory.npz")
    with zipfile.ZipFile(run / "memory.npz") as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    monkeypatch.setattr(memory, "LARGEST", size - 1)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was read"))
    assert load_memory(run / "memory.npz") is None


# ---- A learner's folder ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def state(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small learner of one generation."""
    path = tmp_path_factory.mktemp("saved") / "state"
    learner = ContinualLearner(memory_per_class=3, phase1_epochs=1, phase2_epochs=1, device="cpu")
    learner.learn(np.concatenate([numbers_of(digits, 0)[:9], numbers_of(digits, 1)[:9]]), ["a"] * 9 + ["b"] * 9)
    learner.save(path)
    return path


@settings(some, max_examples=25)
@given(data=st.data())
def test_a_well_signed_manifest_of_any_content_is_used_or_one_sentence(
    state: Path, tmp_path: Path, data: st.DataObject, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = StateFolder(state).newest()
    files = {name: (newest.path / name).read_bytes() for name in newest.checksums}
    files["manifest.json"] = json.dumps(data.draw(changed(newest.manifest))).encode()
    shutil.rmtree(tmp_path / "S", ignore_errors=True)
    folder = StateFolder(tmp_path / "S")
    with contextlib.suppress(Damaged, InputError):
        folder.write(files)
    for read in (
        lambda: ContinualLearner.load(folder.path, device="cpu").predict(np.zeros((1, 8, 8), np.uint8)),
        lambda: review_data(folder.newest(), most=9),
    ):
        with contextlib.suppress(InputError):
            read()
    code = command("info", folder.path)
    error = capsys.readouterr().err
    assert code in (0, 2)
    assert len(error.strip().splitlines()) == (0 if code == 0 else 1)


@given(st.binary(max_size=200) | damaged(f"{'a' * 64}  manifest.json\n{'0' * 64}  seen-00000.safetensors\n".encode()))
def test_any_bytes_are_checksums_or_damage(content: bytes) -> None:
    with contextlib.suppress(Damaged):
        assert all(len(value) == 64 and "/" not in name for name, value in _parsed_sums(content).items())


@some
@given(data=st.data())
def test_a_damaged_lesson_starts_over(tmp_path: Path, data: st.DataObject) -> None:
    strategy, again = (
        FieldSift(build_model("simple_cnn", (1, 8, 8), 2, seed=seed), Training(1, 1), seed=seed) for seed in (1, 2)
    )
    lesson = Lesson(2, 1, {0: Assessment(np.ones(3, np.float32), None)}, chosen={0: torch.arange(2)})
    path = tmp_path / "checkpoint"
    Checkpoint(path, "key", every=-1).save(strategy, lesson)
    whole = path.read_bytes()
    content = data.draw(damaged(whole))
    path.write_bytes(content)
    before = {name: value.clone() for name, value in again.network.model.state_dict().items()}
    found = Checkpoint(path, "key", every=0).resumed(again)
    if content == whole:
        assert (found.stage, found.epochs) == (2, 1)
        return
    assert found == Lesson()
    assert all(torch.equal(value, before[name]) for name, value in again.network.model.state_dict().items())
    path.write_bytes(whole)
    assert Checkpoint(path, "another lesson", every=0).resumed(again) == Lesson()


# ---- CIFAR-10 ----------------------------------------------------------------------------------------------------

IMAGES = 12
BATCH = np.pad(np.arange(IMAGES, dtype=np.uint8)[:, np.newaxis] % 10, ((0, 0), (0, 3072))).tobytes()


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few images; otherwise as they are."""
    monkeypatch.setattr(cifar10, "_IMAGES_PER_FILE", IMAGES)
    monkeypatch.setattr(cifar10, "_FILE_BYTES", IMAGES * 3073)


@some
@given(content=st.binary(max_size=100) | damaged(BATCH) | st.binary(min_size=len(BATCH), max_size=len(BATCH)))
def test_any_file_is_a_batch_of_cifar10_or_one_sentence(content: bytes, small_files: None, tmp_path: Path) -> None:
    (tmp_path / "batch.bin").write_bytes(content)
    with contextlib.suppress(InputError):
        images, labels = cifar10._read([tmp_path / "batch.bin"])
        assert images.shape == (IMAGES, 3, 32, 32)
        assert labels.max() < 10


@some
@given(data=st.data())
def test_no_archive_writes_outside_its_folder(
    data: st.DataObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever names and kinds of members it has: links, folders, devices, the right names twice."""
    root = tmp_path / "data"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    inside = [f"{cifar10._FOLDER}/{file}" for file in (*cifar10._TRAIN, *cifar10._TEST)]
    name = st.sampled_from(["../escaped", str(tmp_path / "escaped"), cifar10._FOLDER, *inside])
    kinds = st.sampled_from([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, kind in data.draw(st.lists(st.tuples(name, kinds), max_size=8)):
            member = tarfile.TarInfo(path)
            member.type, member.linkname = kind, str(tmp_path / "secret")
            member.size = 3 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"abc"))
    content = buffer.getvalue()
    (root / "cifar.tar.gz").write_bytes(data.draw(st.just(content) | damaged(content)))
    monkeypatch.setattr(cifar10, "_URL", "https://nowhere.invalid/cifar.tar.gz")
    utils = cifar10.import_torchvision().datasets.utils
    monkeypatch.setattr(utils, "download_url", lambda *_, **__: None)
    with contextlib.suppress(Exception):  # told in one sentence by whoever asked: see test_downloads
        cifar10.download(Request(root))
    made = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    allowed = {cifar10._FOLDER, "cifar.tar.gz", *inside}
    assert made <= allowed
    assert not any(path.is_symlink() for path in root.rglob("*"))
    assert {path.name for path in tmp_path.iterdir()} == {"data", "secret"}
    for path in root.glob(f"{cifar10._FOLDER}/*"):
        assert path.read_bytes() != b"secret"
