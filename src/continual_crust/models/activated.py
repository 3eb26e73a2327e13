"""torchvision's networks with each batch normalisation, sum and activation as one layer, and each gate as another.

Names and weights stay the same.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from continual_crust.models.batch_norm_fused import ActivatedBatchNorm2d
from continual_crust.models.gated import Gate

NAMES: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.SiLU: "silu"}


class ResidualBlock(nn.Module):
    """The layers of a `BasicBlock`, whose last activation follows a sum with the block's input."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.conv1, self.bn1 = block.conv1, ActivatedBatchNorm2d(block.bn1, "relu")
        self.conv2, self.bn2 = block.conv2, ActivatedBatchNorm2d(block.bn2, "relu")
        self.downsample = block.downsample

    def forward(self, images: Tensor) -> Tensor:
        """Images, with half the side where the block was made to halve it."""
        inner = self.conv2(self.bn1(self.conv1(images)))
        result: Tensor = self.bn2(inner, images if self.downsample is None else self.downsample(images))
        return result


def activate_stem(network: Any) -> None:
    """Let the first normalisation of a ResNet do the work of the activation behind it."""
    network.bn1, network.relu = ActivatedBatchNorm2d(network.bn1, "relu"), nn.Identity()


def activate_blocks(network: nn.Module, block: type[nn.Module]) -> None:
    """Put a :class:`ResidualBlock` in the place of every `block` that stands in a sequence."""
    for sequence in _sequences(network):
        for number, layer in enumerate(sequence):
            if isinstance(layer, block):
                sequence[number] = ResidualBlock(layer)


def gate_sequences(network: nn.Module, squeeze: type[Any]) -> None:
    """Put a :class:`Gate` in the place of every squeeze and excitation that stands in a sequence."""
    for sequence in _sequences(network):
        for number, layer in enumerate(sequence):
            if isinstance(layer, squeeze):
                sequence[number] = Gate(layer.fc1, layer.fc2)


def activate_sequences(network: nn.Module) -> None:
    """Let every normalisation in a sequence do the work of an activation that follows it there."""
    for sequence in _sequences(network):
        for number, layer in enumerate(sequence):
            if type(layer) is nn.BatchNorm2d:
                following = type(sequence[number + 1]) if number + 1 < len(sequence) else nn.Identity
                sequence[number] = ActivatedBatchNorm2d(layer, NAMES.get(following, "none"))
                if following in NAMES:
                    sequence[number + 1] = nn.Identity()


def _sequences(network: nn.Module) -> list[nn.Sequential]:
    return [module for module in network.modules() if isinstance(module, nn.Sequential)]
