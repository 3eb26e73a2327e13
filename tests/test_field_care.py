"""What `learn` takes care of beyond learning: contradictions, slips, deep and linked files, and the way back."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from continual_crust import ContinualLearner
from continual_crust.data import Dataset
from continual_crust.data.folder import load_folder
from continual_crust.data.images import FULL_DEPTH, decode, depth_of
from continual_crust.data.loading import Request
from continual_crust.field.folder import Form
from continual_crust.field.generation import Generation
from continual_crust.field.settings import Settings
from continual_crust.field.state import StateFolder
from field_images import QUICK, command, digit_folders, fingerprint, numbers_of, write_images

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def state(digits: Dataset, tmp_path: Path, capsys: Captured) -> Path:
    """A learner of 0 and 1."""
    images = digit_folders(tmp_path / "images", digits)
    assert command("learn", tmp_path / "S", images, *QUICK) == 0
    capsys.readouterr()
    return tmp_path / "S"


def classes_in(state: Path) -> list[object]:
    return ContinualLearner.load(state, device="cpu").classes_.tolist()


def thermal(folder: Path, digits: Dataset, digit: int, low: int = 7600, high: int = 7800) -> Path:
    """Digits as a camera would measure warmth: 16 bits, of which hardly any are used."""
    folder.mkdir(parents=True)
    for number, image in enumerate(numbers_of(digits, digit)[:12]):
        values = (low + image.astype(np.float64) / 255 * (high - low)).round().astype(np.uint16)
        Image.fromarray(values).save(folder / f"{number}.png")
    return folder


def test_deep_images_keep_their_contrast(digits: Dataset, tmp_path: Path, capsys: Captured) -> None:
    for digit in (0, 1):
        thermal(tmp_path / "warm" / str(digit), digits, digit)
    assert command("learn", tmp_path / "S", tmp_path / "warm", *QUICK) == 0
    assert "known already" not in capsys.readouterr().out
    learner = ContinualLearner.load(tmp_path / "S", device="cpu")
    kept = learner.coresets["0"].images
    assert kept.max() - kept.min() > 80
    black, white = learner.settings_.darkest, learner.settings_.brightest
    assert 7400 <= black < 7600
    assert 7800 < white <= 8000
    # What comes later is seen on the same scale.
    brighter = thermal(tmp_path / "later" / "2", digits, 2, high=7850).parent
    assert command("learn", tmp_path / "S", brighter) == 0
    assert ContinualLearner.load(tmp_path / "S", device="cpu").coresets["2"].images.max() > kept.max()
    assert capsys.readouterr().err == ""
    for name, low, high in (("hot", 8100, 8300), ("flat", 7700, 7710)):
        thermal(tmp_path / name / name, digits, 3, low, high)
        assert command("predict", tmp_path / "S", tmp_path / name) == 0
        assert capsys.readouterr().err.count("little contrast may be left") == 1
        assert command("learn", tmp_path / "S", tmp_path / name) == 0
        assert f"and this learner sees {black} to {white}, by what it began with" in capsys.readouterr().err


@pytest.mark.parametrize(("brightest", "told"), [(15, 1), (60, 0)])
def test_images_in_which_hardly_anything_is_to_be_seen_are_told(
    brightest: int, told: int, digits: Dataset, tmp_path: Path, capsys: Captured
) -> None:
    """As of cameras whose 12 bits were stored in colour as if they were 16."""
    for digit in (0, 1):
        folder = tmp_path / "dark" / str(digit)
        folder.mkdir(parents=True)
        for number, image in enumerate(numbers_of(digits, digit)[:12]):
            values = (image.astype(np.float64) / 255 * brightest).round().astype(np.uint8)
            Image.fromarray(values).convert("RGB").save(folder / f"{number}.png")
    assert command("learn", tmp_path / "S", tmp_path / "dark", *QUICK) == 0
    assert capsys.readouterr().err.count(f"all images lie between 0 and {brightest} where 0 is black") == told


def test_dead_and_hot_pixels_do_not_decide(digits: Dataset, tmp_path: Path) -> None:
    files = sorted(thermal(tmp_path / "warm", digits, 0).iterdir())
    expected = depth_of(files)
    values = np.array(Image.open(files[0]))
    values[0, 0], values[7, 7] = 0, 65535
    Image.fromarray(values).save(files[0])
    assert depth_of(files) == expected


def test_deep_images_that_use_their_depth_are_left_alone(digits: Dataset, tmp_path: Path) -> None:
    for name, low, high in (("full", 0, 65535), ("flat", 500, 500)):
        assert depth_of(sorted(thermal(tmp_path / name, digits, 3, low, high).iterdir())) == FULL_DEPTH
    assert depth_of([]) == FULL_DEPTH
    (tmp_path / "junk.png").write_text("junk")
    assert depth_of([tmp_path / "junk.png"]) == FULL_DEPTH


def test_a_folder_as_a_data_source_keeps_it_too(digits: Dataset, tmp_path: Path) -> None:
    for part in ("train", "test"):
        for digit in (0, 1):
            thermal(tmp_path / part / str(digit), digits, digit)
    images = load_folder(Request(tmp_path)).train_images
    assert int(images.max()) - int(images.min()) > 80


def test_learners_from_before_have_full_depth() -> None:
    plain = Settings().as_dict()
    del plain["darkest"], plain["brightest"]
    assert Settings.from_dict(plain) == Settings()


def test_an_image_of_two_classes_is_told(state: Path, digits: Dataset, tmp_path: Path, capsys: Captured) -> None:
    zeros, twos, threes = (numbers_of(digits, digit)[:10] for digit in (0, 2, 3))
    write_images(tmp_path / "more" / "2", np.concatenate([twos, zeros[:1]]))
    write_images(tmp_path / "more" / "3", np.concatenate([threes, twos[:1]]))
    assert command("learn", state, tmp_path / "more") == 0
    assert capsys.readouterr().err == (
        "2 images are also in another class, pixel by pixel, and cannot be both; say which is wrong in a review: "
        "2/10.png ('0'), 3/10.png ('2').\n"
    )


def test_names_from_python_are_found_however_they_are_written(digits: Dataset, tmp_path: Path) -> None:
    zeros, ones = numbers_of(digits, 0), numbers_of(digits, 1)
    learner = ContinualLearner(memory_per_class=6, phase1_epochs=2, phase2_epochs=2, device="cpu")
    learner.learn(np.concatenate([zeros[:12], ones[:12]]), ["cafe\u0301"] * 12 + ["dog "] * 12)
    learner.save(tmp_path / "S")
    write_images(tmp_path / "more" / "cafe\u0301", zeros[:20])
    write_images(tmp_path / "more" / "dog ", ones[:20])
    assert command("learn", tmp_path / "S", tmp_path / "more") == 0
    again = ContinualLearner.load(tmp_path / "S", device="cpu")
    assert again.classes_.tolist() == ["cafe\u0301", "dog "]
    assert len(again.seen("dog ")) == 20


def test_names_that_differ_in_nothing_to_be_seen_are_one(
    state: Path, digits: Dataset, tmp_path: Path, capsys: Captured
) -> None:
    some = numbers_of(digits, 2)
    for number, label in enumerate(("café", "cafe\u0301", " café ")):
        new = write_images(tmp_path / str(number), some[10 * number : 10 * number + 10])
        assert command("learn", state, new, "--label", label) == 0
    assert classes_in(state) == ["0", "1", "café"]
    assert capsys.readouterr().err == ""
    new = write_images(tmp_path / "slip", some[40:50])
    assert command("learn", state, new, "--label", "Café") == 0
    assert "'Café' is a new class beside 'café'; if that was a slip, take it back with undo" in capsys.readouterr().err


def test_folders_whose_names_differ_in_case_alone_are_told(
    state: Path, digits: Dataset, tmp_path: Path, capsys: Captured
) -> None:
    for number, label in enumerate(("Dog", "dog")):
        write_images(tmp_path / "new" / label, numbers_of(digits, 2)[10 * number : 10 * number + 10])
    for told in ("'dog' is a new class beside 'Dog'; if that was a slip, take it back with undo.\n", ""):
        assert command("learn", state, tmp_path / "new") == 0
        assert capsys.readouterr().err == told
    assert command("learn", tmp_path / "first", tmp_path / "new", *QUICK) == 0
    assert "beside 'Dog'; if that was a slip, begin anew with another STATE.\n" in capsys.readouterr().err


def test_class_folders_under_one_label_are_told(state: Path, digits: Dataset, tmp_path: Path, capsys: Captured) -> None:
    for digit in (0, 1, 2):
        write_images(tmp_path / "more" / str(digit), numbers_of(digits, digit)[20:26])
    assert command("learn", state, tmp_path / "more", "--label", "1") == 0
    assert f"{tmp_path / 'more'} has folders named after known classes (0); without --label" in capsys.readouterr().err


def test_a_folder_above_the_class_folders_is_told(digits: Dataset, tmp_path: Path, capsys: Captured) -> None:
    above = digit_folders(tmp_path / "above" / "train", digits).parent
    digit_folders(above / "test", digits, count=20)
    assert command("learn", tmp_path / "S", above, *QUICK) == 0
    told = "images lie in folders inside class folders (test/0, test/1, train/0, train/1); if those are the classes, "
    assert f"{told}begin anew with another STATE, and give {above / 'test'} instead.\n" in capsys.readouterr().err
    state = tmp_path / "another"
    assert command("learn", state, above / "train", *QUICK) == 0
    assert capsys.readouterr().err == ""
    write_images(above / "train" / "1" / "tuesday", numbers_of(digits, 1)[20:30])
    assert command("learn", state, above / "train") == 0
    assert capsys.readouterr().err == ""
    assert command("learn", state, above) == 0
    told = capsys.readouterr().err
    assert f"if those are the classes, take it back with undo, and give {above / 'test'} instead.\n" in told


def test_a_class_under_the_name_of_another_is_told(digits: Dataset, tmp_path: Path, capsys: Captured) -> None:
    state = tmp_path / "S"
    assert command("learn", state, digit_folders(tmp_path / "images", digits, (0, 1, 2), count=40)) == 0
    for digit, label, slip in ((0, "2", True), (0, "new", True), (0, "0", False), (3, "3", False), (7, "7", False)):
        some = write_images(tmp_path / label / "some", numbers_of(digits, digit)[50:90])
        capsys.readouterr()
        assert command("learn", state, some, "--label", label) == 0
        told = capsys.readouterr().err
        assert (f" of 40 new images of '{label}' are '0'; if the label was a slip, take it back" in told) == slip
        assert ("the learner was sure" in told) == slip
        assert command("undo", state) == 0


def test_undo_takes_back_what_was_learned_last_and_itself(
    state: Path, digits: Dataset, tmp_path: Path, capsys: Captured
) -> None:
    def contents() -> list[str]:
        newest = max(fingerprint(state)).split("/")[1]
        return [content for path, content in sorted(fingerprint(state).items()) if path.split("/")[1] == newest]

    assert command("undo", state) == 2
    assert "there is nothing to go back to" in capsys.readouterr().err
    before = contents()
    new = write_images(tmp_path / "two", numbers_of(digits, 2)[:12])
    assert command("learn", state, new, "--label", "two") == 0
    after = contents()
    assert command("undo", state) == 0
    told = capsys.readouterr().out
    assert f"Taken back: 12 images of {new} as 'two'.\n" in told
    assert "knows 2 classes: 0, 1." in told
    assert contents() == before
    assert command("undo", state) == 0
    assert f"Put back: 12 images of {new} as 'two'; undo takes back the last step only.\n" in capsys.readouterr().out
    assert contents() == after
    (tmp_path / "r.csv").write_text("file,class,mark,new_class\n0/0.png,0,wrong,\n")
    assert command("learn", state, "--review", tmp_path / "r.csv") == 0
    for verb in ("Taken back", "Put back", "Taken back"):
        assert command("undo", state) == 0
        assert f"{verb}: a review" in capsys.readouterr().out
    for mark in ("wrong", "right"):
        (tmp_path / "r.csv").write_text(f"file,class,mark,new_class\n0/0.png,0,{mark},\n")
        assert command("learn", state, "--review", tmp_path / "r.csv") == 0
    assert command("undo", state) == 0
    assert "Taken back, or put back: a review." in capsys.readouterr().out
    newest = max((state / "generations").iterdir())
    (newest / "manifest.json").write_text("{}")
    assert command("undo", state) == 2
    assert "; the learner is as it was before that already." in capsys.readouterr().err
    assert command("undo", tmp_path / "nowhere" / "S") == 2
    assert not (tmp_path / "nowhere").exists()


def test_a_first_class_that_comes_alone_is_told_to_be_hard_to_judge(
    digits: Dataset, tmp_path: Path, capsys: Captured
) -> None:
    told = "'0' is the only class so far, with nothing to compare it with"
    for digit in (0, 1):
        images = write_images(tmp_path / str(digit), numbers_of(digits, digit)[:40])
        assert command("learn", tmp_path / "S", images, "--label", digit, "-m", 1, "-n", 1) == 0
        assert (told in capsys.readouterr().err) == (digit == 0)


def test_a_class_can_be_called_otherwise(state: Path, capsys: Captured, tmp_path: Path) -> None:
    before = ContinualLearner.load(state, device="cpu")
    assert command("rename", state, "0", "nought") == 0
    assert "'0' is called 'nought' now." in capsys.readouterr().out
    after = ContinualLearner.load(state, device="cpu")
    assert after.classes_.tolist() == ["nought", "1"]
    images = before.coresets["0"].images
    assert (after.predict_proba(images) == before.predict_proba(images)).all()
    assert (after.coresets["nought"].images == images).all()
    for old, new, told in (
        ("0", "x", "class '0' was never learned"),
        ("1", "nought", "a class 'nought' already"),
        ("1", " 1", "the class is called '1' already; give another name."),
        ("1", " ", "the new name is empty"),
    ):
        assert command("rename", state, old, new) == 2
        assert told in capsys.readouterr().err
    assert command("undo", state) == 0
    assert "the name 'nought', which is '0' again" in capsys.readouterr().out
    assert classes_in(state) == ["0", "1"]
    assert command("rename", tmp_path / "nowhere", "0", "x") == 2
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_and_a_review_are_one_step_to_take_back(state: Path, digits: Dataset, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("file,class,mark,new_class\n0/0.png,0,wrong,\n")
    new = write_images(tmp_path / "two", numbers_of(digits, 2)[:12])
    assert command("learn", state, new, "--label", "two", "--review", tmp_path / "r.csv") == 0
    assert classes_in(state) == ["0", "1", "two"]
    for classes, mark in ((["0", "1"], 0), (["0", "1", "two"], 2)):
        assert command("undo", state) == 0
        assert classes_in(state) == classes
        assert ContinualLearner.load(state, device="cpu").seen("0").mark[0] == mark


def test_linked_folders_are_followed_but_not_in_circles(state: Path, digits: Dataset, tmp_path: Path) -> None:
    elsewhere = write_images(tmp_path / "elsewhere", numbers_of(digits, 2)[:12])
    (tmp_path / "new" / "two").mkdir(parents=True)
    write_images(tmp_path / "new" / "three", numbers_of(digits, 3)[:12])
    (tmp_path / "new" / "two" / "linked").symlink_to(elsewhere)
    (tmp_path / "new" / "two" / "round").symlink_to(tmp_path / "new")
    assert command("learn", state, tmp_path / "new") == 0
    assert len(ContinualLearner.load(state, device="cpu").seen("two")) == 12


def test_colour_that_is_lost_is_told(state: Path, digits: Dataset, tmp_path: Path, capsys: Captured) -> None:
    images = numbers_of(digits, 2)[:12]
    new = write_images(tmp_path / "two", np.stack([images, 255 - images, images], axis=-1))
    assert command("learn", state, new, "--label", "two") == 0
    assert "some images are in colour; this learner began with grey ones" in capsys.readouterr().err


def test_images_too_small_to_be_cut_out_are_told(digits: Dataset, tmp_path: Path, capsys: Captured) -> None:
    """A class of smaller images would be known by its border."""
    images, small = digit_folders(tmp_path / "images", digits), numbers_of(digits, 2)[:12]
    new = write_images(tmp_path / "two", small[:, 1:])
    told = "pixels that this learner cuts out, and get a black border, which may give their class away"
    for arguments, is_told in (
        (("learn", tmp_path / "S", images, "--crop", *QUICK), False),
        (("learn", tmp_path / "S", new, "--label", "two"), True),
        (("predict", tmp_path / "S", new), True),
        (("predict", tmp_path / "S", images), False),
        (("learn", tmp_path / "larger", images, "--crop", "--image-size", 10, *QUICK), True),
        (("learn", tmp_path / "scaled", images, *QUICK), False),
        (("learn", tmp_path / "scaled", new, "--label", "two"), False),
    ):
        assert command(*arguments) == 0
        assert (told in capsys.readouterr().err) == is_told


def test_classes_that_have_a_size_of_their_own_are_told(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """As MSTAR's chips do; scaled, they are known by their grain."""
    images = digit_folders(tmp_path / "images", digits, (0, 1))
    write_images(images / "2", numbers_of(digits, 2)[:16, 1:])
    write_images(tmp_path / "three", numbers_of(digits, 3)[:16, 2:])
    told = "'2' (8×7) has a size in pixels that no other class has; scaled to one size, its images may be known by"
    for arguments, is_told in (
        (("learn", tmp_path / "S", images, *QUICK), True),
        (("learn", tmp_path / "S", tmp_path / "three", "--label", "3"), False),
        (("learn", tmp_path / "cropped", images, "--crop", *QUICK), False),
    ):
        assert command(*arguments) == 0
        assert (told in capsys.readouterr().err) == is_told
    # Where sizes differ within a class, or are shared, they give nothing away.
    for number, path in enumerate(sorted((images / "2").iterdir())):
        Image.fromarray(np.zeros((8, 8 + number), np.uint8) + np.arange(8 + number, dtype=np.uint8) * 9).save(path)
    assert command("learn", tmp_path / "mixed", images, *QUICK) == 0
    assert "no other class has" not in capsys.readouterr().err


