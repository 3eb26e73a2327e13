"""What a person's marks are worth: noisy digits, learned from folders, reviewed with the truth at hand, learned again.

    python benchmarks/review_helps.py --out results/review_helps.json

Ten classes arrive one after another, with a share of wrong labels. Then a person looks at what is kept, and says of
every image that does not belong where it does (*kept*); or looks at all images, and says so of those that look wrong as
well (*all*).
"""

from __future__ import annotations

import argparse
import csv
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from continual_crust import ContinualLearner
from continual_crust.data import Noise, Stream, load_dataset
from continual_crust.field.session import Session
from continual_crust.field.state import StateFolder
from continual_crust.studies.result import versions
from continual_crust.writing import write_json

REVIEWS = ("kept", "all")
Row = tuple[str, str, str, str]


def learned(stream: Stream, state: Path, images: Path, memory: int, seed: int) -> None:
    """Learn a stream as folders of images; each file is named by its place in the data set."""
    for number, experience in enumerate(stream):
        samples = experience.samples
        for image, label, place in zip(samples.images, samples.labels, samples.ids, strict=True):
            folder = images / str(number) / str(int(label))
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[0].numpy()).save(folder / f"{int(place)}.png")
        asked = {"memory_per_class": memory, "seed": seed} if number == 0 else {}
        Session(StateFolder(state), "cpu").learn_folder(images / str(number), None, asked)


def marks(learner: ContinualLearner, stream: Stream, kind: str) -> list[Row]:
    """What a person who knows the truth says."""
    wrong: list[Row] = []
    right: list[Row] = []
    for label in learner.classes_.tolist():
        seen = learner.seen(label)
        shown = seen.kept | (seen.score < 0.5) if kind == "all" else seen.kept
        for row in np.flatnonzero(shown).tolist():
            name = seen.names()[row]
            true = str(int(stream.truth.labels[int(Path(seen.files[row]).stem)]))
            if true != label:
                wrong.append((name, label, "other", true))
            else:
                right.append((name, label, "right", ""))
    return wrong + [row for row in right if kind == "all"]


def accuracy(learner: ContinualLearner, stream: Stream) -> float:
    """Mean over experiences."""
    scores = []
    for number in range(len(stream)):
        images, labels = stream.test(number)
        scores.append(learner.score(images, [str(label) for label in labels.tolist()]))
    return float(np.mean(scores))


def clean_memory(learner: ContinualLearner, stream: Stream) -> float:
    """Share of kept images that are of the class they are kept for."""
    true = [
        int(stream.truth.labels[int(Path(name.partition(" (")[0]).stem)]) == int(label)
        for label, coreset in learner.coresets.items()
        for name in coreset.names
    ]
    return float(np.mean(true))


def one_seed(level: float, seed: int, memory: int) -> dict[str, object]:
    """Learn once, review in every way from there."""
    stream = Stream(load_dataset("digits"), Noise.parse(f"label:{level}"), seed)
    found: dict[str, object] = {"seed": seed}
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        learned(stream, folder / "S", folder / "images", memory, seed)
        before = ContinualLearner.load(folder / "S", device="cpu")
        found["before"] = {"accuracy": accuracy(before, stream), "clean_memory": clean_memory(before, stream)}
        for kind in REVIEWS:
            shutil.copytree(folder / "S", folder / kind)
            rows = marks(before, stream, kind)
            with (folder / "review.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("file", "class", "mark", "new_class"), *rows])
            outcome = Session(StateFolder(folder / kind), "cpu").apply_review(folder / "review.csv")
            assert outcome.marked == len(rows), "every mark is news"
            after = ContinualLearner.load(folder / kind, device="cpu")
            found[kind] = {
                "marks": len(rows),
                "accuracy": accuracy(after, stream),
                "clean_memory": clean_memory(after, stream),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levels", type=float, nargs="+", default=(0.3, 0.5))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--memory", type=int, default=25)
    parser.add_argument("--out", type=Path, default=Path("results/review_helps.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    levels = {}
    for level in options.levels:
        seeds = [one_seed(level, seed, options.memory) for seed in range(options.seeds)]
        levels[str(level)] = seeds
        for kind in ("before", *REVIEWS):
            values = [seed[kind] for seed in seeds]
            means = {name: round(float(np.mean([one[name] for one in values])), 3) for name in values[0]}
            gains = [seed[kind]["accuracy"] - seed["before"]["accuracy"] for seed in seeds]
            print(level, kind, means, f"gain {np.mean(gains):.3f} ± {np.std(gains, ddof=1):.3f}", flush=True)
    result = {"dataset": "digits", "memory_per_class": options.memory, "levels": levels, "versions": versions()}
    write_json(options.out, result)


if __name__ == "__main__":
    main()
