"""Images that are changed a little, anew for every epoch: what never looks the same twice is hard to learn by heart."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from continual_crust.data.samples import Samples

PART_PIXELS = 1 << 24
"""How many pixels of a channel are moved at a time."""


def moved(samples: Samples, most: float, mirror: bool, generator: torch.Generator) -> Samples:
    """Each image moved by a random number of pixels in both directions; its edge fills what comes into view.

    Parameters
    ----------
    samples
        On any device.
    most
        How far, as a share of height and width.
    mirror
        Also mirror every other image, left to right. Only where a mirrored image is of the same class.
    generator
        CPU generator, so that every device sees the same images.
    """
    images = samples.images
    count, (height, width) = len(images), images.shape[-2:]
    rows, columns = (_places(size, round(most * size), count, generator) for size in (height, width))
    if mirror:
        mirrored = torch.rand(count, 1, dtype=torch.float32, generator=generator, device=generator.device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    rows, columns = rows.to(images.device), columns.to(images.device)
    pixels = torch.empty_like(images, memory_format=torch.contiguous_format)
    # The places that pixels come from take eight times the memory of the pixels.
    at_a_time = max(1, PART_PIXELS // max(1, height * width))
    for first in range(0, count, at_a_time):
        some = slice(first, first + at_a_time)
        flat = (rows[some, :, None] * width + columns[some, None, :]).flatten(1)
        places = flat[:, None, :].expand(-1, images.shape[1], -1)
        pixels[some] = images[some].flatten(2).gather(2, places).view_as(images[some])
    return replace(samples, images=pixels)


def mixed(samples: Samples, generator: torch.Generator) -> Samples:
    """Each image laid over another one and shining through it, with the label of either.

    That is mixup (Zhang et al. 2018) with labels that are drawn and not shared: of the larger part λ of an image, which
    is uniform in [½, 1], comes its label with probability λ.

    Parameters
    ----------
    samples
        On any device.
    generator
        CPU generator, so that every device sees the same images.
    """
    count, device = len(samples), samples.images.device
    others = samples[torch.randperm(count, generator=generator, device=generator.device).to(device)]
    part = 0.5 + torch.rand(count, dtype=torch.float32, generator=generator, device=generator.device) / 2
    keeps_label = (torch.rand(count, dtype=torch.float32, generator=generator, device=generator.device) < part).to(
        device
    )
    part = part.to(device).view(-1, 1, 1, 1)
    images = samples.images * part + others.images * (1 - part)
    labels = torch.where(keeps_label, samples.labels, others.labels)
    return replace(samples, images=images.round().to(samples.images.dtype), labels=labels)


def _places(size: int, most: int, count: int, generator: torch.Generator) -> Tensor:
    """Where each row (or column) of each image comes from."""
    moves = torch.randint(-most, most + 1, (count, 1), generator=generator, device=generator.device)
    return (torch.arange(size, device=moves.device) + moves).clamp(0, size - 1)
