"""Studies as files: those that come with the package, and one's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from continual_crust.data import SOURCES, NoiseKind
from continual_crust.errors import InputError, unknown_name
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies import STRATEGIES, options_of
from continual_crust.strategies.training import Training
from continual_crust.studies.config import RunConfig
from continual_crust.studies.paper import paper_tables
from continual_crust.studies.study import (
    RUN_FIELDS,
    SELECTOR_FIELDS,
    TRAINING_FIELDS,
    Study,
    Variant,
    check_settings_read,
    run_fields,
)

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
STUDY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MOST_SEEDS = 10_000
"""A larger number is meant as a seed, and so many runs would fill the memory."""


@cache
def shipped_studies() -> Mapping[str, Study]:
    """The studies that come with the package, by id."""
    return {name: parse_study(file.read_text("utf-8"), file.name) for name, file in _shipped_files().items()}


def _shipped_files() -> dict[str, Traversable]:
    """The study files of the package by id; each is named after its study."""
    folder = resources.files("continual_crust.studies") / "files"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): file for file in files}


def find_study(name: str) -> tuple[Study, str]:
    """A study and its text, by the path of its file or the id of one that is shipped."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise InputError(f"cannot read the study {path}; give a YAML file or one of `study list`.") from None
        return parse_study(text, str(path)), text
    files = _shipped_files()
    if name not in files:
        raise unknown_name("study", name, files)
    text = files[name].read_text("utf-8")
    return parse_study(text, files[name].name), text


def parse_study(text: str, source: str) -> Study:
    """Read a study file, refusing whatever it cannot mean with the line where it stands."""
    return _Reader(text, source).study()


def _check_overrides(given: dict[str, Any]) -> None:
    training = {name: value for name, value in given.items() if name in TRAINING_FIELDS}
    Training(**training)
    RunConfig(**{"dataset": "digits", "method": "naive", "model": "simple_cnn", **run_fields(given)})


