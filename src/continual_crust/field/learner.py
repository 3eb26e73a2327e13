"""A learner for anyone's images, with scikit-learn's habits."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from continual_crust.data.loading import Bytes
from continual_crust.errors import InputError
from continual_crust.field.growth import with_head
from continual_crust.field.inputs import Label, as_bytes, images_and_labels
from continual_crust.field.persistence import (
    memory_from,
    memory_tensors,
    network_tensors,
    noise_from,
    noise_numbers,
    restore_network,
)
from continual_crust.field.rows import ArrayRows, Rows, StackedRows
from continual_crust.field.seen import RIGHT, Seen, digest_of, thumbnail_of
from continual_crust.field.settings import OWN_MODEL, Settings
from continual_crust.field.state import FORMAT, VERSION, Damaged, Generation, StateFolder, seen_file
from continual_crust.field.strategy import Batch, FieldCrust, Lesson, OnProgress
from continual_crust.field.tensor_file import NotATensorFile, pack
from continual_crust.field.trust import NoiseEstimate
from continual_crust.models import build_model
from continual_crust.randomness import seed_for
from continual_crust.studies.run import choose_device


@dataclass(frozen=True)
class ClassCoreset:
    """What is kept of one class."""

    images: Bytes
    """Shape (n, channels, height, width)."""
    names: list[str]
    """Of the images, as they were given."""
    scores: NDArray[np.float32]
    """How likely each label is right."""


@dataclass(frozen=True)
class ClassReport:
    """What a batch did to one class."""

    label: Label
    images: int
    """New ones."""
    kept: int
    """In the memory now, new or old."""
    looks_wrong: list[tuple[str, float, Label | None, float]]
    """Of the new ones: name, score, the class it may belong to and that class's probability; most doubtful first."""
    noise: NoiseEstimate | None


@dataclass(frozen=True)
class Incoming:
    """Images that are to be learned, with the record of each: of a new image a new one, of an old one its own."""

    rows: Rows
    classes: NDArray[np.int64]
    """Class index of each."""
    ids: NDArray[np.int64]
    """Row in that class's record."""


