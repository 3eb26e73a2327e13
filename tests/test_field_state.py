"""The folder STATE: generations, checksums, and readers that trust nothing."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from continual_crust import ContinualLearner
from continual_crust.data import Dataset
from continual_crust.errors import InputError
from continual_crust.field import state as state_module
from continual_crust.field.generation import FORMAT, VERSION, Damaged, Generation
from continual_crust.field.review_file import parse_review, read_review
from continual_crust.field.seen import RIGHT, WRONG, Seen, digest_of, thumbnail_of
from continual_crust.field.state import StateFolder
from continual_crust.tensor_file import NotATensorFile, pack, unpack
from field_images import fingerprint, numbers_of

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]
MANIFEST = {"format": FORMAT, "version": VERSION, "settings": {}, "classes": [], "batches": []}


def manifest(**changes: object) -> dict[str, bytes]:
    return {"manifest.json": json.dumps(MANIFEST | changes).encode()}


@pytest.fixture(scope="module")
def saved(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small learner with two generations; read only."""
    path = tmp_path_factory.mktemp("saved") / "state"
    learner = ContinualLearner(memory_per_class=4, phase1_epochs=1, phase2_epochs=1, device="cpu")
    learner.learn(np.concatenate([numbers_of(digits, 0)[:10], numbers_of(digits, 1)[:10]]), ["a"] * 10 + ["b"] * 10)
    learner.save(path)
    learner.learn(numbers_of(digits, 2)[:10], ["c"] * 10)
    learner.save(path)
    return path


@pytest.fixture
def state(saved: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    shutil.copytree(saved, tmp_path / "state")
    return tmp_path / "state"


def test_two_generations_are_kept(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "s")
    with folder.locked():
        for number in range(1, 5):
            assert folder.write(manifest(batches=[{"source": str(number)}])).number == number
    assert folder.numbers() == [3, 4]
    assert folder.newest().manifest["batches"] == [{"source": "4"}]
    assert not list((tmp_path / "s" / "generations").glob(".*"))


def test_checksums_are_those_of_sha256sum(state: Path) -> None:
    import hashlib

    for generation in (state / "generations").iterdir():
        lines = dict(reversed(line.split("  ")) for line in (generation / "SHA256SUMS").read_text().splitlines())
        assert lines.keys() == {path.name for path in generation.iterdir()} - {"SHA256SUMS"}
        for name, expected in lines.items():
            assert hashlib.sha256((generation / name).read_bytes()).hexdigest() == expected


@pytest.mark.parametrize("name", ["SHA256SUMS", "manifest.json", "learner.safetensors", "seen-00001.safetensors"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "empty"])
def test_a_damaged_generation_is_passed_over_with_a_sentence(name: str, damage: str, state: Path) -> None:
    file = state / "generations" / "000002" / name
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    file.write_bytes(b"" if damage == "empty" else content[:-1] if damage == "cut" else content)
    if damage == "remove":
        file.unlink()
    newest = StateFolder(state).newest()
    assert newest.number == 1
    assert "generation 2" in newest.passed_over[0]
    assert "damaged" in newest.passed_over[0]
    assert ContinualLearner.load(state, device="cpu").classes_.tolist() == ["a", "b"]


def test_learning_on_after_damage_keeps_the_good_generation(state: Path) -> None:
    (state / "generations" / "000002" / "manifest.json").write_text("{}")
    learner = ContinualLearner.load(state, device="cpu")
    learner.save(state)
    assert StateFolder(state).numbers() == [1, 3]


def test_when_nothing_is_whole_it_says_so(state: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        (state / "generations" / f"{number:06d}" / "learner.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"no generation in .* is whole: .*does not match its checksum"):
        StateFolder(state).newest()
    with pytest.raises(InputError, match="there is no learner in"):
        StateFolder(tmp_path / "nowhere").newest()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="there is no learner in"):
        StateFolder(tmp_path / "file").newest()


def test_a_newer_format_is_not_guessed_at(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    with folder.locked(), pytest.raises(InputError, match="version 2 of its format"):
        folder.write(manifest(version=2))


def test_two_processes_cannot_learn_at_once(state: Path) -> None:
    with (
        StateFolder(state).locked(),
        pytest.raises(InputError, match="another process is learning"),
        StateFolder(state).locked(),
    ):
        pass


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("call", ["write", "sync", "rename"])
def test_a_disk_that_refuses_leaves_the_state_as_it_was(
    number: int, call: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(state)
    learner = ContinualLearner.load(state, device="cpu")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    where = {"write": (state_module, "_write_through"), "sync": (os, "fsync"), "rename": (os, "rename")}[call]
    with monkeypatch.context() as patched:
        patched.setattr(*where, refuse)
        with pytest.raises(InputError, match=f"cannot write to .*{os.strerror(number)}.*as it was before"):
            learner.save(state)
    assert fingerprint(state) == before
    assert not list((state / "generations").glob(".*"))
    learner.save(state)
    assert StateFolder(state).newest().number == 3


def test_a_state_that_was_never_made_leaves_nothing(tmp_path: Path) -> None:
    with contextlib.suppress(ZeroDivisionError), StateFolder(tmp_path / "new").locked():
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".notes.txt").write_text("mine")
    with contextlib.suppress(ZeroDivisionError), StateFolder(tmp_path / "mine").locked():
        raise ZeroDivisionError
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [".notes.txt"]


@pytest.mark.parametrize("names", [["work/photo.png"], ["lock"], ["lock", "work/images/photo.png", "notes.txt"]])
def test_a_folder_of_other_things_is_refused_and_left_alone(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="is a folder of other things"), StateFolder(tmp_path).locked():
        pass
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def test_only_own_files_leave_the_workplace(state: Path) -> None:
    folder = StateFolder(state)
    folder.work.mkdir()
    for name in ("mine.png", "checkpoint.safetensors", ".checkpoint.safetensors.1a2b.unfinished"):
        (folder.work / name).write_text("")
    folder.clear_work()
    assert [path.name for path in folder.work.iterdir()] == ["mine.png"]


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=8),
        st.tuples(st.sampled_from(TYPES), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 2**32)),
        max_size=6,
    )
)
def test_arrays_survive_a_file(contents: dict[str, tuple[torch.dtype, list[int], int]]) -> None:
    tensors = {
        name: (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 4).to(dtype)
        for name, (dtype, shape, seed) in contents.items()
        if name != "__metadata__"
    }
    packed = pack(tensors)
    back = unpack(packed)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert back[name].shape == tensor.shape
        assert torch.equal(back[name], tensor)
    assert pack(back) == packed


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 120))
def test_no_bytes_are_mistaken_for_arrays(content: bytes, length: int) -> None:
    for candidate in (content, length.to_bytes(8, "little") + content):
        with contextlib.suppress(NotATensorFile):
            assert unpack(candidate) == {} or pack(unpack(candidate))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["F32", "U8", "BOOL", "shape"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dtype", "shape", "a"]), inner),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=3),
        JSON | st.fixed_dictionaries({"dtype": JSON, "shape": JSON, "data_offsets": st.lists(JSON, max_size=3)}),
    ),
    st.binary(max_size=16),
)
def test_no_header_can_claim_what_is_not_there(header: dict[str, object], body: bytes) -> None:
    text = json.dumps(header).encode()
    with contextlib.suppress(NotATensorFile):
        tensors = unpack(len(text).to_bytes(8, "little") + text + body)
        assert sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) == len(body)


