"""torchvision's networks, fitted to our image shapes and numbers of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from continual_crust.errors import InputError
from continual_crust.models.activated import activate_blocks, activate_sequences, activate_stem, gate_sequences
from continual_crust.torchvision_remedy import import_torchvision

SMALL_IMAGE = 64
"""Up to this many pixels a ResNet keeps its resolution at the start instead of quartering it."""


def resnet18(image_shape: tuple[int, int, int], classes: int, pretrained: bool) -> nn.Module:
    """ResNet-18; with the usual 3x3 stem and no first pooling for images up to 64 pixels."""
    if max(image_shape[1:]) > SMALL_IMAGE:
        return resnet18_strided(image_shape, classes, pretrained)
    if pretrained:
        raise InputError(
            "resnet18's pretrained weights belong to its large-image stem, and images of "
            f"{image_shape[1]}x{image_shape[2]} use the small one; leave out --pretrained, use --model "
            "resnet18_strided or images above 64 pixels."
        )
    network = _built(import_torchvision().models.resnet18, pretrained)
    network.conv1 = nn.Conv2d(image_shape[0], 64, kernel_size=3, stride=1, padding=1, bias=False)
    network.maxpool = nn.Identity()
    return _fitted(network, classes)


def resnet18_strided(image_shape: tuple[int, int, int], classes: int, pretrained: bool) -> nn.Module:
    """ResNet-18 as it comes: it quarters the resolution at the start, whatever the size of the images."""
    network = _built(import_torchvision().models.resnet18, pretrained)
    if image_shape[0] != 3:
        network.conv1 = _with_channels(network.conv1, image_shape[0], pretrained)
    return _fitted(network, classes)


def _fitted(network: Any, classes: int) -> nn.Module:
    """A ResNet with a head for these classes and the activations that our kernels take along."""
    network.fc = nn.Linear(network.fc.in_features, classes)
    activate_stem(network)
    activate_blocks(network, import_torchvision().models.resnet.BasicBlock)
    activate_sequences(network)
    return _as_module(network)


def efficientnet_v2_s(image_shape: tuple[int, int, int], classes: int, pretrained: bool) -> nn.Module:
    """EfficientNetV2-S."""
    models = import_torchvision().models
    network = _built(models.efficientnet_v2_s, pretrained)
    stem = network.features[0]
    if image_shape[0] != 3:
        stem[0] = _with_channels(stem[0], image_shape[0], pretrained)
    network.classifier[-1] = nn.Linear(network.classifier[-1].in_features, classes)
    activate_sequences(network)
    gate_sequences(network, models.efficientnet.SqueezeExcitation)
    return _as_module(network)


def _built(constructor: Callable[..., Any], pretrained: bool) -> Any:
    try:
        return constructor(weights="DEFAULT" if pretrained else None)
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise InputError(
            f"torchvision's weights could not be fetched ({error}); leave out --pretrained, or run once where the "
            "internet can be reached."
        ) from None


def _with_channels(convolution: nn.Conv2d, channels: int, pretrained: bool) -> nn.Conv2d:
    """A first convolution for another number of channels; pretrained filters are summed over colour and spread."""
    first = nn.Conv2d(
        channels,
        convolution.out_channels,
        kernel_size=convolution.kernel_size,  # type: ignore[arg-type]
        stride=convolution.stride,  # type: ignore[arg-type]
        padding=convolution.padding,  # type: ignore[arg-type]
        bias=False,
    )
    if pretrained:
        spread = convolution.weight.detach().sum(dim=1, keepdim=True) / channels
        first.weight.data.copy_(spread.expand_as(first.weight))
    return first


def _as_module(network: object) -> nn.Module:
    assert isinstance(network, nn.Module)
    return network
