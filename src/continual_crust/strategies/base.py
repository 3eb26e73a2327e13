"""What all strategies share: a network, a memory for each class, and the order in which an experience is handled."""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from continual_crust.data.samples import Samples, check_images
from continual_crust.data.stream import Experience
from continual_crust.devices import choose_device
from continual_crust.errors import InputError, trouble_of_the_machine
from continual_crust.models import check_takes
from continual_crust.randomness import PrivateRandomness, generator_for, seed_for
from continual_crust.selection.coreset import Coreset
from continual_crust.selection.selectors import SelectorConfig, as_config, select
from continual_crust.strategies.losses import CrossEntropy, Loss
from continual_crust.strategies.network import Network
from continual_crust.strategies.options import NoOptions, build_options
from continual_crust.strategies.training import Phase, Training


class Observer(Protocol):
    """Someone who wants to know how far a strategy has come."""

    def __call__(self, phase: str, epoch: int, epochs: int, loss: Callable[[], float]) -> None:
        """Called after each epoch: in which phase, how many of its epochs are done, how many it has, the mean loss.

        Whoever asks for the loss waits for the device; whoever does not lets a GPU go on without a pause.
        """


class Strategy(ABC):
    """A way to learn classes one after another. It sees images and given labels, never the truth about them.

    Parameters
    ----------
    model
        A classifier that ends in a linear layer wide enough for all classes to come.
    training
        Epochs, memory, optimizer.
    selector
        Which samples of a class to remember; the strategy's own choice if not given.
    options
        The method's own hyper-parameters: an ``options_type``, or names and values.
    seed
        Decides batches, dropout and random choices; the program's own random state is left alone.
    device
        Where to train.
    observer
        Called after every epoch.
    """

    name: ClassVar[str]
    """How the method is called on the command line and in results."""
    summary: ClassVar[str]
    """The method in one line."""
    default_selector: ClassVar[SelectorConfig] = SelectorConfig("random")
    """What it remembers when nothing else is asked for."""
    options_type: ClassVar[type] = NoOptions
    """A frozen dataclass of hyper-parameters that only this method has."""
    samples_type: ClassVar[type[Samples]] = Samples
    """What its memory is made of."""
    remembers: ClassVar[bool] = True
    """Whether it keeps a memory for each class, which a selector could choose."""
    moves_images: ClassVar[bool] = False
    """Whether it has options of its own to move and mirror images, and so refuses those of the training."""
    learns_everything_at_once: ClassVar[bool] = False
    """Whether the whole stream is given as a single experience."""

    def __init__(
        self,
        model: nn.Module,
        training: Training | None = None,
        selector: SelectorConfig | str | None = None,
        options: Any = None,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        observer: Observer | None = None,
    ) -> None:
        self.training = Training() if training is None else training
        if not isinstance(self.training, Training):
            raise InputError(f"training is {training!r}; give a Training, as in Training(phase1_epochs=10).")
        self.check_training_read(vars(self.training))
        self.selector = self.default_selector if selector is None else as_config(selector)
        self.options = build_options(self.name, self.options_type, options)
        self.network = Network(model, choose_device(device), self.training.precision)
        self._cross_entropy = CrossEntropy(self.network)
        self.memory: dict[int, Samples] = {}
        self.selection_seconds = 0.0
        self._observer = observer
        self._current_phase: Phase | None = None
        self._generator = generator_for(seed, "training")
        self._randomness = PrivateRandomness(seed_for(seed, "dropout"), self.network.device)

    @classmethod
    def unread_training(cls) -> set[str]:
        """Settings of the training that the method has no use for."""
        weighted = set() if cls.remembers else {"weighted_loss"}
        return weighted | ({"shift", "mirror"} if cls.moves_images else set())

    @classmethod
    def check_training_read(cls, training: Mapping[str, Any]) -> None:
        """Refuse settings of the training that ask the method for what it would not do."""
        asked = sorted(name for name in cls.unread_training() if training.get(name))
        if "weighted_loss" in asked:
            raise InputError(f"method '{cls.name}' keeps no memory that could be weighted; leave out weighted_loss.")
        if asked:
            raise InputError(
                f"method '{cls.name}' moves and mirrors the images it learns from by itself; leave out {asked[0]}, and "
                "give its own options shift and mirror if you want others."
            )

    def state(self) -> dict[str, Any]:
        """Everything this learner is, as tensors and plain values: what goes on from it goes on bit for bit."""
        state = {
            "method": self.name,
            "network": self.network.state(),
            "memory": {label: vars(samples) for label, samples in self.memory.items()},
            "generator": self._generator.get_state(),
            "randomness": self._randomness.state(),
            "selection_seconds": self.selection_seconds,
            "own": self._own_state(),
        }
        return copy.deepcopy(state)  # or the next experience would change it

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become the learner that :meth:`state` described. Model, options and device must be as they were."""
        method = state.get("method", self.name)  # states did not always tell
        if method != self.name:
            raise InputError(
                f"this is not the state of a learner by method '{self.name}' but by '{method}'; restore it in one of "
                "that method."
            )
        state = copy.deepcopy(state)
        try:
            self.network.restore(state["network"])
        except (KeyError, RuntimeError) as error:
            why = " ".join(str(error).split())
            raise InputError(
                f"the state is not of a network like this one ({why}); restore it in a learner with the network it was "
                "made with."
            ) from None
        device = self.network.device
        self.memory = {label: self.samples_type(**kept).to(device) for label, kept in state["memory"].items()}
        self._generator.set_state(state["generator"])
        self._randomness.restore(state["randomness"])
        self.selection_seconds = state["selection_seconds"]
        self._restore_own_state(state["own"])

    def _own_state(self) -> dict[str, Any]:
        """What a method keeps beyond network and memory."""
        return {}

    def _restore_own_state(self, own: Mapping[str, Any]) -> None:
        """Take back what :meth:`_own_state` gave."""
        if own:
            raise InputError(f"this is not the state of a learner by method '{self.name}'.")

    @torch.inference_mode(False)
    @torch.enable_grad()  # whoever calls may have switched gradients off
    def learn(self, experience: Experience) -> None:
        """Learn an experience's classes and remember some of its samples. Its data may be forgotten afterwards.

        Of a class that comes again, the memory is chosen anew among what was remembered of it and the new samples. If
        this fails or is interrupted, the learner is what it was before, and the experience can be given again.
        """
        self._check_fits(experience)
        images = experience.samples.images
        with self._all_or_nothing():
            self.network.measure_normalization(images)
            with self._told_if_unfit(images):
                samples = experience.samples.to(self.network.device)
                self._learn(experience.classes, self._with_their_memory(experience.classes, samples))
            self._end_phase()
            self._check_converged()

    def _check_fits(self, experience: Experience) -> None:
        """Refuse what the network cannot learn, before epochs are spent on it."""
        if not isinstance(experience, Experience):
            raise InputError(
                f"a {type(experience).__name__} is not an experience; give them one by one: for experience in stream."
            )
        outputs = self.network.head_weight.shape[0]
        if experience.classes and max(experience.classes) >= outputs:
            raise InputError(
                f"class {max(experience.classes)} came, and the network has {outputs} outputs, those of its linear "
                "layer registered last; give it one for each class, from 0 on."
            )
        images = experience.samples.images
        known = next((samples.images for samples in self.memory.values() if len(samples)), images)
        if images.shape[1:] != known.shape[1:]:
            new, old = ("×".join(map(str, some.shape[1:])) for some in (images, known))
            raise InputError(f"images are {new} (channels, height, width) and those remembered {old}; resize them.")
        if self.network.mean is None and len(images):
            check_takes(self.network.model, images)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Whatever is raised inside leaves the learner as it was."""
        before = vars(self) | {"memory": dict(self.memory)}
        # These change in place.
        network, generator = copy.deepcopy(self.network.state()), self._generator.get_state()
        randomness = self._randomness.state()
        try:
            yield
        except BaseException:
            now, before["_current_phase"] = vars(self), self._current_phase
            now.clear()  # a method may have begun to keep something
            now.update(before)
            self._end_phase()
            self.network.restore(network)
            self._generator.set_state(generator)
            self._randomness.restore(randomness)
            raise

    @contextmanager
    def _told_if_unfit(self, images: Tensor) -> Iterator[None]:
        """Tell in one sentence where a network failed because it cannot take images of this shape."""
        try:
            yield
        except RuntimeError as error:
            if trouble_of_the_machine(error) is None:
                check_takes(self.network.model, images)
            raise

    def _check_converged(self) -> None:
        """Refuse a network that can say nothing any more."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.network.model.parameters()):
            raise InputError("the network's weights hold NaN or infinity: it has diverged, so lower its learning rate.")

    @abstractmethod
    def _learn(self, classes: tuple[int, ...], new: Samples) -> None:
        """The method itself; `new` lies on the device."""

    def predict_logits(self, images: Tensor) -> Tensor:
        """Scores of all classes for each image, of bytes in shape (n, channels, height, width)."""
        return self._evaluated(images)[1]

    def _evaluated(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Input and output of the last layer for images that anyone may have given."""
        check_images("images", images)
        with self._told_if_unfit(images):
            return self.network.evaluate(images)

    def predict(self, images: Tensor) -> Tensor:
        """The most likely class of each image."""
        return self.predict_logits(images).argmax(dim=1)

    def remembered(self) -> Samples | None:
        """The memories of all classes together, or nothing yet."""
        parts = [samples for samples in self.memory.values() if len(samples)]
        return type(parts[0]).concatenate(parts) if parts else None

    def _train(self, samples: Samples, loss: Loss | None = None, beside: Samples | None = None) -> None:
        """Train m + n epochs, the whole budget of an experience, in one phase."""
        phase = self._phase(loss)
        for _ in self._epochs("training", self.training.epochs):
            if len(samples):
                phase.epoch(samples, beside)

    def _with_their_memory(self, classes: Sequence[int], new: Samples) -> Samples:
        """The new samples, and what is remembered of the same classes, unless it is among the new samples itself."""
        known = [label for label in classes if label in self.memory and len(self.memory[label])]
        parts = [new]
        for label in known:
            kept = self.memory[label]
            parts.append(kept[~kept.are_among(new.of_class(label))])
            self.memory[label] = kept[:0]
        return Samples.concatenate(parts) if known else new

    def _with_memory(self, new: Samples) -> Samples:
        """New samples and remembered ones together."""
        old = self.remembered()
        return new if old is None else Samples.concatenate([new, old])

    def _phase(self, loss: Loss | None = None) -> Phase:
        """A stretch of training with a fresh optimizer; by default under weighted cross-entropy."""
        self._end_phase()
        self._current_phase = Phase(
            self.network, loss or self._cross_entropy, self.training, self._generator, self._randomness
        )
        return self._current_phase

    def _become(self, weights: Mapping[str, Any], images: Tensor) -> None:
        """Give the network averaged weights, and let it measure its batch statistics anew on these images."""
        self.network.model.load_state_dict(weights)
        with self._randomness.in_force():  # beside layers that measure there may be some that draw
            self.network.measure_batch_statistics(images)

    def _end_phase(self) -> None:
        if self._current_phase is not None:
            self._current_phase.close()
            self._current_phase = None

    def _epochs(self, phase: str, count: int) -> Iterator[int]:
        """Count through a phase's epochs, telling the observer after each."""
        for epoch in range(count):
            yield epoch
            if self._observer is not None and self._current_phase is not None:
                self._observer(phase, epoch + 1, count, self._current_phase.mean_loss)

    def _remember(self, classes: Sequence[int], new: Samples) -> None:
        """Set the memory of each class to a fresh selection among its new samples."""
        with self._timed_selection():
            for label in classes:
                own = new.of_class(label)
                if not len(own):
                    # Possible under heavy noise: no image at all was given this label.
                    self.memory[label] = own
                    continue
                coreset = self._select(own)
                self.memory[label] = self._weighted(own[coreset.indices], coreset)

    def _select(self, samples: Samples) -> Coreset:
        looked_at = samples.images[:0] if self.selector.draws_only else samples.images
        features, logits = self.network.evaluate(looked_at)
        candidates = self.network.candidates(features, logits, samples.labels)
        return select(self.selector, candidates, self.training.memory_per_class, self._generator)

    def _weighted(self, chosen: Samples, coreset: Coreset) -> Samples:
        """With `weighted_loss`, samples weighted by how many they stand for, on average one; else as they are."""
        if not self.training.weighted_loss or not len(coreset):
            return chosen
        if (coreset.weights == coreset.weights[0]).all():  # or rounding would tell them from ones
            return chosen
        weights = coreset.weights / coreset.weights.mean()
        return Samples(chosen.images, chosen.labels, chosen.ids, weights)

    @contextmanager
    def _timed_selection(self) -> Iterator[None]:
        self.network.synchronize()
        start = time.perf_counter()
        yield
        self.network.synchronize()
        self.selection_seconds += time.perf_counter() - start
