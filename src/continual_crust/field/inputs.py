"""Images in Python: tensors, arrays or a torch data set, as bytes of one shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from continual_crust.data.images import FULL_DEPTH, in_bytes, is_deep, is_grey
from continual_crust.data.loading import Bytes
from continual_crust.errors import InputError

Label = str | int
LARGEST_BYTE = 255
FEWEST_SHADES = 32
"""With fewer, images that had more lose what can be told apart in them."""


def images_and_labels(images: Any, labels: Any) -> tuple[Any, list[Label]]:
    """What was given to `learn` or `score`, as images and one label for each."""
    if isinstance(images, Dataset):
        if labels is not None:
            raise InputError("a data set brings its own labels; leave the second argument out.")
        pairs = _items(images)
        if any(not isinstance(pair, (tuple, list)) or len(pair) < 2 for pair in pairs):
            raise InputError("the data set's items are not pairs of an image and a label; give one that has both.")
        return [pair[0] for pair in pairs], plain_labels([pair[1] for pair in pairs])
    if not hasattr(images, "__len__"):
        raise InputError(f"images are a {type(images).__name__}; give a tensor, an array or a data set.")
    if labels is None:
        raise InputError("the images have no labels; give learn(images, labels) or a data set of pairs.")
    for_all = isinstance(labels, (str, int, float, np.generic)) or getattr(labels, "ndim", None) == 0
    plain = [_plain_label(labels)] * len(images) if for_all else plain_labels(labels)
    if len(plain) != len(images):
        raise InputError(f"there are {len(images)} images but {len(plain)} labels; give one label for each image.")
    return images, plain


def images_alone(images: Any) -> Any:
    """What was given to `predict`; of a data set's pairs, the images."""
    if not isinstance(images, Dataset):
        return images
    return [item[0] if isinstance(item, (tuple, list)) and item else item for item in _items(images)]


def _items(dataset: Dataset[Any]) -> list[Any]:
    if not hasattr(dataset, "__len__"):
        raise InputError(f"a {type(dataset).__name__} has no length; give a data set that has.")
    return [dataset[position] for position in range(len(dataset))]


def plain_labels(labels: Any) -> list[Label]:
    """Labels as texts or whole numbers."""
    if not isinstance(labels, Iterable) or isinstance(labels, (Mapping, Set)):  # neither has labels in an order
        raise InputError(f"labels are a {type(labels).__name__}; give a list or an array with one for each image.")
    if isinstance(labels, (Tensor, np.ndarray)):
        labels = labels.tolist()
    return [_plain_label(label) for label in labels]


def _plain_label(label: Any) -> Label:
    if isinstance(label, np.generic) or (isinstance(label, (Tensor, np.ndarray)) and len(label.reshape(-1)) == 1):
        label = label.item()
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if not isinstance(label, (str, int)) or isinstance(label, bool) or (isinstance(label, str) and not label.strip()):
        # Cut off, because it may be a whole image.
        raise InputError(f"{label!r:.60} cannot be a label; use texts or whole numbers, and leave out what has none.")
    return label


def check_one_kind(labels: Sequence[Label]) -> None:
    """Refuse classes of which some are called by texts and some by numbers: '7' and 7 would be two."""
    texts, numbers = ([label for label in labels if isinstance(label, kind)] for kind in (str, int))
    if texts and numbers:
        raise InputError(
            f"some classes are called by texts, as {texts[0]!r}, and some by numbers, as {numbers[0]!r}; use one kind "
            "for all."
        )


def deep_images(images: Any) -> list[Any]:
    """The images of a sequence that are PIL's and have 16 bits a pixel."""
    return [image for image in images if _is_pil(image) and is_deep(image)] if isinstance(images, (list, tuple)) else []


