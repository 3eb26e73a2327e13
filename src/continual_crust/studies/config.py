"""Everything that determines a run, in one frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from continual_crust.data.noise import Noise
from continual_crust.errors import InputError, check_types, unknown_name
from continual_crust.models import MODELS
from continual_crust.selection.selectors import SelectorConfig
from continual_crust.strategies import options_of
from continual_crust.strategies.training import Training


@dataclass(frozen=True)
class RunConfig:
    """One run: a method on a noisy stream of a data set.

    Two equal configurations give equal results on one machine with the same data and as many threads.
    """

    dataset: str
    """Name of a data source."""
    method: str
    """Name of a strategy."""
    model: str
    """Name of a network."""
    noise: Noise = field(default_factory=Noise)
    """What is wrong with the training images."""
    seed: int = 0
    """Decides class order, noise, initial weights and batches, each by a generator of its own."""
    training: Training = field(default_factory=Training)
    """Epochs, memory, optimizer."""
    selector: SelectorConfig = field(default_factory=SelectorConfig)
    """Which samples of a class to remember."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The method's own hyper-parameters, where they are not its defaults."""
    first_classes: int = 2
    """Classes in the first experience."""
    classes_per_experience: int = 1
    """Classes in every later experience."""
    image_size: int | None = None
    """Side of the square images are brought to; the source's own choice if not given."""
    crop: bool = False
    """Reach that size by cropping the centre instead of resizing."""
    pretrained: bool = False
    """Start from torchvision's weights."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", asdict(options_of(self.method, self.options)))
        check_types(self)
        if not isinstance(self.dataset, str):
            raise InputError(f"dataset is {self.dataset!r}; give a name.")
        for name in ("first_classes", "classes_per_experience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; give a whole number of 1 or more.")
        size = self.image_size
        if size is not None and (type(size) is not int or size < 1):
            raise InputError(f"image_size is {size!r}; give a whole number of 1 or more.")
        if not isinstance(self.model, str) or self.model not in MODELS:
            raise unknown_name("model", self.model, MODELS)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> RunConfig:
        """The configuration that :meth:`as_dict` gave."""
        try:
            parts = {
                "noise": Noise.parse(plain["noise"]),
                "training": Training(**plain["training"]),
                "selector": SelectorConfig(**plain["selector"]),
            }
            return cls(**{**plain, **parts})
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"this is not the configuration of a run ({error}).") from None

    def as_dict(self) -> dict[str, Any]:
        """Plain values only, ready for YAML or JSON."""
        plain: dict[str, Any] = asdict(self, dict_factory=_plain)
        return plain | {"noise": str(self.noise), "options": dict(self.options)}


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, Enum) else value for name, value in items}