def record(names: list[str]) -> Seen:
    images = np.arange(len(names) * 64, dtype=np.uint8).reshape(-1, 1, 8, 8)
    digests = np.stack([digest_of(image) for image in images]) if names else np.zeros((0, 16), np.uint8)
    return Seen.of(names, [thumbnail_of(image) for image in images], digests, batch=0)


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=6))
def test_a_record_survives_a_file_and_names_are_unique(names: list[str]) -> None:
    seen = Seen.nothing().extended(record(names))
    seen.mark[:] = RIGHT
    back = Seen.from_tensors(unpack(pack(seen.tensors())))
    assert back.files == names
    assert back.thumbnails == seen.thumbnails
    assert back.names() == seen.names()
    assert (back.digest == seen.digest).all()
    assert pack(back.tensors()) == pack(seen.tensors())
    assert len(set(seen.names())) == len(names)


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "a (2)", "a (3)", "a (2) (2)", "b"]), max_size=5), max_size=4))
def test_names_stay_unique_and_as_they_are_when_more_come(batches: list[list[str]]) -> None:
    """Two folders may have files of the same name, and a file may be called what a repeated name would be."""
    seen = Seen.nothing()
    for names in batches:
        before = seen.names()
        seen = seen.extended(record(names))
        assert seen.names()[: len(before)] == before
        assert len(set(seen.names())) == len(seen)
    again = Seen.from_tensors(unpack(pack(seen.tensors())))
    assert again.names() == seen.names()


