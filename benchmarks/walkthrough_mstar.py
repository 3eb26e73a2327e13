"""The walk-through of docs/walkthrough.md: every command a new user types, its time, what it printed and what is true.

    python benchmarks/walkthrough_mstar.py --data-root DIR --picture docs/walkthrough.png

DIR holds mstar/train_17deg/CLASS/* and mstar/test_15deg/CLASS/*. The folders are those of `own_images_mstar`. The
person who reviews knows the truth, and says of the chips of T62 that are kept or look wrong: where they belong, if they
show another known vehicle; that they are wrong, if they show a bulldozer; and that they are right, if they look wrong
and show a T62. The picture is taken where chromium is installed.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from chromium import CHROMIUM, Browser
from continual_crust import ContinualLearner
from continual_crust.studies.result import versions
from continual_crust.writing import write_atomically
from own_images_mstar import KNOWN, NEW, make_folders

TEST_IMAGES = 100
"""Of each class."""


class Walk:
    """A folder, the commands typed in it and what came of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[dict[str, object]] = []

    def type(self, *arguments: str) -> str:
        """Run a command as a person would."""
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "continual_crust", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "100"},
            check=True,
        )
        seconds, after = round(time.perf_counter() - start, 1), resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
        command = f"continual-crust {' '.join(arguments)}"
        printed = [] if "--format" in arguments else done.stdout.rstrip().splitlines()
        self.commands.append(
            {"command": command, "seconds": seconds, "processor_seconds": processor, "printed": printed[:20]}
        )
        print(command, seconds, processor, flush=True)
        return done.stdout

    def learner(self) -> ContinualLearner:
        """As it is now."""
        return ContinualLearner.load(self.folder / "STATE", device="cpu")

    def note(self, **facts: object) -> None:
        """What is true of the last command, beside what it printed."""
        self.commands[-1] |= facts

    def predict(self) -> None:
        """Predict the test chips and count."""
        rows = csv.DictReader(io.StringIO(self.type("predict", "STATE", "test", "--format", "csv")))
        right = Counter(Path(row["file"]).parent.name for row in rows if Path(row["file"]).parent.name == row["class"])
        accuracy = sum(right.values()) / (TEST_IMAGES * (len(KNOWN) + 1))
        self.note(right=dict(sorted(right.items())), of_each=TEST_IMAGES, accuracy=round(accuracy, 4))


def true_classes(files: list[str]) -> np.ndarray:
    """Of chips in the batch, whose names begin with what they show."""
    return np.array([name.rpartition("_")[0] for name in files])


def review(learner: ContinualLearner, folder: Path) -> int:
    """Write what a person who knows the truth says about the chips of the new class that are kept or look wrong."""
    seen, rows = learner.seen(NEW), []
    for row in np.flatnonzero(seen.kept | seen.looks_wrong()).tolist():
        true = true_classes([seen.files[row]])[0]
        if true != NEW:
            rows.append((seen.names()[row], NEW, *(("other", true) if true in KNOWN else ("wrong", ""))))
        elif not seen.kept[row]:
            rows.append((seen.names()[row], NEW, "right", ""))
    with (folder / "marks.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("file", "class", "mark", "new_class"), *rows])
    return len(rows)


def picture(page: Path, target: Path) -> None:
    """What was thrown out of the new class, as the browser shows it."""
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        browser.open(page)
        for box, value in (("which-class", str(len(KNOWN))), ("which-kept", "out")):
            browser.ask(
                f"(() => {{ const box = document.getElementById('{box}'); box.value = '{value}';"
                " box.dispatchEvent(new Event('change')); })()"
            )
        # Where the folder lies is nobody's business.
        facts = "document.getElementById('facts').textContent"
        browser.ask(f"{facts} = {facts}.replace(/ · from .*/, '')")
        time.sleep(0.5)
        shown = browser.send("Page.captureScreenshot", format="png")["data"]
        browser.close()
    write_atomically(target, base64.b64decode(shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/walkthrough_mstar.json"))
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        walk = Walk(Path(root))
        make_folders(options.data_root / "mstar" / "train_17deg", walk.folder, options.seed)
        for name in (*KNOWN, NEW):
            (walk.folder / "test" / name).mkdir(parents=True)
            for path in sorted((options.data_root / "mstar" / "test_15deg" / name).iterdir())[:TEST_IMAGES]:
                shutil.copy(path, walk.folder / "test" / name)
        walk.type("learn", "STATE", "known", "--crop", "--image-size", "64")
        walk.type("learn", "STATE", "batch", "--label", NEW)
        learner = walk.learner()
        seen, noise = learner.seen(NEW), learner.noise_[NEW]
        wrong, named = true_classes(seen.files) != NEW, seen.score < 0.5
        assert noise is not None
        walk.note(
            images=len(seen),
            truly_wrong=int(wrong.sum()),
            look_wrong=int(named.sum()),
            truly_wrong_among_these=int((wrong & named).sum()),
            estimate=[round(share, 4) for share in (noise.estimate, noise.low, noise.high)],
            kept=int(seen.kept.sum()),
            kept_wrong=int((wrong & seen.kept).sum()),
        )
        walk.predict()
        walk.type("review", "STATE", "--no-open")
        if options.picture is not None and CHROMIUM is not None:
            picture(walk.folder / "STATE" / "review.html", options.picture)
        marks = review(learner, walk.folder)
        walk.type("learn", "STATE", "--review", "marks.csv")
        seen = walk.learner().seen(NEW)
        wrong = true_classes(seen.files) != NEW
        walk.note(marks=marks, kept=int(seen.kept.sum()), kept_wrong=int((wrong & seen.kept).sum()))
        walk.predict()
    result = {"seed": options.seed, "commands": walk.commands, "versions": versions()}
    print(
        json.dumps([{key: value for key, value in one.items() if key != "printed"} for one in walk.commands], indent=1)
    )
    write_atomically(options.out, json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
