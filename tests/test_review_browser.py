"""A review in a real browser: from a click to a learner that has learned from it."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chromium import CHROMIUM, UNREADABLE, Browser
from continual_crust import ContinualLearner
from continual_crust.data import Dataset
from continual_crust.field.review_data import ReviewData, ReviewedClass
from continual_crust.field.review_page import page_html, write_review_page
from continual_crust.field.review_sheets import sheets_of
from continual_crust.field.seen import OTHER, RIGHT, WRONG, thumbnail_of
from continual_crust.field.session import Session
from continual_crust.field.state import StateFolder
from continual_crust.writing import write_atomically
from field_images import command, digit_folders, numbers_of, write_images

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; on Debian: apt install chromium")

EVIL = "</script><script>alert(1)</script>\"'&,\n<img src=x onerror=alert(1)>"
HOSTILE = b"\"quoted\", 'too',\n<img src=x onerror=alert(1)> caf\xe9.png"
PHONE = 360
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "End": 35, "Home": 36}
ERRORS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening")


@pytest.fixture(scope="module")
def made(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learner of 0, 1 and a class with a hostile name, all with some hostile file names; read only."""
    root = tmp_path_factory.mktemp("made")
    images = digit_folders(root / "images", digits)
    (images / "0" / "<" / "script><script>alert(1)<" / "script>").mkdir(parents=True)
    Image.fromarray(numbers_of(digits, 0)[16]).save(
        images / "0" / "<" / "script><script>alert(1)<" / "script>" / "x.png"
    )
    for number in range(8):
        Image.fromarray(numbers_of(digits, 0)[20 + number]).save(os.fsencode(images / "0") + b"/%d" % number + HOSTILE)
    asked = {"phase1_epochs": 2, "phase2_epochs": 2, "memory_per_class": 6}
    session = Session(StateFolder(root / "S"), "cpu")
    session.learn_folder(images, None, asked)
    session.learn_folder(write_images(root / "evil", numbers_of(digits, 2)[:12]), EVIL, {})
    return root / "S"


@pytest.fixture
def state(made: Path, tmp_path: Path) -> Path:
    """A copy that may be changed, with its page."""
    shutil.copytree(made, tmp_path / "S")
    return with_page(tmp_path / "S")


def with_page(state: Path) -> Path:
    write_review_page(StateFolder(state).newest(), state, state / "review.html")
    return state


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(running: Browser, state: Path) -> Browser:
    """One in which nothing was marked yet."""
    running.open(state / "review.html")
    running.ask("localStorage.clear()")
    running.open(state / "review.html")
    return running


def key(browser: Browser, name: str, times: int = 1, modifiers: int = 0) -> None:
    for _ in range(times):
        text = {"text": "\r"} if name == "Enter" else {}
        code = KEYS.get(name) or ord(name.upper())
        for kind in ("keyDown", "keyUp"):
            browser.send(
                "Input.dispatchKeyEvent",
                type=kind, key=name, code=name, windowsVirtualKeyCode=code, modifiers=modifiers, **text,
            )  # fmt: skip


def choose(browser: Browser, filter_id: str, value: str) -> None:
    """Set a filter as a person's choice would."""
    browser.ask(f"(() => {{ const box = document.getElementById('{filter_id}'); box.value = '{value}';"
                " box.dispatchEvent(new Event('change')); })()")  # fmt: skip


def text(browser: Browser, selector: str) -> str:
    found: str = browser.ask(f"document.querySelector({selector!r}).textContent")
    return found


def cell(position: int) -> str:
    return f"[...document.querySelectorAll('.cell:not([hidden])')].find((cell) => cell.position === {position})"


def mark_of(browser: Browser, position: int) -> str:
    found: str = browser.ask(f"({cell(position)}).dataset.mark")
    return found


def title_of(browser: Browser, position: int) -> str:
    found: str = browser.ask(f"({cell(position)}).title")
    return found


def exported(browser: Browser) -> list[list[str]]:
    browser.click("document.querySelector('#export')")
    # A text area turns line ends into \n, also those inside a name.
    lines = browser.ask("document.querySelector('#csv').value")
    browser.ask("document.querySelector('#exporting').close()")
    return list(csv.reader(io.StringIO(lines, newline="")))[1:]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, PHONE])
