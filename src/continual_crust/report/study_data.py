"""What a study's folder holds, however far it has come and whatever has happened to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from continual_crust.data.noise import Noise
from continual_crust.errors import InputError
from continual_crust.studies.config import RunConfig
from continual_crust.studies.paper import PaperTable, paper_table
from continual_crust.studies.result import RunResult
from continual_crust.studies.run import read_config
from continual_crust.studies.study import parse_study


@dataclass(frozen=True)
class Run:
    """One run: finished, begun, or only planned."""

    config: RunConfig
    folder: Path | None = None
    """None where it was never begun."""
    result: RunResult | None = None
    """None where it is not finished."""


@dataclass(frozen=True)
class StudyData:
    """A study as its folder shows it."""

    id: str
    title: str
    table: PaperTable | None
    """The paper's table that it reproduces."""
    runs: tuple[Run, ...]
    problems: tuple[tuple[str, str], ...]
    """What could not be read: a name, and why."""
    pictures: tuple[Path, ...] = ()
    """Sheets of images that a study without runs is about, one for each data set."""

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that have a result."""
        return tuple(run for run in self.runs if run.result is not None)


def read_studies(folder: Path) -> list[StudyData]:
    """The study in a folder, or all studies whose folders lie in it.

    Raises
    ------
    InputError
        If there is none. Whatever is wrong inside a study is told by the study itself.
    """
    if (folder / "study.yaml").is_file():
        return [_read_study(folder)]
    try:
        inside = sorted(path for path in folder.iterdir() if (path / "study.yaml").is_file())
    except OSError as error:
        raise InputError(f"cannot read the folder {folder} ({error.strerror}); give the folder of a study.") from None
    if not inside:
        raise InputError(f"there is no study.yaml in {folder} or the folders in it; give the folder of a study.")
    return [_read_study(path) for path in inside]


def _read_study(folder: Path) -> StudyData:
    problems: list[tuple[str, str]] = []
    plain, planned = _read_study_file(folder / "study.yaml", problems)
    table = None
    if plain.get("table") is not None:
        try:
            table = paper_table(str(plain["table"]))
        except InputError as error:
            problems.append(("study.yaml", str(error)))
    runs: dict[str, Run] = {}
    for path in _folders(folder / "runs"):
        try:
            run = _read_run(path)
        except (InputError, OSError) as error:
            problems.append((path.name, str(error)))
            continue
        key = _key(run.config)
        known = runs.get(key)
        if known is not None and known.result is not None:
            problems.append((path.name, f"repeats the run {known.folder.name if known.folder else ''}; left out"))
        else:
            runs[key] = run
    # In the order the study names them, then what else is there.
    ordered = {key: runs.get(key, Run(config)) for config in planned for key in [_key(config)]}
    return StudyData(
        id=_line(plain.get("id"), folder.name),
        title=_line(plain.get("title"), _line(plain.get("id"), folder.name)),
        table=table,
        runs=tuple((ordered | runs).values()),
        problems=tuple(problems),
        pictures=tuple(sorted(folder.glob("samples-*.png"))),
    )


def _read_study_file(path: Path, problems: list[tuple[str, str]]) -> tuple[dict[str, Any], list[RunConfig]]:
    """What ``study.yaml`` says in plain words, and the runs it asks for as far as they can be understood."""
    try:
        text = path.read_text(encoding="utf-8")
        plain = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        problems.append((path.name, "is not YAML; the runs are shown without it"))
        return {}, []
    if not isinstance(plain, dict):
        problems.append((path.name, "is not the description of a study; the runs are shown without it"))
        return {}, []
    try:
        planned = list(parse_study(text, path.name).runs())
    except InputError:
        # A few words about runs made elsewhere are a study too, one that plans nothing.
        planned = []
    return plain, planned


def _folders(path: Path) -> Iterator[Path]:
    """Folders of runs; hidden ones are somebody's half-written work."""
    if path.is_dir():
        yield from sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def _read_run(path: Path) -> Run:
    try:
        config = read_config(path)
    except InputError as error:
        # Where it lies is known already; the page should not tell paths of the machine it was made on.
        raise InputError(_without(str(error), path)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"config.yaml is not the configuration of a run ({error})") from None
    if not isinstance(config.dataset, str) or type(config.seed) is not int:
        raise InputError("config.yaml is not the configuration of a run (data set or seed)")
    if not (path / "result.json").exists():
        return Run(config, path)
    try:
        result = RunResult.read(path / "result.json")
    except InputError as error:
        raise InputError(_without(str(error), path)) from None
    except RecursionError:
        raise InputError("result.json is not a result of a run") from None
    wrong = _wrong_with(result, config)
    if wrong:
        raise InputError(f"result.json is not the result of this run ({wrong}); run it again")
    return Run(config, path, result)


def _wrong_with(result: RunResult, config: RunConfig) -> str | None:
    """The first field that is not what it should be: JSON says nothing about types."""
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
    return None


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_share(value: object) -> bool:
    """A number that could be an accuracy, or that was not measured."""
    return value is None or (_is_number(value) and isinstance(value, int | float) and -1 <= value <= 1)


def _key(config: RunConfig) -> str:
    return json.dumps(config.as_dict(), sort_keys=True, default=str)


def _line(value: object, otherwise: str) -> str:
    """A value as a line of text."""
    return " ".join(str(value).split()) if isinstance(value, str | int | float) and str(value).strip() else otherwise


def _without(message: str, folder: Path) -> str:
    return message.replace(f"{folder}/", "").rstrip(".")
