"""What a strategy may see of the data, and what it may not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from continual_crust.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Samples:
    """Images with the labels they were *given*, right or wrong. All tensors share their first dimension.

    Indexing with a tensor of positions, a mask or a slice gives the chosen samples.
    """

    images: Tensor
    """Bytes, shape (n, channels, height, width)."""
    labels: Tensor
    """Given class of each image, int64."""
    ids: Tensor
    """Opaque name of each image within its stream, int64; evaluation can look it up, a strategy cannot."""
    weights: Tensor
    """How much each image counts in the loss, float32."""

    @classmethod
    def of(cls, images: Tensor, labels: Tensor, ids: Tensor | None = None, weights: Tensor | None = None) -> Samples:
        """Samples from images and labels; ids count up and weights are one unless given."""
        if not isinstance(labels, Tensor):
            raise InputError(f"labels of samples are a {type(labels).__name__}; give an int64 tensor.")
        return cls(
            images=images,
            labels=labels,
            ids=torch.arange(len(labels), device=labels.device) if ids is None else ids,
            weights=torch.ones(len(labels), dtype=torch.float32, device=labels.device) if weights is None else weights,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """All samples of the parts, in order. There must be at least one part."""
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor | slice) -> Self:
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))

    def to(self, device: torch.device | str) -> Self:
        """The same samples on a device."""
        return type(self)(*(getattr(self, field.name).to(device) for field in fields(self)))

    def of_class(self, label: int) -> Self:
        """The samples that were given this label."""
        return self[self.labels == label]

    def are_among(self, others: Samples) -> Tensor:
        """Which samples are others too, by id and pixels: ids alone may begin anew in every experience."""
        mine, theirs = (self.ids[:, None] == others.ids).nonzero(as_tuple=True)
        same = (self.images[mine] == others.images[theirs]).flatten(1).all(dim=1)
        found = torch.zeros(len(self), dtype=torch.bool, device=self.ids.device)
        found[mine[same]] = True
        return found


def check_images(whose: str, images: Tensor) -> None:
    """Refuse images that are not bytes: everything is normalised as if they went from 0 to 255."""
    if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.dim() != 4:
        raise InputError(
            f"{whose} are not bytes of shape (n, channels, height, width); give a uint8 tensor of that shape, with "
            "values from 0 to 255."
        )


def check_labels(whose: str, labels: Tensor, images: Tensor) -> None:
    """Refuse labels of another type, or of other images."""
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        raise InputError(f"{whose} are not an int64 tensor with one for each image; give so many, as labels.long().")


@dataclass(frozen=True)
class Truth:
    """What really is in the training images. Only evaluation receives it; all tensors are indexed by id."""

    labels: Tensor
    """True class of each image, int64."""
    flipped: Tensor
    """Whether the given label is wrong, bool."""
    perturbed: Tensor
    """Whether the image itself was corrupted, bool."""

    def is_clean(self, ids: Tensor) -> Tensor:
        """Whether each of these images is itself undamaged and carries its true label."""
        ids = ids.cpu()
        return ~(self.flipped[ids] | self.perturbed[ids])


@dataclass(frozen=True)
class Dataset:
    """A classification data set as its source delivers it: clean, complete, in memory."""

    name: str
    train_images: Tensor
    """Bytes, shape (n, channels, height, width)."""
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        names = self.class_names
        if isinstance(names, str) or not isinstance(names, Sequence) or len({*map(str, names)}) < len(names):
            raise InputError(f"class names of {self.name} are {names!r:.60}; give a tuple with another for each class.")
        object.__setattr__(self, "class_names", tuple(map(str, names)))
        for part, images, labels in (
            ("training", self.train_images, self.train_labels),
            ("test", self.test_images, self.test_labels),
        ):
            check_images(f"{part} images of {self.name}", images)
            check_labels(f"{part} labels of {self.name}", labels, images)
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(self.class_names):
                raise InputError(
                    f"{part} labels of {self.name} go from {int(labels.min())} to {int(labels.max())}; number its "
                    f"{len(self.class_names)} classes from 0."
                )
        if len(self.test_labels) and self.test_images.shape[1:] != self.train_images.shape[1:]:
            shapes = ("×".join(map(str, images.shape[1:])) for images in (self.test_images, self.train_images))
            raise InputError(
                "test images of {} are {} (channels, height, width) and training images {}; bring them to "
                "one form.".format(self.name, *shapes)
            )

    @cached_property
    def fingerprint(self) -> str:
        """Tells these images and labels from any others."""
        digest = hashlib.sha256(repr((self.class_names, self.train_images.shape, self.test_images.shape)).encode())
        for part in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(part.cpu().contiguous().numpy().data)
        return digest.hexdigest()[:16]

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        channels, height, width = self.train_images.shape[1:]
        return int(channels), int(height), int(width)
