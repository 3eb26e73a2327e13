"""What judging one's own images is worth: the same streams learned without, with cleanlab before, and by the tool.

    pip install cleanlab
    python benchmarks/own_images_peers.py --out results/own_images_peers.json [--dataset mnist --data-root data]

Five ways to learn classes that come one after another, of which 25 images each may be kept:

- *plain*: the new images and what is kept, then what is kept, with as many epochs as the tool takes, moved as it moves
  them; what is kept is drawn at random;
- *crust*: the same, but what is kept is chosen by Continual CRUST before each epoch on it, as in the paper;
- *cleanlab*: plain without the new images that cleanlab names, from probabilities of five networks that have not
  seen what they judge, taught the other new images and what is kept;
- *tool*: `ContinualLearner` as it comes;
- *truth*: plain, without the images whose labels are wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from cleanlab.filter import find_label_issues
from torch import Tensor

from continual_crust.data import Experience, Noise, Samples, Stream, load_dataset
from continual_crust.evaluation import accuracies, mean_purity, purity_per_class
from continual_crust.field.settings import Settings
from continual_crust.field.strategy import MOVED
from continual_crust.models import build_model
from continual_crust.randomness import generator_for, seed_for
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies import ContinualCrust, Naive, Training
from continual_crust.studies.result import versions
from continual_crust.writing import write_json
from noise_estimate import part_of, taught

MEMORY = 25
LEVELS = (0.0, 0.1, 0.3, 0.5)
FOLDS, FOLD_STEPS = 5, 300
"""Networks that judge for cleanlab, and steps that each is taught: as many as the tool takes on new images."""

Clean = Callable[[Experience, Samples | None], Tensor]
"""Which of the new images to learn, given what is kept: a mask."""


def plain(stream: Stream, seed: int, cleaned: Clean | None = None, selector: str = "random") -> dict[str, float]:
    """Learn a stream, of every batch what is left of it."""
    model = build_model("simple_cnn", stream.dataset.image_shape, stream.dataset.classes, seed=seed_for(seed, "model"))
    learner = ContinualCrust(model, Training(memory_per_class=MEMORY), seed=seed, selector=SelectorConfig(selector))
    wrong_named = named = wrong = 0
    for experience in stream:
        kept = learner.remembered()
        passes = torch.ones(len(experience.samples), dtype=torch.bool)
        if cleaned is not None:
            passes = cleaned(experience, kept)
        clean = stream.truth.is_clean(experience.samples.ids)
        wrong, named = wrong + int((~clean).sum()), named + int((~passes).sum())
        wrong_named += int((~clean & ~passes).sum())
        count = int(passes.sum()) + (0 if kept is None else len(kept))
        learner.training = replace(Settings(memory_per_class=MEMORY).training(count), shift=MOVED)
        learner.learn(replace(experience, samples=experience.samples[passes.nonzero().flatten()]))
    return {
        "accuracy": float(np.mean(accuracies(learner, stream))),
        "clean_memory": float(mean_purity(purity_per_class(learner.memory, stream.truth)) or 0),
        "wrong_ones_named": wrong_named / max(1, wrong),
        "named_ones_wrong": wrong_named / max(1, named),
    }


def by_cleanlab(stream: Stream, seed: int) -> Clean:
    """All but what cleanlab names."""

    def passes(experience: Experience, kept: Samples | None) -> Tensor:
        new = experience.samples
        everything = new if kept is None else Samples.concatenate([new, kept])
        known, labels = everything.labels.unique(return_inverse=True)
        if len(known) < 2:
            return torch.ones(len(new), dtype=torch.bool)
        probabilities = torch.zeros(len(everything), len(known), dtype=torch.float64)
        for number, held_out in enumerate(_folds(labels, seed)):
            others = everything[(~held_out).nonzero().flatten()]
            judge = _judge_of(stream, others, seed_for(seed, f"fold {number}"))
            _, logits = judge.network.evaluate(everything.images[held_out])
            probabilities[held_out] = logits[:, known].double().softmax(dim=1)
        named = find_label_issues(labels.numpy(), probabilities.numpy(), n_jobs=1)
        mask = ~torch.as_tensor(named)[: len(new)]
        for label in experience.classes:  # of a class that it would have nothing left of, everything is learned
            own = new.labels == label
            if not bool(mask[own].any()):
                mask[own] = True
        return mask

    return passes


def _folds(labels: Tensor, seed: int) -> Iterator[Tensor]:
    """Masks of about a fifth of each class, as cleanlab advises."""
    fold = torch.zeros(len(labels), dtype=torch.int64)
    generator = generator_for(seed, "folds")
    for label in labels.unique():
        own = (labels == label).nonzero().flatten()
        fold[own[torch.randperm(len(own), generator=generator)]] = torch.arange(len(own)) % FOLDS
    for number in range(FOLDS):
        yield fold == number


def _judge_of(stream: Stream, samples: Samples, seed: int) -> Naive:
    model = build_model("simple_cnn", stream.dataset.image_shape, stream.dataset.classes, seed=seed)
    judge = Naive(model, Training(max(1, FOLD_STEPS * 32 // len(samples)), 0, shift=MOVED), seed=seed)
    judge.learn(Experience(tuple(samples.labels.unique().tolist()), samples))
    return judge


def by_truth(stream: Stream, _seed: int) -> Clean:
    """What is truly right."""
    return lambda experience, _kept: stream.truth.is_clean(experience.samples.ids)


def tool(stream: Stream, seed: int) -> dict[str, float]:
    """`ContinualLearner` as it comes."""
    learner = taught(stream, seed, MEMORY)
    named, kept, clean = [], [], []
    for label in learner.noise_:
        seen = learner.seen(label)
        clean.append(stream.truth.is_clean(torch.tensor([int(name) for name in seen.files])).numpy())
        named.append(seen.score < 0.5)
        kept.append(seen.kept)
    all_named, all_clean = np.concatenate(named), np.concatenate(clean)
    wrong_named = int((all_named & ~all_clean).sum())
    return {
        "accuracy": float(np.mean(accuracies(learner, stream))),
        "clean_memory": float(np.mean([of_class[held].mean() for of_class, held in zip(clean, kept, strict=True)])),
        "wrong_ones_named": wrong_named / max(1, int((~all_clean).sum())),
        "named_ones_wrong": wrong_named / max(1, int(all_named.sum())),
    }


WAYS: dict[str, Callable[[Stream, int], dict[str, float]]] = {
    "plain": plain,
    "crust": lambda stream, seed: plain(stream, seed, selector="crust"),
    "cleanlab": lambda stream, seed: plain(stream, seed, by_cleanlab(stream, seed)),
    "tool": tool,
    "truth": lambda stream, seed: plain(stream, seed, by_truth(stream, seed)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--images", type=int, default=1000, help="of a class, at most")
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = part_of(load_dataset(options.dataset, options.data_root), 10, options.images)
    seeds = list(range(30, 30 + options.seeds))
    rows = []
    for level in options.levels:
        for seed in seeds:
            for way, learn in WAYS.items():
                found = learn(Stream(data, Noise.parse(f"label:{level}"), seed), seed)
                rows.append({"level": level, "seed": seed, "way": way, **found})
                print(rows[-1], flush=True)
    result = {"dataset": options.dataset, "images_per_class": options.images, "memory_per_class": MEMORY}
    write_json(options.out, {**result, "rows": rows, "versions": versions()})


if __name__ == "__main__":
    main()
