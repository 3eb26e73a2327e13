"""One run from configuration to result."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from continual_crust.data import Dataset, Stream
from continual_crust.errors import InputError
from continual_crust.evaluation import accuracies, average_accuracy, forgetting, mean_purity, purity_per_class
from continual_crust.models import build_model
from continual_crust.randomness import seed_for
from continual_crust.strategies import Observer, Strategy, options_of, strategy_named
from continual_crust.studies.config import RunConfig
from continual_crust.studies.result import RunResult, versions, write_atomically


@dataclass(frozen=True)
class FinishedRun:
    """A result, with the learner and the stream it came from for anyone who wants to look closer."""

    result: RunResult
    strategy: Strategy
    stream: Stream


def choose_device(name: str) -> torch.device:
    """A device by name; ``auto`` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"there is no device '{name}'; use auto, cpu or cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("this PyTorch sees no CUDA device; use --device cpu or install a CUDA build of PyTorch.")
    return device


def execute(
    config: RunConfig,
    dataset: Dataset,
    device: torch.device,
    observer: Observer | None = None,
    on_experience: Callable[[int, int], None] | None = None,
) -> FinishedRun:
    """Learn a noisy stream and evaluate after every experience.

    `on_experience` is called with the number of the experience about to be learned and how many there are.
    """
    stream = build_stream(config, dataset)
    strategy = build_strategy(config, dataset, device, observer)
    matrix: list[list[float]] = []
    purities: list[float | None] = []
    seconds = 0.0
    experiences = [stream.joined()] if strategy.learns_everything_at_once else stream
    for number, experience in enumerate(experiences):
        if on_experience is not None:
            on_experience(number, len(experiences))
        start = time.perf_counter()
        strategy.learn(experience)
        strategy.network.synchronize()
        seconds += time.perf_counter() - start
        matrix.append(accuracies(strategy, stream))
        new = {label: strategy.memory[label] for label in experience.classes if label in strategy.memory}
        purities.append(mean_purity(purity_per_class(new, stream.truth)))
    per_class = purity_per_class(strategy.memory, stream.truth)
    names = dataset.class_names
    result = RunResult(
        method=config.method,
        dataset=config.dataset,
        noise=str(config.noise),
        seed=config.seed,
        accuracy_matrix=matrix,
        accuracy=average_accuracy(matrix),
        forgetting=forgetting(matrix),
        purity=mean_purity(per_class),
        purity_per_class={names[label]: purity for label, purity in per_class.items()},
        purity_per_experience=purities,
        experiences=[[names[label] for label in group] for group in stream.groups],
        seconds=seconds,
        selection_seconds=strategy.selection_seconds,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        versions=versions(),
    )
    return FinishedRun(result, strategy, stream)


def build_strategy(
    config: RunConfig, dataset: Dataset, device: torch.device, observer: Observer | None = None
) -> Strategy:
    """The learner a configuration describes, with its initial weights."""
    model = build_model(
        config.model,
        dataset.image_shape,
        dataset.classes,
        seed=seed_for(config.seed, "model"),
        pretrained=config.pretrained,
    )
    return strategy_named(config.method)(
        model,
        config.training,
        config.selector,
        options_of(config.method, config.options),
        seed=config.seed,
        device=device,
        observer=observer,
    )


def save_learner(strategy: Strategy, path: Path) -> None:
    """Store everything a learner is."""
    buffer = io.BytesIO()
    torch.save(strategy.state(), buffer)
    write_atomically(path, buffer.getvalue())


def load_learner(strategy: Strategy, path: Path) -> None:
    """Make a freshly built strategy the learner that was saved. Only tensors and plain values are ever read."""
    try:
        strategy.restore(torch.load(path, map_location="cpu", weights_only=True))
    except FileNotFoundError:
        raise InputError(f"there is no learner at {path}; give the folder of a finished run.") from None
    except (pickle.UnpicklingError, RuntimeError, KeyError, TypeError, EOFError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a learner of this configuration ({reason}); run it again.") from None


def read_config(folder: Path) -> RunConfig:
    """The configuration of the run in a folder."""
    path = folder / "config.yaml"
    try:
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"there is no {path}; give the folder of a run.") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise InputError(f"{path} is not YAML; run it again.") from None
    if not isinstance(plain, dict):
        raise InputError(f"{path} is not the configuration of a run; run it again.")
    return RunConfig.from_dict(plain)


def load_run(folder: Path, dataset: Dataset, device: torch.device) -> FinishedRun:
    """Bring a finished run back as it was when it ended: result, learner and stream."""
    config = read_config(folder)
    strategy = build_strategy(config, dataset, device)
    load_learner(strategy, folder / "learner.pt")
    return FinishedRun(RunResult.read(folder / "result.json"), strategy, build_stream(config, dataset))


def build_stream(config: RunConfig, dataset: Dataset) -> Stream:
    """The noisy stream a configuration describes."""
    return Stream(dataset, config.noise, config.seed, config.first_classes, config.classes_per_experience)


def prepare_folder(folder: Path, config: RunConfig, overwrite: bool) -> None:
    """Make a run's folder and store its configuration there, refusing to mix it with an earlier result."""
    if (folder / "result.json").exists() and not overwrite:
        raise InputError(f"{folder} already holds a result; choose another --out or pass --overwrite.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").unlink(missing_ok=True)
        write_atomically(folder / "config.yaml", yaml.safe_dump(config.as_dict(), sort_keys=False))
    except OSError as error:
        raise InputError(f"cannot write to {folder} ({error.strerror}); choose another --out.") from None
