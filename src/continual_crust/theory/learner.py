"""The theorems on a finished run: each class's memory against all images that were given the class."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Protocol

import torch
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.data.stream import Stream
from continual_crust.errors import InputError
from continual_crust.strategies.base import Strategy
from continual_crust.theory.jacobian import MEMORY
from continual_crust.theory.outputs import MARGIN, Outputs
from continual_crust.theory.quantities import Measurement, measure
from continual_crust.theory.theorems import Theorem, theorem_for

MOST_SAMPLES = 1000
"""Images of a class that are looked at, beside its memory."""


class Finished(Protocol):
    """A run that is over, as :class:`continual_crust.studies.run.FinishedRun` is."""

    @property
    def strategy(self) -> Strategy: ...

    @property
    def stream(self) -> Stream: ...


@dataclass(frozen=True)
class ClassReport:
    """One class's coreset."""

    name: str
    measured: Measurement
    theorem: Theorem


@dataclass(frozen=True)
class TheoryReport:
    """What the theorems say about a learner, class by class."""

    method: str
    dataset: str
    view: str
    classes: tuple[ClassReport, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: what has no value is None, never NaN or infinity."""
        plain: dict[str, Any] = finite(asdict(self))
        return plain


def theory_report(
    finished: Finished,
    *,
    view: str = "log_odds",
    classes: Sequence[str] | None = None,
    most_samples: int = MOST_SAMPLES,
    memory: int = MEMORY,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> TheoryReport:
    """Measure a learner's coresets and hold the theorems against them.

    Parameters
    ----------
    finished
        A run with its learner and its stream.
    view
        Which numbers of the classifier are f; see :data:`continual_crust.theory.outputs.VIEWS`.
    classes
        Names of the classes to look at; all that have a memory if not given.
    most_samples
        Of a larger class only so many images are looked at, evenly spread, and its memory.
    memory
        Bytes of Jacobian to hold at a time.
    on_progress
        Called before each class with its name, how many are done and how many there are.
    """
    strategy, stream = finished.strategy, finished.stream
    names = stream.dataset.class_names
    known = {names[label]: label for label, kept in strategy.memory.items() if len(kept)}
    if not known:
        raise InputError(f"method '{strategy.name}' keeps no memory, so there is no coreset; choose one that does.")
    chosen = list(known) if classes is None else list(classes)
    missing = [name for name in chosen if name not in known]
    if missing:
        raise InputError(f"there is no memory of class '{missing[0]}'; known: {', '.join(known)}.")
    everything = stream.joined().samples
    reports = []
    for position, name in enumerate(chosen):
        if on_progress is not None:
            on_progress(f"class {name}", position, len(chosen))
        label = known[name]
        kept = strategy.memory[label]
        samples = _some(everything.of_class(label), kept.ids.cpu(), most_samples)
        measured = _measured(strategy, stream, samples, kept.ids.cpu(), label, view, memory)
        reports.append(ClassReport(name, measured, theorem_for(measured)))
    return TheoryReport(strategy.name, stream.dataset.name, view, tuple(reports))


def _measured(
    strategy: Strategy, stream: Stream, samples: Samples, kept: Tensor, label: int, view: str, memory: int
) -> Measurement:
    network, truth = strategy.network, stream.truth
    outputs = Outputs.of(network.model, view=view, label=None if view == "all" else label)

    def inputs_of(images: Tensor) -> Tensor:
        return network.normalized(images.to(network.device)).to(outputs.start)

    inputs = inputs_of(samples.images)
    coreset = _positions(samples.ids, kept).to(network.device)
    outputs = outputs.scaled_to(inputs[coreset])
    return measure(
        outputs,
        outputs.start,
        inputs,
        outputs.targets(samples.labels.to(network.device)),
        coreset,
        margin=MARGIN,
        noisy=~truth.is_clean(samples.ids),
        clean=inputs_of(stream.clean_images_of(samples.ids)) if truth.perturbed.any() else None,
        memory=memory,
    )


def _some(samples: Samples, kept: Tensor, most: int) -> Samples:
    """All samples, or if there are too many the kept ones and some that are evenly spread over the others."""
    if len(samples) <= most:
        return samples
    is_kept = torch.isin(samples.ids, kept)
    others = (~is_kept).nonzero().flatten()
    wanted = max(0, most - int(is_kept.sum()))
    spread = others[torch.linspace(0, len(others) - 1, wanted).round().long()]
    return samples[torch.cat([is_kept.nonzero().flatten(), spread]).sort().values]


def _positions(ids: Tensor, wanted: Tensor) -> Tensor:
    """Where each wanted id stands among the ids."""
    places = {name: place for place, name in enumerate(ids.tolist())}
    return torch.tensor([places[name] for name in wanted.tolist()], dtype=torch.int64)


def median(values: Iterable[float | None]) -> float | None:
    """The middle of the numbers that are there.

    >>> median([3.0, None, 1.0])
    2.0
    """
    there = [value for value in values if value is not None]
    return float(statistics.median(there)) if there else None


def finite(value: Any) -> Any:
    """The same nested value for JSON: names for members of an enum, None for numbers JSON does not have."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
