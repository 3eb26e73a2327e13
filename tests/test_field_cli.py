"""`learn`, `predict` and `info` as a person meets them."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from continual_crust import ContinualLearner
from continual_crust.data import Dataset
from continual_crust.errors import InputError
from continual_crust.field import folder as folder_module
from continual_crust.field import rows as rows_module
from continual_crust.field import strategy as strategy_module
from continual_crust.field.folder import DecodedFiles, Form, image_files
from continual_crust.field.seen import OTHER, RIGHT, WRONG, digest_of
from continual_crust.field.session import Session
from continual_crust.field.state import StateFolder
from continual_crust.field.strategy import FieldSift
from continual_crust.strategies.training import Phase, Trainable
from field_images import QUICK, command, digit_folders, fingerprint, numbers_of, write_images
from unprivileged import permissions_in_force


@pytest.fixture(scope="module")
def made(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A learner of 0 and 1 and the folder it learned from; read only."""
    root = tmp_path_factory.mktemp("made")
    images = digit_folders(root / "images", digits)
    asked = {"phase1_epochs": 2, "phase2_epochs": 2, "memory_per_class": 6}
    Session(StateFolder(root / "S"), "cpu").learn_folder(images, None, asked)
    return root / "S", images


@pytest.fixture
def state(made: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy that may be changed."""
    shutil.copytree(made[0], tmp_path / "S")
    return tmp_path / "S"


def learner_in(state: Path) -> ContinualLearner:
    return ContinualLearner.load(state, device="cpu")


def test_learn_predict_and_info(digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = digit_folders(tmp_path / "images", digits)
    two = write_images(tmp_path / "two", numbers_of(digits, 2)[:16])
    state = tmp_path / "S"
    assert command("learn", state, images, *QUICK) == 0
    printed = capsys.readouterr().out
    assert "wrong labels, estimated" in printed
    assert command("learn", state, two, "--label", "two") == 0
    assert sorted(path.name for path in state.iterdir()) == ["generations", "lock"]
    assert learner_in(state).classes_.tolist() == ["0", "1", "two"]
    assert learner_in(state).settings_.memory_per_class == 6
    capsys.readouterr()

    # The old images are not needed any more.
    shutil.rmtree(images)
    asked = [two / "0.png", two / "1.png"]
    assert command("predict", state, *asked, "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["file"] for row in rows] == list(map(str, asked))
    assert command("predict", state, two, "--format", "json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) == 16
    assert {row["class"] for row in listed} <= {"0", "1", "two"}
    assert listed[0]["probability"] == pytest.approx(float(rows[0]["probability"]), abs=1e-5)
    expected = learner_in(state).predict_proba(numbers_of(digits, 2)[:1]).max()
    assert listed[0]["probability"] == pytest.approx(expected, abs=1e-5)
    assert command("predict", state, two / "0.png") == 0
    assert "probability" in capsys.readouterr().out
    assert command("info", state) == 0
    shown = capsys.readouterr().out
    assert "two" in shown
    assert "generation 2" in shown
    assert "simple_cnn, 8×8 pixels in grey" in shown
    assert command("info", state, "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["generation"] == 2
    assert [(one["name"], one["seen"], one["kept"]) for one in told["classes"]] == [
        ("0", 16, 6),
        ("1", 16, 6),
        ("two", 16, 6),
    ]
    assert told["classes"][0]["noise"].keys() == {"estimate", "low", "high"}
    assert [(batch["source"], batch["images"]) for batch in told["batches"]] == [(str(images), 32), (str(two), 16)]
    assert command("info", state, "--format", "xml") == 2


def test_known_images_are_not_learned_twice(
    state: Path, made: tuple[Path, Path], digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = fingerprint(state)
    assert command("learn", state, made[1]) == 0
    assert "Nothing new to learn" in capsys.readouterr().out
    assert fingerprint(state) == before
    more = write_images(tmp_path / "more", numbers_of(digits, 0)[8:24])
    assert command("learn", state, more, "--label", "0") == 0
    assert "8 images are known already" in capsys.readouterr().out
    seen = learner_in(state).seen("0")
    assert len(seen) == 24
    assert seen.names()[15:17] == ["0/15.png", "8.png"]
    assert seen.batch.tolist() == [0] * 16 + [1] * 8


def test_every_kind_of_file_is_learned_or_reported(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mixed sizes and modes, broken images, bombs, pipes, litter and names that are no UTF-8."""
    images = digit_folders(tmp_path / "images", digits)
    mixed = images / "0"
    whole = Image.fromarray(numbers_of(digits, 0)[20])
    whole.resize((20, 11)).save(mixed / "large.bmp")
    whole.convert("RGBA").save(mixed / "with alpha.png")
    whole.convert("P").save(mixed / "palette.gif")
    Image.fromarray(np.asarray(whole).astype(np.uint16) * 257).save(mixed / "sixteen bits.tif")
    whole.save(mixed / "[bold]<b>.jpeg")
    (mixed / "nested").mkdir()
    whole.rotate(5).save(mixed / "nested" / "deep.webp")
    Image.fromarray(numbers_of(digits, 0)[21]).save(os.fsencode(mixed) + b"/caf\xe9.png")
    good = 16 + 7

    (mixed / "notes.txt").write_text("not an image")
    (mixed / "empty.png").write_bytes(b"")
    content = (mixed / "3.png").read_bytes()
    (mixed / "cut.png").write_bytes(content[: len(content) // 2])
    Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(mixed / "nan.tif")
    (mixed / "gone.png").symlink_to(tmp_path / "nowhere.png")
    os.mkfifo(mixed / "pipe.png")  # to read it would be to wait for ever
    bomb = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + bomb + struct.pack(">I", zlib.crc32(b"IHDR" + bomb))
    (mixed / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + content[33:])
    (mixed / ".hidden").write_text("")
    (mixed / "Thumbs.db").write_text("")
    assert command("learn", tmp_path / "S", images, *QUICK) == 0
    printed = capsys.readouterr().out
    assert "7 files skipped:" in printed
    for name in ("notes.txt", "empty.png", "cut.png", "nan.tif", "gone.png", "pipe.png", "bomb.png"):
        assert f"0/{name}" in printed
    learner = learner_in(tmp_path / "S")
    # The palette's and the alpha's images are the same picture, so they count once.
    assert good - 3 <= len(learner.seen("0")) <= good
    assert "0/caf\\xe9.png" in learner.seen("0").names()
    assert "0/nested/deep.webp" in learner.seen("0").names()
    assert "0/[bold]<b>.jpeg" in learner.seen("0").names()
    assert learner.settings_.image_shape[1:] == (8, 8)
    assert command("predict", tmp_path / "S", mixed / "cut.png", mixed / "1.png") == 1
    assert "1 file skipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("nothing given", "learn needs a folder of images or --review FILE"),
        ("no folder", "there is no folder"),
        ("empty folder", "holds no class folders; if all its images are of one class, add --label NAME"),
        ("empty class", "there is no file in"),
        ("only junk", "none of 2 files is an image"),
        ("loose images", "add --label NAME"),
        ("empty label", "--label is empty"),
        ("label alone", "--label is for the images of a folder"),
        ("no folder beside a review", "there is no folder"),
        ("empty class beside a review", "there is no file in"),
        ("other memory beside a review", "was made with memory_per_class (--memory) 6, not 7"),
        ("other memory and a review alone", "was made with memory_per_class (--memory) 6, not 7"),
        ("other memory", "was made with memory_per_class (--memory) 6, not 7"),
        ("other network", "was made with model simple_cnn, not resnet18; leave the option out"),
        ("other epochs", "was made with phase1_epochs 2, not 3"),
        ("other size", "knows images of 8×8 pixels, not 16"),
        ("no such selector", "did you mean 'crust'"),
        ("bad device", "no device 'tpu'"),
        ("unreadable review", "cannot be read"),
        ("foreign review", "r.csv, line 2: class '0' never had an image 'x.png'"),
        ("foreign class", "r.csv, line 2: there is no class 'nine'"),
        ("unknown class", "r.csv, line 2: there is no class 'zwei'"),
        ("own class", "r.csv, line 2 moves 0/0.png to the class it is in"),
        ("own class as a new one", "r.csv, line 2 moves 0/0.png to the class it is in"),
        ("state is a file", "cannot write to"),
        ("locked", "another process is learning"),
        ("out of memory", "not enough memory"),
        ("disk full", "No space left on device"),
        ("disk fills up", "No space left on device"),
    ],
)
def test_bad_input_is_one_sentence_exit_code_2_and_leaves_the_state(
    case: str,
    says: str,
    state: Path,
    digits: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    new = write_images(tmp_path / "new", numbers_of(digits, 2)[:10])
    (tmp_path / "empty" / "class").mkdir(parents=True)
    (tmp_path / "junk" / "class").mkdir(parents=True)
    for name in ("a.txt", "b.png"):
        (tmp_path / "junk" / "class" / name).write_text("junk")
    review = tmp_path / "r.csv"
    rows = {
        "foreign review": "x.png,0,right,",
        "foreign class": "x.png,nine,wrong,",
        "own class": "0/0.png,0,other,0",
        "own class as a new one": "0/0.png,0,new, 0",
    }
    row = rows.get(case, "0/0.png,0,other,zwei")
    review.write_text(f"file,class,mark,new_class\n{row}\n")
    (tmp_path / "good.csv").write_text("file,class,mark,new_class\n0/0.png,0,wrong,\n")
    two = ("--label", "two")
    arguments: dict[str, tuple[object, ...]] = {
        "nothing given": (),
        "no folder": (tmp_path / "nowhere",),
        "empty folder": (tmp_path / "empty" / "class",),
        "empty class": (tmp_path / "empty",),
        "only junk": (tmp_path / "junk",),
        "loose images": (new,),
        "empty label": (new, "--label", " "),
        "label alone": ("--review", tmp_path / "good.csv", *two),
        "no folder beside a review": (tmp_path / "nowhere", "--review", tmp_path / "good.csv"),
        "empty class beside a review": (tmp_path / "empty", "--review", tmp_path / "good.csv"),
        "other memory beside a review": (new, *two, "-k", 7, "--review", tmp_path / "good.csv"),
        "other memory and a review alone": ("--review", tmp_path / "good.csv", "-k", 7),
        "other memory": (new, *two, "-k", 7),
        "other network": (new, *two, "--model", "resnet18"),
        "other epochs": (new, *two, "-m", 3),
        "other size": (new, *two, "--image-size", 16),
        "no such selector": (new, *two, "--selector", "crus"),
        "bad device": (new, *two, "--device", "tpu"),
        "unreadable review": ("--review", tmp_path / "nowhere.csv"),
        "foreign review": ("--review", review),
        "foreign class": ("--review", review),
        **dict.fromkeys(("unknown class", "own class", "own class as a new one"), ("--review", review)),
        "disk fills up": (new, *two, "--checkpoint", 0),
    }
    before = fingerprint(state)
    target = state
    if case == "state is a file":
        target = tmp_path / "file"
        target.write_text("")
    if case == "out of memory":
        gone = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        monkeypatch.setattr(FieldSift, "_choice", lambda *_: (_ for _ in ()).throw(gone))
    if case.startswith("disk"):
        full = OSError(28, os.strerror(28))
        where = (folder_module, "_claim") if case == "disk full" else (os, "fsync")
        monkeypatch.setattr(*where, lambda *_: (_ for _ in ()).throw(full))
    options = arguments.get(case, (new, *two))
    if case == "locked":
        with StateFolder(state).locked():
            assert command("learn", target, *options) == 2
    else:
        assert command("learn", target, *options) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert says in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == 1
    assert fingerprint(state) == before
    assert sorted(path.name for path in state.iterdir()) == ["generations", "lock"]


def test_options_that_say_what_was_chosen_are_taken(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was asked for when it was made, so the network was chosen once and the epochs are for each batch."""
    learner = ContinualLearner(memory_per_class=5, phase2_epochs=1, device="cpu")
    learner.learn(np.concatenate([numbers_of(digits, 0)[:4], numbers_of(digits, 1)[:4]]), ["0"] * 4 + ["1"] * 4)
    learner.save(tmp_path / "S")
    new = write_images(tmp_path / "new", numbers_of(digits, 2)[:4])
    for options in (("--model", "simple_cnn"), ("--model", "auto", "-k", 5)):
        assert command("learn", tmp_path / "S", new, "--label", "2", *options) == 0
    capsys.readouterr()
    assert command("learn", tmp_path / "S", new, "--label", "2", "-m", 3) == 2
    assert "was made with phase1_epochs chosen for each batch, not 3; leave the option out" in capsys.readouterr().err


def test_commands_to_copy_are_quoted(
    state: Path, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("info", "S ätê") == 2
    assert "make one with: continual-crust learn 'S ätê' DIR." in capsys.readouterr().err
    state.rename("S ätê")
    mixed = write_images(tmp_path / "mixed", np.concatenate([numbers_of(digits, digit)[20:40] for digit in (0, 1, 2)]))
    assert command("learn", "S ätê", mixed, "--label", "2") == 0
    assert "see them with: continual-crust review 'S ätê'\n" in capsys.readouterr().out


@contextmanager
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is learned comes to the second epoch, which never ends."""
    epochs = []
    epoch = Phase.epoch

    def stop(self: Phase, *sets: Trainable) -> None:
        epochs.append(1)
        if len(epochs) == 2:
            raise KeyboardInterrupt
        epoch(self, *sets)

    with monkeypatch.context() as patched:
        patched.setattr(Phase, "epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            yield


def stopped_while_learning(state: Path, folder: Path, label: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with stopped(monkeypatch):
        Session(StateFolder(state), "cpu", checkpoint_seconds=0).learn_folder(folder, label, {})


def test_a_lesson_that_was_stopped_is_told_and_given_up_only_for_another(
    state: Path,
    made: tuple[Path, Path],
    digits: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    two, three = (write_images(tmp_path / str(digit), numbers_of(digits, digit)[:10]) for digit in (2, 3))
    for given_up in (True, False):
        stopped_while_learning(state, two, "two", monkeypatch)
        lesson = f"the learning of {two} as 'two'"
        assert command("info", state) == 0
        assert capsys.readouterr().err == f"{lesson} has not ended; if it was stopped, repeat its command to go on.\n"
        # Nothing new to learn is nothing to give it up for.
        assert command("learn", state, made[1]) == 0
        assert capsys.readouterr().err == ""
        chosen = (three, "--label", "three") if given_up else (two, "--label", "two")
        assert command("learn", state, *chosen) == 0
        told = f"{lesson} had not ended and was given up; repeat its command if it is still wanted.\n"
        assert capsys.readouterr().err == (told if given_up else "")
        assert sorted(path.name for path in state.iterdir()) == ["generations", "lock"]
    stopped_while_learning(state, write_images(tmp_path / "4", numbers_of(digits, 4)[:10]), "four", monkeypatch)
    with pytest.raises(InputError, match=r"as 'four' has not ended; .* or use overwrite to give it up"):
        learner_in(state).save(state)
    assert command("undo", state) == 0
    told = f"the learning of {tmp_path / '4'} as 'four' had not ended and was given up"
    assert capsys.readouterr().err.startswith(told)
    assert sorted(path.name for path in state.iterdir()) == ["generations", "lock"]


def test_a_review_does_not_go_on_from_another_that_was_stopped(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a slip is mended in the file: other images are left of the same class, and as many."""
    seen = learner_in(made[0]).seen("0")
    first, last = (seen.names()[int(np.flatnonzero(seen.kept)[at])] for at in (0, -1))
    ends = []
    for name, disturbed in (("whole", False), ("stopped", True)):
        state = shutil.copytree(made[0], tmp_path / name)
        session = Session(StateFolder(state), "cpu", checkpoint_seconds=0)
        if disturbed:
            with stopped(monkeypatch):
                session.apply_review(marks(tmp_path / "r.csv", (first, "0", "wrong", "")))
            assert StateFolder(state).unfinished() is not None
        assert session.apply_review(marks(tmp_path / "r.csv", (last, "0", "wrong", ""))).marked == 1
        ends.append(fingerprint(state))
    assert ends[0] == ends[1]


def test_a_lesson_that_cannot_go_on_says_that_it_started_over(
    state: Path, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where an option is forgotten in the repeated command, or more images have come."""
    more = write_images(tmp_path / "more", numbers_of(digits, 2)[:10])
    told = f"the learning of {more} as '2' had been stopped with other images or options, and started over.\n"
    for place, another_image in ((state, False), (state, True), (tmp_path / "new", False)):
        stopped_while_learning(place, more, "2", monkeypatch)
        if another_image:
            write_images(more, numbers_of(digits, 2)[10:11], prefix="another")
        options = QUICK if place != state else ()
        assert command("learn", place, more, "--label", "2", *options) == 0
        assert (told in capsys.readouterr().err) == (another_image or place != state)
        assert command("undo", place) == (0 if place == state else 2)
        capsys.readouterr()


def test_a_first_lesson_that_was_stopped_is_told(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_while_learning(tmp_path / "new", made[1], None, monkeypatch)
    assert command("info", tmp_path / "new") == 2
    assert capsys.readouterr().err == (
        f"error: there is no learner in {tmp_path / 'new'} yet: the learning of {made[1]} has not ended; "
        "if it was stopped, repeat its command to go on.\n"
    )
    (tmp_path / "new" / "work" / "checkpoint.safetensors").write_bytes(b"killed while it was written")
    assert command("learn", tmp_path / "new", made[1], *QUICK) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["generations", "lock"]


def test_predicting_nothing_is_one_sentence(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("predict", state, tmp_path / "nowhere.png") == 2
    told = capsys.readouterr()
    assert f"  there is no file {tmp_path / 'nowhere.png'}; check the path.\n" in told.err
    assert told.err.endswith("error: none of the files could be read as an image; see above.\n")
    (tmp_path / "empty").mkdir()
    assert command("predict", state, tmp_path / "empty") == 2
    assert capsys.readouterr() == ("", "error: there is no file to predict.\n")


def test_an_empty_class_folder_is_told(digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = digit_folders(tmp_path / "images", digits)
    (images / "2").mkdir()
    assert command("learn", tmp_path / "S", images, *QUICK) == 0
    assert capsys.readouterr().err == "there is no file in 2: no such class.\n"
    assert learner_in(tmp_path / "S").classes_.tolist() == ["0", "1"]


def test_images_beside_the_class_folders_are_told(
    state: Path, digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = digit_folders(tmp_path / "images", digits)
    write_images(images, numbers_of(digits, 2)[:3])
    (images / "notes.txt").write_text("no image")
    assert command("learn", state, images) == 0
    told = capsys.readouterr()
    assert told.err == (f"3 images lie in {images} itself, in no class folder, and were skipped; put them into one.\n")
    assert "skipped" not in told.out


def test_a_learner_among_the_images_is_not_learned(
    made: tuple[Path, Path],
    digits: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wherever STATE lies inside DIR, its own files are no images and its folder is no class."""
    images = digit_folders(tmp_path / "images", digits)
    monkeypatch.chdir(images)
    for state in ("S", "1/S", "learners/S"):
        shutil.copytree(made[0], images / state)
        for folder in (".", images):
            assert command("learn", state, folder) == 0
        assert command("predict", state, ".", "--format", "csv") == 0
        told = capsys.readouterr()
        assert "skipped" not in told.out + told.err
        assert "no such class" not in told.err
        assert told.out.count("Nothing new to learn.\n") == 2
        shutil.rmtree(images / state)


def test_state_and_images_in_one_folder_are_refused(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = digit_folders(tmp_path / "images", digits)
    monkeypatch.chdir(images)
    assert command("learn", images, ".", *QUICK) == 2
    assert capsys.readouterr().err.startswith("error: STATE and DIR are both .; give STATE a folder of its own")
    assert sorted(path.name for path in images.iterdir()) == ["0", "1"]


def test_swapped_folders_are_refused_and_nothing_is_lost(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, parts = digit_folders(tmp_path / "new", digits), tmp_path / "parts"
    write_images(parts / "work" / "images", numbers_of(digits, 2)[:3])
    for folder in (new, parts / "work"):
        assert command("learn", parts, folder, *QUICK) == 2
        assert capsys.readouterr().err == (
            f"error: {parts} is a folder of other things; give STATE a new folder. Are STATE and DIR swapped?\n"
        )
    assert sorted(path.name for path in parts.rglob("*")) == ["0.png", "1.png", "2.png", "images", "work"]


def test_a_first_learn_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "images" / "class").mkdir(parents=True)
    (tmp_path / "images" / "class" / "a.png").write_text("junk")
    assert command("learn", tmp_path / "S", tmp_path / "images") == 2
    assert not (tmp_path / "S").exists()


def test_a_read_only_folder(state: Path, digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = write_images(tmp_path / "new", numbers_of(digits, 2)[:10])
    before = fingerprint(state)
    folders = [state, *(path for path in state.rglob("*") if path.is_dir())]
    (state / "lock").unlink(missing_ok=True)
    for folder in folders:
        folder.chmod(0o555)
    try:
        with permissions_in_force():
            assert command("learn", state, new, "--label", "two") == 2
            assert command("review", state, "--no-open") == 2
            told = capsys.readouterr().err.strip().splitlines()
            assert command("info", state) == 0
            assert command("predict", state, new) == 0
            assert command("review", state, "--no-open", "--out", tmp_path / "review.html") == 0
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert len(told) == 2
    assert all("cannot write to" in line and "Permission denied" in line for line in told)
    assert fingerprint(state) == before


@pytest.mark.parametrize("accident", ["vanishes", "is cut off"])
def test_a_file_that_vanishes_while_learning_is_one_sentence(
    accident: str, state: Path, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cache too small for it, an image is read again in each epoch."""
    new = write_images(tmp_path / "new", numbers_of(digits, 2)[:10])
    decode_all = DecodedFiles.decode_all

    def then_remove(self: DecodedFiles, *arguments: object) -> object:
        result = decode_all(self, *arguments)
        content = (new / "9.png").read_bytes()
        (new / "9.png").unlink()
        if accident == "is cut off":
            (new / "9.png").write_bytes(content[: len(content) // 2])
        return result

    monkeypatch.setattr(DecodedFiles, "decode_all", then_remove)
    before = fingerprint(state)
    with pytest.raises(InputError, match=r"9\.png cannot be read"):
        Session(StateFolder(state), "cpu", cache_bytes=5 * 64).learn_folder(new, "two", {})
    assert fingerprint(state) == before


def test_what_does_not_fit_the_cache_gives_the_same_learner(digits: Dataset, tmp_path: Path) -> None:
    images = digit_folders(tmp_path / "images", digits)
    asked = {"phase1_epochs": 2, "phase2_epochs": 2, "memory_per_class": 6}
    large = Session(StateFolder(tmp_path / "large"), "cpu").learn_folder(images, None, asked)
    small = Session(StateFolder(tmp_path / "small"), "cpu", cache_bytes=10 * 64).learn_folder(images, None, asked)
    assert not large.notes
    assert "22 images do not fit the cache" in small.notes[0]
    assert fingerprint(tmp_path / "large") == fingerprint(tmp_path / "small")


@pytest.mark.parametrize("size", ["inf", "nan", "1e300", "0"])
def test_a_cache_of_no_size_is_refused(size: str, made: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert command("learn", *made, "--cache-size", size) == 2
    assert "Invalid value for '--cache-size'" in capsys.readouterr().err


def test_the_cache_has_its_size_and_no_more(digits: Dataset, tmp_path: Path) -> None:
    files = image_files(digit_folders(tmp_path / "images", digits), None)
    decoded = DecodedFiles(files, Form(1, 8, 8, False), tmp_path / "cache", limit=5 * 64)
    decoded.decode_all(lambda *_: None)
    assert (tmp_path / "cache").stat().st_size == 5 * 64
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    expected = np.concatenate([numbers_of(digits, digit)[:16] for digit in (0, 1)])[order.numpy()]
    assert (decoded.take(order)[:, 0].numpy() == expected).all()


def test_no_more_images_are_in_memory_at_once_than_fit_a_small_one(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What bounds the memory a folder of any size needs: beside the coreset, images are held a few at a time."""
    asked_for: list[int] = []
    take = DecodedFiles.take
    monkeypatch.setattr(DecodedFiles, "take", lambda self, at: asked_for.append(len(at)) or take(self, at))
    monkeypatch.setattr(rows_module, "CHUNK_PIXELS", 20 * 64)
    images = digit_folders(tmp_path / "images", digits, count=100)
    asked = {"phase1_epochs": 1, "phase2_epochs": 1, "memory_per_class": 6, "batch_size": 16}
    Session(StateFolder(tmp_path / "S"), "cpu").learn_folder(images, None, asked)
    *others, fewer, measured = sorted(asked_for)
    assert measured == 200  # brightness is measured, once, on at most 2048 images
    assert fewer == max(others) == 20


def test_progress_tells_the_truth(digits: Dataset, tmp_path: Path) -> None:
    """Every count rises in steps, from something small to exactly its total."""
    told: dict[str, list[tuple[int, int]]] = {}

    def note(what: str, done: int, total: int) -> None:
        told.setdefault(what, []).append((done, total))

    images = digit_folders(tmp_path / "images", digits)
    asked = {"phase1_epochs": 2, "phase2_epochs": 3, "batch_size": 8}
    Session(StateFolder(tmp_path / "S"), "cpu", on_progress=note).learn_folder(images, None, asked)
    assert list(told) == [
        "looking at sizes", "reading images", "training on everything", "judging", "training on what looks right",
        "training on what is kept",
    ]  # fmt: skip
    assert told["training on everything"] == [(8 * step, 32) for step in range(1, 5)]
    *learned, _, looked_at = told["training on what looks right"]  # after the epoch at the images of both classes
    assert looked_at == (learned[-1][0] + 32, learned[-1][0] + 32)
    assert told["training on what is kept"] == [(1, 3), (2, 3), (3, 3)]
    for counts in told.values():
        assert counts[-1][0] == counts[-1][1]


def marks(path: Path, *rows: tuple[str, str, str, str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("file", "class", "mark", "new_class"), *rows])
    return path


def test_a_review_is_applied(state: Path, digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong ones leave the memory, others move, right ones are kept, whether they were before or not."""
    before = learner_in(state)
    kept = [before.seen("0").names()[row] for row in np.flatnonzero(before.seen("0").kept)]
    out = [before.seen("0").names()[row] for row in np.flatnonzero(~before.seen("0").kept)]
    gone = before.seen("1").names()[int(np.flatnonzero(~before.seen("1").kept)[0])]
    review = marks(
        tmp_path / "r.csv",
        (kept[0], "0", "wrong", ""),
        (kept[1], "0", "other", "1"),
        (kept[2], "0", "right", ""),
        (out[0], "0", "right", ""),
        (out[1], "0", "other", "1"),
        (gone, "1", "wrong", ""),
    )
    assert command("learn", state, "--review", review) == 0
    assert "6 marks applied, 2 classes learned anew" in capsys.readouterr().out
    after = learner_in(state)
    zero, one = after.seen("0"), after.seen("1")
    row = {name: number for number, name in enumerate(zero.names())}
    assert not zero.kept[row[kept[0]]]
    assert not zero.kept[row[kept[1]]]
    assert zero.kept[row[kept[2]]]
    assert zero.kept[row[out[0]]]
    assert zero.mark[[row[name] for name in (kept[0], kept[1], kept[2])]].tolist() == [WRONG, OTHER, RIGHT]
    assert len(zero) == 16
    assert len(one) == 18
    assert one.files[16:] == [kept[1], out[1]]
    assert one.mark[16:].tolist() == [RIGHT, RIGHT]
    assert one.kept[16:].all()
    moved = int(kept[1].removeprefix("0/").removesuffix(".png"))
    assert any((image[0] == numbers_of(digits, 0)[moved]).all() for image in after.coresets["1"].images)

    # Saying it again changes nothing, and the wrong one never comes back.
    unchanged = fingerprint(state)
    assert command("learn", state, "--review", review) == 0
    assert "says nothing new" in capsys.readouterr().out
    assert fingerprint(state) == unchanged
    more = write_images(tmp_path / "more", numbers_of(digits, 0)[20:40])
    assert command("learn", state, more, "--label", "0") == 0
    zero = learner_in(state).seen("0")
    assert not zero.kept[[row[kept[0]], row[kept[1]]]].any()
    assert zero.kept[[row[kept[2]], row[out[0]]]].all()


def test_a_review_that_only_confirms_teaches_nothing_anew(
    state: Path, digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is kept is right and what was thrown out is wrong: to train on the same memory again could only cost."""
    before = learner_in(state)
    names, kept = before.seen("0").names(), np.flatnonzero(before.seen("0").kept)
    out = int(np.flatnonzero(~before.seen("0").kept)[0])
    review = marks(tmp_path / "r.csv", (names[kept[0]], "0", "right", ""), (names[out], "0", "wrong", ""))
    assert command("learn", state, "--review", review) == 0
    assert "2 marks applied, 0 classes learned anew" in capsys.readouterr().out
    after = learner_in(state)
    images = numbers_of(digits, 0)[:40]
    assert (after.predict_proba(images) == before.predict_proba(images)).all()
    assert after.seen("0").mark[[kept[0], out]].tolist() == [RIGHT, WRONG]
    more = write_images(tmp_path / "more", numbers_of(digits, 0)[20:40])
    assert command("learn", state, more, "--label", "0") == 0
    assert learner_in(state).seen("0").kept[[kept[0], out]].tolist() == [True, False]


def test_a_review_leaves_the_noise_of_the_last_batch(state: Path, tmp_path: Path) -> None:
    """An image that a person brings back or moves is no batch of its own."""
    before = learner_in(state)
    out = [before.seen("0").names()[row] for row in np.flatnonzero(~before.seen("0").kept)]
    review = marks(tmp_path / "r.csv", (out[0], "0", "right", ""), (out[1], "0", "other", "1"))
    assert command("learn", state, "--review", review) == 0
    after = learner_in(state)
    assert all(after.seen(label).kept.any() for label in ("0", "1"))
    assert after.seen("1").mark[16] == RIGHT
    assert before.noise_["0"] is not None
    assert after.noise_ == before.noise_


def test_marks_reach_the_training(
    state: Path, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was called wrong is never trained on again; what belongs elsewhere only as that."""
    seen = learner_in(state).seen("0")
    wrong, moved = np.flatnonzero(seen.kept)[:2].tolist()
    review = marks(
        tmp_path / "r.csv", (seen.names()[wrong], "0", "wrong", ""), (seen.names()[moved], "0", "other", "1")
    )
    trained_on: list[set[tuple[bytes, int]]] = []
    epoch = Phase.epoch

    def noted(self: Phase, samples: Trainable, beside: Trainable | None = None) -> None:
        everything = samples[torch.arange(len(samples))]
        trained_on.append(
            {
                (image.numpy().tobytes(), label)
                for image, label in zip(everything.images, everything.labels.tolist(), strict=True)
            }
        )
        epoch(self, samples, beside)

    monkeypatch.setattr(Phase, "epoch", noted)
    monkeypatch.setattr(strategy_module, "MOVED", 0.0)  # so that images are known by their pixels
    pixels = [numbers_of(digits, 0)[row].tobytes() for row in (wrong, moved)]
    assert command("learn", state, "--review", review) == 0
    more = write_images(tmp_path / "more", numbers_of(digits, 0)[20:40])
    assert command("learn", state, more, "--label", "0") == 0
    assert len(trained_on) == 2 * (2 + 2)
    for images in trained_on:
        assert {label for image, label in images if image == pixels[0]} == set()
        assert {label for image, label in images if image == pixels[1]} == {1}


def places_of(state: Path, image: np.ndarray) -> dict[str, tuple[int, bool]]:
    """By class that has seen an image: its mark there, and whether it is kept."""
    learner, found = learner_in(state), {}
    for label in learner.classes_.tolist():
        seen = learner.seen(label)
        for row in np.flatnonzero((seen.digest == digest_of(image[None])).all(axis=1)).tolist():
            assert label not in found, "one class has the same image twice"
            found[label] = (int(seen.mark[row]), bool(seen.kept[row]))
        kept = [picture for picture in learner.coresets[label].images if (picture[0] == image).all()]
        assert len(kept) == found.get(label, (0, False))[1], "the record says otherwise than the memory"
    return found


def test_the_last_word_about_an_image_holds(state: Path, digits: Dataset, tmp_path: Path) -> None:
    """Moved, moved on from where it came or from where it went, taken back, thrown out: it is in one place or none."""
    three = write_images(tmp_path / "three", numbers_of(digits, 3)[:10])
    assert command("learn", state, three, "--label", "three") == 0
    seen = learner_in(state).seen("0")
    row = int(np.flatnonzero(seen.kept)[0])
    name, image = seen.names()[row], numbers_of(digits, 0)[row]
    there = [(name, "0", "other", "1")]
    steps = [
        (there, {"0": (OTHER, False), "1": (RIGHT, True)}),
        (there, None),
        ([(name, "0", "other", "three")], {"0": (OTHER, False), "1": (OTHER, False), "three": (RIGHT, True)}),
        ([(name, "three", "other", "1")], {"0": (OTHER, False), "1": (RIGHT, True), "three": (OTHER, False)}),
        ([(name, "0", "right", "")], {"0": (RIGHT, True), "1": (OTHER, False), "three": (OTHER, False)}),
        ([(name, "0", "wrong", "")], {"0": (WRONG, False), "1": (OTHER, False), "three": (OTHER, False)}),
        ([(name, "0", "other", "three")], {"0": (OTHER, False), "1": (OTHER, False), "three": (RIGHT, True)}),
        ([(name, "three", "wrong", "")], {"0": (OTHER, False), "1": (OTHER, False), "three": (WRONG, False)}),
    ]
    for said, expected in steps:
        before = fingerprint(state)
        assert command("learn", state, "--review", marks(tmp_path / "r.csv", *said)) == 0
        if expected is None:
            assert fingerprint(state) == before
        else:
            assert places_of(state, image) == expected


def test_a_review_can_name_a_class_that_is_not_known_yet(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, state = digit_folders(tmp_path / "images", digits), tmp_path / "S"
    assert command("learn", state, images, *QUICK) == 0
    seen = learner_in(state).seen("0")
    kept, out = (seen.names()[int(np.flatnonzero(which)[0])] for which in (seen.kept, ~seen.kept))
    gone = seen.names()[int(np.flatnonzero(~seen.kept)[1])]
    ones = learner_in(state).seen("1")
    one, another = (ones.names()[row] for row in np.flatnonzero(ones.kept)[:2].tolist())
    (images / gone).rename(tmp_path / "elsewhere.png")
    capsys.readouterr()
    slip = marks(tmp_path / "slip.csv", (kept, "0", "other", "fox"))
    assert command("learn", state, "--review", slip) == 2
    assert "If it is a new class, mark it as 'new' instead of 'other'.\n" in capsys.readouterr().err
    new = [(name, "0", "new", label) for name, label in ((gone, "bear"), (kept, "fox"), (out, " fox "))]
    review = marks(tmp_path / "r.csv", *new, (one, "1", "new", "0"))
    assert command("learn", state, "--review", review) == 0
    told = capsys.readouterr()
    assert "4 marks applied, 3 classes learned anew" in told.out
    assert f"so it stays out: {gone}." in told.out
    assert told.err == "'fox' is a new class, of 2 images; learn more of it where you can.\n"
    learner = learner_in(state)
    assert learner.classes_.tolist() == ["0", "1", "fox"]  # no bear, of which there is no image
    assert learner.seen("fox").names() == [kept, out]
    assert learner.seen("fox").kept.all()
    assert learner.seen("0").files[-1] == one
    assert len(learner.predict_proba(numbers_of(digits, 0)[:2])[0]) == 3

    # Saying it again changes nothing; what was gone makes its class when it is back.
    before = fingerprint(state)
    assert command("learn", state, "--review", review) == 0
    assert "says nothing new" in capsys.readouterr().out
    assert fingerprint(state) == before
    (tmp_path / "elsewhere.png").rename(images / gone)
    assert command("learn", state, "--review", review) == 0
    assert learner_in(state).classes_.tolist() == ["0", "1", "fox", "bear"]
    assert command("undo", state) == 0
    assert learner_in(state).classes_.tolist() == ["0", "1", "fox"]
    slip = marks(tmp_path / "slip.csv", (another, "1", "new", "Fox"))
    capsys.readouterr()
    assert command("learn", state, "--review", slip) == 0
    told = "'Fox' is a new class beside 'fox', of 1 image; if that was a slip, take it back with undo.\n"
    assert capsys.readouterr().err == told


def test_an_image_that_another_class_has_seen_too_is_not_there_twice(
    state: Path, digits: Dataset, tmp_path: Path
) -> None:
    same = write_images(tmp_path / "same", numbers_of(digits, 0)[:4], prefix="copy ")
    assert command("learn", state, same, "--label", "1") == 0
    review = marks(tmp_path / "r.csv", ("0/2.png", "0", "other", "1"))
    assert command("learn", state, "--review", review) == 0
    assert places_of(state, numbers_of(digits, 0)[2]) == {"0": (OTHER, False), "1": (RIGHT, True)}
    assert len(learner_in(state).seen("1")) == 20


def test_no_image_is_right_in_two_classes(
    state: Path, digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = write_images(tmp_path / "same", numbers_of(digits, 0)[:4], prefix="copy ")
    assert command("learn", state, same, "--label", "1") == 0
    before, here, there = fingerprint(state), ("0/2.png", "0", "right", ""), ("copy 2.png", "1", "right", "")
    for contrary in (there, ("copy 2.png", "1", "new", "2")):
        assert command("learn", state, "--review", marks(tmp_path / "r.csv", here, contrary)) == 2
        told = "r.csv, line 3, put the same image into two classes, pixel by pixel; remove one."
        assert told in capsys.readouterr().err.replace("\n", " ")
    assert fingerprint(state) == before
    for one, expected in (
        (here, {"0": (RIGHT, True), "1": (0, False)}),
        (there, {"0": (OTHER, False), "1": (RIGHT, True)}),  # the last word
    ):
        assert command("learn", state, "--review", marks(tmp_path / "r.csv", one)) == 0
        found = places_of(state, numbers_of(digits, 0)[2])
        assert found["0"] == expected["0"]
        assert found["1"][0] == expected["1"][0]


def test_a_review_of_images_that_are_gone_says_so(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = digit_folders(tmp_path / "images", digits)
    state = tmp_path / "S"
    assert command("learn", state, images, *QUICK) == 0
    seen = learner_in(state).seen("0")
    first, second = (seen.names()[row] for row in np.flatnonzero(~seen.kept)[:2])
    (images / first).unlink()
    Image.fromarray(numbers_of(digits, 5)[0]).save(images / second)
    review = marks(tmp_path / "r.csv", (first, "0", "right", ""), (second, "0", "other", "1"))
    capsys.readouterr()
    assert command("learn", state, "--review", review) == 0
    assert (
        f"2 images are no longer where they came from, so they stay out: {first}, {second}. If {images} was moved, "
        "learn it from its new place first." in capsys.readouterr().out
    )
    assert len(learner_in(state).seen("1")) == 16

    # Nothing changes while they are gone; when they are back, the same review keeps and moves them.
    before = fingerprint(state)
    assert command("learn", state, "--review", review) == 0
    assert "says nothing new.\n2 images are no longer where they came from" in capsys.readouterr().out
    assert fingerprint(state) == before
    for name in (first, second):
        number = int(name.removeprefix("0/").removesuffix(".png"))
        Image.fromarray(numbers_of(digits, 0)[number]).save(images / name)
        assert command("learn", state, "--review", review) == 0
        assert "1 mark applied" in capsys.readouterr().out
    assert learner_in(state).seen("0").kept[seen.names().index(first)]
    assert len(learner_in(state).seen("1")) == 17
    assert command("undo", state) == 0
    assert "Taken back: a review.\n" in capsys.readouterr().out
    assert len(learner_in(state).seen("1")) == 16


def test_a_review_of_images_that_came_as_arrays_says_so(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.concatenate([numbers_of(digits, digit)[:16] for digit in (0, 1)])
    learner = ContinualLearner(memory_per_class=6, phase1_epochs=1, phase2_epochs=1, device="cpu")
    learner.learn(images, ["0"] * 16 + ["1"] * 16).save(tmp_path / "S")
    seen = learner.seen("0")
    name = seen.names()[int(np.flatnonzero(~seen.kept)[0])]
    review = marks(tmp_path / "r.csv", (name, "0", "right", ""))
    assert command("learn", tmp_path / "S", "--review", review) == 0
    told = capsys.readouterr().out
    assert f"1 image is not kept and came from Python, so there is no file to take it from: {name}." in told
    assert "was moved" not in told


def test_a_folder_that_was_moved_is_found_again(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, state = digit_folders(tmp_path / "old", digits), tmp_path / "new", tmp_path / "S"
    assert command("learn", state, old, *QUICK) == 0
    two = write_images(tmp_path / "two", numbers_of(digits, 2)[:10])
    assert command("learn", state, two, "--label", "two") == 0
    seen = learner_in(state).seen("0")
    review = marks(tmp_path / "r.csv", (seen.names()[int(np.flatnonzero(~seen.kept)[0])], "0", "right", ""))
    old.rename(new)
    common = seen.names()[-1]  # one image in common does not make it the same folder
    (two / common).parent.mkdir()
    shutil.copy(new / common, two / common)
    assert command("learn", state, two, "--label", "two") == 0
    assert "was moved" not in capsys.readouterr().err
    assert command("learn", state, "--review", review) == 0
    assert f"If {old} was moved, learn it from its new place first." in capsys.readouterr().out
    assert command("undo", state) == 0
    assert command("learn", state, new) == 0
    assert f"{old} was moved to {new}; that is remembered.\n" in capsys.readouterr().err
    assert command("learn", state, new) == 0
    assert "was moved" not in capsys.readouterr().err
    assert command("learn", state, "--review", review) == 0
    assert "1 mark applied, 1 class learned anew" in capsys.readouterr().out


def test_a_folder_that_was_renamed_with_its_class_is_found_again(
    digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under its old name it would be a new class."""
    images, moved, state = digit_folders(tmp_path / "images", digits, (0, 1)), tmp_path / "moved", tmp_path / "S"
    assert command("learn", state, images, *QUICK) == 0
    for digit, name in ((0, "nought"), (1, "one")):
        assert command("rename", state, digit, name) == 0
        (images / str(digit)).rename(images / name)
    seen = learner_in(state).seen("nought")
    for row, place in zip(np.flatnonzero(~seen.kept), (images, moved), strict=False):
        if not place.exists():
            images.rename(place)
            assert command("learn", state, place) == 0
            assert f"{images} was moved to {moved}; that is remembered.\n" in capsys.readouterr().err
        review = marks(tmp_path / "r.csv", (seen.names()[row], "nought", "right", ""))
        assert command("learn", state, "--review", review) == 0
        assert "1 mark applied, 1 class learned anew" in capsys.readouterr().out


def test_a_folder_whose_name_is_used_again_is_found_where_it_was_moved(
    state: Path, digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is new each week comes into a folder of one name, under the same file names."""
    new, old = tmp_path / "new", tmp_path / "first week"
    write_images(new, numbers_of(digits, 2)[:10])
    assert command("learn", state, new, "--label", "two") == 0
    shutil.copytree(new, old)
    assert command("learn", state, old, "--label", "two") == 0
    assert "was moved" not in capsys.readouterr().err  # it is a copy
    write_images(new, numbers_of(digits, 2)[10:20])
    assert command("learn", state, new, "--label", "two") == 0
    seen = learner_in(state).seen("two")
    thrown_out = int(np.flatnonzero(~seen.kept[:10])[0])
    review = marks(tmp_path / "r.csv", (seen.names()[thrown_out], "two", "right", ""))
    assert command("learn", state, "--review", review) == 0
    assert "1 image is no longer where it came from" in capsys.readouterr().out
    assert command("learn", state, old, "--label", "two") == 0
    assert f"{new} was moved to {old}; that is remembered.\n" in capsys.readouterr().err
    assert command("learn", state, "--review", review) == 0
    assert "1 mark applied, 1 class learned anew" in capsys.readouterr().out
    sources = [batch["source"] for batch in StateFolder(state).newest().manifest["batches"]]
    assert sources[1:] == [str(old), str(new)]


def test_a_damaged_state_is_told_and_used(
    state: Path, digits: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = write_images(tmp_path / "new", numbers_of(digits, 2)[:10])
    assert command("learn", state, new, "--label", "two") == 0
    (state / "generations" / "000002" / "memory.safetensors").write_bytes(b"damaged")
    capsys.readouterr()
    for arguments in (("info", state), ("predict", state, new / "0.png"), ("learn", state, new, "--label", "two")):
        assert command(*arguments) == 0
        assert "generation 2 in" in (told := capsys.readouterr().err)
        assert "memory.safetensors does not match its checksum" in told
    assert StateFolder(state).numbers() == [1, 3]


def test_numbers_stay_numbers(digits: Dataset, tmp_path: Path) -> None:
    """A learner that was made in Python can be taught from the command line."""
    learner = ContinualLearner(memory_per_class=5, phase1_epochs=1, phase2_epochs=1, device="cpu")
    learner.learn(np.concatenate([numbers_of(digits, 0)[:9], numbers_of(digits, 1)[:9]]), [0] * 9 + [1] * 9)
    learner.save(tmp_path / "S")
    assert command("learn", tmp_path / "S", digit_folders(tmp_path / "images", digits, (1, 2))) == 0
    again = learner_in(tmp_path / "S")
    assert again.classes_.tolist() == [0, 1, 2]
    assert len(again.seen(1)) == 16
    for name, code, classes in (("01", 0, [0, 1, 2]), ("00", 2, [0, 1, 2]), ("03", 0, [0, 1, 2, 3])):
        review = marks(tmp_path / "r.csv", (again.coresets[0].names[0], "0", "new", name))
        assert command("learn", tmp_path / "S", "--review", review) == code
        assert learner_in(tmp_path / "S").classes_.tolist() == classes
