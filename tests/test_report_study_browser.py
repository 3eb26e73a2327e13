"""The report in a real browser: Debian's chromium, driven through the pipe it offers to developer tools."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time

import pytest
import yaml

from continual_crust.report.study_report import write_report
from test_report_study_data import config, result_of, write_memory, write_run, write_study

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; on Debian: apt install chromium")

# The browser reads commands from file descriptor 3 and answers on 4, so it must be started with these two in place.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 20) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)
EVIL = "\"><script>alert(1)</script>'&"
PHONE = 360

# Text whose colour is too near to the ground it stands on.
UNREADABLE = """
(() => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).map(Number);
    const [r, g, b] = parts.slice(0, 3).map((v) => (v /= 255, v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4));
    return { value: .2126 * r + .7152 * g + .0722 * b, seen: parts.length < 4 || parts[3] > 0 };
  };
  const found = [];
  for (const element of document.querySelectorAll("main *")) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const style = getComputedStyle(element);
    if (!says || !element.getClientRects().length || style.visibility === "hidden") continue;
    let at = element;
    while (at && !light(getComputedStyle(at).backgroundColor).seen) at = at.parentElement;
    const pair = [light(style.color).value, light(getComputedStyle(at || document.body).backgroundColor).value];
    const ratio = (Math.max(...pair) + .05) / (Math.min(...pair) + .05);
    if (ratio < 4.5) found.push(`${element.tagName} ${element.className} ${ratio.toFixed(1)}: ${element.textContent}`);
  }
  return found;
})()
"""


class Browser:
    """As much of the protocol as these tests need."""

    def __init__(self, profile) -> None:
        commands, answers = os.pipe(), os.pipe()
        start = [sys.executable, "-c", LAUNCH, str(commands[0]), str(answers[1])]
        self.process = subprocess.Popen(
            [*start, CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands[0], answers[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands[0])
        os.close(answers[1])
        self.commands, self.answers = commands[1], answers[0]
        self.unread, self.number = b"", 0
        self.events: list[dict] = []
        self.session: str | None = None
        pages = [target for target in self.send("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        attached = self.send("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters):
        """Give a command and wait for its answer; what happens meanwhile is remembered."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def open(self, page, width: int = 1280, dark: bool = False) -> None:
        phone = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=phone)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[theme])
        self.events.clear()
        self.send("Page.navigate", url=page.as_uri())
        while not self.happened("Page.loadEventFired"):
            self.events.append(self._read())

    def ask(self, expression: str):
        """The value of some JavaScript."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """A real key on whatever has the focus."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def happened(self, *methods: str) -> list[dict]:
        return [event for event in self.events if event.get("method") in methods]

    def close(self) -> None:
        self.session = None
        try:
            self.send("Browser.close")
            self.process.wait(timeout=10)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.commands)
        os.close(self.answers)

    def _read(self, patience: float = 30):
        end = time.monotonic() + patience
        while b"\0" not in self.unread:
            if not select.select([self.answers], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.answers, 1 << 20)
            if not more:
                raise EOFError("the browser is gone")
            self.unread += more
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)


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


def test_hostile_names_are_text(browser, page):
    browser.open(page)
    assert browser.ask("document.scripts.length") == 1
    assert EVIL in browser.ask("document.querySelectorAll('h2')[1].textContent")
    assert not browser.ask("document.querySelectorAll('main b b, main script').length")


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
