"""Why iCaRL ends elsewhere here than in Avalanche 0.6 when labels are wrong: what differs, moved one by one.

    python benchmarks/icarl_difference.py --out results/icarl_difference.json

gives our iCaRL the habits of Avalanche's, alone and together, takes them away from Avalanche's in the same way, and
learns digits with 40 % wrong labels with each. Stream, network, initial weights and budget are those of
``cross_check.py``; batches and dropout are drawn apart on each side. Takes twenty minutes on one core.

    python benchmarks/icarl_difference.py --trace --out results/icarl_difference_trace.json

watches Avalanche's, as it comes, lose its features. Takes two minutes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from avalanche_peers import SupervisedPlugin, SupervisedTemplate, run_avalanche
from continual_crust.data import Dataset, Noise, NoiseKind, Samples, Stream, load_dataset
from continual_crust.evaluation import accuracies
from continual_crust.models import build_model
from continual_crust.randomness import seed_for
from continual_crust.selection import herding
from continual_crust.selection.coreset import Coreset, coreset_of
from continual_crust.strategies import Training
from continual_crust.strategies.icarl import Icarl
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.result import versions
from continual_crust.writing import write_json

from avalanche.training.supervised.icarl import _ICaRLPlugin  # isort: skip

MOST_ROUNDS = 1000
"""After which Avalanche's herding gives up."""


@dataclass(frozen=True)
class Habits:
    """What Avalanche's iCaRL does and ours does not."""

    dropout: bool = False
    """The old network answers in training mode, so that the targets of distillation are drawn with dropout."""
    mirror: bool = False
    """A class mean is the mean over the exemplars and their mirror images."""
    repeats: bool = False
    """Herding may come back to a sample it has, which counts again towards the sum and is not kept twice."""
    division: bool = False
    """Features are divided by their length even if that is zero; a class mean is then not a number, and every image
    is given that class."""


OURS = Habits()
AVALANCHE = Habits(dropout=True, mirror=True, repeats=True, division=True)

VARIANTS: dict[str, tuple[str, Habits]] = {
    "ours": ("ours", OURS),
    "ours, dropout in the old network": ("ours", replace(OURS, dropout=True)),
    "ours, mirrored exemplars": ("ours", replace(OURS, mirror=True)),
    "ours, herding that repeats": ("ours", replace(OURS, repeats=True)),
    "ours, division by zero": ("ours", replace(OURS, division=True)),
    "ours, all but division by zero": ("ours", replace(AVALANCHE, division=False)),
    "ours, all four": ("ours", AVALANCHE),
    "Avalanche": ("avalanche", AVALANCHE),
    "Avalanche, no dropout in the old network": ("avalanche", replace(AVALANCHE, dropout=False)),
    "Avalanche, no division by zero": ("avalanche", replace(AVALANCHE, division=False)),
    "Avalanche, nor dropout": ("avalanche", replace(AVALANCHE, division=False, dropout=False)),
    "Avalanche, nor mirrored exemplars": ("avalanche", replace(AVALANCHE, division=False, mirror=False)),
    "Avalanche, nor herding that repeats": ("avalanche", replace(AVALANCHE, division=False, repeats=False)),
    "Avalanche, none of the four": ("avalanche", OURS),
}
"""On which side, and with which habits."""


def unit(features: Tensor, habits: Habits) -> Tensor:
    """Features scaled to length one."""
    return features / features.norm(dim=1, keepdim=True) if habits.division else functional.normalize(features, dim=1)


def exemplars(features: Tensor, size: int, habits: Habits) -> list[int]:
    """Which samples of a class are kept."""
    if not habits.repeats:
        return herding(features, size).indices.tolist()
    points = unit(features, habits)
    mean = points.mean(dim=0)
    wanted, kept = mean, dict[int, None]()
    for _ in range(MOST_ROUNDS):
        if len(kept) == size:
            break
        pick = int((points @ wanted).argmax())
        kept[pick] = None
        wanted = wanted + mean - points[pick]
    return list(kept)


