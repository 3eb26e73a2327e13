"""Results that accumulate: finished runs of any studies as rows of a few files that are kept.

A folder of collected results has a file for each data set and kind of noise, with a line for each run: the keys of its
``result.json``, its id as ``run`` and its configuration as ``config``. A run is known by its id, which is that of its
configuration and revision, so rows stay what they are however the defaults of the program change.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from continual_crust.data import SOURCES
from continual_crust.errors import InputError, told_if_unwritable, unknown_name
from continual_crust.studies.config import RunConfig
from continual_crust.studies.finished import read_finished, wrong_with
from continual_crust.studies.result import RunResult
from continual_crust.studies.study import run_id
from continual_crust.writing import write_atomically

DIGITS = 5
"""Decimals that are kept of what was measured: more than one test image in ten thousand can move."""
CIRCUMSTANCES = ("seconds", "selection_seconds", "device", "versions")
"""What may differ between two runs of the same configuration that came to the same end."""
ADDED, KNOWN, REPLACED = "added", "known", "replaced"


@dataclass(frozen=True)
class KeptRun:
    """A run as it is kept."""

    run: str
    """Its id."""
    config: RunConfig
    result: RunResult

    @classmethod
    def of(cls, config: RunConfig, result: RunResult) -> KeptRun:
        """A finished run, rounded."""
        return cls(run_id(config, result.revision), config, RunResult(**_rounded(asdict(result))))

    def as_dict(self) -> dict[str, Any]:
        """Plain values only."""
        return {"run": self.run, **asdict(self.result), "config": self.config.as_dict()}

    def differs_from(self, other: KeptRun) -> str | None:
        """The first thing that was measured otherwise, if any."""
        if not self.result.is_of(other.result.data):
            return "data set"
        mine, others = asdict(self.result), asdict(other.result)
        told = (*CIRCUMSTANCES, "data")
        return next((name for name in mine if name not in told and mine[name] != others[name]), None)


@dataclass
class Collected:
    """The runs of a folder of collected results."""

    rows: dict[str, KeptRun] = field(default_factory=dict)
    """By id."""
    obsolete: list[dict[str, Any]] = field(default_factory=list)
    """Rows whose configuration this version of the program does not understand; kept, and compared with nothing."""

    @classmethod
    def read(cls, folder: Path) -> Collected:
        """What has been collected so far; nothing where there is no folder yet."""
        found = cls()
        for path in sorted(folder.glob("*.json")):
            try:
                lines = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise InputError(f"{path} cannot be read as JSON ({error}); mend it or get it back.") from None
            if not isinstance(lines, list):
                raise InputError(f"{path} holds no list of runs; mend it or get it back.")
            for number, plain in enumerate(lines, start=1):
                try:
                    found._take(plain)
                except InputError as error:
                    raise InputError(f"{path}: row {number} {error}; mend or remove it.") from None
        return found

    def _take(self, plain: Any) -> None:
        known = {entry.name for entry in fields(RunResult)}
        try:
            result = RunResult(**{name: value for name, value in plain.items() if name in known})
            plain_config, _, _ = plain["config"], plain["run"], _file_of(plain)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"is not a run ({error})") from None
        try:
            config = RunConfig.from_dict(plain_config)  # settings that did not exist then get their default
        except InputError:
            self.obsolete.append(plain)
            return
        wrong = wrong_with(result, config)
        if wrong:
            raise InputError(f"is not the result of its configuration ({wrong})")
        run = run_id(config, result.revision)
        if run in self.rows:
            raise InputError(f"repeats the run {run}")
        self.rows[run] = KeptRun(run, config, result)

    def files(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of each file, in order."""
        files: dict[str, list[dict[str, Any]]] = {}
        for plain in [*(row.as_dict() for row in self.rows.values()), *self.obsolete]:
            files.setdefault(_file_of(plain), []).append(plain)
        return {name: sorted(rows, key=lambda plain: str(plain["run"])) for name, rows in files.items()}


def collect(sources: Sequence[Path], folder: Path, replace: bool = False) -> Counter[str]:
    """Merge all finished runs below some folders into a folder of collected results.

    A source may be such a folder itself: what was collected on another machine is a handful of small files.
    Everything is read and checked before anything is written, each file is written whole, and doing it twice changes
    nothing.

    Returns
    -------
    How many runs were ``added``, were ``known`` already, and were ``replaced``.

    Raises
    ------
    InputError
        If a folder holds no finished run, if one cannot be read, or if a run that is known came to another end and
        `replace` does not allow the later one to win.
    """
    collected = Collected.read(folder)
    outcome: Counter[str] = Counter()
    for row in _finished(sources):
        known = collected.rows.get(row.run)
        difference = None if known is None else row.differs_from(known)
        if known is not None and difference is None:
            outcome[KNOWN] += 1
            continue
        if known is not None and not replace:
            raise InputError(
                f"the run {row.run} is known with another {difference}; pass --replace if the new one is right."
            )
        collected.rows[row.run] = row
        outcome[ADDED if known is None else REPLACED] += 1
    for plain in (row for source in sources if _is_collected(source) for row in Collected.read(source).obsolete):
        is_known = plain in collected.obsolete
        outcome[KNOWN if is_known else ADDED] += 1
        collected.obsolete += [] if is_known else [plain]
    with told_if_unwritable(folder, "--into"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in collected.files().items():
            text = _as_json(rows)
            path = folder / name
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                write_atomically(path, text)
    return outcome


def _finished(sources: Iterable[Path]) -> Iterator[KeptRun]:
    for source in sources:
        if _is_collected(source):
            yield from Collected.read(source).rows.values()
            continue
        folders = sorted({path.parent for path in source.rglob("result.json")})
        if not folders:
            raise InputError(f"there is no finished run below {source}; give the folder of a study, or one of studies.")
        for folder in folders:
            try:
                config, result = read_finished(folder)
            except InputError as error:
                raise InputError(f"{folder}: {error}.") from None
            if config.dataset not in SOURCES:
                raise InputError(f"{folder}: {unknown_name('data set', config.dataset, SOURCES)}")
            if result is not None:
                yield KeptRun.of(config, result)


def _is_collected(source: Path) -> bool:
    return any(source.glob("*-*.json"))


def _file_of(plain: Mapping[str, Any]) -> str:
    """Name of the file a row is kept in."""
    return f"{plain['dataset']}-{plain['noise'].partition(':')[0]}.json"


def _as_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """A line for each run, so that a new run is a new line."""
    return "[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in rows) + "\n]\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