class ContinualLearner:
    """Learns classes one after another from partly wrong labels, keeping a few images of each.

    Nothing happens before the first :meth:`learn`. What was learned ends in an underscore.

    Parameters
    ----------
    model
        ``"auto"`` (by the size of the first images), a name such as ``"resnet18"``, or a module that ends in a linear
        layer; a module is copied, and its last layer is made anew and grows with the classes.
    selector
        What chooses the images to keep: ``crust``, ``cosine_crust``, ``herding``, ``reservoir`` or ``random``.
    memory_per_class
        Images kept for each class.
    phase1_epochs, phase2_epochs
        Epochs on all new images, and on what is kept; chosen by the number of images if left out.
    learning_rate, batch_size
        Of training.
    pretrained
        Start from torchvision's weights, which are downloaded on first use.
    seed
        Decides initial weights, batches and random choices.
    device
        ``auto``, ``cpu`` or ``cuda``.

    Attributes
    ----------
    classes_
        All classes learned so far, in the order in which they came; columns of :meth:`predict_proba`.
    noise_
        For each class the estimated share of wrong labels in its last batch, or None.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> dark, bright = random.random((20, 8, 8)) / 2, 0.5 + random.random((20, 8, 8)) / 2
    >>> learner = ContinualLearner(memory_per_class=5)
    >>> learner.learn(np.concatenate([dark, bright]), ["night"] * 20 + ["day"] * 20)
    ContinualLearner(memory_per_class=5)
    >>> learner.learn(np.tile([0.0, 1.0], (20, 8, 4)), ["stripes"] * 20).classes_.tolist()
    ['night', 'day', 'stripes']
    >>> learner.predict(bright[:2]).tolist(), len(learner.coresets["day"].images)
    (['day', 'day'], 5)
    """

    def __init__(
        self,
        model: str | nn.Module = "auto",
        selector: str = "crust",
        memory_per_class: int = 60,
        *,
        phase1_epochs: int | None = None,
        phase2_epochs: int | None = None,
        learning_rate: float = 1e-3,
        batch_size: int = 32,
        pretrained: bool = False,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.selector = selector
        self.memory_per_class = memory_per_class
        self.phase1_epochs = phase1_epochs
        self.phase2_epochs = phase2_epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.pretrained = pretrained
        self.seed = seed
        self.device = device
        self._settings: Settings | None = None
        self._labels: list[Label] = []
        self._seen: list[Seen] = []
        self._noise: list[NoiseEstimate | None] = []
        self._batches: list[dict[str, Any]] = []
        self._strategy: FieldCrust | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given."""
        names = ("model", "selector", "memory_per_class", "phase1_epochs", "phase2_epochs", "learning_rate")
        return {name: getattr(self, name) for name in (*names, "batch_size", "pretrained", "seed", "device")}

    def __repr__(self) -> str:
        defaults = ContinualLearner().get_params()
        changed = {name: value for name, value in self.get_params().items() if value is not defaults[name]}
        shown = (f"{name}={value!r}" for name, value in changed.items() if value != defaults[name])
        return f"ContinualLearner({', '.join(shown)})"

    @property
    def classes_(self) -> NDArray[Any]:
        """All classes learned so far, in the order in which they came."""
        return np.array(self._labels, dtype=None if len({*map(type, self._labels)}) == 1 else object)

    @property
    def noise_(self) -> dict[Label, NoiseEstimate | None]:
        """For each class the estimated share of wrong labels in its last batch."""
        return dict(zip(self._labels, self._noise, strict=True))

    @property
    def coresets(self) -> dict[Label, ClassCoreset]:
        """What is kept of each class."""
        kept = {}
        for index, label in enumerate(self._labels):
            samples, seen = self._fitted().memory[index].to("cpu"), self._seen[index]
            names = seen.names()
            ids = samples.ids.tolist()
            kept[label] = ClassCoreset(samples.images.numpy(), [names[row] for row in ids], seen.score[ids])
        return kept

    @property
    def settings_(self) -> Settings:
        """Everything that was given or chosen."""
        self._fitted()
        assert self._settings is not None
        return self._settings

    def seen(self, label: Label) -> Seen:
        """All there is to know about the images ever given as one class."""
        return self._seen[self._index(label)]

    def learn(self, images: Any, labels: Any = None, names: Sequence[str] | None = None) -> ContinualLearner:
        """Learn a batch: new classes, more images of known ones, or both. If anything fails, nothing has changed.

        Parameters
        ----------
        images
            Tensor or array of shape (n, height, width), (n, channels, height, width) or (n, height, width, channels),
            bytes or floating point; a sequence of images; or a torch ``Dataset`` of pairs.
        labels
            A text or whole number for each image, right or wrong; not for a data set, which has its own.
        names
            What to call each image when it is shown; numbers if left out.
        """
        images, plain = images_and_labels(images, labels)
        if not plain:
            raise InputError("there is no image to learn from; give at least one.")
        settings = self._settings_for(images)
        pixels, scale = as_bytes(images, settings.image_scale or None)
        settings = replace(settings, image_scale=float(scale or 0))
        if self._settings is None:
            channels, height, width = pixels.shape[1:]
            settings = replace(settings, channels=channels, height=height, width=width)
        self._check_shape(pixels, settings)
        names = [f"image {number}" for number in range(len(pixels))] if names is None else list(names)
        if len(names) != len(pixels):
            raise InputError(f"there are {len(pixels)} images but {len(names)} names; give one name for each image.")
        with self._transaction():
            self._settings = settings
            incoming = self._recorded(
                ArrayRows(pixels),
                plain,
                names,
                np.stack([digest_of(image) for image in pixels]),
                [thumbnail_of(image) for image in pixels],
                {"source": None, "label": None, "skipped": 0},
            )
            for _ in self._lesson(incoming):
                pass
        return self

    def predict(self, images: Any) -> NDArray[Any]:
        """The most likely class of each image."""
        chosen: NDArray[Any] = self.classes_[self.predict_proba(images).argmax(axis=1)]
        return chosen

    def predict_proba(self, images: Any) -> NDArray[np.float64]:
        """Probability of each class of ``classes_``, one row for each image."""
        strategy = self._fitted()
        settings = self.settings_
        pixels, _ = as_bytes(images, settings.image_scale or None)
        self._check_shape(pixels, settings)
        if not len(pixels):
            return np.empty((0, len(self._labels)))
        logits = strategy.predict_logits(torch.from_numpy(pixels))
        probabilities: NDArray[np.float64] = logits.double().softmax(dim=1).cpu().numpy()
        return probabilities

    def score(self, images: Any, labels: Any = None) -> float:
        """Share of images whose class is predicted as given."""
        images, plain = images_and_labels(images, labels)
        if not plain:
            raise InputError("there is no image to score; give at least one.")
        wanted = [self._index(label) for label in plain]
        return float((self.predict_proba(images).argmax(axis=1) == wanted).mean())

    def save(self, path: str | Path) -> None:
        """Keep the learner in a folder, as `continual-crust learn` does; what was there before stays as a copy."""
        folder = StateFolder(Path(path))
        with folder.locked():
            folder.write(self._files())

    @classmethod
    def load(cls, path: str | Path, model: nn.Module | None = None, device: str = "auto") -> ContinualLearner:
        """Bring a saved learner back.

        Parameters
        ----------
        path
            The folder.
        model
            For a learner that was made with a module of one's own: that module again, of the same form.
        device
            ``auto``, ``cpu`` or ``cuda``.
        """
        return cls._from_generation(StateFolder(Path(path)).newest(), model, device)

    def _fitted(self) -> FieldCrust:
        if self._strategy is None:
            raise InputError("this learner has learned nothing yet; call learn(images, labels) first.")
        return self._strategy

    def _index(self, label: Label) -> int:
        try:
            return self._labels.index(label)
        except ValueError:
            known = ", ".join(map(str, self._labels[:10])) + (", …" if len(self._labels) > 10 else "")
            raise InputError(f"class {label!r} was never learned; known: {known or 'none yet'}.") from None

    def _settings_for(self, images: Any) -> Settings:
        if self._settings is not None:
            return self._settings
        return Settings(
            model=self.model if isinstance(self.model, str) else OWN_MODEL,
            pretrained=self.pretrained,
            selector=self.selector,
            memory_per_class=self.memory_per_class,
            phase1_epochs=self.phase1_epochs or 0,
            phase2_epochs=self.phase2_epochs or 0,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            seed=self.seed,
        )

    @staticmethod
    def _check_shape(pixels: Bytes, settings: Settings) -> None:
        if len(pixels) and pixels.shape[1:] != settings.image_shape:
            given, wanted = ("×".join(map(str, shape)) for shape in (pixels.shape[1:], settings.image_shape))
            raise InputError(
                f"images are {given} (channels, height, width) but the learner knows {wanted}; resize them."
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing: whatever is raised inside leaves the learner as it was."""
        before = copy.copy(vars(self))
        # These lists are replaced and never changed in place, so shallow copies are enough.
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _recorded(
        self,
        rows: Rows,
        labels: Sequence[Label],
        names: Sequence[str],
        digests: NDArray[np.uint8],
        thumbnails: Sequence[bytes],
        about: Mapping[str, Any],
    ) -> Incoming:
        """Enter new images into the record of their classes, making classes that are new."""
        order = list(dict.fromkeys(labels))
        if len({*map(type, [*self._labels, *order])}) > 1:
            raise InputError("classes are called by texts and by numbers; use one kind for all.")
        new = [label for label in order if label not in self._labels]
        self._labels = [*self._labels, *new]
        self._seen = [*self._seen, *(Seen.nothing() for _ in new)]
        self._noise = [*self._noise, *(None for _ in new)]
        self._batches = [*self._batches, {**about, "images": len(labels), "classes": order}]
        where = {label: self._labels.index(label) for label in order}
        classes = np.array([where[label] for label in labels], np.int64)
        ids = np.zeros(len(labels), np.int64)
        for index in where.values():
            own = np.flatnonzero(classes == index)
            ids[own] = len(self._seen[index]) + np.arange(len(own))
            more = Seen.of(
                [names[at] for at in own.tolist()],
                [thumbnails[at] for at in own.tolist()],
                digests[own],
                len(self._batches) - 1,
            )
            self._seen[index] = self._seen[index].extended(more)
        return Incoming(rows, classes, ids)

    def _lesson(
        self,
        incoming: Incoming,
        also: Sequence[int] = (),
        on_progress: OnProgress = lambda what, done, total: None,
        resume: Callable[[FieldCrust], Lesson] = lambda strategy: Lesson(),
        checkpoint: Callable[[FieldCrust, Lesson], None] = lambda strategy, lesson: None,
    ) -> Iterator[list[ClassReport]]:
        """Learn what comes in, and anew the classes `also`; yields once, when all is done.

        `resume` may bring a strategy to where it stood before; `checkpoint` may save it after every epoch.
        """
        classes = tuple(sorted({*incoming.classes.tolist(), *also}))
        strategy = self._grown()
        batch = self._batch(strategy, incoming, classes)
        others = sum(len(samples) for label, samples in strategy.memory.items() if label not in classes)
        assert self._settings is not None
        strategy.training = self._settings.training(len(batch.labels) + others)
        lesson = resume(strategy)
        for _ in strategy.lesson(batch, lesson, on_progress, self._settings.seed + len(self._batches)):
            checkpoint(strategy, lesson)
        reports = [self._report(strategy, batch, lesson, label) for label in classes]
        self._strategy = strategy
        yield reports

    def _grown(self) -> FieldCrust:
        """A copy of the learner with an output for every class; the original stays as it is."""
        assert self._settings is not None
        settings, classes = self._settings, len(self._labels)
        device = choose_device(self.device)
        if self._strategy is None:
            strategy = FieldCrust(
                self._built(classes),
                settings.training(1),
                settings.selector_config(),
                seed=settings.seed,
                device=device,
            )
        else:
            old = self._strategy
            model = copy.deepcopy(old.network.model)
            known = old.network.head_weight.shape[0]
            if known < classes:
                with_head(model, classes, keep=known, seed=settings.seed)
            strategy = FieldCrust(model, old.training, old.selector, seed=settings.seed, device=device)
            state = old.state()
            state["network"]["model"] = copy.deepcopy(model.state_dict())
            strategy.restore(state)
        strategy.memory = {
            label: strategy.memory.get(label, _no_samples(settings.image_shape, device)) for label in range(classes)
        }
        return strategy

    def _built(self, classes: int) -> nn.Module:
        assert self._settings is not None
        settings = self._settings
        if not isinstance(self.model, str):
            model = copy.deepcopy(self.model)
            with_head(model, classes, keep=0, seed=settings.seed)
            return model
        name = settings.model_name()
        if name == OWN_MODEL:
            raise InputError("this learner has a network of its own; give it with load(path, model=...).")
        shape = settings.image_shape
        seed = seed_for(settings.seed, "model")
        return build_model(name, shape, classes, seed=seed, pretrained=settings.pretrained)

    def _batch(self, strategy: FieldCrust, incoming: Incoming, classes: tuple[int, ...]) -> Batch:
        """What comes in, beside what is kept of the same classes, less what a person has called wrong."""
        arriving = {*zip(incoming.classes.tolist(), incoming.ids.tolist(), strict=True)}
        piles: list[Rows] = []
        labels, ids, new = [], [], []
        for label in classes:
            kept = strategy.memory[label].to("cpu")
            stays = torch.tensor(
                [
                    self._seen[label].mark[row] in (0, RIGHT) and (label, row) not in arriving
                    for row in kept.ids.tolist()
                ],
                dtype=torch.bool,
            )
            kept = kept[stays]
            piles.append(ArrayRows(kept.images.numpy()))
            labels.append(kept.labels)
            ids.append(kept.ids)
            new.append(torch.zeros(len(kept), dtype=torch.bool))
        piles.append(incoming.rows)
        labels.append(torch.from_numpy(incoming.classes))
        ids.append(torch.from_numpy(incoming.ids))
        new.append(torch.ones(len(incoming.ids), dtype=torch.bool))
        all_labels, all_ids = torch.cat(labels), torch.cat(ids)
        marks = [
            int(self._seen[label].mark[row]) for label, row in zip(all_labels.tolist(), all_ids.tolist(), strict=True)
        ]
        pinned = torch.tensor([mark == RIGHT for mark in marks], dtype=torch.bool)
        return Batch(StackedRows(piles), all_labels, all_ids, torch.cat(new), pinned, classes)

    def _report(self, strategy: FieldCrust, batch: Batch, lesson: Lesson, label: int) -> ClassReport:
        """Write down what became of a class's images."""
        own, found = batch.of_class(label), lesson.assessments[label]
        seen = copy.deepcopy(self._seen[label])
        rows = batch.ids[own].numpy()
        if len(own):
            logits = strategy.looks(batch.rows, own)[2].double()
            seen.other[rows], seen.other_probability[rows] = _second_opinion(logits, label)
        seen.score[rows] = np.where(seen.mark[rows] == RIGHT, 1, found.right)
        seen.kept[:] = False
        seen.kept[strategy.memory[label].ids.cpu().numpy()] = True
        self._seen = [*self._seen[:label], seen, *self._seen[label + 1 :]]
        if bool(batch.new[own].any()):
            self._noise = [*self._noise[:label], found.noise, *self._noise[label + 1 :]]
        fresh = batch.ids[own][batch.new[own]].numpy()
        doubtful = fresh[looks_wrong(seen)[fresh]]
        names = seen.names()
        return ClassReport(
            self._labels[label],
            len(fresh),
            int(seen.kept.sum()),
            [
                (
                    names[row],
                    float(seen.score[row]),
                    self._labels[seen.other[row]] if seen.other[row] >= 0 else None,
                    float(seen.other_probability[row]),
                )
                for row in doubtful[np.argsort(seen.score[doubtful], kind="stable")]
            ],
            found.noise,
        )

    def _files(self) -> dict[str, bytes]:
        """A generation's files."""
        strategy, settings = self._fitted(), self.settings_
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "settings": settings.as_dict(),
            "classes": [
                {
                    "name": label,
                    "seen": len(seen),
                    "kept": int(seen.kept.sum()),
                    "looks_wrong": int(looks_wrong(seen).sum()),
                    "noise": noise_numbers(noise),
                }
                for label, seen, noise in zip(self._labels, self._seen, self._noise, strict=True)
            ],
            "batches": self._batches,
        }
        try:
            return {
                "manifest.json": (json.dumps(manifest, indent=1, allow_nan=False) + "\n").encode(),
                "learner.safetensors": pack(network_tensors(strategy)),
                "memory.safetensors": pack(memory_tensors(strategy.memory)),
                **{seen_file(index): pack(seen.tensors()) for index, seen in enumerate(self._seen)},
            }
        except NotATensorFile as error:
            raise InputError(f"this network cannot be saved: {error}.") from None

    @classmethod
    def _from_generation(cls, generation: Generation, model: nn.Module | None, device: str) -> ContinualLearner:
        try:
            settings = Settings.from_dict(generation.manifest["settings"])
            learner = cls(
                settings.model if model is None else model,
                settings.selector,
                settings.memory_per_class,
                phase1_epochs=settings.phase1_epochs or None,
                phase2_epochs=settings.phase2_epochs or None,
                learning_rate=settings.learning_rate,
                batch_size=settings.batch_size,
                pretrained=settings.pretrained,
                seed=settings.seed,
                device=device,
            )
            # The weights come from the file, so none need be fetched.
            learner._settings = replace(settings, pretrained=False, model=settings.model_name())
            entries = generation.manifest["classes"]
            learner._labels = [entry["name"] for entry in entries]
            if not all(type(label) in (str, int) for label in learner._labels):
                raise Damaged("a class in its manifest has no name")
            learner._noise = [noise_from(entry["noise"]) for entry in entries]
            learner._batches = generation.manifest["batches"]
            learner._seen = [generation.seen(index) for index in range(len(entries))]
            strategy = learner._grown()
            learner._settings = settings
            restore_network(strategy, generation.tensors("learner.safetensors"))
            memory = memory_from(
                generation.tensors("memory.safetensors"), settings.image_shape, [len(seen) for seen in learner._seen]
            )
            strategy.memory = {label: samples.to(strategy.network.device) for label, samples in memory.items()}
        except (Damaged, NotATensorFile, KeyError, TypeError) as error:
            # Checksums were right, so this was not damaged by accident.
            raise InputError(f"{generation.path} is not the state of a learner ({error}); restore a copy.") from None
        learner._strategy = strategy
        return learner


def looks_wrong(seen: Seen) -> NDArray[np.bool_]:
    """Images whose label is more likely wrong than right, and about which nobody has said anything."""
    doubtful: NDArray[np.bool_] = (seen.score < 0.5) & (seen.mark == 0)
    return doubtful


def _second_opinion(logits: Tensor, label: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The most likely class beside the given one, and its probability."""
    if logits.shape[1] < 2:
        return np.full(len(logits), -1, np.int32), np.zeros(len(logits), np.float32)
    probabilities = logits.softmax(dim=1)
    probabilities[:, label] = -1
    best = probabilities.max(dim=1)
    return best.indices.numpy().astype(np.int32), best.values.numpy().astype(np.float32)


def _no_samples(shape: tuple[int, int, int], device: torch.device) -> Any:
    from continual_crust.data.samples import Samples

    images = torch.zeros((0, *shape), dtype=torch.uint8)
    return Samples.of(images, torch.zeros(0, dtype=torch.int64)).to(device)
