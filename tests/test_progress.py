"""Bars of progress on terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from continual_crust.progress import RunProgress, progress_bar


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_counts_and_times_are_never_cut_off(width: int) -> None:
    """What is being done gives way to them, on one line."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, force_interactive=True)
    with progress_bar(console) as bar:
        bar.add_task("demo", total=15)
        run = RunProgress(bar, 20, "cosine_crust, seed 0, ")
        run.experience(3, 9)
        run.epoch("phase 2", 3, 10, lambda: 0.123)
        bar.add_task("mnist-cosine_crust-label-0.5-k300-s0-1a2b3c4d[/]", total=9)
        shown = Console(file=io.StringIO(), width=width)
        shown.print(bar.get_renderable())
    lines = shown.file.getvalue().splitlines()
    for line, start, count in zip(
        lines, ("demo", "cosine_crust", "mnist-cosine"), ("0/15", "1/180", "0/9"), strict=True
    ):
        assert line.startswith(start)
        assert count in line
        assert line.rstrip().endswith("left: -:--:--")
