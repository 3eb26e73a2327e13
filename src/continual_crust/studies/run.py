"""One run from configuration to result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import yaml

from continual_crust.data import Dataset, Stream
from continual_crust.errors import InputError, is_number, told_if_unwritable
from continual_crust.evaluation import accuracies, average_accuracy, forgetting, mean_purity, purity_per_class
from continual_crust.models import build_model
from continual_crust.randomness import seed_for
from continual_crust.strategies import Observer, Strategy, Told, options_of, strategy_named
from continual_crust.studies.config import RunConfig
from continual_crust.studies.result import RunResult, versions
from continual_crust.studies.study import revision_of
from continual_crust.tensor_tree import pack_tree, unpack_tree
from continual_crust.writing import write_atomically

CONFIG, LEARNER, CHECKPOINT = "config.yaml", "learner.safetensors", "checkpoint.safetensors"
"""Files in a run's folder: what it is, the learner at its end, and where a run that is under way stands."""


@dataclass(frozen=True)
class FinishedRun:
    """A result, with the learner and the stream it came from for anyone who wants to look closer."""

    result: RunResult
    strategy: Strategy
    stream: Stream


@dataclass
class Progress:
    """What has been measured of a run that is still going on."""

    accuracy_matrix: list[list[float]] = field(default_factory=list)
    purities: list[float | None] = field(default_factory=list)
    """Of the new classes' memory, after each experience."""
    seconds: float = 0.0


def execute(
    config: RunConfig,
    dataset: Dataset,
    device: torch.device,
    observer: Observer | None = None,
    on_experience: Callable[[int, int], None] | None = None,
    after_experience: Callable[[int, int, Progress], None] | None = None,
    checkpoint: Path | None = None,
) -> FinishedRun:
    """Learn a noisy stream and evaluate after every experience.

    Parameters
    ----------
    config, dataset, device
        What to run and where.
    observer
        Called after every epoch.
    on_experience
        Called with the number of the experience about to be learned, from 0, and how many there are.
    after_experience
        Called with how many experiences are learned, how many there are and what has been measured so far.
    checkpoint
        A file in which the run stands after each experience. If it is there already, the run goes on from it, to the
        same end as if it had never stopped.
    """
    _check_testable(dataset)
    stream = build_stream(config, dataset)
    strategy = build_strategy(config, dataset, device, observer)
    progress = Progress()
    if checkpoint is not None and checkpoint.exists():
        try:
            progress = _resume(strategy, checkpoint, dataset.fingerprint, revision_of(config.method))
        except InputError:  # damaged, or begun otherwise: all it costs is the time to learn these experiences again
            strategy = build_strategy(config, dataset, device, observer)
    if isinstance(strategy, Told):
        strategy.reveal(stream.truth.is_clean(torch.arange(len(stream.truth.labels), device="cpu")))
    experiences = [stream.joined()] if strategy.learns_everything_at_once else stream
    for number in range(len(progress.accuracy_matrix), len(experiences)):
        if on_experience is not None:
            on_experience(number, len(experiences))
        experience = experiences[number]
        start = time.perf_counter()
        strategy.learn(experience)
        strategy.network.synchronize()
        progress.seconds += time.perf_counter() - start
        progress.accuracy_matrix.append(accuracies(strategy, stream))
        new = {label: strategy.memory[label] for label in experience.classes if label in strategy.memory}
        progress.purities.append(mean_purity(purity_per_class(new, stream.truth)))
        if after_experience is not None:
            after_experience(number + 1, len(experiences), progress)
        if checkpoint is not None:
            stands = {"learner": strategy.state(), "progress": asdict(progress), "data": dataset.fingerprint}
            write_atomically(checkpoint, pack_tree(stands | {"revision": revision_of(config.method)}))
    return FinishedRun(_result_of(config, strategy, stream, progress), strategy, stream)


def _result_of(config: RunConfig, strategy: Strategy, stream: Stream, progress: Progress) -> RunResult:
    names, device, matrix = stream.dataset.class_names, strategy.network.device, progress.accuracy_matrix
    per_class = purity_per_class(strategy.memory, stream.truth)
    return RunResult(
        method=config.method,
        dataset=config.dataset,
        noise=str(config.noise),
        seed=config.seed,
        accuracy_matrix=matrix,
        accuracy=average_accuracy(matrix),
        forgetting=forgetting(matrix),
        purity=mean_purity(per_class),
        purity_per_class={names[label]: purity for label, purity in per_class.items()},
        purity_per_experience=progress.purities,
        experiences=[[names[label] for label in group] for group in stream.groups],
        seconds=progress.seconds,
        selection_seconds=strategy.selection_seconds,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        versions=versions(),
        memory_sizes={names[label]: len(samples) for label, samples in strategy.memory.items()},
        revision=revision_of(config.method),
        data=stream.dataset.fingerprint,
    )


