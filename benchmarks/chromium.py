"""Debian's chromium without a window, driven through the pipe it offers to developer tools."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

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
        self.send("Page.setLifecycleEventsEnabled", enabled=True)

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
        loader = self.send("Page.navigate", url=page.as_uri())["loaderId"]
        # Until it has been painted, a page is not given what is typed and clicked.
        while not {"load", "firstPaint"} <= self._stages_of(loader):
            self.events.append(self._read())

    def _stages_of(self, loader: str) -> set[str]:
        """How far a page has come."""
        stages = (event["params"] for event in self.happened("Page.lifecycleEvent"))
        return {stage["name"] for stage in stages if stage["loaderId"] == loader}

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

    def click(self, element: str, shift: bool = False) -> None:
        """A real click in the middle of what some JavaScript gives."""
        x, y = self.ask(
            f"(() => {{ const r = ({element}).getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                clickCount=1,
                modifiers=8 if shift else 0,
            )

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