def class_mean(features: Tensor, mirrored: Tensor, habits: Habits) -> Tensor:
    """What an image is compared with, from the features of a class's exemplars and of their mirror images."""
    mean = unit(features, habits).mean(dim=0)
    if habits.mirror:
        mean = (mean + unit(mirrored, habits).mean(dim=0)) / 2
    return unit(mean[None], habits)[0]


class IcarlWithHabits(Icarl):
    """Ours, with any of Avalanche's habits."""

    habits = OURS

    def _copy_of_model(self) -> nn.Module:
        return super()._copy_of_model().train(self.habits.dropout)

    def _select(self, samples: Samples) -> Coreset:
        features, _ = self.network.evaluate(samples.images)
        kept = torch.tensor(exemplars(features, self.training.memory_per_class, self.habits))
        return coreset_of(features, kept, gains=torch.zeros(len(kept), dtype=torch.float64))

    def _mean_feature(self, images: Tensor) -> Tensor:
        features, mirrored = (self.network.evaluate(shown)[0] for shown in (images, images.flip(3)))
        return class_mean(features, mirrored, self.habits)


class WithoutHabits(SupervisedPlugin):
    """Comes after the plugins of Avalanche's iCaRL, and puts right what they left."""

    def __init__(self, habits: Habits) -> None:
        super().__init__()
        self.habits = habits

    @torch.no_grad()
    def after_training_exp(self, strategy: SupervisedTemplate, **_: object) -> None:
        memory = next(plugin for plugin in strategy.plugins if isinstance(plugin, _ICaRLPlugin))
        network = strategy.model.feature_extractor
        strategy.model.eval()
        if (self.habits.repeats, self.habits.division) != (AVALANCHE.repeats, AVALANCHE.division):
            self._choose_again(memory, network, strategy.experience.dataset)
        if replace(self.habits, dropout=AVALANCHE.dropout) != AVALANCHE:
            for images, labels in zip(memory.x_memory, memory.y_memory, strict=True):
                mean = class_mean(network(images), network(images.flip(3)), self.habits)
                memory.class_means[labels[0]] = mean
            strategy.model.eval_classifier.replace_class_means_dict(memory.class_means)
        strategy.model.train()
        if not self.habits.dropout:
            # Not the whole network: outside of training mode it answers with distances to class means.
            for module in strategy._criterion.old_model.modules():
                if isinstance(module, nn.Dropout):
                    module.eval()

    def _choose_again(self, memory: Any, network: nn.Module, dataset: Any) -> None:
        images, labels = _images_and_labels(dataset)
        for place in range(len(memory.x_memory) - len(labels.unique()), len(memory.x_memory)):
            label = memory.y_memory[place][0]
            own = images[labels == label]
            kept = exemplars(network(own), memory.memory_size, self.habits)
            order = torch.zeros(len(own)).index_put((torch.tensor(kept),), torch.arange(1.0, len(kept) + 1))
            # In the order of the data, as Avalanche has them: batches are then the same where the choice is.
            memory.x_memory[place] = own[order > 0]
            memory.y_memory[place] = [label] * len(kept)
            memory.order[place] = order[order > 0]


