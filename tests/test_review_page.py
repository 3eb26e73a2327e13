"""What the page of a review holds, without a browser; `test_review_browser` uses it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from continual_crust.data import Dataset
from continual_crust.errors import InputError
from continual_crust.field.generation import Generation, seen_file
from continual_crust.field.review_data import ReviewData, ReviewedClass, review_data
from continual_crust.field.review_page import page_html, write_review_page
from continual_crust.field.review_sheets import COLUMNS, PER_SHEET, Sheets, sheets_of
from continual_crust.field.seen import OTHER, RIGHT, THUMBNAIL_SIDE, WRONG, Seen, thumbnail_of, thumbnails_of
from continual_crust.field.session import Session
from continual_crust.field.state import StateFolder
from continual_crust.tensor_file import pack
from field_images import command, digit_folders, fingerprint

EVIL = "\"><script>alert(1)</script><!--'&\u2028"


@pytest.fixture(scope="module")
def state(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learner of 0 and 1; read only."""
    root = tmp_path_factory.mktemp("review")
    asked = {"phase1_epochs": 1, "phase2_epochs": 1, "memory_per_class": 6}
    Session(StateFolder(root / "S"), "cpu").learn_folder(digit_folders(root / "images", digits), None, asked)
    return root / "S"


def rewritten(state: Path, target: Path, **columns: object) -> Generation:
    """A copy of the newest generation in which class 0's record is as given."""
    newest = StateFolder(state).newest()
    record = dataclasses.replace(newest.seen(0), **columns)
    contents = {name: (newest.path / name).read_bytes() for name in newest.checksums}
    return StateFolder(target).write({**contents, seen_file(0): pack(record.tensors())})


