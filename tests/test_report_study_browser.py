"""The report in a real browser: Debian's chromium."""

from __future__ import annotations

import pytest
import yaml

from chromium import CHROMIUM, UNREADABLE, Browser
from continual_crust.report.matrix_viewer import STEPS
from continual_crust.report.study_report import write_report
from test_report_study_data import config, result_of, write_memory, write_run, write_study

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; on Debian: apt install chromium")

EVIL = "\"><script>alert(1)</script>'&"
PHONE = 360


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Two studies: a wide table of the paper's, and one with hostile names."""
    folder = tmp_path_factory.mktemp("browser")
    wide = write_study(folder / "wide", "id: wide\ntitle: A wide one\ntable: mnist_label_300\n")
    for method in ("joint", "crust"):
        run = config(method, "label:0.5", dataset="mnist", memory=300)
        write_run(wide, run, result_of(run, 0.4 if method == "crust" else 0.98))
    hostile = write_study(folder / "x", yaml.safe_dump({"id": EVIL, "title": f"{EVIL} {'long' * 40}"}))
    for seed in (0, 1):
        run = config("replay", dataset=EVIL + "data" * 30, seed=seed)
        made = write_run(hostile, run, result_of(run, classes=(EVIL, "a" * 60, "c", "d"), device=EVIL))
        write_memory(made, (EVIL, "a" * 60))
    write_run(hostile, run, name="<b>broken").joinpath("config.yaml").write_text(EVIL)
    return write_report(folder)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, PHONE])
def test_it_opens_without_errors_fits_and_can_be_read(browser, page, width, dark):
    browser.open(page, width, dark)
    assert not browser.happened("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    assert not browser.happened("Page.javascriptDialogOpening")
    asked = {event["params"]["request"]["url"].split(":")[0] for event in browser.happened("Network.requestWillBeSent")}
    assert asked <= {"file", "data"}
    browser.ask("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert browser.ask(UNREADABLE) == []
    ground = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(21, 23, 26)") == dark


def test_every_shade_of_the_matrix_can_be_read(browser, page):
    browser.open(page)
    shades = "".join(f"<td class=v{step}>{step}</td>" for step in range(STEPS + 1))
    browser.ask(f"document.querySelector('.panel:not([hidden]) tbody').innerHTML = '<tr>{shades}</tr>'")
    assert browser.ask(UNREADABLE) == []


def test_paper_has_all_columns_and_colours(browser, page):
    browser.open(page, width=720)  # about what a printed page has
    boxes = "[...document.querySelectorAll('.scroll:has(.numbers)')]"
    too_wide = f"{boxes}.some((box) => box.scrollWidth > box.clientWidth)"
    cells = "[...document.querySelectorAll('.matrix td, .dot')]"
    assert browser.ask(too_wide)
    browser.send("Emulation.setEmulatedMedia", media="print")
    try:
        assert not browser.ask(too_wide)
        assert browser.ask(f"{cells}.every((cell) => getComputedStyle(cell).printColorAdjust === 'exact')")
    finally:
        browser.send("Emulation.setEmulatedMedia", media="")


def test_a_sheet_alone_in_its_row_is_not_blown_up(browser, page):
    browser.open(page)
    widths = browser.ask("[...document.querySelectorAll('.side > figure')].map((figure) => figure.offsetWidth)")
    assert max(widths) <= 704


def test_hostile_names_are_text(browser, page):
    browser.open(page)
    assert browser.ask("document.scripts.length") == 1
    assert EVIL in browser.ask("document.querySelectorAll('h2')[1].textContent")
    assert not browser.ask("document.querySelectorAll('main b b, main script').length")
    # A title written from right to left leaves the words behind it where they are.
    assert browser.ask("getComputedStyle(document.querySelector('nav a')).unicodeBidi") == "isolate"


def test_the_matrix_can_be_stepped_through_with_keys(browser, page):
    browser.open(page)
    viewer = "document.querySelector('.viewer')"
    said = f"{viewer}.querySelector('output').textContent"
    left, right, end = ("ArrowLeft", 37), ("ArrowRight", 39), ("End", 35)
    assert browser.ask(said).startswith("After experience 3 of 3 (d): accuracy so far 40.0 %")
    browser.ask(f"{viewer}.querySelector('input').focus()")
    browser.press(*left)
    assert browser.ask(said) == "After experience 2 of 3 (c): accuracy so far 75.0 %, lost so far 20.0 %"
    shown = f"[...{viewer}.querySelectorAll('.panel:not([hidden]) .later')].length"
    assert browser.ask(shown) == 1
    for _ in range(3):
        browser.press(*left)
    assert browser.ask(said).startswith("After experience 1 of 3 (a, b)")
    browser.ask(f"{viewer}.querySelector('.panel:not([hidden])').focus()")
    browser.press(*right)
    assert browser.ask(said).startswith("After experience 2 of 3")
    browser.press(*end)
    assert browser.ask(said).startswith("After experience 3 of 3")
    browser.ask(f"{viewer}.querySelector('.back').focus()")
    browser.press("Enter", 13)
    assert browser.ask(said).startswith("After experience 2 of 3")
    # Tab comes from the button to the slider, and the choice of a matrix lies before both.
    browser.press("Tab", 9)
    assert browser.ask("document.activeElement.type") == "range"
    browser.ask(f"{viewer}.querySelector('select').focus()")
    browser.press("ArrowUp", 38)
    assert browser.ask(said).startswith("After everything: accuracy so far 98.0 %")
    assert not browser.happened("Runtime.exceptionThrown")


def test_without_scripts_every_matrix_is_there(browser, page):
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert browser.ask("[...document.querySelectorAll('.panel')].every((panel) => panel.offsetHeight > 0)")
        assert browser.ask("document.querySelector('.controls').offsetHeight") == 0
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