class FeatureTrace(SupervisedPlugin):
    """Looks at Avalanche's iCaRL after each experience and changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.experiences: list[dict[str, Any]] = []

    @torch.no_grad()
    def after_training_exp(self, strategy: SupervisedTemplate, **_: object) -> None:
        memory = next(plugin for plugin in strategy.plugins if isinstance(plugin, _ICaRLPlugin))
        strategy.model.eval()
        lengths = strategy.model.feature_extractor(_images_and_labels(strategy.experience.dataset)[0]).norm(dim=1)
        strategy.model.train()
        self.experiences.append(
            {
                "mean_feature_length": round(float(lengths.mean()), 3),
                "new_images_without_features": int((lengths == 0).sum()),
                "classes_with_one_exemplar": sum(len(kept) == 1 for kept in memory.x_memory),
                "class_means_not_a_number": sum(bool(mean.isnan().any()) for mean in memory.class_means.values()),
            }
        )


def _images_and_labels(dataset: Any) -> tuple[Tensor, Tensor]:
    images, labels = zip(*((sample[0], sample[1]) for sample in dataset), strict=True)
    return torch.stack(images), torch.tensor(labels)


def final_accuracies(
    side: str, habits: Habits, dataset: Dataset, noise: Noise, seed: int, training: Training
) -> list[float]:
    """Accuracy on each experience after the last one."""
    if side == "avalanche":
        plugins = [] if habits == AVALANCHE else [WithoutHabits(habits)]
        return run_avalanche("icarl", dataset, noise, seed, training, plugins_after=plugins).accuracy_matrix[-1]
    stream = Stream(dataset, noise, seed)
    model = build_model("simple_cnn", dataset.image_shape, dataset.classes, seed=seed_for(seed, "model"))
    strategy = IcarlWithHabits(model, training, seed=seed)
    strategy.habits = habits
    for experience in stream:
        strategy.learn(experience)
    return accuracies(strategy, stream)


@dataclass
class Row:
    """One variant over all seeds."""

    variant: str
    side: str
    habits: Habits
    seeds: list[int] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    """Mean over experiences after the last one."""
    seconds: list[float] = field(default_factory=list)
    """Of processor time, on one thread, evaluation included."""


def paired(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Mean difference over seeds, and its standard error."""
    differences = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
    return round(statistics.mean(differences), 4), round(error, 4)


def circumstances(noise: Noise) -> dict[str, Any]:
    """Under which all was measured."""
    known = {**versions(), "avalanche-lib": version("avalanche-lib")}
    return {"dataset": "digits", "noise": str(noise), "threads": 1, "versions": known}


def table_of(rows: dict[str, Row], noise: Noise) -> dict[str, Any]:
    """All that was measured, each variant beside both originals."""
    return {
        **circumstances(noise),
        "rows": [
            {
                **asdict(row),
                "mean": round(statistics.mean(row.accuracy), 4),
                "minus_ours": paired(row.accuracy, rows["ours"].accuracy),
                "minus_avalanche": paired(row.accuracy, rows["Avalanche"].accuracy),
            }
            for row in rows.values()
        ],
    }


def trace(dataset: Dataset, noise: Noise, seeds: int, training: Training, out: Path) -> None:
    """Write what became of features and memories in Avalanche."""
    runs = []
    for seed in range(seeds):
        watcher = FeatureTrace()
        run = run_avalanche("icarl", dataset, noise, seed, training, plugins_after=[watcher])
        runs.append({"seed": seed, "accuracy": round(run.accuracy, 4), "experiences": watcher.experiences})
        print(f"seed {seed:2}  {run.accuracy:.3f}  at the end {watcher.experiences[-1]}", flush=True)
    write_json(out, {**circumstances(noise), "runs": runs})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the table, as JSON")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--noise", default="label:0.4")
    parser.add_argument("--trace", action="store_true", help="watch Avalanche's alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset, noise = load_dataset("digits"), Noise.parse(arguments.noise)
    training = defaults_for("digits", NoiseKind.LABEL).training
    if arguments.trace:
        trace(dataset, noise, arguments.seeds, training, arguments.out)
        return
    rows = {variant: Row(variant, side, habits) for variant, (side, habits) in VARIANTS.items()}
    for seed in range(arguments.seeds):
        for row in rows.values():
            start = time.process_time()
            accuracy = statistics.mean(final_accuracies(row.side, row.habits, dataset, noise, seed, training))
            row.seeds.append(seed)
            row.accuracy.append(round(accuracy, 4))
            row.seconds.append(round(time.process_time() - start, 2))
            print(f"seed {seed:2}  {row.variant:42} {accuracy:.3f}", flush=True)
        table = table_of(rows, noise)
        write_json(arguments.out, table)
    for row in table["rows"]:
        (against_ours, error), (against_theirs, other) = row["minus_ours"], row["minus_avalanche"]
        print(
            f"| {row['variant']} | {row['mean']:.3f} | {against_ours:+.3f} ± {error:.3f} "
            f"| {against_theirs:+.3f} ± {other:.3f} |"
        )


if __name__ == "__main__":
    main()
