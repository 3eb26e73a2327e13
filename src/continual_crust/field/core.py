"""What a learner in the field is, and the one way it changes: a lesson that happens as a whole or not at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from continual_crust.data.samples import Samples
from continual_crust.devices import choose_device
from continual_crust.errors import InputError, first_few
from continual_crust.field.generation import FORMAT, VERSION, Damaged, Generation, seen_file
from continual_crust.field.growth import with_head
from continual_crust.field.hindsight import FORGOTTEN, doubted, forgotten
from continual_crust.field.inputs import Label, check_one_kind
from continual_crust.field.lesson import Batch, Lesson
from continual_crust.field.persistence import (
    WeightsDoNotFit,
    checked_settings,
    class_numbers,
    memory_from,
    memory_tensors,
    network_tensors,
    noise_from,
    restore_network,
)
from continual_crust.field.reports import ClassReport, doubts_of, second_opinion
from continual_crust.field.rows import ArrayRows, Rows, StackedRows
from continual_crust.field.seen import NO_MARK, RIGHT, Seen, replaced
from continual_crust.field.settings import OWN_MODEL, Settings
from continual_crust.field.strategy import FieldSift
from continual_crust.models import build_model, check_takes
from continual_crust.progress import OnProgress, unwatched
from continual_crust.randomness import seed_for
from continual_crust.selection.noise_share import NoiseEstimate
from continual_crust.tensor_file import NotATensorFile, pack


@dataclass(frozen=True)
class Incoming:
    """Images that are to be learned, each with its place in the record."""

    rows: Rows
    classes: NDArray[np.int64]
    """Class index of each."""
    ids: NDArray[np.int64]
    """Row in that class's record."""


