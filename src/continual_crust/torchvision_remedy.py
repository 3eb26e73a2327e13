"""Import torchvision where its compiled operators cannot be loaded.

The package registry serves torchvision built for CUDA. Beside a CPU-only PyTorch that build cannot load its
compiled half, and the import stops with *operator torchvision::nms does not exist*: the Python half attaches
shape rules to two operators that only the compiled half would have declared. Declaring the two, without an
implementation, is all the import needs. Data sets, models and transforms do not use them, and calling them
still fails with torchvision's own explanation.

Whatever uses torchvision here, or imports a package that does, calls :func:`import_torchvision` first.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

_OPERATORS = ("nms", "qnms")
# A declaration lasts as long as the Library object it was made with.
_kept_alive: list[torch.library.Library] = []


def import_torchvision() -> ModuleType:
    """Import torchvision, mending a missing operator if, and only if, the plain import stops at one.

    Returns
    -------
    ModuleType
        The torchvision package. Afterwards ``import torchvision`` works everywhere in the process.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if not _is_missing_operator(error):
            raise
    _forget_partial_import()
    _declare_operators()
    return importlib.import_module("torchvision")


def _is_missing_operator(error: RuntimeError) -> bool:
    return any(f"operator torchvision::{name} does not exist" in str(error) for name in _OPERATORS)


def _forget_partial_import() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)
    _kept_alive.append(library)
