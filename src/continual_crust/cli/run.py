"""The command `run`: one method on one stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from continual_crust.cli.printing import console, print_results, tell_where
from continual_crust.errors import InputError, unknown_name

DATA = "Data and noise"
TRAINING = "Training (defaults: the paper's table for the data set)"
SELECTION = "Selection of the memory"


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
    from continual_crust.progress import RunProgress, progress_bar
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
        untouched_if_refused,
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

    with claimed(folder) as is_ours:
        if not is_ours:
            raise InputError(f"another process is at work in {folder}; wait for it or choose another --out.")
        checkpoint = folder / CHECKPOINT
        with untouched_if_refused(folder), progress_bar(console) as bar:
            prepare_folder(folder, config, overwrite)
            progress = RunProgress(bar, config.training.epochs)
            finished = execute(config, data, where, progress.epoch, progress.experience, checkpoint=checkpoint)
        write_run_figures(finished, folder / "figures")
        save_learner(finished.strategy, folder / LEARNER)
        finished.result.write(folder / "result.json")  # after all others: it is what makes a run finished
        checkpoint.unlink(missing_ok=True)
    print_results([finished.result])
    tell_where("written to ", folder)


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
