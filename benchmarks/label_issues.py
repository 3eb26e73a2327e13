"""Finding wrong labels: ours beside cleanlab's, on the same networks' outputs.

    pip install cleanlab
    python benchmarks/label_issues.py --out results/label_issues.json

flips 10 to 50 % of the labels of digits and trains SimpleCNN on them: once on everything, for features and in-sample
probabilities, and once for each of five folds, for out-of-sample probabilities. Seeds 1 to 3; our defaults were chosen
on seed 0. Writes the table that ``docs/label-issues.md`` shows. Takes ten minutes on one core.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from cleanlab.filter import find_label_issues as cleanlab_find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.nn import functional

from continual_crust.data import Dataset, Noise, load_dataset
from continual_crust.data.noise import corrupt
from continual_crust.models import build_model, features_and_logits
from continual_crust.randomness import generator_for, seed_for
from continual_crust.selection.label_issues import find_label_issues
from continual_crust.studies.result import versions
from continual_crust.writing import write_json

FOLDS = 5
LEARNING_RATE, BATCH_SIZE = 1e-3, 32
REPEATS = 5
"""Finding is timed this often; the fastest counts."""


@dataclass(frozen=True)
class Outputs:
    """What networks make of a noisy training set."""

    labels: Tensor
    flipped: Tensor
    features: Tensor
    logits: Tensor
    out_of_sample: Tensor
    one_fit_seconds: float
    all_folds_seconds: float


@dataclass(frozen=True)
class Outcome:
    """One finder on one noisy training set."""

    finder: str
    epochs: int
    noise: float
    seed: int
    precision: float
    recall: float
    average_precision: float
    """Of the ranking of all samples, whatever the threshold."""
    seconds: float
    """Finding alone; processor time, on one thread."""
    seconds_with_training: float


Finder = Callable[[Outputs], tuple[Tensor, Tensor]]
"""From outputs, the mask of issues and the quality of all labels."""


def ours_from_features(outputs: Outputs) -> tuple[Tensor, Tensor]:
    issues = find_label_issues(outputs.labels, features=outputs.features, logits=outputs.logits)
    return issues.mask, issues.quality


def ours_from_probabilities(outputs: Outputs) -> tuple[Tensor, Tensor]:
    issues = find_label_issues(outputs.labels, outputs.out_of_sample)
    return issues.mask, issues.quality


def cleanlab_in_sample(outputs: Outputs) -> tuple[Tensor, Tensor]:
    return _cleanlab(outputs.labels, outputs.logits.double().softmax(dim=1))


def cleanlab_out_of_sample(outputs: Outputs) -> tuple[Tensor, Tensor]:
    return _cleanlab(outputs.labels, outputs.out_of_sample)


def _cleanlab(labels: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """With cleanlab's defaults. One job: several would each start a Python of their own."""
    mask = cleanlab_find_label_issues(labels.numpy(), probabilities.numpy(), n_jobs=1)
    return torch.as_tensor(mask), torch.as_tensor(get_label_quality_scores(labels.numpy(), probabilities.numpy()))


FINDERS: dict[str, tuple[Finder, bool]] = {
    "ours, features of one fit": (ours_from_features, False),
    "cleanlab, probabilities of one fit": (cleanlab_in_sample, False),
    "ours, cross-validated": (ours_from_probabilities, True),
    "cleanlab, cross-validated": (cleanlab_out_of_sample, True),
}
"""Each finder, and whether it needs a fit for each fold."""


