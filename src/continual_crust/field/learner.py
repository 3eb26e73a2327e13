"""A learner for anyone's images, with scikit-learn's habits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from continual_crust.data.images import depth_of
from continual_crust.errors import InputError, unknown_name
from continual_crust.field.core import FieldLearner
from continual_crust.field.folder import readable
from continual_crust.field.generation import Generation
from continual_crust.field.inputs import Label, as_bytes, check_shape, deep_images, images_alone, images_and_labels
from continual_crust.field.reports import ClassCoreset
from continual_crust.field.rows import ArrayRows
from continual_crust.field.seen import Seen, digest_of, thumbnails_of
from continual_crust.field.settings import OWN_MODEL, Settings, selector_settings
from continual_crust.field.state import NOT_ENDED, StateFolder
from continual_crust.field.strategy import FieldSift
from continual_crust.models import checked_module
from continual_crust.selection.noise_share import NoiseEstimate
from continual_crust.selection.selectors import SelectorConfig


class ContinualLearner:
    """Learns classes one after another from partly wrong labels, keeping a few images of each.

    Nothing happens before the first :meth:`learn`. Each one adds to what was learned; :meth:`fit` starts anew. What was
    learned ends in an underscore.

    Parameters
    ----------
    model
        ``"auto"`` (by the size of the first images), a name such as ``"resnet18"``, or a module that ends in a linear
        layer; a module is copied, and its last layer is made anew and grows with the classes.
    selector
        What chooses the images to keep among those that look right: ``random``, ``crust``, ``cosine_crust``,
        ``herding`` or ``reservoir``; or a ``SelectorConfig`` for the rule and gradients as well.
    memory_per_class
        Images kept for each class.
    phase1_epochs, phase2_epochs
        Epochs on new images, the first fifth (one at least) on all of them and the others on what looks right; and on
        what is kept. Chosen by the number of images if left out.
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
        For each class the estimated share of wrong labels in its last batch that was large enough to say, or None.

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
        selector: str | SelectorConfig = "random",
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
        self._core: FieldLearner | None = None
        self._begun_with: dict[str, Any] = {}
        """What the constructor had been given when the first batch was learned."""
        self._home: tuple[Path, int] | None = None
        """The folder it was loaded from or saved to, and the number it had there."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given."""
        names = ("model", "selector", "memory_per_class", "phase1_epochs", "phase2_epochs", "learning_rate")
        return {name: getattr(self, name) for name in (*names, "batch_size", "pretrained", "seed", "device")}

    def set_params(self, **params: Any) -> ContinualLearner:
        """Change what the constructor was given, for :meth:`fit` or a learner that has learned nothing yet."""
        for name, value in params.items():
            if name not in self.get_params():
                raise unknown_name("parameter", name, self.get_params())
            setattr(self, name, value)
        return self

    _estimator_type = "classifier"
    """For scikit-learn before 1.6; later ones ask for the tags."""

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        images = InputTags(two_d_array=False, three_d_array=True)
        return Tags("classifier", TargetTags(required=True), classifier_tags=ClassifierTags(), input_tags=images)

    def __sklearn_is_fitted__(self) -> bool:
        return self._core is not None

    def __repr__(self) -> str:
        defaults = ContinualLearner().get_params()
        shown = (f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name])
        return f"ContinualLearner({', '.join(shown)})"

    @property
    def classes_(self) -> NDArray[Any]:
        """All classes learned so far, in the order in which they came; after :meth:`fit`, sorted."""
        return np.array([] if self._core is None else self._core.labels)

    @property
    def noise_(self) -> dict[Label, NoiseEstimate | None]:
        """For each class the estimated share of wrong labels in its last batch that was large enough to say."""
        core, _ = self._fitted()
        return dict(zip(core.labels, core.noise, strict=True))

    @property
    def settings_(self) -> Settings:
        """Everything that was given or chosen."""
        return self._fitted()[0].settings

    @property
    def coresets(self) -> dict[Label, ClassCoreset]:
        """What is kept of each class."""
        core, strategy = self._fitted()
        kept = {}
        for index, label in enumerate(core.labels):
            samples, names = strategy.memory[index].to("cpu"), core.seen[index].names()
            ids = samples.ids.tolist()
            scores = core.seen[index].score[ids]
            kept[label] = ClassCoreset(samples.images.numpy().copy(), [names[row] for row in ids], scores)
        return kept

    def seen(self, label: Label) -> Seen:
        """All there is to know about the images ever given as one class."""
        core, _ = self._fitted()
        return core.seen[core.index_of(label)]

    def learn(self, images: Any, labels: Any = None, names: Sequence[str] | None = None) -> ContinualLearner:
        """Learn a batch: new classes, more images of known ones, or both. If anything fails, nothing has changed.

        Images that their class has seen in an earlier batch are not learned again.

        Parameters
        ----------
        images
            Tensor or array of shape (n, height, width), (n, channels, height, width) or (n, height, width, channels),
            bytes or floating point; a sequence of images; or a torch ``Dataset`` of pairs.
        labels
            A text or whole number for each image or for all, right or wrong; not for a data set, which has its own.
        names
            What to call each image when it is shown; numbers if left out.
        """
        return self._learn(images, labels, names, in_order=False)

    def _learn(self, images: Any, labels: Any, names: Sequence[str] | None, in_order: bool) -> ContinualLearner:
        images, plain = images_and_labels(images, labels)
        if not plain:
            raise InputError("there is no image to learn from; give at least one.")
        self._check_unchanged()
        core = self._core or FieldLearner(self._asked(), self._module(), self.device)
        settings = core.settings
        if not settings.channels:
            darkest, brightest = depth_of(deep_images(images))
            settings = replace(settings, darkest=darkest, brightest=brightest)
        pixels, scale = as_bytes(images, settings.image_scale or None, settings.depth, first=not settings.channels)
        channels, height, width = settings.image_shape if settings.channels else pixels.shape[1:]
        settings = replace(settings, image_scale=float(scale or 0), channels=channels, height=height, width=width)
        check_shape(pixels, settings.image_shape)
        names = [f"image {number}" for number in range(len(pixels))] if names is None else names
        names = [readable(str(name)) for name in names]
        if len(names) != len(pixels):
            raise InputError(f"there are {len(pixels)} images but {len(names)} names; give one name for each image.")
        digests = np.stack([digest_of(image) for image in pixels])
        new = core.unseen(plain, digests)
        if not new:
            return self
        plain, names = [plain[at] for at in new], [names[at] for at in new]
        thumbnails = thumbnails_of(pixels[new])
        about = {"source": None, "label": None, "skipped": 0}
        with core.transaction():
            core.settings = settings
            core.learn(core.record(ArrayRows(pixels[new]), plain, names, digests[new], thumbnails, about, in_order))
        self._core, self._begun_with = core, self.get_params()
        return self

    def partial_fit(self, images: Any, labels: Any = None, classes: Any = None) -> ContinualLearner:
        """The name that scikit-learn's tools have for :meth:`learn`; `classes` may come as they come."""
        return self.learn(images, labels)

    def fit(self, images: Any, labels: Any = None, names: Sequence[str] | None = None) -> ContinualLearner:
        """Forget everything, then :meth:`learn` this batch, as scikit-learn's tools want it."""
        anew = ContinualLearner(**self.get_params())._learn(images, labels, names, in_order=True)
        self._core, self._begun_with = anew._core, anew._begun_with
        return self

    def predict(self, images: Any) -> NDArray[Any]:
        """The most likely class of each image, given as to :meth:`learn`; labels of a data set play no part."""
        chosen: NDArray[Any] = self.classes_[self.predict_proba(images).argmax(axis=1)]
        return chosen

    def predict_proba(self, images: Any) -> NDArray[np.float64]:
        """Probability of each class of ``classes_``, one row for each image."""
        core, strategy = self._fitted()
        pixels, _ = as_bytes(images_alone(images), core.settings.image_scale or None, core.settings.depth)
        if not len(pixels):
            return np.empty((0, len(core.labels)))
        check_shape(pixels, core.settings.image_shape)
        logits = strategy.predict_logits(torch.from_numpy(pixels))
        probabilities: NDArray[np.float64] = logits.double().softmax(dim=1).cpu().numpy()
        return probabilities

    def score(self, images: Any, labels: Any = None) -> float:
        """Share of images whose class is predicted as given; a class that was never learned cannot be."""
        images, plain = images_and_labels(images, labels)
        if not plain:
            raise InputError("there is no image to score; give at least one.")
        core, _ = self._fitted()
        if not set(plain) & set(core.labels):
            core.index_of(plain[0])  # says what is known: these are likely names of another kind
        wanted = [core.index_of(label) if label in core.labels else -1 for label in plain]
        return float((self.predict_proba(images).argmax(axis=1) == wanted).mean())

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Keep the learner in a folder, as `continual-crust learn` does; what was there before stays as a copy.

        Parameters
        ----------
        path
            The folder.
        overwrite
            Save there even if another learner is in it, or this one, taught more since or being taught. By default all
            these are left alone.
        """
        core, _ = self._fitted()
        folder, place = StateFolder(Path(path)), Path(path).resolve()
        with folder.locked():
            home, number = self._home or (None, 0)
            if folder.exists() and not overwrite and (home != place or folder.newest().number != number):
                what = "has changed since this one was loaded or saved there" if home == place else "is another one"
                raise InputError(f"the learner in {path} {what}; load it, save to another folder, or use overwrite.")
            if (lesson := folder.unfinished()) and not overwrite:
                raise InputError(f"{lesson} {NOT_ENDED}, or use overwrite to give it up.")
            self._home = place, folder.write(core.files()).number

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
        if model is not None:
            checked_module(model)
        return cls.of_generation(StateFolder(Path(path)).newest(), model, device)

    @classmethod
    def of_generation(cls, generation: Generation, model: nn.Module | None, device: str) -> ContinualLearner:
        """Bring back one generation of a saved learner."""
        core = FieldLearner.from_generation(generation, model, device)
        settings = core.settings
        learner = cls(
            settings.model if model is None else model,
            settings.selector_config(),
            settings.memory_per_class,
            phase1_epochs=settings.phase1_epochs or None,
            phase2_epochs=settings.phase2_epochs or None,
            learning_rate=settings.learning_rate,
            batch_size=settings.batch_size,
            pretrained=settings.pretrained,
            seed=settings.seed,
            device=device,
        )
        learner._core, learner._begun_with = core, learner.get_params()
        learner._home = generation.path.parent.parent.resolve(), generation.number
        return learner

    def _fitted(self) -> tuple[FieldLearner, FieldSift]:
        if self._core is None or self._core.strategy is None:
            from continual_crust.field.unlearned import NothingLearned

            raise NothingLearned("this learner has learned nothing yet; call learn(images, labels) first.")
        return self._core, self._core.strategy

    def _check_unchanged(self) -> None:
        """Refuse to go on with other parameters than the learner began with, since they would not be used."""
        for name, value in self.get_params().items():
            if self._core is not None and value != self._begun_with[name]:
                raise InputError(
                    f"{name} was {self._begun_with[name]!r} when this learner began and is {value!r} now; set it back "
                    "to go on, or start anew with fit."
                )

    def _module(self) -> nn.Module | None:
        return None if isinstance(self.model, str) else checked_module(self.model)

    def _asked(self) -> Settings:
        """What the constructor was given, checked."""
        for name in ("phase1_epochs", "phase2_epochs"):
            if getattr(self, name) == 0:
                raise InputError(f"{name} is 0; give a number of 1 or more, or None to have it chosen.")
        return Settings(
            model=self.model if isinstance(self.model, str) else OWN_MODEL,
            pretrained=self.pretrained,
            **selector_settings(self.selector),
            memory_per_class=self.memory_per_class,
            phase1_epochs=self.phase1_epochs or 0,
            phase2_epochs=self.phase2_epochs or 0,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            seed=self.seed,
        )