def as_bytes(
    images: Any, scale: float | None, depth: tuple[int, int] = FULL_DEPTH, first: bool = False
) -> tuple[Bytes, float | None]:
    """Images as bytes in shape (n, channels, height, width), and the scale that floating-point ones have.

    Parameters
    ----------
    images
        Tensor or array of shape (n, height, width), (n, channels, height, width) or (n, height, width, channels),
        where channels are 1 or 3, or else fewer than pixels a side; or a sequence of single images, PIL's included.
    scale
        What floating-point values are multiplied by; None to find out: 255 if none is above 1, otherwise 1.
    depth
        What becomes black and white of PIL's images with 16 bits a pixel.
    first
        Whether they are a learner's first, by which the scale is chosen: one on which they lose much is refused.
    """
    array = _as_array(images, depth)
    if array.dtype.kind in "OSU" and array.size:
        thing = array.reshape(-1).tolist()[0]
        raise InputError(
            f"images are things such as {thing!r:.60}; open files first, as with PIL.Image.open, or learn their folder "
            "on the command line."
        )
    if array.ndim == 3:
        array = array[:, None]
    if array.ndim == 4 and array.shape[1] not in (1, 3):
        if array.shape[3] in (2, 4):
            raise InputError(
                f"images have shape {tuple(array.shape)}, with transparency as the last channel; leave it out: "
                "images[..., :-1]."
            )
        if array.shape[3] in (1, 3) or array.shape[3] < min(array.shape[1:3]):
            array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or not all(array.shape[1:]):
        raise InputError(
            f"images have shape {tuple(array.shape)}; give (n, height, width) or (n, channels, height, width)."
        )
    if array.dtype == np.uint8:
        return _in_order(array), scale
    if array.dtype.kind not in "iuf":
        raise InputError(f"images are of type {array.dtype}; give bytes or floating-point numbers.")
    bad = ~np.isfinite(array).all(axis=(1, 2, 3))
    if bad.any():
        raise InputError(
            f"{int(bad.sum())} of {len(array)} images hold NaN or infinity (the first is number {int(bad.argmax())}); "
            "leave them out or mend them."
        )
    span = (array.min(), array.max()) if array.size else (0, 0)
    if array.dtype.kind == "f":
        largest = float(span[1])
        if scale == 1 and 0 < largest <= 1 and (array % 1).any():
            raise InputError(
                f"images have values up to {largest:g}, and those the learner began with went beyond 1; give them on "
                "the same scale."
            )
        if (
            first
            and largest > 1
            and largest - float(span[0]) < FEWEST_SHADES
            and _lie_between_whole_numbers(array, by=0.1)
        ):
            raise InputError(
                f"images have values from {span[0]:g} to {span[1]:g} and would lose their fractions, since they are "
                "kept as bytes; scale them to go from 0 to 1."
            )
        scale = scale or (LARGEST_BYTE if largest <= 1 else 1)
        array = np.round(array.astype(np.float64) * scale)
    if len(array) and (array.min() < 0 or array.max() > LARGEST_BYTE):
        raise InputError(
            f"images have values from {span[0]:g} to {span[1]:g}; give bytes from 0 to {LARGEST_BYTE}, or "
            "floating-point numbers from 0 to 1."
        )
    return _in_order(array.astype(np.uint8)), scale


def _in_order(array: Bytes) -> Bytes:
    """The same images, one channel after another in memory however they were given.

    NumPy calls a single channel so whatever its stride, which PyTorch may take for another order: a network would come
    to other last bits, or could not flatten by `view`.
    """
    return np.ascontiguousarray(array).reshape(-1).reshape(array.shape)


def _lie_between_whole_numbers(values: NDArray[Any], by: float) -> bool:
    """Whether any value is further than so much from a whole number."""
    return bool((np.abs(values - values.round()) > by).any())


def check_shape(pixels: Bytes, wanted: tuple[int, int, int]) -> None:
    """Refuse images of another shape than a learner knows."""
    if pixels.shape[1:] == wanted:
        return
    remedies = ["resize them"] if pixels.shape[2:] != wanted[1:] else []
    if pixels.shape[1] != wanted[0]:
        remedies.append(f"convert them to {({1: 'grey', 3: 'colour'}).get(wanted[0], f'{wanted[0]} channels')}")
    given, known = ("×".join(map(str, shape)) for shape in (pixels.shape[1:], wanted))
    raise InputError(
        f"images are {given} (channels, height, width) but the learner knows {known}; {' and '.join(remedies)}."
    )


def _as_array(images: Any, depth: tuple[int, int]) -> NDArray[Any]:
    if isinstance(images, Tensor):
        images = images.detach().cpu()
        return (images.float() if images.dtype == torch.bfloat16 else images).numpy()  # type: ignore[no-any-return]
    if isinstance(images, np.ndarray) and images.dtype != object:
        return images
    if not isinstance(images, Sequence) and not isinstance(images, np.ndarray):
        raise InputError(f"images are a {type(images).__name__}; give a tensor, an array or a list of images.")
    singles = [_single(image, number, depth) for number, image in enumerate(images)]
    if len({single.shape for single in singles}) > 1:
        raise InputError(
            "the images differ in size, or some are grey and some in colour; bring them to one form, or learn from a "
            "folder, which does."
        )
    return np.stack(singles) if singles else np.empty((0, 1, 1, 1), np.uint8)


def _single(image: Any, number: int, depth: tuple[int, int]) -> NDArray[Any]:
    if isinstance(image, Tensor):
        return _as_array(image, depth)
    if _is_pil(image):
        grey = is_grey(image)
        return np.asarray(in_bytes(image, f"image {number}", depth).convert("L" if grey else "RGB"))
    return np.asarray(image)


def _is_pil(image: Any) -> bool:
    return type(image).__module__.partition(".")[0] == "PIL"
