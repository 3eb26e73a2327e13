"""Sift, our own method, against what it is meant to reach."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from continual_crust.data.noise import Noise, NoiseKind
from continual_crust.report.cells import ACCURACY, FORGETTING, PURITY, Measure, noise_words
from continual_crust.report.evidence import NOT_RUN, Cell, Evidence, Place, spread, table_of_what_was_run
from continual_crust.report.paper_comparison import AS_RELEASED, DATASET_NAMES, OUR_SEEDS, OURS, SEEDS
from continual_crust.report.styles import style_of
from continual_crust.report.tables import decimal, markdown_table
from continual_crust.studies.defaults import defaults_for
from continual_crust.studies.paper import WITHOUT_MEMORY, paper_table

SIFT, SIFT_ORACLE, ORACLE = OURS
CRUST_METHODS = (AS_RELEASED, style_of("cosine_crust").label)
HALF = Noise(NoiseKind.LABEL, 0.5)
CLEAN = Noise(NoiseKind.LABEL, 0.0)
ALLOWED_ON_CLEAN_LABELS = 0.01
"""How far Sift may lie below the best CRUST method where nothing is wrong."""


@dataclass(frozen=True)
class Target:
    """What Sift should reach on a data set at half of the labels flipped, with the paper's network and memory."""

    dataset: str
    accuracy: float
    """At least."""
    purity: float
    """At least."""
    forgetting: float
    """At most."""


TARGETS = (
    Target("mnist", accuracy=0.96, purity=0.97, forgetting=0.03),
    Target("fashionmnist", accuracy=0.84, purity=0.95, forgetting=0.05),
    Target("cifar10", accuracy=0.52, purity=0.80, forgetting=0.20),
    Target("mstar", accuracy=0.85, purity=0.92, forgetting=0.03),
)
INSTANCE_NOISES = (
    *(("mnist", Noise(NoiseKind.SALT_AND_PEPPER, level)) for level in (0.2, 0.4, 0.6, 0.8)),
    *(("fashionmnist", Noise(NoiseKind.SALT_AND_PEPPER, level)) for level in (0.2, 0.4, 0.6, 0.8)),
    *(("mstar", Noise(NoiseKind.SALT_AND_PEPPER, level)) for level in (0.2, 0.4, 0.6, 0.8)),
    *(("fashionmnist", Noise(NoiseKind.UNIFORM, level)) for level in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
)


def targets_table(evidence: Evidence) -> str:
    """The targets at half of the labels flipped, what is reached, and the ceiling."""
    rows = []
    for target in TARGETS:
        place = _place(target.dataset, HALF)
        sift, *oracles = (evidence.cell(name, place, OUR_SEEDS) for name in OURS)
        for measure in (ACCURACY, PURITY, FORGETTING):
            wanted = getattr(target, measure.name)
            crust = _best(evidence, place, measure)
            rows.append(
                [
                    f"{DATASET_NAMES[target.dataset]}, k = {place.memory}: {measure.title.lower()}",
                    f"{'≥' if measure.higher_is_better else '≤'} {wanted:.2f}",
                    sift.words(measure),
                    _reached(sift.mean(measure), wanted, measure),
                    "–" if crust is None else f"{crust[1].words(measure)}, {crust[0]}",
                    *(oracle.words(measure) for oracle in oracles),
                    _papers_best(target.dataset, measure),
                ]
            )
    headings = ["50 % flipped labels", "target", SIFT, "reached", "best CRUST method, ours", SIFT_ORACLE, ORACLE]
    return markdown_table([*headings, "paper's best, memory as small"], rows)


def elsewhere_table(evidence: Evidence) -> str:
    """Where Sift only has to keep up with CRUST: on clean labels, and on damaged images."""
    rows = []
    for dataset, noise in [*((target.dataset, CLEAN) for target in TARGETS), *INSTANCE_NOISES]:
        place = _place(dataset, noise)
        allowed = 0.0 if noise.level else ALLOWED_ON_CLEAN_LABELS
        sift, *oracles = (evidence.cell(name, place, OUR_SEEDS) for name in OURS)
        crust = _best(evidence, place, ACCURACY)
        difference = math.nan if crust is None else sift.mean(ACCURACY) - crust[1].mean(ACCURACY)
        rows.append(
            [
                f"{DATASET_NAMES[dataset]}, k = {place.memory}: {noise_words(noise) if noise.level else 'no noise'}",
                sift.words(ACCURACY),
                NOT_RUN if crust is None else f"{crust[1].words(ACCURACY)}, {crust[0]}",
                "" if math.isnan(difference) else decimal(difference, 3, sign=True),
                _reached(difference, -allowed, ACCURACY),
                *(oracle.words(ACCURACY) for oracle in oracles),
            ]
        )
    headings = ["Accuracy", SIFT, "best CRUST method, ours", "difference", "keeps up", SIFT_ORACLE, ORACLE]
    return table_of_what_was_run(headings, rows)


def _place(dataset: str, noise: Noise) -> Place:
    return Place(dataset, noise, defaults_for(dataset, noise.kind).training.memory_per_class)


def _best(evidence: Evidence, place: Place, measure: Measure) -> tuple[str, Cell] | None:
    """The better of both CRUST methods with the same seeds; if they were not run with these, with the paper's."""

    def worth(found: tuple[str, Cell]) -> float:
        mean = found[1].mean(measure)
        return mean if measure.higher_is_better else -mean

    for seeds, remark in ((OUR_SEEDS, ""), (SEEDS, ", other seeds")):
        if measured := list(_measured(evidence, place, measure, seeds)):
            name, cell = max(measured, key=worth)
            return name + remark, cell
    return None


def _measured(evidence: Evidence, place: Place, measure: Measure, seeds: range) -> Iterator[tuple[str, Cell]]:
    for name in CRUST_METHODS:
        cell = evidence.cell(name, place, seeds)
        if not math.isnan(cell.mean(measure)):
            yield name, cell


def _reached(value: float, wanted: float, measure: Measure) -> str:
    """Yes or no; nothing where nothing was run."""
    if math.isnan(value):
        return ""
    return "yes" if (value >= wanted if measure.higher_is_better else value <= wanted) else "**no**"


def _papers_best(dataset: str, measure: Measure) -> str:
    """The best number the paper prints for a method with as small a memory."""
    table = paper_table("main_label_0.5")
    found = {
        method: value
        for method in table.methods
        if method not in WITHOUT_MEMORY and (value := table.value(method, HALF.level, measure.name, dataset))
    }
    if not found:
        return "–"
    sign = 1 if measure.higher_is_better else -1
    method = max(found, key=lambda name: sign * found[name][0])
    return f"{spread(*found[method], 2)}, {style_of(method).label}"
