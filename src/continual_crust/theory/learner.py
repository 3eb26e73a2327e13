"""The theorems on a finished run: each class's memory against all images that were given the class."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.data.stream import Stream
from continual_crust.errors import InputError
from continual_crust.progress import OnProgress, unwatched
from continual_crust.strategies.base import Strategy
from continual_crust.theory.descent import Descent, descend
from continual_crust.theory.jacobian import MEMORY, Jacobian, Matrix, written_out
from continual_crust.theory.outputs import MARGIN, Outputs
from continual_crust.theory.quantities import Measurement, measure, replacement
from continual_crust.theory.theorems import Theorem, theorem_for
from continual_crust.writing import finite

MOST_SAMPLES = 500
"""Images of a class that are looked at, its memory among them."""


class Finished(Protocol):
    """A run that is over, as :class:`continual_crust.studies.run.FinishedRun` is."""

    @property
    def strategy(self) -> Strategy: ...

    @property
    def stream(self) -> Stream: ...


@dataclass(frozen=True)
class ClassReport:
    """What was found out about one class's coreset."""

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
    on_progress: OnProgress = unwatched,
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
        Of a larger class only so many images are looked at: its memory and others, evenly spread.
    memory
        Bytes of Jacobian to hold at a time.
    on_progress
        Called before each class with its name, how many are done and how many there are.
    """
    names = list(remembered(finished)) if classes is None else classes
    reports = []
    for position, name in enumerate(names):
        on_progress(f"class {name}", position, len(names))
        measured = ClassData.of(finished, name, view, most_samples).measure(memory)
        reports.append(ClassReport(name, measured, theorem_for(measured)))
    strategy, stream = finished.strategy, finished.stream
    return TheoryReport(strategy.name, stream.dataset.name, view, tuple(reports))


def watched_descent(finished: Finished, name: str, steps: int, *, view: str = "log_odds") -> Descent:
    """Go on from a learner's weights by plain gradient descent on one class's coreset, checking the lemma at each step.

    α and β are those the theorems define, as measured before the first step; the learner itself stays as it is.

    Parameters
    ----------
    finished
        A run with its learner and its stream.
    name
        The class.
    steps
        How many steps to take; each writes out the coreset's Jacobian a few times.
    view
        Which numbers of the classifier are f.
    """
    data = ClassData.of(finished, name, view)
    f, start, measured = data.outputs, data.outputs.start, data.measure()
    sizes = replacement(data.jacobian(), f, start, data.inputs, data.coreset).sizes
    return descend(
        f,
        start,
        data.inputs[data.coreset],
        data.targets[data.coreset],
        steps=steps,
        alpha=measured.alpha,
        beta=measured.beta,
        weights=sizes,
    )


def remembered(finished: Finished) -> dict[str, int]:
    """The classes that have a memory, by name."""
    names, strategy = finished.stream.dataset.class_names, finished.strategy
    known = {names[label]: label for label, kept in strategy.memory.items() if len(kept)}
    if not known:
        raise InputError(f"this run of '{strategy.name}' kept no memory, so there is no coreset; choose one that did.")
    return known


@dataclass(frozen=True)
class ClassData:
    """A class as the theory sees it: f, all its images, and which of them are kept."""

    samples: Samples
    """Everything that was given the class, or some of it."""
    outputs: Outputs
    inputs: Tensor
    """The samples' images as the network wants them."""
    targets: Tensor
    coreset: Tensor
    """Positions of the kept samples."""
    noisy: Tensor
    """Which samples are flipped or perturbed."""
    clean: Tensor | None
    """The inputs without their perturbation, if the stream has any."""

    @classmethod
    def of(cls, finished: Finished, name: str, view: str = "log_odds", most_samples: int = MOST_SAMPLES) -> ClassData:
        """Look a class up by its name."""
        known = remembered(finished)
        if name not in known:
            raise InputError(f"there is no memory of class '{name}'; known: {', '.join(known)}.")
        label, network, stream = known[name], finished.strategy.network, finished.stream
        kept = finished.strategy.memory[label].ids.cpu()
        samples = _some(stream.joined().samples.of_class(label), kept, most_samples)
        outputs = Outputs.of(network.model, view=view, label=None if view == "all" else label)

        def inputs_of(images: Tensor) -> Tensor:
            return network.normalized(images.to(network.device)).to(outputs.start)

        inputs = inputs_of(samples.images)
        coreset = _positions(samples.ids, kept).to(network.device)
        perturbed = bool(stream.truth.perturbed.any())
        return cls(
            samples=samples,
            outputs=outputs.scaled_to(inputs[coreset]),
            inputs=inputs,
            targets=outputs.targets(samples.labels.to(network.device)),
            coreset=coreset,
            noisy=~stream.truth.is_clean(samples.ids),
            clean=inputs_of(stream.clean_images_of(samples.ids)) if perturbed else None,
        )

    def jacobian(self) -> Matrix:
        """The Jacobian of all samples at the learner's weights; in memory if it fits."""
        return written_out(Jacobian(self.outputs, self.outputs.start, self.inputs))

    def measure(self, memory: int = MEMORY) -> Measurement:
        """Everything the theorems are made of."""
        return measure(
            self.outputs,
            self.outputs.start,
            self.inputs,
            self.targets,
            self.coreset,
            margin=MARGIN,
            noisy=self.noisy,
            clean=self.clean,
            memory=memory,
        )


def _some(samples: Samples, kept: Tensor, most: int) -> Samples:
    """All samples, or if there are too many the kept ones and some that are evenly spread over the others."""
    if len(samples) <= most:
        return samples
    is_kept = torch.isin(samples.ids, kept)
    others = (~is_kept).nonzero().flatten()
    wanted = max(0, most - int(is_kept.sum()))
    spread = others[torch.linspace(0, len(others) - 1, wanted, device=others.device).round().long()]
    return samples[torch.cat([is_kept.nonzero().flatten(), spread]).sort().values]


def _positions(ids: Tensor, wanted: Tensor) -> Tensor:
    """Where each wanted id stands among the ids."""
    places = {name: place for place, name in enumerate(ids.tolist())}
    return torch.tensor([places[name] for name in wanted.tolist()], dtype=torch.int64, device="cpu")


def median(values: Iterable[float | None]) -> float | None:
    """The middle of the numbers that are there.

    >>> median([3.0, None, 1.0])
    2.0
    """
    there = [value for value in values if value is not None]
    return float(statistics.median(there)) if there else None
