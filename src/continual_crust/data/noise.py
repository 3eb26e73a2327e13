"""Ways in which a data set can be partly wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from continual_crust.errors import InputError, is_number, unknown_name

PERTURBED_PIXELS = 0.9
"""Share of an image's pixels that salt and pepper touches, from the paper."""
BLEND = 0.5
"""Weight of the salt or pepper against the pixel it falls on. The paper blends linearly and does not say how much."""


class NoiseKind(str, Enum):
    """What is wrong with a share of the training images."""

    NONE = "none"
    LABEL = "label"
    """Given a uniformly drawn other class."""
    ASYMMETRIC = "asymmetric"
    """Given the next class, whatever the seed, and the first one after the last: so all that is wrong about a class
    comes from a single other one, and beyond a half the wrong labels are the majority."""
    SALT_AND_PEPPER = "salt_and_pepper"
    """Most pixels blended with black or white."""
    UNIFORM = "uniform"
    """Replaced by uniform random bytes."""

    @property
    def is_about_labels(self) -> bool:
        """Whether images keep their pixels and get wrong labels."""
        return self in (NoiseKind.LABEL, NoiseKind.ASYMMETRIC)


@dataclass(frozen=True)
class Noise:
    """A kind of noise and the share of training images it hits.

    >>> Noise.parse("label:0.5")
    Noise(kind=<NoiseKind.LABEL: 'label'>, level=0.5)
    """

    kind: NoiseKind = NoiseKind.NONE
    level: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in list(NoiseKind):
            raise unknown_name("noise", self.kind, (kind.value for kind in NoiseKind))
        object.__setattr__(self, "kind", NoiseKind(self.kind))  # a plain name will do
        if not is_number(self.level):
            raise InputError(f"noise level is {self.level!r}; give the share of images to corrupt, from 0 to 1.")
        if not 0.0 <= self.level <= 1.0:
            raise InputError(f"noise level {self.level} is outside 0 to 1; give the share of images to corrupt.")
        if self.kind is NoiseKind.NONE and self.level > 0:
            raise InputError(f"noise 'none' cannot have level {self.level}; name a kind, for example label:0.5.")

    @classmethod
    def parse(cls, text: str) -> Noise:
        """Read ``KIND:LEVEL``, for example ``label:0.5``, or ``none``."""
        if not isinstance(text, str):
            raise InputError(f"noise is {text!r}; write its kind and its level, for example label:0.5.")
        name, colon, level = text.partition(":")
        if name not in {kind.value for kind in NoiseKind}:
            raise unknown_name("noise", name, (kind.value for kind in NoiseKind))
        if name == "none" and level in ("", "0", "0.0"):
            return cls()
        if not colon:
            raise InputError(f"noise '{text}' has no level; write for example {name}:0.5.")
        try:
            share = float(level)
        except ValueError:
            raise InputError(f"noise level '{level}' is not a number; write for example label:0.5.") from None
        return cls(NoiseKind(name), share)

    def __str__(self) -> str:
        return "none" if self.kind is NoiseKind.NONE else f"{self.kind.value}:{self.level!r}"


@dataclass(frozen=True)
class Corrupted:
    """A training set after noise: what is given, and what was done to it."""

    images: Tensor
    labels: Tensor
    flipped: Tensor
    perturbed: Tensor


def corrupt(images: Tensor, labels: Tensor, classes: int, noise: Noise, generator: torch.Generator) -> Corrupted:
    """Apply noise to a random share of a training set, leaving the arguments as they are."""
    hit = _draw_share(len(labels), noise.level, generator)
    nothing = torch.zeros_like(hit)
    if noise.kind.is_about_labels:
        flipped = _flip(labels, hit, classes, noise.kind, generator)
        return Corrupted(images, flipped, flipped=hit, perturbed=nothing)
    if noise.kind is NoiseKind.NONE:
        return Corrupted(images, labels, flipped=nothing, perturbed=nothing)
    images = images.clone()
    # One image at a time: the random bytes of a whole set of photographs would not fit beside it.
    for position in hit.nonzero().flatten().tolist():
        damage = _salt_and_pepper if noise.kind is NoiseKind.SALT_AND_PEPPER else _uniform
        images[position] = damage(images[position], generator)
    return Corrupted(images, labels, flipped=nothing, perturbed=hit)


def _draw_share(count: int, share: float, generator: torch.Generator) -> Tensor:
    """A mask over `count` samples that holds for exactly the nearest whole number to the share."""
    mask = torch.zeros(count, dtype=torch.bool, device=generator.device)
    mask[torch.randperm(count, generator=generator, device=generator.device)[: round(share * count)]] = True
    return mask


def _flip(labels: Tensor, hit: Tensor, classes: int, kind: NoiseKind, generator: torch.Generator) -> Tensor:
    if classes < 2:
        raise InputError("labels cannot be flipped with a single class; use data of two or more classes.")
    if kind is NoiseKind.ASYMMETRIC:
        offset = torch.ones_like(labels)
    else:
        # An offset of 1 to classes - 1 reaches every other class with equal probability and never the same one.
        offset = torch.randint(1, classes, (len(labels),), generator=generator, device=generator.device)
    return torch.where(hit, (labels + offset) % classes, labels)


def _salt_and_pepper(image: Tensor, generator: torch.Generator) -> Tensor:
    _, height, width = image.shape
    touched = (
        torch.rand(height, width, dtype=torch.float32, generator=generator, device=generator.device) < PERTURBED_PIXELS
    )
    grain = torch.randint(0, 2, (height, width), generator=generator, device=generator.device) * 255.0
    blended = (1 - BLEND) * image.float() + BLEND * grain
    return torch.where(touched, blended, image.float()).round().to(torch.uint8)


def _uniform(image: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 256, image.shape, generator=generator, device=generator.device, dtype=torch.uint8)
