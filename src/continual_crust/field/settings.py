"""What a learner is made with: asked for by a person, or chosen from the first images."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from continual_crust.data.images import FULL_DEPTH
from continual_crust.errors import InputError, check_types, told_name, unknown_name
from continual_crust.models import MODELS
from continual_crust.selection.gradients import GradientSpace
from continual_crust.selection.selectors import SelectorConfig, as_config
from continual_crust.strategies.training import Training

SMALL_IMAGE = 64
"""Up to this many pixels a side the small network is chosen."""
OWN_MODEL = "own"
"""Stands for a network that was given as a module."""
LEAST_STEPS = (300, 240)
"""Steps on new images and on what is kept, at least, where epochs are not given: small batches are visited more
often."""
FEWEST_EPOCHS, MOST_EPOCHS = (5, 16), (40, 40)


@dataclass(frozen=True)
class Settings:
    """Fixed when the first batch is learned. Zeros are chosen then, or anew for each batch."""

    model: str = "auto"
    """A name of ``continual_crust.models.MODELS``, `auto`, or `own` for a module."""
    pretrained: bool = False
    """Whether to start from torchvision's weights."""
    selector: str = "random"
    """What chooses the memory among what looks right: a name of ``continual_crust.selection.selectors.SELECTORS``."""
    rule: str = "facility_location"
    """Inside CRUST: covering what looks right. Where nothing is filtered first, centrality is the cleaner rule."""
    space: str = "input"
    """Inside CRUST: which gradients are compared."""
    clusters: int = 2
    """Inside CosineCRUST."""
    min_cluster: float = 0.1
    """Inside CosineCRUST."""
    memory_per_class: int = 60
    """Images kept for each class."""
    phase1_epochs: int = 0
    """Epochs on new images, the first fifth (one at least) on all of them and the others on what looks right; 0 to
    choose by their number: short, or wrong labels are memorised."""
    phase2_epochs: int = 0
    """Epochs on what is kept; 0 to choose."""
    learning_rate: float = 1e-3
    """Of Adam."""
    batch_size: int = 32
    """Images in a step."""
    seed: int = 0
    """Decides initial weights, batches and random choices."""
    image_scale: float = 0.0
    """What floating-point images are multiplied by; 0 until some were given."""
    channels: int = 0
    """Of images: 1 grey, 3 colour; 0 until there are some."""
    height: int = 0
    width: int = 0
    crop: bool = False
    """Whether files are cut to their size around the centre rather than scaled to it."""
    darkest: int = FULL_DEPTH[0]
    """What is black in files with 16 bits a pixel."""
    brightest: int = FULL_DEPTH[1]
    """What is white in them."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.model not in (*MODELS, "auto", OWN_MODEL):
            raise unknown_name("model", self.model, [*MODELS, "auto"])
        self.selector_config()
        for name in ("memory_per_class", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{told_name(name)} is {getattr(self, name)}; give a number of 1 or more.")
        for name in ("phase1_epochs", "phase2_epochs", "channels", "height", "width"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}; give a number of 0 or more.")
        if not FULL_DEPTH[0] <= self.darkest < self.brightest <= FULL_DEPTH[1]:
            raise InputError(
                f"black is {self.darkest} and white {self.brightest}; give two numbers of 16 bits, in order."
            )
        self.training(1)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self.channels, self.height, self.width

    @property
    def depth(self) -> tuple[int, int]:
        """What is black and what is white in images with 16 bits a pixel."""
        return self.darkest, self.brightest

    def training(self, images: int) -> Training:
        """How a batch is trained on, with the memory of other classes: so many images in all."""
        steps = max(1, math.ceil(images / self.batch_size))
        chosen = [
            asked or min(most, max(fewest, math.ceil(least / steps)))
            for asked, least, fewest, most in zip(
                (self.phase1_epochs, self.phase2_epochs), LEAST_STEPS, FEWEST_EPOCHS, MOST_EPOCHS, strict=True
            )
        ]
        return Training(chosen[0], chosen[1], self.memory_per_class, self.learning_rate, batch_size=self.batch_size)

    def model_name(self) -> str:
        """The network's name: the small one for small images, unless another is asked for."""
        if self.model != "auto":
            return self.model
        return "simple_cnn" if max(self.height, self.width) <= SMALL_IMAGE and not self.pretrained else "resnet18"

    def chosen(self, name: str) -> Any:
        """What a setting comes to for the learner's images."""
        if name == "model":
            return self.model_name()
        if name in ("phase1_epochs", "phase2_epochs"):
            return getattr(self, name) or "chosen for each batch"
        return getattr(self, name)

    def selector_config(self) -> SelectorConfig:
        """The selector."""
        return SelectorConfig(self.selector, self.rule, GradientSpace(self.space), self.clusters, self.min_cluster)

    def as_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Settings:
        """What :meth:`as_dict` gave, checked."""
        plain = {"darkest": FULL_DEPTH[0], "brightest": FULL_DEPTH[1], **plain}  # learners from before have neither
        known = {entry.name for entry in fields(cls)}
        if set(plain) != known:
            raise InputError(f"settings lack or exceed what is known: {', '.join(sorted(known ^ set(plain)))}.")
        return cls(**plain)


def selector_settings(selector: str | SelectorConfig) -> dict[str, Any]:
    """A selector as settings: a name alone has our defaults."""
    if isinstance(selector, str):
        return {"selector": selector}
    selector = as_config(selector)
    return {
        "selector": selector.name,
        "rule": selector.rule,
        "space": selector.space.value,
        "clusters": selector.clusters,
        "min_cluster": float(selector.min_cluster),
    }
