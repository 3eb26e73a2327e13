"""A data set as a stream of experiences, each bringing new classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import overload

import torch
from torch import Tensor

from continual_crust.data.noise import Noise, corrupt
from continual_crust.data.samples import Dataset, Samples, Truth, check_images, check_labels
from continual_crust.errors import InputError
from continual_crust.randomness import generator_for


@dataclass(frozen=True)
class Experience:
    """One step of the stream: new classes, and every training image that was given one of them."""

    classes: tuple[int, ...]
    samples: Samples

    def __post_init__(self) -> None:
        if not isinstance(self.samples, Samples):
            raise InputError(f"samples of an experience are a {type(self.samples).__name__}; give Samples.")
        check_images("images of an experience", self.samples.images)
        check_labels("labels of an experience", self.samples.labels, self.samples.images)
        if not isinstance(self.classes, Sequence) or not all(_is_number(label) for label in self.classes):
            raise InputError(
                f"classes of an experience are {self.classes!r}; give their numbers, from 0 on, as in (0, 1)."
            )
        object.__setattr__(self, "classes", tuple(map(int, self.classes)))  # NumPy's numbers could not be saved
        for name, wanted in (("ids", "whole numbers"), ("weights", "float32 numbers")):
            given = getattr(self.samples, name)
            fits = isinstance(given, Tensor) and given.shape == self.samples.labels.shape
            if not fits or given.is_floating_point() != (name == "weights"):
                raise InputError(f"{name} of an experience are not a tensor with one for each image; give {wanted}.")
        others = sorted({*self.samples.labels.unique().tolist()}.difference(self.classes))
        if others:
            raise InputError(
                f"an experience with the classes {tuple(self.classes)} has images labelled {others[0]}; name all its "
                "classes, or leave those images out."
            )


def _is_number(label: object) -> bool:
    return isinstance(label, Integral) and not isinstance(label, bool) and int(label) >= 0


class Stream:
    """Experiences for a strategy, and for evaluation the clean test sets and the truth about the noise.

    Parameters
    ----------
    dataset
        Clean data.
    noise
        What to corrupt in the training images. Test images and labels stay clean.
    seed
        Decides the class order and the noise, independently of one another.
    first_classes, classes_per_experience
        How many classes the first and every later experience bring; the last may bring fewer.
    """

    def __init__(
        self,
        dataset: Dataset,
        noise: Noise | str | None = None,
        seed: int = 0,
        first_classes: int = 2,
        classes_per_experience: int = 1,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise InputError(f"a stream cannot be made of {dataset!r}; give a Dataset, such as load_dataset(name).")
        noise = Noise.parse(noise) if isinstance(noise, str) else Noise() if noise is None else noise
        if not isinstance(noise, Noise):
            raise InputError(f"noise is {noise!r}; give its kind and level, for example label:0.5.")
        if not all(_is_number(count) and count >= 1 for count in (first_classes, classes_per_experience)):
            raise InputError("an experience needs at least one class; give whole numbers of classes of 1 or more.")
        if first_classes > dataset.classes:
            raise InputError(
                f"first_classes is {first_classes}, and '{dataset.name}' has {dataset.classes} classes; give fewer."
            )
        self.dataset = dataset
        order = torch.randperm(dataset.classes, generator=generator_for(seed, "order"), device="cpu").tolist()
        self.groups: tuple[tuple[int, ...], ...] = (
            tuple(order[:first_classes]),
            *(
                tuple(order[start : start + classes_per_experience])
                for start in range(first_classes, len(order), classes_per_experience)
            ),
        )
        given = corrupt(
            dataset.train_images,
            dataset.train_labels,
            dataset.classes,
            noise,
            generator_for(seed, "noise"),
        )
        self._images, self._labels = given.images, given.labels
        # Sources deliver images sorted by class, so a position would betray the true label. Ids are drawn instead.
        self._ids = torch.randperm(len(given.labels), generator=generator_for(seed, "ids"), device="cpu")
        position = torch.argsort(self._ids)
        self.truth = Truth(
            labels=dataset.train_labels[position],
            flipped=given.flipped[position],
            perturbed=given.perturbed[position],
        )

    def __len__(self) -> int:
        return len(self.groups)

    @overload
    def __getitem__(self, index: int) -> Experience: ...

    @overload
    def __getitem__(self, index: slice) -> list[Experience]: ...

    def __getitem__(self, index: int | slice) -> Experience | list[Experience]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        chosen = _among(self._labels, self.groups[index])
        # In order of id, because the order of the source would betray the true label as a position would.
        chosen = chosen[torch.argsort(self._ids[chosen])]
        samples = Samples.of(self._images[chosen], self._labels[chosen], self._ids[chosen])
        return Experience(self.groups[index], samples)

    def __iter__(self) -> Iterator[Experience]:
        return (self[index] for index in range(len(self)))

    def joined(self) -> Experience:
        """All experiences as one: for learners that are given everything at once."""
        everything = list(self)
        classes = tuple(label for group in self.groups for label in group)
        return Experience(classes, Samples.concatenate([experience.samples for experience in everything]))

    def test(self, index: int) -> tuple[Tensor, Tensor]:
        """Clean test images and true labels of one experience's classes."""
        chosen = _among(self.dataset.test_labels, self.groups[index])
        return self.dataset.test_images[chosen], self.dataset.test_labels[chosen]

    def clean_images_of(self, ids: Tensor) -> Tensor:
        """Training images by id, as they were before they were corrupted: for evaluation alone."""
        return self.dataset.train_images[torch.argsort(self._ids)[ids.cpu()]]


def _among(labels: Tensor, classes: tuple[int, ...]) -> Tensor:
    return torch.isin(labels, torch.tensor(classes, device=labels.device)).nonzero().flatten()