def outputs_for(dataset: Dataset, noise: float, seed: int, epochs: int) -> Outputs:
    """Train on everything and on each fold's rest."""
    noisy = corrupt(
        dataset.train_images,
        dataset.train_labels,
        dataset.classes,
        Noise.parse(f"label:{noise}"),
        generator_for(seed, "noise"),
    )
    images = dataset.train_images.float()
    images = (images - images.mean()) / images.std()
    start = time.process_time()
    model = _fit(dataset, images, noisy.labels, seed, epochs)
    with torch.no_grad():
        features, logits = features_and_logits(model, images)
    one_fit = time.process_time() - start
    fold_of = torch.randperm(len(images), generator=generator_for(seed, "folds")) % FOLDS
    probabilities = torch.zeros(len(images), dataset.classes, dtype=torch.float64)
    start = time.process_time()
    for fold in range(FOLDS):
        held_out = fold_of == fold
        model = _fit(dataset, images[~held_out], noisy.labels[~held_out], seed, epochs)
        with torch.no_grad():
            probabilities[held_out] = model(images[held_out]).double().softmax(dim=1)
    all_folds = time.process_time() - start
    return Outputs(noisy.labels, noisy.flipped, features, logits, probabilities, one_fit, all_folds)


def _fit(dataset: Dataset, images: Tensor, labels: Tensor, seed: int, epochs: int) -> nn.Module:
    model = build_model("simple_cnn", dataset.image_shape, dataset.classes, seed=seed_for(seed, "model"))
    adam = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "training"))
        for _ in range(epochs):
            for batch in torch.randperm(len(labels)).split(BATCH_SIZE):
                adam.zero_grad()
                functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                adam.step()
    return model.eval()


def judge(finder: str, outputs: Outputs, noise: float, seed: int, epochs: int) -> Outcome:
    """Run one finder and compare with the truth."""
    find, cross_validated = FINDERS[finder]
    seconds = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        mask, quality = find(outputs)
        seconds = min(seconds, time.process_time() - start)
    right = int((mask & outputs.flipped).sum())
    return Outcome(
        finder=finder,
        epochs=epochs,
        noise=noise,
        seed=seed,
        precision=round(right / max(1, int(mask.sum())), 4),
        recall=round(right / int(outputs.flipped.sum()), 4),
        average_precision=round(float(average_precision_score(outputs.flipped, -quality)), 4),
        seconds=round(seconds, 5),
        seconds_with_training=round(
            seconds + (outputs.all_folds_seconds if cross_validated else outputs.one_fit_seconds), 3
        ),
    )


def print_tables(outcomes: list[Outcome]) -> None:
    """Mean over seeds: precision / recall / average precision, and the times as ratios to cleanlab's usual way."""
    levels = sorted({outcome.noise for outcome in outcomes})
    for epochs in sorted({outcome.epochs for outcome in outcomes}):
        print(f"\n{epochs} epochs")
        print("| finder | " + " | ".join(f"{100 * level:.0f} %" for level in levels) + " | time | with training |")
        reference = [o for o in outcomes if o.epochs == epochs and o.finder == "cleanlab, cross-validated"]
        for finder in FINDERS:
            own = [o for o in outcomes if o.epochs == epochs and o.finder == finder]
            cells = []
            for level in levels:
                at = [o for o in own if o.noise == level]
                means = (statistics.mean(getattr(o, name) for o in at) for name in ("precision", "recall"))
                ranking = statistics.mean(o.average_precision for o in at)
                cells.append(" / ".join(f"{mean:.2f}" for mean in means) + f" / {ranking:.3f}")
            ratios = [
                sum(getattr(o, name) for o in own) / sum(getattr(o, name) for o in reference)
                for name in ("seconds", "seconds_with_training")
            ]
            print(f"| {finder} | {' | '.join(cells)} | {ratios[0]:.2f} | {ratios[1]:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the outcomes, as JSON")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, nargs="+", default=[10, 40])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.1, 0.2, 0.3, 0.4, 0.5])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load_dataset("digits")
    outcomes: list[Outcome] = []
    for epochs in arguments.epochs:
        for noise in arguments.noise:
            for seed in arguments.seeds:
                outputs = outputs_for(dataset, noise, seed, epochs)
                outcomes += [judge(finder, outputs, noise, seed, epochs) for finder in FINDERS]
            print(f"{epochs} epochs, noise {noise}: done", flush=True)
    table = {
        "dataset": "digits",
        "folds": FOLDS,
        "threads": 1,
        "versions": {**versions(), "cleanlab": version("cleanlab")},
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    write_json(arguments.out, table)
    print_tables(outcomes)


if __name__ == "__main__":
    main()