class Reader(HTMLParser):
    """The scripts of a page, as a browser would take them apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.inside = False
        self.policy = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags.append(tag)
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append((named, ""))
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def data(self) -> dict[str, object]:
        (text,) = (text for attributes, text in self.scripts if attributes.get("id") == "data")
        found: dict[str, object] = json.loads(text)
        return found


def some_data(names: list[str], classes: list[str], folder: str | None = None) -> ReviewData:
    count = len(names)
    return ReviewData(
        identity="i",
        generation="3-abc",
        classes=[ReviewedClass(name, 1, 1, 0, None) for name in classes],
        label=np.zeros(count, np.int64),
        names=names,
        folders=[folder] * count,
        kept=np.ones(count, np.bool_),
        score=np.ones(count),
        other=np.full(count, -1),
        other_probability=np.zeros(count),
        mark=np.zeros(count, np.uint8),
        moved=np.full(count, -1),
        thumbnails=[b""] * count,
        left_out=0,
    )


def test_class_by_class_kept_first_and_the_most_doubtful_first(state: Path) -> None:
    generation = StateFolder(state).newest()
    data = review_data(generation, most=100)
    keys = list(zip(data.label.tolist(), (~data.kept).tolist(), data.score.tolist(), strict=True))
    assert keys == sorted(keys)
    assert len(data) == 32
    for index in (0, 1):
        seen = generation.seen(index)
        of_class = data.label == index
        assert sorted(np.array(data.names)[of_class]) == sorted(seen.names())
        at = data.names.index(seen.names()[5])
        assert data.thumbnails[at] == seen.thumbnails[5]
        assert data.score[at] == pytest.approx(seen.score[5])
        assert data.other[at] == 1 - index
        assert bool(data.kept[at]) == bool(seen.kept[5])


def test_no_line_ends_between_a_number_and_its_sign(state: Path) -> None:
    told = [one.noise for one in review_data(StateFolder(state).newest(), most=100).classes if one.noise]
    assert told
    assert all(noise.count("\u00a0%") == noise.count("%") for noise in told)


def test_what_a_person_has_spoken_about_comes_last(state: Path, tmp_path: Path) -> None:
    seen = StateFolder(state).newest().seen(0)
    out = np.flatnonzero(~seen.kept)
    mark, score = seen.mark.copy(), seen.score.copy()
    mark[out[0]], score[out[0]] = WRONG, 0.0
    data = review_data(rewritten(state, tmp_path / "S", mark=mark, score=score), most=100)
    thrown_out = np.flatnonzero((data.label == 0) & ~data.kept)
    assert data.names[thrown_out[-1]] == seen.names()[out[0]]
    assert data.mark[thrown_out].tolist() == [0] * (len(out) - 1) + [WRONG]


def test_what_was_moved_knows_where(state: Path, tmp_path: Path) -> None:
    """The same pixels count as right in another class; of an image that never got there, nothing is known."""
    newest = StateFolder(state).newest()
    seen, there = newest.seen(0), newest.seen(1)
    mark, digest = seen.mark.copy(), seen.digest.copy()
    mark[3:5], digest[3] = OTHER, there.digest[7]
    there.mark[7] = RIGHT
    files = {name: (newest.path / name).read_bytes() for name in newest.checksums}
    files[seen_file(0)] = pack(dataclasses.replace(seen, mark=mark, digest=digest).tensors())
    files[seen_file(1)] = pack(there.tensors())
    data = review_data(StateFolder(tmp_path / "S").write(files), most=100)
    moved = dict(zip(data.names, data.moved.tolist(), strict=True))
    assert moved.pop(seen.names()[3]) == 1
    assert set(moved.values()) == {-1}


def test_a_page_of_limited_size_shows_what_is_kept_and_the_most_doubtful(state: Path) -> None:
    generation = StateFolder(state).newest()
    everything, some = review_data(generation, most=100), review_data(generation, most=20)
    assert len(some) == 20
    assert some.left_out == 12
    assert some.kept.sum() == everything.kept.sum() == 12
    others = np.sort(everything.score[~everything.kept])
    assert sorted(some.score[~some.kept]) == pytest.approx(others[:8])
    assert "12 more images" in page_html(some, sheets_of([]), "S")
    assert "more images" not in page_html(everything, sheets_of([]), "S")


def test_a_learner_keeps_its_identity_and_a_generation_has_its_own(state: Path, tmp_path: Path) -> None:
    """Marks are stored under both."""
    seen = StateFolder(state).newest().seen(0)
    before = review_data(StateFolder(state).newest(), most=9)
    more = Seen.of(["new.png"], [b""], seen.digest[:1] + 1, batch=1)
    after = review_data(rewritten(state, tmp_path / "S", **vars(seen.extended(more))), most=9)
    assert after.identity == before.identity
    assert after.generation != before.generation
    other = review_data(rewritten(state, tmp_path / "T", digest=seen.digest + 1), most=9)
    assert other.identity != before.identity
    (tmp_path / "r.csv").write_text("file,class,mark,new_class\n1/0.png,1,other,0\n")
    reviewed = StateFolder(shutil.copytree(state, tmp_path / "R"))
    Session(reviewed, "cpu").apply_review(tmp_path / "r.csv")
    assert len(reviewed.newest().seen(0)) == len(seen) + 1
    assert review_data(reviewed.newest(), most=9).identity == before.identity


def test_numbers_that_cannot_be_are_not_believed(state: Path, tmp_path: Path) -> None:
    seen = StateFolder(state).newest().seen(0)
    score, other, batch = seen.score.copy(), seen.other.copy(), seen.batch.copy()
    score[:3] = np.nan, np.inf, -5
    other[:3] = 7, -9, 0
    batch[:2] = 99, -1
    data = review_data(rewritten(state, tmp_path / "S", score=score, other=other, batch=batch), most=100)
    rows = [data.names.index(name) for name in seen.names()[:3]]
    assert data.score[rows].tolist() == [0, 1, 0]
    assert data.other[rows].tolist() == [-1, -1, -1]
    assert [data.folders[row] for row in rows[:2]] == [None, None]
    json.dumps(Reader(page_html(data, sheets_of(data.thumbnails), "S")).data(), allow_nan=False)


@pytest.mark.parametrize("spoil", [{"classes": [{}]}, {"classes": [3]}, {"batches": [{}]}, {"batches": [None]}])
def test_a_foreign_manifest_is_one_sentence(state: Path, spoil: dict[str, object]) -> None:
    newest = StateFolder(state).newest()
    with pytest.raises(InputError, match="is not the state of a learner"):
        review_data(dataclasses.replace(newest, manifest={**newest.manifest, **spoil}), most=100)


def test_sheets_hold_every_thumbnail_in_its_place() -> None:
    random = np.random.default_rng(0)
    images = np.kron(random.integers(0, 256, (PER_SHEET + 5, 3, 3, 2), np.uint8), np.ones((1, 1, 12, 12), np.uint8))
    thumbnails = [thumbnail_of(image) for image in images]
    sheets = sheets_of(thumbnails)
    assert (sheets.width, sheets.height) == (24, 36)
    assert (sheets.pitch_x, sheets.pitch_y) == (32, 48)
    assert PIL.Image.open(io.BytesIO(sheets.files[1])).size == (COLUMNS * 32, 48)
    assert len(sheets.files) == 2
    for number in (0, 1, COLUMNS, PER_SHEET - 1, PER_SHEET, PER_SHEET + 4):
        found = cut_out(sheets, number)
        expected = np.asarray(PIL.Image.open(io.BytesIO(thumbnails[number]))).astype(float)
        assert np.abs(found - expected).mean() < 12
        assert np.abs(cut_out(sheets, 2) - expected).mean() > 30


def cut_out(sheets: Sheets, number: int) -> np.ndarray:
    sheet = PIL.Image.open(io.BytesIO(sheets.files[number // PER_SHEET]))
    at = number % PER_SHEET
    left, top = at % COLUMNS * sheets.pitch_x, at // COLUMNS * sheets.pitch_y
    return np.asarray(sheet.crop((left, top, left + sheets.width, top + sheets.height)).convert("RGB")).astype(float)


def test_images_that_are_all_dark_are_brightened_alike_to_be_seen() -> None:
    """As scikit-learn's digits, which go from 0 to 16."""
    images = np.zeros((3, 1, 40, 40), np.uint8)
    images[1, :, 10:30], images[2, :, 10:30] = 8, 16

    def brightest(some: np.ndarray) -> list[int]:
        return [int(np.asarray(PIL.Image.open(io.BytesIO(one))).max()) for one in thumbnails_of(some)]

    dark, half, white = brightest(images)
    assert dark < 10
    assert 110 < half < 145
    assert white > 245
    for as_they_are in (images * 15, images[:1], images[:0]):
        assert thumbnails_of(as_they_are) == [thumbnail_of(image) for image in as_they_are]