def _check_testable(dataset: Dataset) -> None:
    """Refuse data that cannot tell what was learned, before it is: our sources see to it, and anyone's may not."""
    present = dataset.test_labels.bincount(minlength=dataset.classes)
    missing = [name for name, count in zip(dataset.class_names, present.tolist(), strict=True) if not count]
    if missing:
        raise InputError(
            f"data set '{dataset.name}' has no test image of class '{missing[0]}', and no accuracy could be told; give "
            "it one of every class."
        )


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
    write_atomically(path, pack_tree(strategy.state()))


def load_learner(strategy: Strategy, path: Path) -> None:
    """Make a freshly built strategy the learner that was saved. Reading can run nothing."""
    with _told_as_unusable(path):
        strategy.restore(unpack_tree(path.read_bytes()))


def _resume(strategy: Strategy, checkpoint: Path, data: str, revision: str) -> Progress:
    with _told_as_unusable(checkpoint):
        saved = unpack_tree(checkpoint.read_bytes())
        if saved.get("data", data) != data:  # checkpoints did not always tell
            raise InputError("it was begun on other images")
        if saved.get("revision", revision) != revision:
            raise InputError("it was begun by a program that came to other results")
        progress = Progress(**saved["progress"])
        if not all(isinstance(row, list) and all(map(is_number, row)) for row in progress.accuracy_matrix):
            raise InputError("its accuracies are no numbers")
        if len(progress.purities) != len(progress.accuracy_matrix) or not is_number(progress.seconds):
            raise InputError("its measures do not fit together")
        strategy.restore(saved["learner"])
        return progress


@contextmanager
def _told_as_unusable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(
            f"there is no learner at {path}; give the folder of a finished `run`, as runs of a study keep none."
        ) from None
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a learner of this configuration ({reason}); run it again.") from None


def write_config(folder: Path, config: RunConfig) -> None:
    """Store the configuration of the run in a folder."""
    write_atomically(folder / CONFIG, yaml.safe_dump(config.as_dict(), sort_keys=False))


def read_config(folder: Path) -> RunConfig:
    """The configuration of the run in a folder."""
    path = folder / CONFIG
    try:
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"there is no {path}; give the folder of a run.") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError(f"{path} is not YAML; delete its folder and run it again.") from None
    if not isinstance(plain, dict):
        raise InputError(f"{path} is not the configuration of a run; delete its folder and run it again.")
    try:
        return RunConfig.from_dict(plain)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def load_run(folder: Path, dataset: Dataset, device: torch.device) -> FinishedRun:
    """Bring a finished run back as it was when it ended: result, learner and stream."""
    config = read_config(folder)
    strategy = build_strategy(config, dataset, device)
    load_learner(strategy, folder / LEARNER)
    result = RunResult.read(folder / "result.json")
    if not result.is_of(dataset.fingerprint):
        raise InputError(f"the learner in {folder} was taught other images than these; give its own --data-root.")
    return FinishedRun(result, strategy, build_stream(config, dataset))


def build_stream(config: RunConfig, dataset: Dataset) -> Stream:
    """The noisy stream a configuration describes."""
    return Stream(dataset, config.noise, config.seed, config.first_classes, config.classes_per_experience)


def prepare_folder(folder: Path, config: RunConfig, overwrite: bool) -> None:
    """Make a run's folder and store its configuration there, refusing to mix it with an earlier result.

    What the same run left there when it was stopped stays, for :func:`execute` to go on from.
    """
    has_result, is_ours = (folder / "result.json").exists(), _holds(folder, config)
    if has_result and not overwrite:
        raise InputError(f"{folder} already holds a result; choose another --out or pass --overwrite.")
    if (folder / CHECKPOINT).exists() and not is_ours and not overwrite:
        raise InputError(
            f"{folder} holds a run of other settings that was stopped; choose another --out or pass --overwrite."
        )
    with told_if_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").unlink(missing_ok=True)
        if has_result or not is_ours:
            (folder / CHECKPOINT).unlink(missing_ok=True)
        write_config(folder, config)


@contextmanager
def untouched_if_refused(folder: Path) -> Iterator[None]:
    """Whatever is raised inside before an experience is learned leaves configuration and result in a folder as before.

    What is learned by then stays, to go on from.
    """
    before = {path: path.read_bytes() for path in (folder / CONFIG, folder / "result.json") if path.is_file()}
    try:
        yield
    except Exception:
        if not (folder / CHECKPOINT).exists():
            for path in (folder / CONFIG, folder / "result.json"):
                if path in before:
                    write_atomically(path, before[path])
                else:
                    path.unlink(missing_ok=True)
        raise


def _holds(folder: Path, config: RunConfig) -> bool:
    """Whether a folder is that of this very run."""
    try:
        return read_config(folder) == config
    except InputError:
        return False
