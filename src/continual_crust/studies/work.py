"""One run of a study, from claim to result. The same in every engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import torch

from continual_crust.data import SOURCES, Dataset, load_dataset
from continual_crust.data.loading import MissingData
from continual_crust.devices import choose_device
from continual_crust.errors import InputError
from continual_crust.progress import OnProgress, unwatched
from continual_crust.strategies import adam
from continual_crust.studies.config import RunConfig
from continual_crust.studies.folder import Runs, claimed
from continual_crust.studies.memory import save_memory
from continual_crust.studies.run import CHECKPOINT, Progress, execute, write_config
from continual_crust.studies.tensorboard import Scalars
from continual_crust.triton_key import recognise_triton_by_its_files

DONE, SKIPPED, UNDER_WAY = "done", "skipped", "under way"
STOPPED = "stopped; repeat the command to go on."


@dataclass(frozen=True)
class Workplace:
    """What a run needs to know beyond its configuration."""

    study: Path
    """The study's folder."""
    data_root: Path | None = None
    download: bool = False
    device: str = "auto"
    tensorboard: bool = False


def work_on(
    config: RunConfig,
    place: Workplace,
    report: OnProgress = unwatched,
    stopped: Callable[[], bool] | None = None,
) -> str:
    """Do one run unless it is done or somebody else is doing it; goes on from its last experience if it was stopped.

    `report` is told the run's id, how many of its experiences are learned and how many it has; `stopped` is asked after
    every epoch whether to give up.
    """
    folder = Runs(place.study)
    target = folder.run_folder(config)
    with claimed(target) as is_ours:
        if not is_ours:
            return UNDER_WAY
        if folder.finished(config) is not None or folder.adopt(
            config, fingerprint_of(config, place.data_root, place.download)
        ):
            (target / CHECKPOINT).unlink(missing_ok=True)  # from one that was killed in its last moment
            return SKIPPED
        write_config(target, config)
        device = choose_device(place.device)
        # A first kernel loads a GPU's compiler and libraries, which takes no less time than reading the data does.
        with _meanwhile(partial(_first_kernel, device)), _reading:
            dataset = _dataset(config.dataset, place.data_root, place.download, config.image_size, config.crop)
        scalars = Scalars(target / "tensorboard", config.training.epochs) if place.tensorboard else None

        def after_epoch(phase: str, epoch: int, epochs: int, loss: Callable[[], float]) -> None:
            if stopped is not None and stopped():
                raise InputError(STOPPED)
            if scalars is not None:
                scalars.after_epoch(phase, epoch, epochs, loss())

        def after_experience(learned: int, count: int, progress: Progress) -> None:
            report(target.name, learned, count)
            if scalars is not None:
                scalars.after_experience(learned, count, progress)

        finished = execute(
            config,
            dataset,
            device,
            observer=after_epoch if scalars is not None or stopped is not None else None,
            on_experience=scalars.before_experience if scalars is not None else None,
            after_experience=after_experience,
            checkpoint=target / CHECKPOINT,
        )
        if scalars is not None:
            scalars.close()
        save_memory(finished, target / "memory.npz")
        finished.result.write(target / "result.json")
        (target / CHECKPOINT).unlink(missing_ok=True)
        return DONE


def _first_kernel(device: torch.device) -> None:
    if device.type == "cuda":
        recognise_triton_by_its_files()
    adam.kernel_works(device)


@contextmanager
def _meanwhile(action: Callable[[], object]) -> Iterator[None]:
    """Do something in a thread of its own; it is over when the block is left."""
    thread = threading.Thread(target=action)
    thread.start()
    try:
        yield
    finally:
        thread.join()


_reading = threading.Lock()
"""So that runs in several threads read a data set once."""


def fingerprint_of(config: RunConfig, data_root: Path | None, download: bool) -> str:
    """The fingerprint of a run's data set; empty if its files are missing, or are the same everywhere."""
    if not SOURCES[config.dataset].varies:
        return ""
    try:
        with _reading:
            return _dataset(config.dataset, data_root, download, config.image_size, config.crop).fingerprint
    except MissingData:
        return ""


@lru_cache(maxsize=1)
def _dataset(name: str, root: Path | None, download: bool, image_size: int | None, crop: bool) -> Dataset:
    """Runs of one data set follow one another, and reading it takes longer than a small run."""
    return load_dataset(name, root, download=download, image_size=image_size, crop=crop)
