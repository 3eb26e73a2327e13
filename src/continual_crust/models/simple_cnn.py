"""The small convolutional network of the paper's MNIST experiments."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from continual_crust.errors import InputError
from continual_crust.models import simple_cnn_fused
from continual_crust.models.simple_cnn_layers import Dropout, FirstConvolution, MaxPool2x2

DROPPED = (0.25, 0.5)
"""Shares that dropout takes away, after pooling and before the head."""


class SimpleCNN(nn.Module):
    """Two 3x3 convolutions (32 and 64 channels), 2x2 pooling, a hidden layer of 128 units and the head.

    The paper gives the layers and not the dropout. With dropout as in PyTorch's own MNIST example (0.25 after pooling,
    0.5 before the head) the network is slow to memorise wrong labels, which the reported numbers need.
    """

    def __init__(self, image_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape
        if min(height, width) < 6:
            raise InputError(f"simple_cnn needs images of 6x6 pixels or more, not {height}x{width}; enlarge them.")
        # Images up to 64 pixels are flattened as they are; larger ones are pooled to the size 28x28 ones would have.
        pooled = ((height - 4) // 2, (width - 4) // 2)
        shrink = max(pooled) > 30
        outputs = 64 * (144 if shrink else pooled[0] * pooled[1])
        self.body = nn.Sequential(
            FirstConvolution(channels, 32, outputs),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            # Before the rectifier, which has a quarter left to do then: same values, same gradients.
            MaxPool2x2(outputs),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(12) if shrink else nn.Identity(),
            Dropout(DROPPED[0]),
            nn.Flatten(),
            nn.Linear(outputs, 128),
            nn.ReLU(),
            Dropout(DROPPED[1]),
        )
        self.head = nn.Linear(128, classes)
        self.image_shape = image_shape
        self.shrinks = shrink

    def layers(self) -> tuple[nn.Module, ...]:
        """What learns: both convolutions, the hidden layer and the head."""
        return self.body[0], self.body[2], self.body[8], self.head

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self._features(images))
        return logits

    def _features(self, images: Tensor) -> Tensor:
        # Whoever differentiates a network that is not in training may want more of it than the kernels give.
        fusible = not self.shrinks and (self.training or not torch.is_grad_enabled())
        if not fusible or not simple_cnn_fused.usable(images):
            features: Tensor = self.body(images)
            return features
        parameters = tuple(parameter for layer in self.layers()[:-1] for parameter in layer.parameters())
        return simple_cnn_fused.body(images, parameters, DROPPED if self.training else (0.0, 0.0))


def simple_cnn(image_shape: tuple[int, int, int], classes: int, pretrained: bool) -> nn.Module:
    """Build the network; there are no weights to start from."""
    if pretrained:
        raise InputError("simple_cnn has no pretrained weights; leave out --pretrained or choose another model.")
    with torch.device("cpu"):
        return SimpleCNN(image_shape, classes)
