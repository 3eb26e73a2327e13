"""Networks by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from continual_crust.errors import unknown_name
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
    with seeded_globally(seed):
        return MODELS[name](image_shape, classes, pretrained)
