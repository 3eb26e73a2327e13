"""Where to compute."""

from __future__ import annotations

import torch

from continual_crust.errors import InputError


def choose_device(name: str | torch.device) -> torch.device:
    """A device by name; ``auto`` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise InputError(f"there is no device '{name}'; use auto, cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("this PyTorch sees no CUDA device; use the device cpu or install a CUDA build of PyTorch.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"there is no device '{name}'; this machine has {torch.cuda.device_count()}, from cuda:0.")
    return device
