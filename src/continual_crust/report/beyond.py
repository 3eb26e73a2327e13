"""Beyond the paper's noise: where does each method break?"""

from __future__ import annotations

import math

from continual_crust.data.noise import Noise, NoiseKind
from continual_crust.report.cells import ACCURACY, PURITY
from continual_crust.report.evidence import Evidence, Place, spread, table_of_what_was_run
from continual_crust.report.paper_comparison import AS_RELEASED, OUR_SEEDS, OURS
from continual_crust.report.styles import style_of
from continual_crust.studies.defaults import defaults_for

METHODS = (
    style_of("replay").label,
    AS_RELEASED,
    style_of("cosine_crust").label,
    OURS[0],
    f"{OURS[0]}, wary",
    *OURS[1:],
)
CONDITIONS: tuple[tuple[str, Noise, int], ...] = (
    ("20 % to the next class", Noise(NoiseKind.ASYMMETRIC, 0.2), 1),
    ("40 % to the next class", Noise(NoiseKind.ASYMMETRIC, 0.4), 1),
    ("50 % to any class", Noise(NoiseKind.LABEL, 0.5), 1),
    ("60 %", Noise(NoiseKind.LABEL, 0.6), 1),
    ("70 %", Noise(NoiseKind.LABEL, 0.7), 1),
    ("80 %", Noise(NoiseKind.LABEL, 0.8), 1),
    ("two classes at a time, 0 %", Noise(NoiseKind.LABEL, 0.0), 2),
    ("two classes at a time, 50 %", Noise(NoiseKind.LABEL, 0.5), 2),
)
"""Heading, noise, and classes in every experience after the first."""


def beyond_table(dataset: str, evidence: Evidence) -> str:
    """Accuracy of every method under every condition, with the purity of its memory below."""
    memory = defaults_for(dataset, NoiseKind.LABEL).training.memory_per_class
    rows = []
    for method in METHODS:
        row = [method]
        for _, noise, classes in CONDITIONS:
            cell = evidence.cell(method, Place(dataset, noise, memory, classes), OUR_SEEDS)
            purity = cell.mean(PURITY)
            below = "" if math.isnan(purity) else f"<br>purity {spread(purity, math.nan, 2)}"
            row.append(cell.words(ACCURACY) + below)
        rows.append(row)
    return table_of_what_was_run(["Accuracy", *(heading for heading, _, _ in CONDITIONS)], rows)
