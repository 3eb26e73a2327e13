"""The commands that list what there is to choose from: `methods` and `datasets`."""

from __future__ import annotations

from continual_crust.cli.printing import console


def methods() -> None:
    """List the methods, with the options that only they have and their defaults."""
    from dataclasses import fields

    from continual_crust.strategies import STRATEGIES

    width = max(map(len, STRATEGIES))
    for name, strategy in STRATEGIES.items():
        console.print(f"[bold]{name:{width}}[/bold] {strategy.summary}", highlight=False, soft_wrap=True)
        own = [f"{field.name}={field.default}" for field in fields(strategy.options_type)]
        if own:
            console.print(f"{'':{width}} [dim]--set {' '.join(own)}[/dim]", highlight=False, soft_wrap=True)


def datasets() -> None:
    """List the data sets."""
    from continual_crust.data import SOURCES

    for name, source in SOURCES.items():
        console.print(f"[bold]{name:13}[/bold] {source.summary}", highlight=False, soft_wrap=True)
