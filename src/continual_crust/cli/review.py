"""The command that shows a learner's doubts to a person: ``continual-crust review``."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from continual_crust.cli.printing import console, tell_where
from continual_crust.errors import InputError, told_if_unwritable, unknown_name

FORMATS = {"html": (".html", ".htm"), "csv": (".csv",)}
"""With the suffixes of their files."""


def review(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="Folder of a learner.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write: by default STATE/review.html, and csv to the terminal."),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="html, or csv for a list of all images.")] = "html",
    show: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Show it in a browser; by default where there is a screen."),
    ] = None,
    most: Annotated[
        int, typer.Option(help="Images on the page: all that are kept, then the most doubtful.", min=1)
    ] = 20_000,
) -> None:
    """Write a page on which to mark what was kept and thrown out as right, wrong or another class's.

    The marks it exports are applied with `continual-crust learn STATE --review FILE`.

    With `--format csv` the same as a list, for programs: every image ever seen, the most doubtful of each class first.
    """
    from continual_crust.field.state import StateFolder

    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    from continual_crust.field.review_list import COLUMNS, listed
    from continual_crust.field.review_page import TITLE, write_review_page
    from continual_crust.writing import write_atomically

    page = out or state / "review.html"
    if form == "html":
        _refuse_other_files(page, form, TITLE)
    elif out is not None:
        _refuse_other_files(out, form, ",".join(COLUMNS))
    generation = StateFolder(state).newest()
    for sentence in generation.passed_over:
        print(f"{sentence}; this is generation {generation.number}.", file=sys.stderr)
    if form == "csv":
        text = listed(generation)
        if out is None:
            print(text, end="")
        else:
            with told_if_unwritable(out):
                out.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(out, text)
        return
    with console.status("writing the page"):
        write_review_page(generation, state, page, most)
    tell_where("open ", page, " in a browser")
    if _has_screen() if show is None else show:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            print("no browser was found to show it; open the file yourself.", file=sys.stderr)


def _refuse_other_files(path: Path, form: str, mark: str) -> None:
    """Nothing is written over but what this command wrote: least of all the marks a page has exported."""
    for other, suffixes in FORMATS.items():
        if other != form and path.suffix.lower() in suffixes:
            raise InputError(f"--out {path} is the name of a {other} file; give one for {form}, or --format {other}.")
    start = b""
    if path.is_file():
        with contextlib.suppress(OSError), path.open("rb") as file:
            start = file.read(4096)
    if start and mark.encode() not in start:
        raise InputError(f"{path} holds something else; give --out another name, or remove the file first.")


def _has_screen() -> bool:
    """Whether a browser would open a window; without one, it might take over the terminal instead."""
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
