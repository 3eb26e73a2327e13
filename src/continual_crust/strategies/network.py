"""A network on its device, fed with bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.optim.swa_utils import update_bn

from continual_crust.errors import InputError
from continual_crust.models import checked_head, checked_output, features_and_logits, last_linear
from continual_crust.selection.selectors import Candidates

CHUNK_PIXELS = 1 << 22
"""How many input values are evaluated at a time: enough to keep a GPU busy, little enough for any memory."""
CHUNK_IMAGES = 256
"""Up to so many images it is four times as much on a GPU: launching a large network takes as long as computing it."""
CACHED_PIXELS, CACHED_IMAGES = 1 << 17, 64
"""On a CPU it is no more than so many values or images, whichever is more: what goes from layer to layer then stays in
the cache, and what is freed is used again at once instead of being cleared by the system."""


class Network:
    """A classifier with its input normalisation. Images stay bytes until a batch of them is needed.

    The normalisation (mean and spread of each channel) is measured on the first images the learner ever sees, as
    nothing else is known at that time, and stays fixed.
    """

    def __init__(self, model: nn.Module, device: torch.device, precision: str = "float32") -> None:
        checked_head(model)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise InputError(
                f"no parameter of {type(model).__name__} can be trained, as all are frozen; set requires_grad on those "
                "to learn."
            )
        self.model = model.to(device)
        self.device = device
        self.low_precision = precision == "bfloat16"
        if device.type == "cuda" and may_lie_side_by_side(model):
            # The order in memory that tensor cores want; anything else costs two conversions a layer.
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.mean: Tensor | None = None
        self.std: Tensor | None = None

    @property
    def head_weight(self) -> Tensor:
        """Weights of the last layer."""
        return last_linear(self.model).weight

    def candidates(self, features: Tensor, logits: Tensor, labels: Tensor) -> Candidates:
        """What :meth:`evaluate` gave for the samples of one class, for a selector."""
        head = last_linear(self.model)
        return Candidates(features, logits, labels, head.weight.detach(), head.bias is not None)

    def measure_normalization(self, images: Tensor) -> None:
        """Fix mean and spread of each channel, once."""
        if self.mean is not None or not len(images):
            return
        count, total = 0, torch.zeros((), dtype=torch.float64, device=self.device)
        squares = total
        for part in images.split(self._chunk(images)):
            values = part.to(self.device).double().transpose(0, 1).flatten(1)
            count += values.shape[1]
            total, squares = total + values.sum(dim=1), squares + values.square().sum(dim=1)
        mean = total / count
        std = (squares / count - mean.square()).clamp(min=0).sqrt()
        std[std < 1] = 1  # a constant channel: nothing to scale
        self.mean, self.std = (value.float().view(1, -1, 1, 1) for value in (mean, std))

    def logits(self, images: Tensor) -> Tensor:
        """Output for a batch of bytes, in whatever mode the model is in."""
        with self._autocast():
            given = self.normalized(images)
            low = self._computes_low
            output = functional_call(self.model, self._lowered(), given) if low else self.model(given)
        return checked_output(self.model, output).float()

    def features_and_logits(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Input and output of the last layer for a batch of bytes, in whatever mode the model is in."""
        with self._autocast():
            features, logits = features_and_logits(self.model, self.normalized(images))
        return features.float(), logits.float()

    @property
    def _computes_low(self) -> bool:
        """Low precision, where it is asked for, is for training; what is measured and selected is measured in full."""
        return self.low_precision and self.model.training

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._computes_low, cache_enabled=False)

    def _lowered(self) -> dict[str, Tensor]:
        """Low-precision weights of convolutions and linear layers, by name; autocast would copy them one by one."""
        layers = [module for module in self.model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
        low = {weight for layer in layers for weight in layer.parameters(recurse=False)}
        weights = {name: weight for name, weight in self.model.named_parameters() if weight in low}  # each once
        lowered = _Lowered.apply(*weights.values())  # type: ignore[no-untyped-call]
        return dict(zip(weights, lowered, strict=True))

    @torch.no_grad()
    def evaluate(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Input and output of the last layer for any number of images, in evaluation mode, without gradients."""
        if not len(images):  # of which many a network, asked itself, cannot tell the shape of what comes out
            outputs, inputs = self.head_weight.shape
            return self.head_weight.new_zeros(0, inputs), self.head_weight.new_zeros(0, outputs)
        was_training = self.model.training
        self.model.eval()
        with repeatable_convolutions():
            parts = [self.features_and_logits(part.to(self.device)) for part in self._parts(images)]
        self.model.train(was_training)
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    @torch.no_grad()
    def measure_batch_statistics(self, images: Tensor) -> None:
        """Let batch normalisation, if there is any, measure its statistics anew, as is due after averaging weights."""
        if len(images) < 2:  # one image is no batch
            return
        # Batches of nearly equal sizes, so that none is a single image, and each from all over: where images lie class
        # by class, batches would be of one class each, in which next to nothing varies.
        count = min(-(-len(images) // self._chunk(images)), len(images) // 2)
        with repeatable_convolutions():
            update_bn((self.normalized(images[first::count].to(self.device)) for first in range(count)), self.model)

    def state(self) -> dict[str, Any]:
        """Weights and normalisation."""
        return {"model": self.model.state_dict(), "mean": self.mean, "std": self.std}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a :meth:`state`."""
        self.model.load_state_dict(state["model"])
        self.mean, self.std = (None if state[name] is None else state[name].to(self.device) for name in ("mean", "std"))

    def synchronize(self) -> None:
        """Wait until the device has done everything this learner asked for, so that a clock can be read."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def normalized(self, images: Tensor) -> Tensor:
        """Bytes as the model wants them."""
        if self.mean is None or self.std is None:
            return images.float()
        if images.shape[-3] != self.mean.shape[-3]:  # one channel would be taken for each of three
            given, known = images.shape[-3], self.mean.shape[-3]
            raise InputError(
                f"images of {given} channels came, and those learned have {known}; bring them to one form."
            )
        return (images - self.mean) / self.std

    def _parts(self, images: Tensor) -> Sequence[Tensor]:
        """The images in parts that are evaluated one after the other."""
        chunk = self._chunk(images)
        if self.device.type != "cpu":
            parts: Sequence[Tensor] = images.split(chunk)
            return parts
        chunk = min(chunk, max(CACHED_IMAGES, CACHED_PIXELS // max(1, images.shape[1:].numel())))
        # Parts of nearly equal sizes: with a few rows a product of matrices may come to other bits.
        return images.tensor_split(max(1, -(-len(images) // chunk)))

    def _chunk(self, images: Tensor) -> int:
        chunk = max(1, CHUNK_PIXELS // max(1, images.shape[1:].numel()))
        return max(chunk, min(CHUNK_IMAGES, 4 * chunk)) if self.device.type == "cuda" else chunk


def may_lie_side_by_side(model: nn.Module) -> bool:
    """Whether the channels of a pixel may lie side by side in a GPU's memory without anything else changing.

    Max pooling would sum its gradients in whatever order its threads finish, and no run could be repeated. A network
    of somebody's own may pool by a function, which is not among its modules, or flatten by `view`, which such an order
    forbids; so it stays as it was given.
    """
    is_known = type(model).__module__.partition(".")[0] in ("continual_crust", "torchvision")
    return is_known and not any(isinstance(module, nn.MaxPool2d) for module in model.modules())


class _Lowered(torch.autograd.Function):
    """Copies in half the precision; a network has hundreds of weights, and a GPU takes them in a few kernels."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(_copied(weights, torch.bfloat16))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        copies = _copied([gradient for gradient in gradients if gradient is not None], torch.float32)
        return tuple(None if gradient is None else next(copies) for gradient in gradients)  # None: took no part


def _copied(tensors: Sequence[Tensor], dtype: torch.dtype) -> Iterator[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))
    return iter(copies)


_convolution_settings = threading.RLock()


@contextmanager
def repeatable_convolutions() -> Iterator[None]:
    """Let a GPU convolve by algorithms that give the same bits every time.

    That is a setting of the whole program, so runs in several threads take turns with it; it is only needed while work
    is handed to the GPU, not while the GPU works.
    """
    settings = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True)
    with _convolution_settings, settings:
        yield