def test_files_of_several_images_are_told(
    state: Path, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    new = write_images(tmp_path / "two", numbers_of(digits, 2)[:12])
    pages = [Image.fromarray(image) for image in numbers_of(digits, 2)[20:23]]
    for name in ("film.gif", "pages.tif", "film.png", "film.webp"):
        pages[0].save(new / name, save_all=True, append_images=pages[1:])
    pages[0].save(new / "phone.jpg", format="MPO", save_all=True, append_images=pages[1:])
    told = "4 files hold several images; only the first of each was used.\n"
    for arguments in (("learn", state, new, "--label", "two"), ("predict", state, new)):
        assert command(*arguments) == 0
        assert told in capsys.readouterr().err


def test_a_broken_note_of_a_camera_is_no_ones_business(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x03\0\x01\0\0\0"
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", exif=exif)
    assert Form(3, 8, 8, False).decoded([tmp_path / "a.jpg"]).shape == (1, 3, 8, 8)
    assert not recwarn.list


def test_more_right_ones_than_can_be_kept_are_told(state: Path, tmp_path: Path, capsys: Captured) -> None:
    rows = "".join(f"0/{number}.png,0,right,\n" for number in range(10))
    (tmp_path / "r.csv").write_text(f"file,class,mark,new_class\n{rows}")
    assert command("learn", state, "--review", tmp_path / "r.csv") == 0
    assert "10 images of '0' are marked right and 6 of them kept" in capsys.readouterr().err
    seen = ContinualLearner.load(state, device="cpu").seen("0")
    assert seen.kept.sum() == 6
    assert (seen.mark[seen.kept] == 1).all()
    assert command("learn", state, "--review", tmp_path / "r.csv") == 0
    assert capsys.readouterr().out.endswith("The review says nothing new.\n")


def test_of_a_class_that_is_marked_throughout_no_noise_is_told(state: Path, tmp_path: Path, capsys: Captured) -> None:
    rows = "".join(f"0/{number}.png,0,right,\n" for number in range(16))
    (tmp_path / "r.csv").write_text(f"file,class,mark,new_class\n{rows}")
    assert command("learn", state, "--review", tmp_path / "r.csv") == 0
    capsys.readouterr()
    assert command("info", state) == 0
    told = [line.split("│")[-3].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert told[0] == "–"
    assert "%" in told[1]


def test_info_tells_which_batch_an_estimate_is_of(
    state: Path, digits: Dataset, tmp_path: Path, capsys: Captured
) -> None:
    for name, images in (("monday", numbers_of(digits, 0)[20:40]), ("tuesday", numbers_of(digits, 1)[20:21])):
        new = write_images(tmp_path / name, images)
        assert command("learn", state, new, "--label", "0" if name == "monday" else "1") == 0
    capsys.readouterr()

    def told() -> list[str]:
        assert command("info", state) == 0
        lines = capsys.readouterr().out.splitlines()
        numbers = [line.split("│")[-2].strip() for line in lines if line.startswith("│")]
        return [*numbers, *(Path(line).name for line in lines if line.startswith("batch "))]

    assert told() == ["2", "1", "images", "monday"]  # a single image says nothing
    assert command("rename", state, "1", "one") == 0
    newest = StateFolder(state).newest()
    assert [entry["noise_batch"] for entry in newest.manifest["classes"]] == [1, 0]

    # States from before do not say.
    files = newest.files()
    manifest = json.loads(files["manifest.json"])
    for entry in manifest["classes"]:
        del entry["noise_batch"]
    with StateFolder(state).locked():
        StateFolder(state).write({**files, "manifest.json": json.dumps(manifest).encode()})
    capsys.readouterr()
    assert told() == ["–", "–"]
    assert command("rename", state, "one", "1") == 0


def test_a_review_of_nothing_is_one_sentence(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "r.csv").write_text("file,class,mark,new_class\n0/1.png,0,right,\n")
    assert command("learn", tmp_path / "S", "--review", tmp_path / "r.csv") == 2
    assert "there is no learner in" in capsys.readouterr().err
    assert not (tmp_path / "S").exists()


def test_everything_ever_seen_can_be_had_as_a_list(state: Path, tmp_path: Path, capsys: Captured) -> None:
    assert command("review", state, "--format", "csv") == 0
    text = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(text)))
    learner = ContinualLearner.load(state, device="cpu")
    assert sorted((row["class"], row["file"]) for row in rows) == sorted(
        (label, name) for label in ("0", "1") for name in learner.seen(label).names()
    )
    scores = [float(row["label_right"]) for row in rows if row["class"] == "1"]
    assert scores == sorted(scores)
    assert sum(row["kept"] == "yes" for row in rows) == 12
    assert {row["rather"] for row in rows if row["class"] == "0"} == {"1"}
    assert all((Path(row["folder"]) / row["file"]).is_file() for row in rows)
    assert command("review", state, "--format", "csv", "--out", tmp_path / "new" / "all.csv") == 0
    assert (tmp_path / "new" / "all.csv").read_text(encoding="utf-8") == text
    assert command("review", state, "--format", "xls") == 2


@pytest.mark.parametrize("asked", ["info", "predict images", "review --no-open", "review --format=csv"])
def test_a_learner_that_is_replaced_while_it_is_read_is_one_sentence(
    asked: str, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Others may have changed it twice since it was opened, and then its files are gone."""
    newest = StateFolder.newest

    def opened_and_gone(self: StateFolder) -> Generation:
        generation = newest(self)
        shutil.rmtree(generation.path)
        return generation

    monkeypatch.setattr(StateFolder, "newest", opened_and_gone)
    monkeypatch.chdir(tmp_path)
    name, *options = asked.split()
    assert command(name, state, *options) == 2
    told = capsys.readouterr()
    assert told.err.endswith("000001 was replaced by another process while it was read; repeat the command.\n")
    assert told.out == ""


def test_predicting_tells_all_that_is_missing_and_fails(state: Path, tmp_path: Path, capsys: Captured) -> None:
    gone = [tmp_path / f"gone{number}.png" for number in range(15)]
    good = tmp_path / "images" / "0" / "1.png"
    assert command("predict", state, good, *gone, "--format", "csv") == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert all(path.name in told.err for path in gone)


def test_a_learner_of_one_class_says_that_it_predicts_nothing_else(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    told = "this learner knows only the class 'zero' so far, and predicts it for every image."
    one = write_images(tmp_path / "one", numbers_of(digits, 1)[:12])
    zero = write_images(tmp_path / "zero", numbers_of(digits, 0)[:12])
    for folder, is_told in ((zero, True), (one, False)):
        assert command("learn", tmp_path / "S", folder, "--label", folder.name, *QUICK) == 0
        capsys.readouterr()
        assert command("predict", tmp_path / "S", one) == 0
        assert (told in capsys.readouterr().err) == is_told


def test_files_are_predicted_many_at_a_time_whatever_else_lies_there(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """One after the other, large photographs would be decoded by one core."""
    images, decoded = tmp_path / "images" / "0", []
    monkeypatch.setattr(
        "continual_crust.field.folder.decode", lambda paths, *how: decoded.append(len(paths)) or decode(paths, *how)
    )
    assert command("predict", state, images, "--format", "csv") == 0
    whole = capsys.readouterr().out.splitlines()[1:]
    assert decoded == [len(whole)]
    broken = ["3a.png", "7a.png", "notes.txt"]
    for name in broken:
        (images / name).write_text("no image")
    assert command("predict", state, images, "--format", "csv") == 1
    told = capsys.readouterr()
    assert [line.split(",")[:2] for line in told.out.splitlines()[1:]] == [line.split(",")[:2] for line in whole]
    assert [Path(line.split(" cannot ")[0]).name for line in told.err.splitlines()[1:]] == broken


def test_files_on_another_scale_than_arrays_that_were_learned_are_told(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    images = digit_folders(tmp_path / "images", digits)
    given = np.concatenate([numbers_of(digits, digit)[:16] for digit in (0, 1)])
    for scale, is_told in ((16, True), (255, False)):
        learner = ContinualLearner(phase1_epochs=1, phase2_epochs=1, memory_per_class=4, device="cpu")
        learner.learn(given / 255.0 * scale // 1, ["0"] * 16 + ["1"] * 16).save(tmp_path / str(scale))
        for arguments in (("predict", tmp_path / str(scale), images), ("learn", tmp_path / str(scale), images)):
            assert command(*arguments) == 0
            assert ("it began with another scale" in capsys.readouterr().err) == is_told


def test_files_do_not_pass_for_images_of_other_channels(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """As of a camera with five bands; a grey picture was taken for all of them."""
    images = digit_folders(tmp_path / "images", digits)
    five = np.repeat(numbers_of(digits, 0)[:12, None], 5, axis=1)
    learner = ContinualLearner(phase1_epochs=1, phase2_epochs=1, memory_per_class=4, device="cpu")
    learner.learn(five, ["0", "1"] * 6).save(tmp_path / "S")
    before = fingerprint(tmp_path / "S")
    for arguments in (("learn", tmp_path / "S", images), ("predict", tmp_path / "S", images)):
        assert command(*arguments) == 2
        assert "knows images of 5 channels, and files are read as grey or in colour" in capsys.readouterr().err
    assert fingerprint(tmp_path / "S") == before


def test_what_a_terminal_would_obey_is_spelled_out(
    state: Path, digits: Dataset, tmp_path: Path, capsys: Captured
) -> None:
    odd = tmp_path / "o\x1b[31mdd.png"
    Image.fromarray(numbers_of(digits, 0)[0]).save(odd)
    write_images(tmp_path / "more" / "c\x1b[31m", numbers_of(digits, 2)[:12])
    assert command("learn", state, tmp_path / "more") == 0
    assert command("info", state) == 0
    assert command("predict", state, odd) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "x1b[31mdd" in told.replace("\n", "").replace("│", "").replace(" ", "")
