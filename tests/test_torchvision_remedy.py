"""The remedy acts where torchvision cannot be imported, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from continual_crust.torchvision_remedy import import_torchvision

NEEDS_OPERATORS = """
import torch
from torchvision import half  # what a failed import leaves behind
for name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, name):
        raise RuntimeError(f"operator torchvision::{name} does not exist")
"""


def run(code: str, fake_torchvision: str | None = None, folder: Path | None = None) -> str:
    """Standard output of the code in a fresh process, if asked for with a torchvision of our own making."""
    environment = dict(os.environ)
    if fake_torchvision is not None:
        assert folder is not None
        (folder / "torchvision").mkdir()
        (folder / "torchvision" / "__init__.py").write_text(fake_torchvision)
        (folder / "torchvision" / "half.py").touch()
        environment["PYTHONPATH"] = str(folder)
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_data_sets_models_and_transforms_are_usable_in_a_fresh_process() -> None:
    printed = run(
        """
from continual_crust.torchvision_remedy import import_torchvision
first, second = import_torchvision(), import_torchvision()
import torch
import torchvision
from torchvision import datasets, models, transforms
assert first is second is torchvision
print(transforms.CenterCrop(4)(torch.zeros(1, 8, 8)).shape, models.resnet18.__name__, datasets.MNIST.__name__)
"""
    )
    assert printed == "torch.Size([1, 4, 4]) resnet18 MNIST\n"


def test_missing_operators_are_declared_and_the_import_repeated(tmp_path: Path) -> None:
    printed = run(
        """
from continual_crust.torchvision_remedy import import_torchvision
try:
    import torchvision
except RuntimeError as error:
    print(error)
print(import_torchvision() is import_torchvision())
""",
        NEEDS_OPERATORS,
        tmp_path,
    )
    assert printed == "operator torchvision::nms does not exist\nTrue\n"


def test_a_healthy_torchvision_is_left_alone(tmp_path: Path) -> None:
    printed = run(
        """
import torch
torch.library.Library = None  # so that any use of it fails
from continual_crust.torchvision_remedy import import_torchvision
module = import_torchvision()
print(module.healthy, hasattr(torch.ops.torchvision, "nms"))
""",
        "healthy = True",
        tmp_path,
    )
    assert printed == "True False\n"


def test_an_imported_torchvision_is_returned_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torchvision")
    monkeypatch.setitem(sys.modules, "torchvision", module)
    monkeypatch.setattr(torch.library, "Library", None)
    assert import_torchvision() is module


@pytest.mark.parametrize("source", ["raise RuntimeError('out of memory')", "raise ImportError('no such thing')"])
def test_another_failure_is_passed_on(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torchvision.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(torch.library, "Library", None)
    with pytest.raises((RuntimeError, ImportError), match=r"out of memory|no such thing"):
        import_torchvision()


def test_nothing_happens_before_it_is_asked() -> None:
    code = "import continual_crust.torchvision_remedy, sys; print('torchvision' in sys.modules)"
    assert run(code) == "False\n"