def test_small_thumbnails_lose_nothing() -> None:
    image = np.arange(64, dtype=np.uint8).reshape(1, 8, 8) * 3
    thumbnail = thumbnail_of(image)
    sheets = sheets_of([thumbnail])
    stored = np.asarray(PIL.Image.open(io.BytesIO(thumbnail)).convert("RGB"))
    assert (cut_out(sheets, 0) == stored).all()


def test_thumbnails_that_are_none_leave_their_place_grey() -> None:
    good = thumbnail_of(np.full((1, 30, 30), 255, np.uint8))
    large, png = io.BytesIO(), io.BytesIO()
    PIL.Image.new("L", (THUMBNAIL_SIDE + 1, 9)).save(large, "JPEG")
    PIL.Image.new("L", (9, 9)).save(png, "PNG")
    sheets = sheets_of([b"", b"junk", good[:-40], large.getvalue(), png.getvalue(), good])
    assert (sheets.width, sheets.height) == (30, 30)
    for number in range(5):
        assert np.abs(cut_out(sheets, number) - 128).mean() < 8
    assert cut_out(sheets, 5).mean() > 250
    assert sheets_of([]).files == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=4), st.lists(st.text(max_size=30), min_size=1, max_size=3), st.text())
def test_no_text_breaks_out_of_the_page(names: list[str], classes: list[str], folder: str) -> None:
    plain = Reader(page_html(some_data([""], [""]), Sheets(1, 1, 1, 1, []), ""))
    hostile = [*names, EVIL, "</ScRiPt\n>", "<!--<script>"]
    page = Reader(page_html(some_data(hostile, [*classes, EVIL], folder + EVIL), Sheets(1, 1, 1, 1, []), EVIL))
    assert page.tags == plain.tags
    data = page.data()
    assert data["names"] == hostile
    assert [entry["name"] for entry in data["classes"]] == [*classes, EVIL]
    assert data["folders"] == [folder + EVIL]


