"""A new user's first hour with MSTAR: three known classes, then a batch of 'T62' of which half is something else.

    python benchmarks/own_images_mstar.py --data-root DIR --out results/own_images_mstar.json

DIR holds mstar/train_17deg/CLASS/*. Runs what `continual-crust learn` runs, with --crop --image-size 64, and compares
the images it names with the truth: 80 of the wrong ones are of the known classes, 20 of one it has never seen.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

from continual_crust import ContinualLearner
from continual_crust.field.session import Session
from continual_crust.field.state import StateFolder
from continual_crust.studies.result import versions
from continual_crust.writing import write_json

KNOWN = ("2S1", "BRDM_2", "ZIL131")
NEW, UNKNOWN = "T62", "D7"
WRONG = {"2S1": 30, "BRDM_2": 30, "ZIL131": 20, UNKNOWN: 20}
IMAGES, RIGHT = 150, 100


def make_folders(source: Path, target: Path, seed: int) -> None:
    """Class folders of three known classes, and a folder that is only half what it is said to be."""
    numbers = random.Random(seed)
    files = {name: sorted((source / name).iterdir()) for name in (*KNOWN, NEW, UNKNOWN)}
    for paths in files.values():
        numbers.shuffle(paths)
    copies = [(path, target / "known" / name / path.name) for name in KNOWN for path in files[name][:IMAGES]]
    copies += [(path, target / "batch" / f"{NEW}_{path.name}") for path in files[NEW][:RIGHT]]
    for name, count in WRONG.items():
        copies += [(path, target / "batch" / f"{name}_{path.name}") for path in files[name][IMAGES : IMAGES + count]]
    for path, copy in copies:
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/own_images_mstar.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        make_folders(options.data_root / "mstar" / "train_17deg", folder, options.seed)
        session = Session(StateFolder(folder / "S"), "cpu")
        session.learn_folder(folder / "known", None, {"crop": True, "seed": options.seed}, image_size=64)
        (report,) = session.learn_folder(folder / "batch", NEW, {}).reports
        learner = ContinualLearner.load(folder / "S", device="cpu")
    seen = learner.seen(NEW)
    truth = np.array([name.rpartition("_")[0] for name in seen.files])
    named, wrong = seen.score < 0.5, truth != NEW
    instead = np.array([learner.classes_[other] for other in seen.other])
    assert report.noise is not None
    result = {
        "images": len(seen),
        "wrong": int(wrong.sum()),
        "estimate": [report.noise.estimate, report.noise.low, report.noise.high],
        "named": int(named.sum()),
        "wrong_ones_named": float(named[wrong].mean()),
        "named_ones_wrong": float(wrong[named].mean()),
        "wrong_ones_named_by_class": {name: float(named[truth == name].mean()) for name in WRONG},
        "true_class_told": float((instead == truth)[named & np.isin(truth, KNOWN)].mean()),
        "clean_memory": float(1 - wrong[seen.kept].mean()),
        "estimates_of_the_clean_classes": {name: learner.noise_[name].estimate for name in KNOWN},
        "seed": options.seed,
        "versions": versions(),
    }
    print(json.dumps(result, indent=1))
    write_json(options.out, result)


if __name__ == "__main__":
    main()
