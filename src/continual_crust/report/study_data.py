"""What a study's folder holds, however far it has come and whatever has happened to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from continual_crust.errors import InputError
from continual_crust.studies.config import RunConfig
from continual_crust.studies.finished import read_finished
from continual_crust.studies.paper import PaperTable, paper_table
from continual_crust.studies.result import RunResult
from continual_crust.studies.study import TRAINING_FIELDS, Study, revision_of, run_id
from continual_crust.studies.study_file import parse_study

NOT_ASKED_FOR = "not in study.yaml as it is now"
OTHER_STATE = "of another state of the program, which came to other results"
REPEATED = "repeats of other runs"


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
    left_out: Mapping[str, Sequence[str]]
    """Names of runs that are not shown though nothing is wrong with them, by the reason."""
    pictures: tuple[Path, ...] = ()
    """Sheets of images that a study without runs is about, one for each data set."""
    plan: Study | None = None
    """What study.yaml asks for; None where it asks for no runs."""

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that have a result."""
        return tuple(run for run in self.runs if run.result is not None)

    @property
    def shared(self) -> Mapping[str, Any]:
        """Training settings that hold for the whole study: its overrides, or else what is the same in all runs."""
        if self.plan is not None:
            return self.plan.overrides
        values = {name: {getattr(run.config.training, name) for run in self.runs} for name in TRAINING_FIELDS}
        return {name: several.pop() for name, several in values.items() if len(several) == 1}


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
    plain, plan = _read_study_file(folder / "study.yaml", problems)
    planned = list(plan.runs()) if plan is not None else []
    table = None
    if plain.get("table") is not None:
        try:
            table = paper_table(str(plain["table"]))
        except InputError as error:
            problems.append(("study.yaml", str(error)))
    runs = {run_id(config): Run(config) for config in planned}
    left_out: dict[str, list[str]] = {}
    for path in _folders(folder / "runs"):
        try:
            run = _read_run(path)
        except (InputError, OSError) as error:
            problems.append((path.name, str(error)))
            continue
        key = run_id(run.config)
        if planned and key not in runs:
            left_out.setdefault(NOT_ASKED_FOR, []).append(path.name)
        elif run.result is not None and run.result.revision != revision_of(run.config.method):
            left_out.setdefault(OTHER_STATE, []).append(path.name)
        elif key in runs and runs[key].result is not None:
            left_out.setdefault(REPEATED, []).append(path.name)
        else:
            runs[key] = run
    return StudyData(
        id=_line(plain.get("id"), folder.name),
        title=_line(plain.get("title"), _line(plain.get("id"), folder.name)),
        table=table,
        runs=tuple(runs.values()),
        problems=tuple(problems),
        left_out=left_out,
        pictures=tuple(sorted(folder.glob("samples-*.png"))),
        plan=plan if planned else None,
    )


def _read_study_file(path: Path, problems: list[tuple[str, str]]) -> tuple[dict[str, Any], Study | None]:
    """What ``study.yaml`` says in plain words, and the study it describes if it can be understood."""
    try:
        text = path.read_text(encoding="utf-8")
        plain = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        problems.append((path.name, "is not YAML; the runs are shown without it"))
        return {}, None
    if not isinstance(plain, dict):
        problems.append((path.name, "is not the description of a study; the runs are shown without it"))
        return {}, None
    try:
        return plain, parse_study(text, path.name)
    except InputError:
        # A few words about runs made elsewhere are a study too, one that plans nothing.
        return plain, None


def _folders(path: Path) -> Iterator[Path]:
    """Folders of runs; hidden ones are somebody's half-written work."""
    if path.is_dir():
        yield from sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))


def _read_run(path: Path) -> Run:
    config, result = read_finished(path)
    return Run(config, path, result)


def _line(value: object, otherwise: str) -> str:
    """A value as a line of text."""
    return " ".join(str(value).split()) if isinstance(value, str | int | float) and str(value).strip() else otherwise