def test_only_its_own_script_may_run_and_nothing_may_be_fetched(state: Path, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.html"
    write_review_page(StateFolder(state).newest(), state, page)
    text = page.read_text(encoding="utf-8")
    read = Reader(text)
    (script,) = (content for attributes, content in read.scripts if "type" not in attributes)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (script, style[1])]
    assert read.policy == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "img-src blob:; base-uri 'none'; form-action 'none'"
    )
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert not re.search(r"https?://|\ssrc=|\shref=|\son\w+=|\sstyle=", text)


def test_the_command_writes_the_page_and_prints_where(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = fingerprint(state)
    assert command("review", state) == 0
    assert f"open {state / 'review.html'} in a browser" in capsys.readouterr().out.replace("\n", "")
    assert Reader((state / "review.html").read_text()).data()["file"] == "review-1.csv"
    assert fingerprint(state) == before
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: bool(opened.append(url)))
    assert command("review", state, "--out", tmp_path / "p.html", "--open") == 0
    assert opened == [(tmp_path / "p.html").as_uri()]
    assert "no browser was found" in capsys.readouterr().err
    assert command("review", state, "--no-open", "--most", 3) == 0
    assert len(opened) == 1
    assert len(Reader((state / "review.html").read_text()).data()["names"]) == 3


def test_bad_input_is_one_sentence(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for arguments, says in (
        ((tmp_path / "nowhere",), "there is no learner in"),
        ((state, "--out", tmp_path / "file" / "p.html"), "choose another --out"),
        ((state, "--out", tmp_path), "choose another --out"),
    ):
        assert command("review", *arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert says in error
        assert len(error.strip().splitlines()) == 1


def test_nothing_is_written_over_but_what_review_wrote(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marks, page = tmp_path / "review-1.csv", tmp_path / "mine.html"
    marks.write_text("file,class,mark,new_class\n0/0.png,0,wrong,\n")
    page.write_text("<!doctype html><title>mine</title>")
    before = marks.read_bytes(), page.read_bytes()
    for out, form, says in (
        (marks, "html", "is the name of a csv file; give one for html, or --format csv."),
        (page, "csv", "is the name of a html file"),
        (marks, "csv", "holds something else; give --out another name"),
        (page, "html", "holds something else"),
    ):
        assert command("review", state, "--out", out, "--format", form) == 2
        assert says in capsys.readouterr().err
    assert (marks.read_bytes(), page.read_bytes()) == before
    for form in ("html", "csv", "html", "csv"):  # its own it replaces
        assert command("review", state, "--out", tmp_path / f"own.{form}", "--format", form) == 0


def test_a_page_that_cannot_be_written_leaves_the_one_before(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "p.html"
    write_review_page(StateFolder(state).newest(), state, page)
    before = page.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_review_page(StateFolder(state).newest(), state, page)
    assert page.read_bytes() == before
    assert list(tmp_path.iterdir()) == [page]


def test_a_damaged_generation_is_told(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = StateFolder(state).newest().seen(0)
    rewritten(state, tmp_path / "S")
    second = rewritten(state, tmp_path / "S", mark=np.full(len(seen), RIGHT, np.uint8))
    (second.path / seen_file(1)).write_bytes(b"damaged")
    assert command("review", tmp_path / "S") == 0
    assert "is damaged" in capsys.readouterr().err
    assert Reader((tmp_path / "S" / "review.html").read_text()).data()["generation"].startswith("1-")
