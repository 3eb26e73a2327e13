"""The command `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from continual_crust.cli.printing import console, print_results, tell_where


def demo(
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 5,
    level: Annotated[float, typer.Option(help="Share of wrong labels.", min=0, max=1)] = 0.4,
    out: Annotated[Path, typer.Option(help="Folder for the page and its figures.")] = Path("runs/demo"),
) -> None:
    """Compare replay with both CRUST methods and Sift on small noisy digits, and show what each remembered."""
    import torch

    from continual_crust.data import Noise, NoiseKind, load_dataset
    from continual_crust.devices import choose_device
    from continual_crust.progress import RunProgress, progress_bar
    from continual_crust.report.demo_page import demo_run, write_demo_page
    from continual_crust.strategies import strategy_named
    from continual_crust.studies.config import RunConfig
    from continual_crust.studies.defaults import defaults_for
    from continual_crust.studies.run import execute, prepare_folder

    # More threads gain nothing on networks this small, and lose much on a machine that is busy otherwise.
    torch.set_num_threads(1)
    data = load_dataset("digits")
    # One learning rate for all: none has an advantage by what it was tuned for.
    defaults = defaults_for("digits", NoiseKind.LABEL)
    plan = [
        RunConfig(
            dataset="digits",
            method=method,
            model=defaults.model,
            noise=Noise(NoiseKind.LABEL, level),
            seed=seed,
            training=defaults.training,
            selector=strategy_named(method).default_selector,
        )
        for seed in range(seeds)
        for method in ("replay", "crust", "cosine_crust", "sift")
    ]
    runs = []
    with progress_bar(console) as bar:
        overall = bar.add_task("demo", total=len(plan))
        for config in plan:
            folder = out / f"{config.method}-seed{config.seed}"
            prepare_folder(folder, config, overwrite=True)
            progress = RunProgress(bar, config.training.epochs, f"{config.method}, seed {config.seed}, ")
            finished = execute(config, data, choose_device("cpu"), progress.epoch, progress.experience)
            finished.result.write(folder / "result.json")
            runs.append(demo_run(finished))
            progress.finish()
            bar.advance(overall)
    page = write_demo_page(runs, out)
    print_results([run.result for run in runs])
    tell_where("open ", page, " to see what each method remembered")
