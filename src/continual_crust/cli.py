"""The command line."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from continual_crust import __version__, cli_demo, cli_learn, cli_report, cli_review, cli_state, cli_study
from continual_crust.cli_printing import console, print_results, tell_where
from continual_crust.errors import InputError, trouble_of_the_machine, unknown_name
from continual_crust.process_memory import keep_freed_memory

INTERRUPTED = 130
"""What a program ends with that Ctrl-C stopped."""

app = typer.Typer(
    help="Learn new classes one after another from partly wrong data, without forgetting the old ones.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cli_study.app, name="study")
app.command()(cli_learn.learn)
app.command()(cli_learn.predict)
app.command()(cli_state.info)
app.command()(cli_state.undo)
app.command()(cli_state.rename)
app.command()(cli_review.review)
app.command()(cli_report.report)
app.command()(cli_report.theory)
app.command()(cli_demo.demo)

DATA = "Data and noise"
TRAINING = "Training (defaults: the paper's table for the data set)"
SELECTION = "Selection of the memory"


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


@app.command()
def run(
    dataset: Annotated[str, typer.Option(help="Data set; see `continual-crust datasets`.", rich_help_panel=DATA)],
    method: Annotated[str, typer.Option(help="Method; see `continual-crust methods`.")] = "cosine_crust",
    seed: Annotated[int, typer.Option(help="Decides class order, noise, initial weights and batches.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the results, by default one under runs/.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier result in that folder.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    data_root: Annotated[
        Path | None, typer.Option(help="Folder that holds the data, by default data/.", rich_help_panel=DATA)
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch the data if it is missing.", rich_help_panel=DATA)
    ] = False,
    noise: Annotated[
        str,
        typer.Option(
            help="KIND:LEVEL with KIND label (flipped to any other class), asymmetric (flipped to the next), "
            "salt_and_pepper or uniform and LEVEL the share of images, or none.",
            rich_help_panel=DATA,
        ),
    ] = "none",
    first_classes: Annotated[
        int, typer.Option(metavar="N", help="Classes in the first experience.", rich_help_panel=DATA, min=1)
    ] = 2,
    classes_per_experience: Annotated[
        int, typer.Option(metavar="N", help="Classes in every later experience.", rich_help_panel=DATA, min=1)
    ] = 1,
    image_size: Annotated[
        int | None, typer.Option(help="Side of the images in pixels, where a source can choose.", rich_help_panel=DATA)
    ] = None,
    crop: Annotated[
        bool, typer.Option("--crop", help="Crop the centre to that size instead of resizing.", rich_help_panel=DATA)
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="simple_cnn, resnet18, resnet18_strided or efficientnet_v2_s.", rich_help_panel=TRAINING),
    ] = None,
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Start from torchvision's weights.", rich_help_panel=TRAINING)
    ] = False,
    phase1_epochs: Annotated[
        int | None, typer.Option("--phase1-epochs", "-m", help="Epochs on all new data.", rich_help_panel=TRAINING)
    ] = None,
    phase2_epochs: Annotated[
        int | None,
        typer.Option("--phase2-epochs", "-n", help="Epochs on re-selected coresets.", rich_help_panel=TRAINING),
    ] = None,
    memory: Annotated[
        int | None, typer.Option("--memory", "-k", help="Samples kept for each class.", rich_help_panel=TRAINING)
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate.", rich_help_panel=TRAINING)] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Adam's weight decay.", rich_help_panel=TRAINING)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples in a step.", rich_help_panel=TRAINING)] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="The method's own hyper-parameter; see `continual-crust methods`. Can be repeated.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    weighted_loss: Annotated[
        bool,
        typer.Option(
            "--weighted-loss", help="Let a kept sample count for those it stands for.", rich_help_panel=TRAINING
        ),
    ] = False,
    precision: Annotated[
        str | None, typer.Option(help="Of training's arithmetic: float32 or bfloat16.", rich_help_panel=TRAINING)
    ] = None,
    shift: Annotated[
        float | None,
        typer.Option(
            help="Move each image by up to this share of its height and width, anew in every epoch.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    mirror: Annotated[
        bool,
        typer.Option(
            "--mirror",
            help="Mirror every other image, left to right, anew in every epoch.",
            rich_help_panel=TRAINING,
        ),
    ] = False,
    selector: Annotated[
        str | None,
        typer.Option(
            help="What chooses the memory, whatever the method: crust, cosine_crust, herding, reservoir or random; "
            "by default the method's own choice.",
            rich_help_panel=SELECTION,
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="Inside CRUST: centrality (CRUST as released, and the default; stays clean under noise), "
            "exact_centrality (without its rounding; cleaner, less varied) or facility_location (as the paper writes "
            "it; covers everything, noise included).",
            rich_help_panel=SELECTION,
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="Inside CRUST: gradients at the last layer's parameters (the default), logits or input.",
            rich_help_panel=SELECTION,
        ),
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="CosineCRUST: clusters to look for, 2 by default.", rich_help_panel=SELECTION)
    ] = None,
    min_cluster: Annotated[
        float | None,
        typer.Option(
            "--min-cluster",
            "--n-a",
            help="CosineCRUST: drop clusters under this share (below 1) or number of samples; 0.1 by default.",
            rich_help_panel=SELECTION,
        ),
    ] = None,
) -> None:
    """Learn one noisy stream with one method and write the result, its configuration and figures to a folder.

    A run that was stopped goes on from its last experience when the command is repeated.
    """
    from continual_crust.data import SOURCES, Noise, load_dataset
    from continual_crust.devices import choose_device
    from continual_crust.models import build_model
    from continual_crust.report.figures import write_run_figures
    from continual_crust.strategies import strategy_named
    from continual_crust.studies.config import RunConfig
    from continual_crust.studies.defaults import defaults_for
    from continual_crust.studies.folder import claimed
    from continual_crust.studies.run import (
        CHECKPOINT,
        LEARNER,
        execute,
        prepare_folder,
        save_learner,
    )
    from continual_crust.studies.study import check_settings_read

    parsed_noise = Noise.parse(noise)
    strategy = strategy_named(method)
    if dataset not in SOURCES:
        raise unknown_name("data set", dataset, SOURCES)
    defaults = defaults_for(dataset, parsed_noise.kind, method)
    asked: dict[str, Any] = {
        "phase1_epochs": phase1_epochs,
        "phase2_epochs": phase2_epochs,
        "memory_per_class": memory,
        "learning_rate": lr,
        "weight_decay": weight_decay,
        "batch_size": batch_size,
        "weighted_loss": weighted_loss,
        "precision": precision,
        "shift": shift,
        "mirror": mirror,
    }
    if not strategy.remembers and selector:
        raise InputError(f"method '{method}' keeps no memory; leave out --selector.")
    inside = {"rule": rule, "space": space, "clusters": clusters, "min_cluster": min_cluster}
    selection: dict[str, Any] = {"name": selector, **inside}
    selection = {name: value for name, value in selection.items() if value is not None}
    check_settings_read(strategy, selection)
    strategy.check_training_read(asked)
    config = RunConfig(
        dataset=dataset,
        method=method,
        model=model or defaults.model,
        noise=parsed_noise,
        seed=seed,
        training=replace(defaults.training, **{name: value for name, value in asked.items() if value is not None}),
        selector=replace(strategy.default_selector, **selection),
        options={**defaults.options, **_named_values(options or [])},
        first_classes=first_classes,
        classes_per_experience=classes_per_experience,
        image_size=image_size,
        crop=crop,
        pretrained=pretrained,
    )
    where = choose_device(device)
    folder = out or Path("runs") / f"{dataset}-{method}-{str(parsed_noise).replace(':', '-')}-seed{seed}"
    with console.status(f"reading {dataset}"):
        data = load_dataset(dataset, data_root, download=download, image_size=image_size, crop=crop)
    # What cannot be built is refused before there is a folder.
    build_model(config.model, data.image_shape, data.classes, pretrained=config.pretrained)
    from continual_crust.progress import RunProgress, progress_bar

    with claimed(folder) as is_ours:
        if not is_ours:
            raise InputError(f"another process is at work in {folder}; wait for it or choose another --out.")
        prepare_folder(folder, config, overwrite)
        checkpoint = folder / CHECKPOINT
        with progress_bar(console) as bar:
            progress = RunProgress(bar, config.training.epochs)
            finished = execute(config, data, where, progress.epoch, progress.experience, checkpoint=checkpoint)
        write_run_figures(finished, folder / "figures")
        save_learner(finished.strategy, folder / LEARNER)
        finished.result.write(folder / "result.json")  # after all others: it is what makes a run finished
        checkpoint.unlink(missing_ok=True)
    print_results([finished.result])
    tell_where("written to ", folder)


@app.command()
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


@app.command()
def datasets() -> None:
    """List the data sets."""
    from continual_crust.data import SOURCES

    for name, source in SOURCES.items():
        console.print(f"[bold]{name:13}[/bold] {source.summary}", highlight=False, soft_wrap=True)


def _named_values(texts: list[str]) -> dict[str, str]:
    """NAME=VALUE texts as a dictionary."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set '{text}' has no value; write --set NAME=VALUE.")
        if name in values:
            raise InputError(f"--set gives '{name}' twice; give it once.")
        values[name] = value
    return values


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


if __name__ == "__main__":
    main()
