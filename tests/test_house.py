"""Each room knows only the rooms before it, as CONTRIBUTING.md lists them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "continual_crust"
ROOMS = re.findall(r"^\| `(\w+)/` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)


def known(path: Path) -> Iterator[str]:
    """The package's modules that a module imports, here or there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relative to itself; write the whole name."
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_known(path: Path) -> set[str]:
    """Rooms, or modules beside them, that a module imports from."""
    return {name.split(".")[1] for name in known(path) if name.startswith("continual_crust.")}


def test_every_room_is_listed() -> None:
    assert set(ROOMS) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_only_those_before_it(room: str) -> None:
    later = set(ROOMS[ROOMS.index(room) + 1 :])
    for path in (PACKAGE / room).rglob("*.py"):
        beyond = {name for name in rooms_known(path) if name in later}
        assert not beyond, f"{path.relative_to(PACKAGE)} knows {', '.join(sorted(beyond))}."


def test_what_lies_beside_the_rooms_knows_none_of_them() -> None:
    """But for what is passed on from the first page, or stands at it."""
    for path in PACKAGE.glob("*.py"):
        if not path.name.startswith("__"):
            assert not rooms_known(path) & set(ROOMS), path.name
