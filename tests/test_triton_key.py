"""By what Triton recognises itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from continual_crust.triton_key import key_of_files, recognise_triton_by_its_files


def test_another_size_time_or_name_is_another_key(tmp_path: Path) -> None:
    folder = tmp_path / "triton"
    folder.mkdir()
    compiler, library = folder / "compiler.py", folder / "library.so"
    compiler.write_text("one")
    library.write_bytes(b"two")
    keys = [key_of_files(folder)]
    assert key_of_files(folder) == keys[0]
    (folder / "compiler.pyc").write_text("left by Python")
    assert key_of_files(folder) == keys[0]
    library.write_bytes(b"three")
    os.utime(library, ns=(0, 0))
    keys.append(key_of_files(folder))
    os.utime(library, ns=(0, 1))
    keys.append(key_of_files(folder))
    compiler.rename(folder / "interpreter.py")
    keys.append(key_of_files(folder))
    assert len(set(keys)) == 4


def test_triton_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = pytest.importorskip("triton.runtime.cache")
    monkeypatch.setattr(cache, "triton_key", cache.triton_key)  # put back afterwards
    assert recognise_triton_by_its_files()
    assert cache.triton_key() == key_of_files(Path(cache.__file__).parents[1])


def test_a_triton_that_keeps_it_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = pytest.importorskip("triton.runtime.cache")
    monkeypatch.delattr(cache, "triton_key")
    assert not recognise_triton_by_its_files()
    assert not hasattr(cache, "triton_key")


def test_a_triton_that_cannot_be_imported_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise OSError('no driver')")
    monkeypatch.syspath_prepend(tmp_path)
    assert not recognise_triton_by_its_files()
