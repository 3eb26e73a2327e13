"""Runs that are done, read from their folders and checked: JSON and YAML say nothing about types."""

from __future__ import annotations

from pathlib import Path

from continual_crust.data.noise import Noise
from continual_crust.errors import InputError
from continual_crust.studies.config import RunConfig
from continual_crust.studies.result import RunResult
from continual_crust.studies.run import read_config


def read_finished(path: Path) -> tuple[RunConfig, RunResult | None]:
    """The configuration of the run in a folder, and its result if it is finished.

    Raises
    ------
    InputError
        If either cannot be used. It names files, not the folder: who asks knows where it lies, and a page should not
        tell paths of the machine it was made on.
    """
    try:
        config = read_config(path)
    except InputError as error:
        raise InputError(_without(str(error), path)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"config.yaml is not the configuration of a run ({error})") from None
    if not (path / "result.json").exists():
        return config, None
    try:
        result = RunResult.read(path / "result.json")
    except InputError as error:
        raise InputError(_without(str(error), path)) from None
    except RecursionError:
        raise InputError("result.json is not a result of a run") from None
    wrong = wrong_with(result, config)
    if wrong:
        raise InputError(f"result.json is not the result of this run ({wrong}); run it again")
    return config, result


def wrong_with(result: RunResult, config: RunConfig) -> str | None:
    """The first field of a result that is not what it should be, or None."""
    if (result.method, result.dataset, result.seed) != (config.method, config.dataset, config.seed):
        return "method, data set or seed"
    try:
        # Compared by meaning: 0.5 has been written in more than one way.
        if Noise.parse(result.noise) != config.noise:
            return "noise"
    except (InputError, AttributeError):
        return "noise"
    matrix = result.accuracy_matrix
    if (
        not _is_list(matrix)
        or not matrix
        or not all(_is_list(row) and row and all(map(_is_share, row)) for row in matrix)
    ):
        return "accuracy_matrix"
    if len(matrix) > len(matrix[0]) or len({len(row) for row in matrix}) > 1:
        return "accuracy_matrix"
    for name in ("accuracy", "forgetting", "purity"):
        if not _is_share(getattr(result, name)):
            return name
    for name in ("seconds", "selection_seconds"):
        if not _is_number(getattr(result, name)):
            return name
    if not _is_list(result.purity_per_experience) or not all(map(_is_share, result.purity_per_experience)):
        return "purity_per_experience"
    if not _is_list(result.experiences) or not all(map(_is_list, result.experiences)):
        return "experiences"
    if not isinstance(result.versions, dict) or not isinstance(result.device, str):
        return "versions or device"
    if not isinstance(result.revision, str) or not isinstance(result.data, str):
        return "revision or data"
    return None


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_share(value: object) -> bool:
    """A number that could be an accuracy, or that was not measured."""
    return value is None or (_is_number(value) and isinstance(value, int | float) and -1 <= value <= 1)


def _without(message: str, folder: Path) -> str:
    return message.replace(f"{folder}/", "").rstrip(".")
