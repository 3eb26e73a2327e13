"""How well wrong labels can be told by what images look like alone, before any network has seen them.

    python benchmarks/looks.py --data-root data --out results/looks.json

Half of all labels are flipped. In every class a sample's crowding is measured, once among coarse pixels, once among
these and detail (`selection/look.py`), and compared with the truth: the area under the ROC curve, 0.5 by chance, and
the share of right labels in the most crowded third. Seeds 0 and 1. A data set that is not there is left out. MSTAR's
images have another size for each class, which resizing leaves traces of, so it is also looked at cropped.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from continual_crust.data import Dataset, Noise, Stream, load_dataset
from continual_crust.errors import InputError
from continual_crust.selection.crowds import crowding
from continual_crust.selection.look import coarse_pixels, detail, side_by_side
from continual_crust.strategies.sift import NEIGHBOURS
from continual_crust.studies.result import versions
from continual_crust.writing import write_json

DATASETS = ("digits", "mnist", "fashionmnist", "cifar10", "mstar", "mstar, cropped")
SEEDS = (0, 1)
MOST = 1500
"""Samples of a class that are looked at."""
VIEWS: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "coarse pixels": lambda images: [coarse_pixels(images)],
    "coarse pixels and detail": lambda images: [coarse_pixels(images), detail(images)],
}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in DATASETS:
        try:
            dataset = load_dataset(name.removesuffix(", cropped"), arguments.data_root, crop=name.endswith("cropped"))
        except InputError as error:
            print(f"{name} is left out: {error}")
            continue
        found[name] = {view: measured(dataset, points) for view, points in VIEWS.items()}
        print(name, json.dumps(found[name], indent=2), flush=True)
    command = f"python benchmarks/looks.py --data-root data --out {arguments.out}"
    write_json(arguments.out, {"command": command, "versions": versions(), "found": found})


def measured(dataset: Dataset, view: Callable[[Tensor], list[Tensor]]) -> dict[str, float]:
    """Means over all classes of both seeds, and the worst class."""
    areas, purities = [], []
    for seed in SEEDS:
        stream = Stream(dataset, Noise.parse("label:0.5"), seed)
        for experience in stream:
            for label in experience.classes:
                samples = experience.samples.of_class(label)
                samples = samples[torch.arange(min(MOST, len(samples)))]
                near = crowding(side_by_side(view(samples.images)), NEIGHBOURS)
                clean = stream.truth.is_clean(samples.ids)
                areas.append(float(roc_auc_score(clean, near)))
                densest = near.argsort(descending=True)[: len(near) // 3]
                purities.append(float(clean[densest].double().mean()))
    return {
        "area": round(statistics.mean(areas), 4),
        "area_worst": round(min(areas), 4),
        "purity": round(statistics.mean(purities), 4),
        "purity_worst": round(min(purities), 4),
    }


if __name__ == "__main__":
    main()
