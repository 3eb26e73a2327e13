"""A learner as named arrays and plain numbers, for files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from continual_crust.data.samples import Samples
from continual_crust.errors import InputError
from continual_crust.field.generation import Damaged
from continual_crust.field.inputs import Label
from continual_crust.field.lesson import Lesson
from continual_crust.field.seen import NO_MARK, Seen
from continual_crust.field.settings import Settings
from continual_crust.field.strategy import FieldSift
from continual_crust.selection.noise_share import NoiseEstimate
from continual_crust.selection.trust import Assessment
from continual_crust.tensor_file import NotATensorFile


class WeightsDoNotFit(NotATensorFile):
    """They are of another network."""


def network_tensors(strategy: FieldSift) -> dict[str, Tensor]:
    """Weights, normalisation and random generators: all that training changes beside the memory."""
    state = strategy.state()
    tensors = {f"model.{name}": value for name, value in state["network"]["model"].items()}
    tensors |= {f"randomness.{name}": value for name, value in state["randomness"].items() if name == "cpu"}
    tensors |= {name: state["network"][name] for name in ("mean", "std") if state["network"][name] is not None}
    return tensors | {"generator": state["generator"]}


def restore_network(strategy: FieldSift, tensors: Mapping[str, Tensor]) -> None:
    """Take back :func:`network_tensors`; the model must be of the same form."""
    try:
        strategy.network.restore(
            {"model": _below("model.", tensors), "mean": tensors.get("mean"), "std": tensors.get("std")}
        )
        strategy._generator.set_state(tensors["generator"])
        strategy._randomness.restore(_below("randomness.", tensors))
    except (KeyError, RuntimeError, TypeError, AttributeError) as error:
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2]) or type(error).__name__
        raise WeightsDoNotFit(f"the weights do not fit the network: {reason}") from None


def memory_tensors(memory: Mapping[int, Samples]) -> dict[str, Tensor]:
    """The coresets, classes one after another."""
    parts = [samples.to("cpu") for _, samples in sorted(memory.items()) if len(samples)]
    if not parts:
        return {"images": torch.zeros(0, 1, 1, 1, dtype=torch.uint8), **_no_columns()}
    together = Samples.concatenate(parts)
    return {"images": together.images, "labels": together.labels, "ids": together.ids, "weights": together.weights}


def memory_from(tensors: Mapping[str, Tensor], shape: tuple[int, int, int], seen: list[int]) -> dict[int, Samples]:
    """The coresets of :func:`memory_tensors`, checked; `seen` tells how many images each class had."""
    try:
        images, columns = tensors["images"], {name: tensors[name] for name in _no_columns()}
    except KeyError as error:
        raise NotATensorFile(f"there is no {error} in the memory") from None
    count = len(columns["labels"])
    fitting = images.dtype == torch.uint8 and images.ndim == 4 and len(images) == count
    fitting &= count == 0 or tuple(images.shape[1:]) == shape
    for name, empty in _no_columns().items():
        fitting &= columns[name].dtype == empty.dtype and columns[name].shape == (count,)
    if fitting and count:
        labels, ids = columns["labels"], columns["ids"]
        fitting &= int(labels.min()) >= 0 and int(labels.max()) < len(seen)
        fitting &= fitting and bool((ids >= 0).all()) and bool((ids < torch.tensor(seen)[labels]).all())
    if not fitting:
        raise NotATensorFile("the memory's columns do not fit together")
    samples = Samples(images, columns["labels"], columns["ids"], columns["weights"])
    return {label: samples.of_class(label) for label in range(len(seen))}


def lesson_tensors(lesson: Lesson) -> dict[str, Tensor]:
    """The arrays of an unfinished lesson, beside those of its optimizer."""
    tensors = {f"chosen.{label}": positions for label, positions in lesson.chosen.items()}
    tensors |= {f"forgotten.{label}": ids for label, ids in lesson.forgotten.items()}
    tensors |= {f"margins.{label}": values for label, values in lesson.margins.items()}
    tensors |= {f"mean.{name}": value for name, value in lesson.mean.items()}
    return tensors | {f"right.{label}": torch.from_numpy(a.right) for label, a in lesson.assessments.items()}


def lesson_numbers(lesson: Lesson) -> dict[str, Any]:
    """The rest of an unfinished lesson, for JSON."""
    noise = {str(label): noise_numbers(found.noise) for label, found in lesson.assessments.items()}
    second = {str(label): found.second for label, found in lesson.assessments.items()}
    return {"stage": lesson.stage, "epochs": lesson.epochs, "noise": noise, "second": second}


def lesson_from(tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> Lesson:
    """Put :func:`lesson_tensors`, the optimizer's and :func:`lesson_numbers` together again."""
    right = {label: np.asarray(values.numpy()) for label, values in _below("right.", tensors).items()}
    return Lesson(
        stage=int(numbers["stage"]),
        epochs=int(numbers["epochs"]),
        assessments={
            int(label): Assessment(right[label], noise_from(noise), float(numbers["second"][label]))
            for label, noise in numbers["noise"].items()
        },
        margins={int(label): values for label, values in _below("margins.", tensors).items()},
        chosen={int(label): positions for label, positions in _below("chosen.", tensors).items()},
        forgotten={int(label): ids for label, ids in _below("forgotten.", tensors).items()},
        optimizer=_below("optimizer.", tensors),
        mean=_below("mean.", tensors),
    )


def checked_settings(plain: dict[str, Any]) -> Settings:
    """The settings of a manifest."""
    try:
        return Settings.from_dict(plain)
    except InputError as error:
        raise Damaged(f"its manifest's settings are wrong: {str(error).rstrip('.')}") from None


def class_numbers(label: Label, seen: Seen, noise: NoiseEstimate | None, batch: int | None) -> dict[str, Any]:
    """What a manifest tells of a class."""
    return {
        "name": label,
        "seen": len(seen),
        "kept": int(seen.kept.sum()),
        "looks_wrong": int(seen.looks_wrong().sum()),
        # Where a person has spoken about every image, there is nothing left to estimate.
        "noise": noise_numbers(noise if (seen.mark == NO_MARK).any() else None),
        "noise_batch": batch,
    }


def noise_numbers(noise: NoiseEstimate | None) -> dict[str, float] | None:
    """An estimate as plain numbers, for the manifest."""
    return None if noise is None else {"estimate": noise.estimate, "low": noise.low, "high": noise.high}


def noise_from(numbers: Mapping[str, float] | None) -> NoiseEstimate | None:
    """The estimate that :func:`noise_numbers` wrote to the manifest."""
    if numbers is None:
        return None
    return NoiseEstimate(float(numbers["estimate"]), float(numbers["low"]), float(numbers["high"]))


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _no_columns() -> dict[str, Tensor]:
    whole = torch.zeros(0, dtype=torch.int64)
    return {"labels": whole, "ids": whole, "weights": torch.zeros(0)}