@settings(deadline=None)
@given(st.data())
def test_a_tampered_record_is_refused_or_harmless(data: st.DataObject) -> None:
    tensors = record(["a.png", "b.png"]).tensors()
    name = data.draw(st.sampled_from(sorted(tensors)))
    what = data.draw(st.sampled_from(["drop", "retype", "grow", "values"]))
    if what == "drop":
        del tensors[name]
    elif what == "retype":
        tensors[name] = tensors[name].to(data.draw(st.sampled_from([torch.float32, torch.int64, torch.uint8])))
    elif what == "grow":
        tensors[name] = torch.cat([tensors[name], tensors[name]])
    else:
        value = data.draw(st.integers(-(2**31), 2**31 - 1))
        tensors[name] = torch.full_like(tensors[name].long(), value).to(tensors[name].dtype)
    try:
        seen = Seen.from_tensors(tensors)
    except NotATensorFile:
        return
    assert len(seen.files) == len(seen.thumbnails) == len(seen.names()) == 2


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_generation_that_was_changed_is_never_read(saved: Path, data: st.DataObject) -> None:
    generation = saved / "generations" / "000002"
    file = generation / data.draw(st.sampled_from(sorted(path.name for path in generation.iterdir())))
    content = file.read_bytes()
    changed = bytearray(content)
    at = data.draw(st.integers(0, len(content) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        file.write_bytes(changed)
        with pytest.raises(Damaged):
            Generation.read(generation)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {}},
        {"settings": None},
        {"classes": [{}]},
        {"classes": [{"name": None, "seen": 0, "kept": 0, "looks_wrong": 0, "noise": None}]},
        {"classes": [1]},
        {"classes": [{"name": "a", "seen": 0, "kept": 0, "looks_wrong": 0, "noise": None, "noise_batch": 9}]},
        {"batches": {}},
        {"format": "something else"},
    ],
)
def test_a_well_signed_forgery_is_refused(change: dict[str, object], state: Path) -> None:
    """Checksums only tell of accidents; whoever makes a state can make its checksums."""
    newest = StateFolder(state).newest()
    files = {name: (newest.path / name).read_bytes() for name in newest.checksums}
    files["manifest.json"] = json.dumps({**newest.manifest, **change}).encode()
    for path in (state / "generations").iterdir():
        shutil.rmtree(path)
    with contextlib.suppress(Damaged), StateFolder(state).locked():
        StateFolder(state).write(files)
    with pytest.raises(InputError, match="restore"):
        ContinualLearner.load(state, device="cpu")


def test_a_line_that_is_there_twice_counts_once() -> None:
    text = "file,class,mark,new_class\n1.png,a,right,\n1.png,b,wrong,\n1.png,a,right,\n"
    assert [mark.label for mark in parse_review(text, "here")] == ["a", "b"]


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_review_or_refused(text: str) -> None:
    for candidate in (text, "file,class,mark,new_class\n" + text):
        with contextlib.suppress(InputError):
            for mark in parse_review(candidate, "here"):
                assert mark.mark in (1, 2, 3)
                assert (mark.mark == 3) == (mark.new_label is not None)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_review_may_come_from_a_spreadsheet(separator: str, quoting: int, tmp_path: Path) -> None:
    rows = [["file", "class", "mark", "new_class"], ["1, 2.png", "a", "wrong", ""], [""] * 4]
    with (tmp_path / "r.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=separator, quoting=quoting).writerows(rows)
    (mark,) = read_review(tmp_path / "r.csv")
    assert (mark.file, mark.label, mark.mark) == ("1, 2.png", "a", WRONG)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "does not start with the line file,class,mark,new_class"),
        (b"file,class\n", "does not start with"),
        (b"file;class;mark;new_class\n1.png;a;rihgt;\n", "line 2: there is no mark 'rihgt'"),
        (b"\xff\xfe", "not UTF-8"),
        (b"file,class,mark,new_class\n1.png,a,right\n", "line 2 has 3 values instead of 4"),
        (b"file,class,mark,new_class\n1.png,a,rihgt,\n", "line 2: there is no mark 'rihgt'; did you mean 'right'"),
        (b"file,class,mark,new_class\n1.png,a,other,\n", "needs the class it belongs to"),
        (b"file,class,mark,new_class\n1.png,a,right,b\n", "takes no new class"),
        (b'file,class,mark,new_class\n"1.png,a,right,\n', "not CSV"),
        (b"file,class,mark,new_class\n1.png,a,right,\n1.png,a,wrong,\n", "r.csv, line 2 and line 3 contradict"),
        (b"file,class,mark,new_class\n1.png,a,other,b\n\n1.png,a,other,c\n", "line 2 and line 4 contradict"),
    ],
)
def test_a_bad_review_is_one_sentence(text: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(text)
    with pytest.raises(InputError, match=says):
        read_review(tmp_path / "r.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read_review(tmp_path / "nowhere.csv")
