"""The command line: a file for each command, or for a few that belong together."""

from __future__ import annotations

import io
import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from continual_crust import __version__
from continual_crust.cli import demo, learn, lists, report, review, run, state, study
from continual_crust.errors import InputError, trouble_of_the_machine
from continual_crust.process_memory import keep_freed_memory

__all__ = ["app", "main"]

INTERRUPTED = 130
"""What a program ends with that Ctrl-C stopped."""

app = typer.Typer(
    help="Learn new classes one after another from partly wrong data, without forgetting the old ones.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(learn.learn)
app.command()(learn.predict)
app.command()(state.info)
app.command()(state.undo)
app.command()(state.rename)
app.command()(review.review)
app.command()(report.report)
app.command()(report.theory)
app.command()(demo.demo)
app.command()(run.run)
app.command()(lists.methods)
app.command()(lists.datasets)
app.add_typer(study.app, name="study")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"continual-crust {__version__}")
        raise typer.Exit


@app.callback()
def _before_any_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line; what a person can mend is told in one sentence, with exit code 2."""
    keep_freed_memory()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names that a terminal or a file cannot take are escaped there, as they are on standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            Console(stderr=True).print("stopped; repeat the command to go on.")
        raise
    except InputError as error:
        _complain(str(error))
    except Exception as error:
        sentence = trouble_of_the_machine(error)
        if sentence is None:
            raise
        _complain(sentence)


def _complain(sentence: str) -> NoReturn:
    # As plain text: a file name may look like markup.
    Console(stderr=True).print(Text.assemble(("error: ", "bold red"), sentence), soft_wrap=True)
    sys.exit(2)
