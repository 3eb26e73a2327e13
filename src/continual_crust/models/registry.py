"""Networks by name."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral

import torch
from torch import nn

from continual_crust.errors import InputError, unknown_name
from continual_crust.models.simple_cnn import simple_cnn
from continual_crust.models.torchvision_models import efficientnet_v2_s, resnet18, resnet18_strided
from continual_crust.randomness import seeded_globally

MODELS: dict[str, Callable[[tuple[int, int, int], int, bool], nn.Module]] = {
    "simple_cnn": simple_cnn,
    "resnet18": resnet18,
    "resnet18_strided": resnet18_strided,
    "efficientnet_v2_s": efficientnet_v2_s,
}


def build_model(
    name: str, image_shape: tuple[int, int, int], classes: int, *, seed: int = 0, pretrained: bool = False
) -> nn.Module:
    """Make a network whose initial weights depend on nothing but the arguments.

    Parameters
    ----------
    name
        One of ``MODELS``.
    image_shape
        Channels, height, width.
    classes
        Width of the last layer.
    seed
        Decides the initial weights; the program's own random state is left alone.
    pretrained
        Start from torchvision's weights, which are downloaded on first use.
    """
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    if len(image_shape) != 3 or not all(isinstance(size, Integral) and size > 0 for size in (*image_shape, classes)):
        raise InputError(
            f"a network for images of shape {tuple(image_shape)} and {classes} classes cannot be built; give channels, "
            "height and width, and a number of classes, all of 1 or more."
        )
    with seeded_globally(seed), torch.device("cpu"):  # only there the generator that is seeded decides
        return MODELS[name](image_shape, classes, pretrained)