class FieldLearner:
    """Network, coresets, and a record of everything that was ever seen.

    Parameters
    ----------
    settings
        What it is made with. The image shape must be known by the first lesson.
    module
        A network of one's own; settings say ``model="own"`` then.
    device
        ``auto``, ``cpu`` or ``cuda``.

    Notes
    -----
    Lists in here are replaced and never changed in place, and a lesson works on a copy of the strategy. So taking
    everything back is a matter of putting the old lists into their places.
    """

    def __init__(self, settings: Settings, module: nn.Module | None = None, device: str = "auto") -> None:
        self.settings = settings
        self.labels: list[Label] = []
        self.seen: list[Seen] = []
        self.noise: list[NoiseEstimate | None] = []
        """Of each class's last batch that was large enough to say."""
        self.noise_batches: list[int | None] = []
        """Which batch of `batches` that was, where it is known."""
        self.batches: list[dict[str, Any]] = []
        self.strategy: FieldSift | None = None
        self.second_thoughts: dict[Label, int] = {}
        """Of classes that the last lesson was not about, how many kept images it has made look wrong."""
        self.let_go: dict[Label, int] = {}
        """Of the same, how many were kept before it and are no longer."""
        self._module = module
        self._device = device

    def index_of(self, label: Label) -> int:
        """A class's place in all lists."""
        if label in self.labels:
            return self.labels.index(label)
        known = first_few([*map(repr, self.labels)], 10)
        raise InputError(f"class {label!r} was never learned; known: {known or 'none yet'}.")

    def rename(self, old: Label, new: Label) -> None:
        """Give a class another name. What was learned of it stays."""
        index = self.index_of(old)
        if new == old:
            raise InputError(f"the class is called {old!r} already; give another name.")
        if new in self.labels:
            raise InputError(f"there is a class {new!r} already; to join both, mark images as {new!r} in a review.")
        check_one_kind([old, new])
        self.labels = replaced(self.labels, index, new)
        names = [[new if label == old else label for label in batch["classes"]] for batch in self.batches]
        self.batches = [{**batch, "classes": inside} for batch, inside in zip(self.batches, names, strict=True)]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: whatever is raised inside leaves the learner as it was."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).update(before)
            raise

    def record(
        self,
        rows: Rows,
        labels: Sequence[Label],
        names: Sequence[str],
        digests: NDArray[np.uint8],
        thumbnails: Sequence[bytes],
        about: Mapping[str, Any],
        in_order: bool = False,
    ) -> Incoming:
        """Enter new images into the record of their classes, making classes that are new.

        `about` goes to the manifest's list of batches. New classes are `in_order` of their names, or as they come.
        """
        order = list(dict.fromkeys(labels))
        self.add_classes([label for label in order if label not in self.labels], in_order)
        self.batches = [*self.batches, {**about, "images": len(labels), "classes": order}]
        seen = list(self.seen)
        places = {label: index for index, label in enumerate(self.labels)}
        classes = np.array([places[label] for label in labels], np.int64)
        ids = np.zeros(len(labels), np.int64)
        for index in np.unique(classes).tolist():
            own = np.flatnonzero(classes == index)
            ids[own] = len(seen[index]) + np.arange(len(own))
            files, pictures = [names[at] for at in own.tolist()], [thumbnails[at] for at in own.tolist()]
            seen[index] = seen[index].extended(Seen.of(files, pictures, digests[own], len(self.batches) - 1))
        self.seen = seen
        return Incoming(rows, classes, ids)

    def add_classes(self, new: list[Label], in_order: bool = False) -> None:
        """Make classes of which nothing was seen yet, `in_order` of their names or as they come."""
        check_one_kind([*self.labels, *new])
        self.labels = [*self.labels, *(sorted(new) if in_order else new)]
        self.noise = [*self.noise, *(None for _ in new)]
        self.noise_batches = [*self.noise_batches, *(None for _ in new)]
        self.seen = [*self.seen, *(Seen.nothing() for _ in new)]

    def label_called(self, text: str) -> Label:
        """A name as a label; a learner whose classes are numbers has numbers for names."""
        numbers = bool(self.labels) and all(isinstance(label, int) for label in self.labels)
        return int(text) if numbers and text.isdecimal() else text

    def unseen(self, labels: Sequence[Label], digests: NDArray[np.uint8]) -> list[int]:
        """Positions of the images that their class has not seen yet."""
        known = {label: seen.digests() for label, seen in zip(self.labels, self.seen, strict=True)}
        return [at for at, label in enumerate(labels) if digests[at].tobytes() not in known.get(label, ())]

    @torch.inference_mode(False)
    @torch.enable_grad()  # whoever calls may have switched gradients off
    def learn(
        self,
        incoming: Incoming,
        also: Sequence[int] = (),
        on_progress: OnProgress = unwatched,
        resume: Callable[[FieldSift], Lesson] = lambda strategy: Lesson(),
        checkpoint: Callable[[FieldSift, Lesson], None] = lambda strategy, lesson: None,
    ) -> list[ClassReport]:
        """Learn what comes in, and anew the classes `also`.

        `resume` may bring a strategy to where it stood before; `checkpoint` may save it after every epoch.
        """
        classes = tuple(sorted({*incoming.classes.tolist(), *also}))
        strategy = self._grown()
        batch = self._batch(strategy, incoming, classes)
        others = sum(len(samples) for label, samples in strategy.memory.items() if label not in classes)
        strategy.training = self.settings.training(len(batch.labels) + others)
        brings_classes = any(not len(strategy.memory[label]) for label in classes)
        lesson = resume(strategy)
        for _ in strategy.lesson(batch, lesson, on_progress, self.settings.seed + len(self.batches)):
            checkpoint(strategy, lesson)
        reports = [self._reported(strategy, batch, lesson, label) for label in classes]
        before = {} if self.strategy is None else self.strategy.memory
        self.strategy = strategy
        self.let_go = forgotten(self, lesson, classes, before)
        self.second_thoughts = doubted(self, classes, on_progress) if brings_classes else {}
        return reports

    def files(self) -> dict[str, bytes]:
        """The files of a generation."""
        assert self.strategy is not None
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "settings": self.settings.as_dict(),
            "classes": [*map(class_numbers, self.labels, self.seen, self.noise, self.noise_batches)],
            "batches": self.batches,
        }
        try:
            return {
                "manifest.json": (json.dumps(manifest, indent=1, allow_nan=False) + "\n").encode(),
                "learner.safetensors": pack(network_tensors(self.strategy)),
                "memory.safetensors": pack(memory_tensors(self.strategy.memory)),
                **{seen_file(index): pack(seen.tensors()) for index, seen in enumerate(self.seen)},
            }
        except NotATensorFile as error:
            raise InputError(f"this network cannot be saved: {error}.") from None

    @classmethod
    def from_generation(
        cls, generation: Generation, module: nn.Module | None = None, device: str = "auto"
    ) -> FieldLearner:
        """The learner that :meth:`files` described."""
        manifest = generation.manifest
        try:
            learner = cls(checked_settings(manifest["settings"]), module, device)
            entries = manifest["classes"]
            learner.labels = [entry["name"] for entry in entries]
            if not all(type(label) in (str, int) for label in learner.labels):
                raise Damaged("a class in its manifest has no name")
            learner.noise = [noise_from(entry["noise"]) for entry in entries]
            learner.noise_batches = [entry.get("noise_batch") for entry in entries]
            learner.batches = manifest["batches"]
            learner.seen = [generation.seen(index) for index in range(len(entries))]
            strategy = learner._grown()
            restore_network(strategy, generation.tensors("learner.safetensors"))
            counts = [len(seen) for seen in learner.seen]
            memory = memory_from(generation.tensors("memory.safetensors"), learner.settings.image_shape, counts)
        except (Damaged, NotATensorFile, KeyError, TypeError) as error:
            if module is not None and isinstance(error, WeightsDoNotFit):
                raise InputError(
                    f"the network given is not of the form of the one in {generation.path} ({error}); give the same "
                    "one as when it was made, or none if it had none of its own."
                ) from None
            # The checksums were right, so no accident did this.
            raise InputError(f"{generation.path} is not the state of a learner ({error}); restore a copy.") from None
        strategy.memory = {label: samples.to(strategy.network.device) for label, samples in memory.items()}
        learner.strategy = strategy
        return learner

    def _grown(self) -> FieldSift:
        """A copy of the strategy with an output for every class; the original stays as it is."""
        settings, count, device = self.settings, len(self.labels), choose_device(self._device)
        selector = settings.selector_config()
        if self.strategy is None:
            strategy = FieldSift(self._built(count), settings.training(1), selector, seed=settings.seed, device=device)
        else:
            model = copy.deepcopy(self.strategy.network.model)
            known = self.strategy.network.head_weight.shape[0]
            if known < count:
                with_head(model, count, keep=known, seed=settings.seed)
            strategy = FieldSift(model, settings.training(1), selector, seed=settings.seed, device=device)
            state = self.strategy.state()
            state["network"]["model"] = copy.deepcopy(model.state_dict())
            strategy.restore(state)
        nothing = Samples.of(torch.zeros((0, *settings.image_shape), dtype=torch.uint8), torch.zeros(0).long())
        strategy.memory = {label: strategy.memory.get(label, nothing.to(device)) for label in range(count)}
        return strategy

    def _built(self, count: int) -> nn.Module:
        settings = self.settings
        if self._module is not None:
            model = copy.deepcopy(self._module)
            # Before another layer than its head would be made anew.
            check_takes(model, torch.zeros(1, *settings.image_shape, dtype=torch.uint8))
            with_head(model, count, keep=0, seed=settings.seed)
            return model
        name = settings.model_name()
        if name == OWN_MODEL:
            raise InputError("this learner has a network of its own; give it with load(path, model=...).")
        # A learner that is brought back has its weights in a file, so none need be fetched.
        pretrained = settings.pretrained and not any(seen.kept.any() for seen in self.seen)
        seed = seed_for(settings.seed, "model")
        return build_model(name, settings.image_shape, count, seed=seed, pretrained=pretrained)

    def _batch(self, strategy: FieldSift, incoming: Incoming, classes: tuple[int, ...]) -> Batch:
        """What comes in, and what is kept of the same classes, less what a person has called wrong."""
        kept = [self._still_kept(strategy, incoming, label) for label in classes]
        labels = torch.cat([*(samples.labels for samples in kept), torch.from_numpy(incoming.classes)])
        ids = torch.cat([*(samples.ids for samples in kept), torch.from_numpy(incoming.ids)])
        marks = [self.seen[label].mark[row] for label, row in zip(labels.tolist(), ids.tolist(), strict=True)]
        return Batch(
            rows=StackedRows([*(ArrayRows(samples.images.numpy()) for samples in kept), incoming.rows]),
            labels=labels,
            ids=ids,
            new=torch.arange(len(labels)) >= len(labels) - len(incoming.ids),
            pinned=torch.tensor([mark == RIGHT for mark in marks], dtype=torch.bool),
            classes=classes,
            doubtable={
                label: torch.from_numpy(self.seen[label].mark[samples.ids.cpu().numpy()] != RIGHT)
                for label, samples in strategy.memory.items()
                if label not in classes and (noise := self.noise[label]) is not None and noise.is_certain
            },
        )

    def _still_kept(self, strategy: FieldSift, incoming: Incoming, label: int) -> Samples:
        kept = strategy.memory[label].to("cpu")
        arriving = {*incoming.ids[incoming.classes == label].tolist()}
        marks = self.seen[label].mark
        stays = [marks[row] in (NO_MARK, RIGHT) and row not in arriving for row in kept.ids.tolist()]
        return kept[torch.tensor(stays, dtype=torch.bool)]

    def _reported(self, strategy: FieldSift, batch: Batch, lesson: Lesson, label: int) -> ClassReport:
        """Write down what became of a class's images."""
        own, found = batch.of_class(label), lesson.assessments[label]
        # What a person vouched for came back by a review; it says nothing about a batch.
        rows, fresh = batch.ids[own].numpy(), batch.ids[own][batch.new[own] & ~batch.pinned[own]].numpy()
        seen = copy.deepcopy(self.seen[label])
        if len(own):
            logits = strategy.judge.logits(batch.rows, own)
            seen.other[rows], seen.other_probability[rows] = second_opinion(logits.double(), label)
        seen.score[rows] = np.where(seen.mark[rows] == RIGHT, 1, found.right)
        if label in lesson.forgotten:
            gone = lesson.forgotten[label].numpy()
            seen.score[gone] = np.minimum(seen.score[gone], FORGOTTEN)
        seen.kept[:] = False
        seen.kept[strategy.memory[label].ids.cpu().numpy()] = True
        self.seen = replaced(self.seen, label, seen)
        if found.noise is not None and len(fresh):
            self.noise = replaced(self.noise, label, found.noise)
            self.noise_batches = replaced(self.noise_batches, label, int(seen.batch[fresh].max()))
        doubtful = fresh[seen.looks_wrong()[fresh]]
        doubts = doubts_of(seen, doubtful, self.labels)
        noise = found.noise if len(fresh) else self.noise[label]
        return ClassReport(self.labels[label], len(fresh), int(seen.kept.sum()), doubts, noise, found.second)
