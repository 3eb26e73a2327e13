"""How honest is the estimate of wrong labels: streams of digits whose noise is known, learned by `ContinualLearner`.

    python benchmarks/noise_estimate.py --out results/noise_estimate.json

Every class of every stream is one batch with an estimate, an interval and a list of images that look wrong, and is
compared with the truth. Seeds start at 30: the estimator was made while looking at seeds below.

With ``--one-unseen`` all wrong labels of a batch are of one class, and only batches count where that one comes later:

    python benchmarks/noise_estimate.py --one-unseen --levels 0.2 0.3 0.4 --out results/noise_estimate_unseen.json
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from continual_crust import ContinualLearner
from continual_crust.data import Dataset, Noise, Stream, load_dataset
from continual_crust.studies.result import versions
from continual_crust.writing import write_json

LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Batch:
    """One class: what was estimated and what is true."""

    estimate: float
    low: float
    high: float
    right: np.ndarray
    is_clean: np.ndarray
    kept: np.ndarray

    @property
    def share(self) -> float:
        """Of wrong labels."""
        return float(1 - self.is_clean.mean())


def learned(stream: Stream, seed: int, memory: int, unseen: bool) -> tuple[list[Batch], float]:
    """Learn a stream; what was thought of each class, and the accuracy at the end.

    With `unseen`, of those classes alone that are mixed with none but classes that come later.
    """
    learner = taught(stream, seed, memory)
    batches = []
    for label, noise in learner.noise_.items():
        seen = learner.seen(label)
        if noise is not None and (not unseen or later_alone(stream, label, seen.files)):
            clean = stream.truth.is_clean(torch.tensor([int(name) for name in seen.files])).numpy()
            batches.append(Batch(noise.estimate, noise.low, noise.high, seen.score, clean, seen.kept))
    return batches, float(np.mean([learner.score(*stream.test(number)) for number in range(len(stream))]))


def taught(stream: Stream, seed: int, memory: int) -> ContinualLearner:
    """A learner of a stream, whose images are named by their numbers."""
    learner = ContinualLearner(memory_per_class=memory, seed=seed, device="cpu")
    for experience in stream:
        samples = experience.samples
        learner.learn(samples.images, samples.labels, [str(number) for number in samples.ids.tolist()])
    return learner


def later_alone(stream: Stream, label: int, files: list[str]) -> bool:
    """Whether a batch has wrong labels, and they are of classes that come later."""
    order = [known for experience in stream for known in experience.classes]
    true = stream.truth.labels[torch.tensor([int(name) for name in files])].unique().tolist()
    return len(true) > 1 and min(order.index(other) for other in true if other != label) > order.index(label)


def summary(batches: list[Batch], accuracies: list[float]) -> dict[str, float | int | None]:
    """The numbers of one level of noise."""
    errors = np.array([batch.estimate - batch.share for batch in batches])
    held = [batch.low - 1e-9 <= batch.share <= batch.high + 1e-9 for batch in batches]
    wrong = np.concatenate([~batch.is_clean for batch in batches])
    right = np.concatenate([batch.right for batch in batches])
    doubted = right < 0.5
    kept = np.concatenate([batch.kept for batch in batches])
    return {
        "batches": len(batches),
        "true_share": float(np.mean([batch.share for batch in batches])),
        "mean_estimate": float(np.mean([batch.estimate for batch in batches])),
        "mean_error": float(errors.mean()),
        "mean_absolute_error": float(np.abs(errors).mean()),
        "largest_error": float(np.abs(errors).max()),
        "interval_held_the_truth": float(np.mean(held)),
        "mean_width": float(np.mean([batch.high - batch.low for batch in batches])),
        "area_under_curve": float(roc_auc_score(~wrong, right)) if wrong.any() else None,
        "wrong_ones_named": float(doubted[wrong].mean()) if wrong.any() else None,
        "named_ones_wrong": float(wrong[doubted].mean()) if doubted.any() else None,
        "clean_memory": float((~wrong)[kept].mean()),
        "accuracy": float(np.mean(accuracies)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--images", type=int, default=1000, help="of a class, at most")
    parser.add_argument("--one-unseen", action="store_true", help="wrong labels of one class that comes later")
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--memory", type=int, default=25)
    parser.add_argument("--out", type=Path, default=Path("results/noise_estimate.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = part_of(load_dataset(options.dataset, options.data_root), options.classes, options.images)
    levels = {}
    for level in options.levels:
        batches, accuracies = [], []
        for seed in range(30, 30 + options.seeds):
            stream = Stream(data, Noise.parse(f"{'asymmetric' if options.one_unseen else 'label'}:{level}"), seed)
            found, accuracy = learned(stream, seed, options.memory, options.one_unseen)
            batches += found
            accuracies.append(accuracy)
        levels[str(level)] = summary(batches, accuracies)
        print(level, levels[str(level)], flush=True)
    result = {
        "dataset": options.dataset,
        "one_unseen": options.one_unseen,
        "classes": options.classes,
        "images_per_class": options.images,
        "memory_per_class": options.memory,
        "seeds": list(range(30, 30 + options.seeds)),
        "levels": levels,
        "versions": versions(),
    }
    write_json(options.out, result)


def part_of(data: Dataset, classes: int, images: int) -> Dataset:
    """The first classes, with at most so many training images each."""
    train = torch.cat([(data.train_labels == label).nonzero().flatten()[:images] for label in range(classes)])
    test = (data.test_labels < classes).nonzero().flatten()
    return Dataset(
        data.name,
        data.train_images[train],
        data.train_labels[train],
        data.test_images[test],
        data.test_labels[test],
        data.class_names[:classes],
    )


if __name__ == "__main__":
    main()