class _Reader:
    """Walks through a YAML document that still knows its line numbers."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark is not None else 1
            raise InputError(f"{source}, line {line}: this is not YAML ({getattr(error, 'problem', error)}).") from None
        except RecursionError:
            raise InputError(f"{source} nests too deeply to be a study; see `study show digits`.") from None
        if not isinstance(root, yaml.MappingNode):
            raise InputError(f"{source}, line 1: a study is a mapping of names to values; see `study show digits`.")
        self._root = root

    def study(self) -> Study:
        top = self._mapping(self._root, {f.name for f in fields(Study)} - {"variants", "levels"} | {"methods"})
        show = self._name(top["show"], "picture", ("samples",)) if "show" in top else None
        for name in ("id", "title", "datasets", *(() if show else ("methods", "seeds"))):
            if name not in top:
                raise InputError(f"{self._source}: the field '{name}' is missing.")
        if show and (extra := set(top) - {"id", "title", "datasets", "show"}):
            raise self._wrong(top[min(extra)], f"a study that shows {show} has no runs and so no '{min(extra)}'")
        noise, levels = self._noise(top.get("noise"))
        study = Study(
            id=self._text(top["id"]),
            title=self._text(top["title"]),
            datasets=tuple(self._name(node, "data set", SOURCES) for node in self._items(top["datasets"])),
            variants=() if show else tuple(self._variant(node) for node in self._items(top["methods"])),
            noise=noise,
            levels=levels,
            seeds=() if show else self._seeds(top["seeds"]),
            show=show,
            memory=tuple(self._whole(node, 0) for node in self._items(top["memory"])) if "memory" in top else (),
            table=self._name(top["table"], "table of the paper", paper_tables()) if "table" in top else None,
            overrides=self._checked(top.get("overrides"), TRAINING_FIELDS | RUN_FIELDS, _check_overrides),
        )
        if not STUDY_ID.fullmatch(study.id):
            raise self._wrong(
                top["id"], f"the id '{study.id}' would not do as a folder name; use letters, digits, . _ -"
            )
        named = {"datasets": study.datasets, "seeds": study.seeds, "memory": study.memory, "methods": study.variants}
        for node_name, values in named.items():
            if any(value in values[:number] for number, value in enumerate(values)):
                raise self._wrong(top[node_name], f"'{node_name}' names something twice")
        try:
            list(study.runs())
        except (InputError, TypeError, ValueError) as error:
            raise InputError(f"{self._source}: {error}") from None
        return study

    def _noise(self, node: yaml.Node | None) -> tuple[NoiseKind, tuple[float, ...]]:
        if node is None:
            return NoiseKind.NONE, (0.0,)
        entries = self._mapping(node, {"kind", "levels"})
        if set(entries) != {"kind", "levels"}:
            raise self._wrong(node, "noise needs both 'kind' and 'levels'")
        kind = NoiseKind(self._name(entries["kind"], "noise", [kind.value for kind in NoiseKind]))
        levels = []
        for item in self._items(entries["levels"]):
            level = self._value(item)
            if not isinstance(level, int | float) or isinstance(level, bool) or not 0 <= level <= 1:
                raise self._wrong(item, f"noise level '{level}' is not a number from 0 to 1")
            levels.append(float(level))
        if kind is NoiseKind.NONE and levels != [0.0]:
            raise self._wrong(entries["levels"], "noise of kind 'none' can only have level 0")
        if len(set(levels)) < len(levels) or not levels:
            raise self._wrong(entries["levels"], "'levels' must name one or more different levels")
        return kind, tuple(levels)

    def _variant(self, node: yaml.Node) -> Variant:
        if isinstance(node, yaml.ScalarNode):
            return Variant(self._name(node, "method", STRATEGIES))
        entries = self._mapping(node, {"method", "selector", "options", "training"})
        if "method" not in entries:
            raise self._wrong(node, "a method with changes needs the field 'method'")
        method = self._name(entries["method"], "method", STRATEGIES)
        own = {f.name for f in fields(STRATEGIES[method].options_type)}
        selector = self._checked(entries.get("selector"), SELECTOR_FIELDS, lambda given: SelectorConfig(**given))
        try:
            check_settings_read(STRATEGIES[method], selector)  # together: which are read is up to the name among them
        except InputError as error:
            raise self._wrong(entries["selector"], str(error).rstrip(".")) from None

        def check_training(given: dict[str, Any]) -> None:
            Training(**given)
            STRATEGIES[method].check_training_read(given)

        return Variant(
            method,
            selector=selector,
            options=self._checked(entries.get("options"), own, lambda given: options_of(method, given)),
            training=self._checked(entries.get("training"), TRAINING_FIELDS, check_training),
        )

    def _seeds(self, node: yaml.Node) -> tuple[int, ...]:
        if isinstance(node, yaml.ScalarNode):
            count = self._whole(node, 1)
            if count > MOST_SEEDS:
                raise self._wrong(node, f"{count} seeds are more than {MOST_SEEDS}; for one seed write [{count}]")
            return tuple(range(count))
        return tuple(self._whole(item, 0) for item in self._items(node))

    def _mapping(self, node: yaml.Node, known: set[str]) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong(node, "a mapping of names to values is expected here")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name not in known:
                raise self._wrong(key, str(unknown_name("field", name, known)).rstrip("."))
            if name in found:
                raise self._wrong(key, f"the field '{name}' is given twice")
            found[name] = value
        return found

    def _checked(
        self, node: yaml.Node | None, known: set[str], check: Callable[[dict[str, Any]], object]
    ) -> dict[str, Any]:
        """Named values, each of them tried alone so that a wrong one is told with its own line."""
        values: dict[str, Any] = {}
        for name, value in self._mapping(node, known).items() if node is not None else ():
            values[name] = self._value(value)
            try:
                check({name: values[name]})
            except InputError as error:
                raise self._wrong(value, str(error).rstrip(".")) from None
        return values

    def _items(self, node: yaml.Node) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            if not node.value:
                raise self._wrong(node, "this list is empty")
            return list(node.value)
        return [node]

    def _name(self, node: yaml.Node, kind: str, known: Any) -> str:
        name = self._text(node)
        if name not in known:
            raise self._wrong(node, str(unknown_name(kind, name, known)).rstrip("."))
        return name

    def _whole(self, node: yaml.Node, least: int) -> int:
        value = self._value(node)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self._wrong(node, f"'{value}' is not a whole number of {least} or more")
        return value

    def _text(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._wrong(node, "a single word or line is expected here")
        return str(node.value)

    def _value(self, node: yaml.Node) -> Any:
        # The document was composed by the safe loader, and only plain values are built from it.
        try:
            value = yaml.SafeLoader("").construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError):
            raise self._wrong(node, "a plain value is expected here") from None
        # YAML 1.1 takes 1e-3 for text.
        return float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value

    def _wrong(self, node: yaml.Node, what: str) -> InputError:
        return InputError(f"{self._source}, line {node.start_mark.line + 1}: {what}.")