def test_it_opens_without_errors_fits_and_can_be_read(browser: Browser, state: Path, width: int, dark: bool) -> None:
    key(browser, "w")
    key(browser, "r")
    key(browser, "o")
    key(browser, "Enter")
    assert browser.ask(UNREADABLE) == []
    browser.open(state / "review.html", width, dark)
    assert not browser.happened(*ERRORS)
    asked = {event["params"]["request"]["url"].split(":")[0] for event in browser.happened("Network.requestWillBeSent")}
    assert asked == {"file", "blob"}
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(UNREADABLE) == []
    assert (browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)") == dark
    key(browser, "o")
    key(browser, "e")
    assert browser.ask("document.querySelector('#picker').scrollWidth") <= width
    assert browser.ask(UNREADABLE) == []


def many_images(count: int) -> ReviewData:
    """Two classes with as many images each, a hundred of them kept."""
    return ReviewData(
        identity="many",
        generation="1-0",
        classes=[ReviewedClass(name, count // 2, 100, 0, None) for name in "ab"],
        label=np.repeat([0, 1], count // 2),
        names=[f"{number}.png" for number in range(count)],
        folders=[None] * count,
        kept=np.arange(count) % (count // 2) < 100,
        score=np.linspace(0, 1, count),
        other=np.repeat([1, 0], count // 2),
        other_probability=np.full(count, 0.7),
        mark=np.zeros(count, np.uint8),
        moved=np.full(count, -1),
        thumbnails=[thumbnail_of(np.full((1, 8, 8), 200, np.uint8))] * count,
        left_out=0,
    )


@pytest.mark.parametrize("width", [1280, PHONE])
def test_long_names_show_their_ends(running: Browser, tmp_path: Path, width: int) -> None:
    """Where names differ; and beside a long class name its probability can still be read."""
    names = [f"WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW_{number:04d}.jpeg" for number in range(20)]
    data = dataclasses.replace(many_images(20), names=names)
    data.classes[1] = dataclasses.replace(data.classes[1], name="a class with a long name indeed")
    write_atomically(tmp_path / "page.html", page_html(data, sheets_of(data.thumbnails), "S"))
    running.open(tmp_path / "page.html", width)
    shown = "[...document.querySelectorAll('.cell:not([hidden])')]"
    assert running.ask(
        f"{shown}.every((cell) => cell.title.endsWith(cell.querySelector('.name').textContent.slice(1)))"
    )
    assert running.ask(f"{shown}.every((cell) => cell.querySelector('.name').textContent.endsWith('.jpeg'))")
    assert running.ask(
        f"{shown}.map((cell) => cell.querySelector('.name')).every((n) => n.scrollWidth <= n.clientWidth)"
    )
    suggestions = f"{shown}.map((cell) => cell.querySelector('.instead'))"
    assert running.ask(f"{suggestions}.every((it) => it.textContent.endsWith('%') && it.scrollWidth <= it.clientWidth)")
    assert running.ask(f"{suggestions}.some((it) => it.textContent.startsWith('a cla'))")


def test_names_from_right_to_left_keep_their_numbers_behind_them(running: Browser, tmp_path: Path) -> None:
    data = many_images(20)
    data.classes[1] = dataclasses.replace(data.classes[1], name="\u0634\u0627\u0631\u0639")
    write_atomically(tmp_path / "page.html", page_html(data, sheets_of(data.thumbnails), "S"))
    running.open(tmp_path / "page.html")
    lefts = running.ask("""(() => {
      const letters = document.querySelector(".instead").firstChild, text = letters.textContent;
      return [text.indexOf("\u0634"), text.indexOf("7"), text.indexOf("%")].map((at) => {
        const range = document.createRange();
        range.setStart(letters, at);
        range.setEnd(letters, at + 1);
        return range.getBoundingClientRect().left;
      });
    })()""")
    assert lefts == sorted(lefts)  # the name, 70, %


@pytest.mark.parametrize("width", [1280, 1000, 800, 660])
def test_the_buttons_leave_room_for_what_is_told(browser: Browser, state: Path, width: int) -> None:
    browser.open(state / "review.html", width)
    assert browser.ask("document.querySelector('#detail .text').clientWidth") >= 200
    assert browser.ask("document.querySelector('#detail').offsetHeight") <= 144  # what the foot of the page keeps free


def test_hostile_names_are_text(browser: Browser, state: Path) -> None:
    generation = StateFolder(state).newest()
    names = {browser.ask(f"({cell(at)}).title") for at in range(6)}
    assert names <= set(generation.seen(0).names())
    assert any("caf\\xe9.png" in name for name in generation.seen(0).names())
    options = browser.ask("[...document.querySelectorAll('#which-class option')].map((one) => one.textContent)")
    assert options == ["all", "0 (25)", "1 (16)", f"{EVIL} (12)"]
    choose(browser, "which-class", "2")
    assert text(browser, ".row.class h2") == EVIL
    assert browser.ask("document.images.length") == 0
    scripts = "[...document.scripts].filter((script) => !script.type).length"
    assert browser.ask(scripts) == 1
    # Even markup that got in would not run.
    browser.ask("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.ran = true\">')")
    assert browser.ask("window.ran") is None


def test_from_a_click_to_a_learner_that_has_learned_from_it(
    browser: Browser, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = StateFolder(state).newest().seen(0)
    kept = {name for name, is_kept in zip(seen.names(), seen.kept, strict=True) if is_kept}
    first, second = title_of(browser, 0), title_of(browser, 1)
    assert {first, second} <= kept
    browser.click(f"({cell(0)}).querySelector('.wrong')")
    browser.click(f"({cell(1)}).querySelector('.other')")
    assert browser.ask("document.querySelector('#picker').open")
    browser.ask("document.querySelector('#picker-class').value = '2'")
    browser.click("document.querySelector('#picker-move')")
    choose(browser, "which-kept", "out")
    hostile = "[...document.querySelectorAll('.cell:not([hidden])')].find((cell) => cell.title.includes('quoted'))"
    third = browser.ask(f"({hostile}).title")
    assert third not in kept
    browser.ask(f"({hostile}).scrollIntoView({{block: 'center'}})")
    browser.click(f"({hostile}).querySelector('.right')")
    assert "3 marked: 1 ✓ 1 ✗ 1 ⇄" in text(browser, "#counts")

    # They are still there after a reload.
    browser.open(state / "review.html")
    assert [mark_of(browser, at) for at in (0, 1, 2)] == ["wrong", "other", ""]
    assert text(browser, "#export") == "Export 3 marks"

    downloads = tmp_path / "downloads"
    downloads.mkdir()
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
    browser.click("document.querySelector('#export')")
    assert f"learn {state} --review review-2.csv" in text(browser, "#command")
    browser.click("document.querySelector('#download')")
    review = downloads / "review-2.csv"
    end = time.monotonic() + 10
    while not review.exists() and time.monotonic() < end:
        browser.ask("0")
        time.sleep(0.05)
    assert command("learn", state, "--review", review, "--device", "cpu") == 0
    assert "3 marks applied" in capsys.readouterr().out

    learner = ContinualLearner.load(state, device="cpu")
    zero, evil = learner.seen("0"), learner.seen(EVIL)
    row = {name: number for number, name in enumerate(zero.names())}
    assert zero.mark[[row[first], row[second], row[third]]].tolist() == [WRONG, OTHER, RIGHT]
    assert zero.kept[[row[first], row[second], row[third]]].tolist() == [False, False, True]
    assert evil.names()[-1] == second
    assert evil.kept[-1]

    # The next page knows what was applied, and has nothing left to export.
    assert command("review", state, "--no-open") == 0
    browser.open(state / "review.html")
    assert browser.ask("document.querySelector('#export').disabled")
    assert browser.ask("document.querySelector('#earlier').hidden")
    assert browser.ask("localStorage.length") == 0
    choose(browser, "which-mark", "applied")
    assert text(browser, "#counts").startswith("4 of 54 shown")
    assert {mark_of(browser, at) for at in range(4)} == {"right", "wrong", "other"}
    assert not browser.happened(*ERRORS)

    # What was moved can be moved on, from where it was; where it is already is no news.
    choose(browser, "which-mark", "other")
    choose(browser, "which-class", "0")
    assert title_of(browser, 0) == second
    assert text(browser, ".cell .badge") == f"→ {EVIL}, applied"
    for target, news in ((2, ""), (1, "Export 1 mark")):
        browser.click(f"({cell(0)}).querySelector('.other')")
        assert browser.ask("document.querySelector('#picker-class').value") == "2"
        browser.ask(f"document.querySelector('#picker-class').value = '{target}'")
        browser.click("document.querySelector('#picker-move')")
        assert text(browser, "#export") == (news or "Export marks")
    browser.click("document.querySelector('#export')")
    again = tmp_path / "again.csv"
    again.write_text(browser.ask("document.querySelector('#csv').value"), encoding="utf-8", newline="")
    assert command("learn", state, "--review", again, "--device", "cpu") == 0
    learner = ContinualLearner.load(state, device="cpu")
    assert not learner.seen(EVIL).kept[-1]
    assert learner.seen("1").names()[-1] == second
    assert learner.seen("1").kept[-1]


def test_with_keys_alone(browser: Browser) -> None:
    names = [title_of(browser, at) for at in range(6)]
    for pressed in ("r", "w", "ArrowRight", "w", "ArrowLeft", "u", "ArrowRight"):
        key(browser, pressed)
    # The first mark leads on to the next image; the last one was cleared.
    assert [mark_of(browser, at) for at in range(6)] == ["right", "wrong", "", "", "", ""]
    assert browser.ask("document.querySelector('.cell.current').position") == 4
    key(browser, "o")
    classes = browser.ask("[...document.querySelectorAll('#picker-class option')].map((one) => one.textContent)")
    assert classes == ["1", EVIL]
    suggested = browser.ask("document.querySelector('#picker-class').selectedIndex")
    assert f"{classes[suggested]} " in browser.ask(f"({cell(4)}).querySelector('.instead').textContent")
    key(browser, "ArrowUp" if suggested else "ArrowDown")
    key(browser, "Enter")
    assert mark_of(browser, 4) == "other"
    rows = exported(browser)
    assert [row[:3] for row in rows[:2]] == [[names[0], "0", "right"], [names[1], "0", "wrong"]]
    assert rows[2][:3] == [names[4], "0", "other"]
    assert rows[2][3] == classes[1 - suggested]
    for marks_left in ("2", "3"):
        key(browser, "z")
        assert f"{marks_left} marked" in text(browser, "#counts")
    assert mark_of(browser, 3) == "wrong"


def test_a_class_that_is_not_known_yet_can_be_named(
    browser: Browser, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = title_of(browser, 0), title_of(browser, 1)
    key(browser, "o")
    browser.ask("document.querySelector('#picker-new').focus()")
    browser.send("Input.insertText", text=' a, "new" one ')
    assert browser.ask("document.querySelector('#picker-class').selectedIndex") == -1  # one of both is chosen, not both
    key(browser, "Enter")
    key(browser, "o")  # of the next image it can be chosen
    assert browser.ask("document.querySelector('#picker-new').value") == ""
    browser.ask("document.querySelector('#picker-class').value = '3'")
    key(browser, "Enter")
    assert text(browser, ".cell .badge") == '→ a, "new" one'
    for _ in range(2):
        assert exported(browser) == [[name, "0", "new", 'a, "new" one'] for name in (first, second)]
        browser.open(state / "review.html")
    browser.click("document.querySelector('#export')")
    review = tmp_path / "r.csv"
    review.write_text(browser.ask("document.querySelector('#csv').value"), encoding="utf-8", newline="")
    assert command("learn", state, "--review", review, "--device", "cpu") == 0
    assert """'a, "new" one' is a new class, of 2 images""" in capsys.readouterr().err
    assert ContinualLearner.load(state, device="cpu").seen('a, "new" one').names() == [first, second]

    # The next page knows it, and that nothing is left to be said.
    browser.open(with_page(state) / "review.html")
    assert browser.ask("document.querySelector('#export').disabled")
    assert browser.ask("document.querySelector('#earlier').hidden")
    assert browser.ask("localStorage.length") == 0
    assert not browser.happened(*ERRORS)


def test_a_key_right_after_the_dialog_goes_to_the_page(browser: Browser) -> None:
    key(browser, "o")
    key(browser, "Enter")
    key(browser, "r")
    assert [mark_of(browser, at) for at in (0, 1, 2)] == ["other", "right", ""]


def test_marks_can_be_copied(browser: Browser) -> None:
    browser.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    name = title_of(browser, 0)
    key(browser, "w")
    key(browser, "e")
    browser.click("document.querySelector('#copy')")
    end = time.monotonic() + 10
    while not text(browser, "#copied") and time.monotonic() < end:
        time.sleep(0.05)
    wait = {"returnByValue": True, "awaitPromise": True, "userGesture": True}
    copied = browser.send("Runtime.evaluate", expression="navigator.clipboard.readText()", **wait)["result"]["value"]
    assert list(csv.reader(io.StringIO(copied, newline="")))[1:] == [[name, "0", "wrong", ""]]
    assert text(browser, "#copied").startswith("Copied; paste it into a file called review-2.csv")


def test_several_at_once_and_taken_back(browser: Browser) -> None:
    key(browser, "ArrowRight", modifiers=8)
    key(browser, "ArrowDown", modifiers=8)
    chosen = browser.ask("document.querySelectorAll('.cell.chosen').length")
    assert text(browser, "#chosen") == f"{chosen} images chosen"
    assert chosen > 2
    key(browser, "w")
    assert f"{chosen} marked" in text(browser, "#counts")
    key(browser, "z")
    assert "none marked" in text(browser, "#counts")
    browser.click(cell(1))
    browser.click(cell(4), shift=True)
    browser.click("document.querySelector('#detail [data-mark=right]')")
    assert [mark_of(browser, at) for at in range(6)] == ["", "right", "right", "right", "right", ""]
    # A click on the mark an image has takes it away.
    browser.click(f"({cell(2)}).querySelector('.right')")
    assert mark_of(browser, 2) == ""


def test_filters(browser: Browser, state: Path) -> None:
    records = [StateFolder(state).newest().seen(index) for index in range(3)]

    def shown() -> str:
        return text(browser, "#counts").split(" ", 1)[0]

    assert shown() == str(sum(map(len, records)))
    choose(browser, "which-kept", "kept")
    assert shown() == str(sum(int(seen.kept.sum()) for seen in records))
    choose(browser, "which-class", "1")
    assert shown() == str(int(records[1].kept.sum()))
    key(browser, "w")
    key(browser, "r")
    choose(browser, "which-mark", "unmarked")
    assert shown() == str(int(records[1].kept.sum()) - 2)
    choose(browser, "which-mark", "wrong")
    assert shown() == "1"
    choose(browser, "which-kept", "out")
    assert shown() == "0"
    assert browser.ask("!document.querySelector('#nothing').hidden && document.querySelector('#detail').hidden")
    key(browser, "w")
    key(browser, "ArrowDown")
    choose(browser, "which-mark", "doubtful")
    choose(browser, "which-kept", "")
    first_two = sum(score < 0.5 for score in sorted(records[1].score[records[1].kept])[:2])
    assert shown() == str(int((records[1].score < 0.5).sum()) - first_two)
    assert not browser.happened(*ERRORS)


def test_marks_that_were_never_applied_can_be_taken_over(browser: Browser, state: Path, digits: Dataset) -> None:
    key(browser, "w")
    key(browser, "r")
    assert "2 marked" in text(browser, "#counts")
    more = write_images(state.parent / "more", numbers_of(digits, 3)[:8])
    Session(StateFolder(state), "cpu").learn_folder(more, "3", {})
    browser.open(with_page(state) / "review.html")
    assert "none marked" in text(browser, "#counts")
    assert text(browser, "#earlier-count") == "2 marks"
    browser.click("document.querySelector('#earlier-take')")
    assert "2 marked: 1 ✓ 1 ✗" in text(browser, "#counts")
    browser.open(state / "review.html")
    assert "2 marked" in text(browser, "#counts")
    assert browser.ask("document.querySelector('#earlier').hidden")


def test_marks_do_not_go_over_to_other_images_of_the_same_name(browser: Browser, state: Path, digits: Dataset) -> None:
    """As where a folder is taken back, with marks on it, and another one learned."""
    session = Session(StateFolder(state), "cpu")
    key(browser, "w")
    for name, start in (("a", 0), ("b", 8)):
        session.learn_folder(write_images(state.parent / name, numbers_of(digits, 3)[start : start + 8]), name, {})
        browser.open(with_page(state) / "review.html")
        assert text(browser, "#earlier-count") == "1 mark"
        key(browser, "End")
        key(browser, "w")
        assert "1 marked" in text(browser, "#counts")
        session.undo()


def test_marks_of_images_that_a_page_does_not_show_stay(browser: Browser, state: Path, digits: Dataset) -> None:
    small = state / "small.html"
    key(browser, "End")
    key(browser, "w")
    write_review_page(StateFolder(state).newest(), state, small, most=1)
    browser.open(small)
    key(browser, "w")
    browser.open(state / "review.html")
    assert "2 marked" in text(browser, "#counts")
    more = write_images(state.parent / "more", numbers_of(digits, 3)[:8])
    Session(StateFolder(state), "cpu").learn_folder(more, "3", {})
    write_review_page(StateFolder(state).newest(), state, small, most=1)
    browser.open(small)
    browser.open(with_page(state) / "review.html")
    assert text(browser, "#earlier-count") == "2 marks"
    browser.click("document.querySelector('#earlier-forget')")
    assert browser.ask("localStorage.length") == 0


def test_a_browser_that_keeps_nothing_says_so(browser: Browser, state: Path) -> None:
    broken = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no'); } })"
    added = browser.send("Page.addScriptToEvaluateOnNewDocument", source=broken)
    try:
        browser.open(state / "review.html")
        assert not browser.ask("document.querySelector('#unsaved').hidden")
        key(browser, "w")
        assert "1 marked" in text(browser, "#counts")
        assert len(exported(browser)) == 1
    finally:
        browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])


def test_a_stored_text_that_is_not_ours_is_passed_over(browser: Browser, state: Path) -> None:
    key(browser, "w")
    for stored in ('[["no such", "right"], 3, null, [1], ["__proto__", "x"]]', '{"a": 1}', "not JSON"):
        browser.ask(f"localStorage.setItem(localStorage.key(0), {stored!r})")
        browser.open(state / "review.html")
        assert "none marked" in text(browser, "#counts")
        assert not browser.happened(*ERRORS)


def test_without_scripts_it_says_that_it_needs_them(browser: Browser, state: Path) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(state / "review.html")
        assert "This page needs scripts" in browser.ask("document.body.innerText")
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


def test_of_ten_thousand_images_only_those_in_sight_are_elements(running: Browser, tmp_path: Path) -> None:
    count = 10_000
    data = many_images(count)
    page = tmp_path / "page.html"
    write_atomically(page, page_html(data, sheets_of(data.thumbnails), "S"))
    running.open(page)
    elements = "document.querySelectorAll('*').length"
    counts = [running.ask(elements)]
    for pressed, position in (("End", count - 1), ("ArrowUp", count - 9), ("Home", 0)):
        key(running, pressed)
        assert running.ask("document.querySelector('.cell.current').position") == position
        assert running.ask("document.querySelector('#full-name').textContent") == f"{position}.png"
        counts.append(running.ask(elements))
    running.ask("window.scrollTo(0, document.body.scrollHeight / 3)")
    running.send("Runtime.evaluate", expression="new Promise(requestAnimationFrame)", awaitPromise=True)
    assert "thrown out" in text(running, "#here")
    assert running.ask("[...document.querySelectorAll('.cell')].some((cell) => cell.getBoundingClientRect().top > 300)")
    assert max(*counts, running.ask(elements)) < 1500
    key(running, "Home")
    key(running, "End", modifiers=8)
    key(running, "w")
    assert "10,000 marked" in text(running, "#counts")
    running.open(page)
    assert "10,000 marked" in text(running, "#counts")
    running.ask("localStorage.clear()")
    # The picture is drawn, not only its frame.
    x, y = running.ask("(({ x, y }) => [x, y])(document.querySelector('#large').getBoundingClientRect())")
    shot = io.BytesIO(base64.b64decode(running.send("Page.captureScreenshot", format="png")["data"]))
    assert Image.open(shot).convert("L").getpixel((x + 48, y + 48)) == pytest.approx(200, abs=3)
