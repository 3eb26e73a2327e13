"""The README's examples run as they stand."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
from pathlib import Path

import pytest

import continual_crust

ROOT = Path(__file__).parent.parent
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)

MODULES = [module.name for module in pkgutil.walk_packages(continual_crust.__path__, "continual_crust.")]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number: int) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(EXAMPLES[number], f"README example {number + 1}", "exec"), {})
    assert printed.getvalue().strip()


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_hold(module: str) -> None:
    if module.endswith(("_kernels", "_kernel")):
        pytest.importorskip("triton")
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_files_named_in_the_documents_exist() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} names {target}"


def headings(page: Path) -> set[str]:
    """What links to places of a page may name, as GitHub makes it of its headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)", text, re.M)]
    # The second of two equal headings gets a number.
    return {name + (f"-{plain[:at].count(name)}" if name in plain[:at] else "") for at, name in enumerate(plain)}


def test_places_named_in_the_documents_exist() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target, place in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            assert place in headings(page.parent / target if target else page), f"{page.name} names {target}#{place}"


def test_tests_named_in_the_documents_exist() -> None:
    written = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")):
            assert f"def {name}(" in written or (ROOT / "tests" / f"{name}.py").exists(), f"{page.name} names {name}"
