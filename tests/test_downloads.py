"""Downloads through torchvision's own downloader, from a server on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from continual_crust.data import cifar10, load_dataset
from continual_crust.data.loading import Request
from continual_crust.errors import InputError
from continual_crust.torchvision_remedy import import_torchvision

CIFAR10_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
CIFAR10_FOLDER = "cifar-10-batches-bin"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The folder that is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    return folder


@pytest.fixture
def address(served: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where it is served."""
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def write_idx(folder: Path) -> list[tuple[str, str]]:
    """Ten small images of ten classes, to train and to test; the names and sums of their files."""
    resources = []
    for part in ("train", "t10k"):
        for kind, values in (
            ("images-idx3", np.zeros((10, 28, 28), np.uint8)),
            ("labels-idx1", np.arange(10, dtype=np.uint8)),
        ):
            start = bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes()
            content = gzip.compress(start + values.tobytes())
            name = f"{part}-{kind}-ubyte.gz"
            (folder / name).write_bytes(content)
            resources.append((name, hashlib.md5(content).hexdigest()))
    return resources


@pytest.mark.parametrize(("name", "torchvision"), [("mnist", "MNIST"), ("fashionmnist", "FashionMNIST")])
def test_idx_files_are_brought_once(
    name: str, torchvision: str, served: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchvision_class = getattr(import_torchvision().datasets, torchvision)
    monkeypatch.setattr(torchvision_class, "mirrors", [address])
    monkeypatch.setattr(torchvision_class, "resources", write_idx(served))
    root = tmp_path / "data"
    assert len(load_dataset(name, root, download=True).train_labels) == 10
    monkeypatch.setattr(torchvision_class, "mirrors", [])
    assert len(load_dataset(name, root, download=True).train_labels) == 10


def test_files_that_are_there_in_another_layout_are_not_brought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_torchvision().datasets.MNIST, "mirrors", [])
    write_idx(tmp_path)
    assert len(load_dataset("mnist", tmp_path, download=True).train_labels) == 10


def write_archive(path: Path, names: list[str]) -> str:
    """Write a tar.gz of small files and return its sum."""
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 3
            tar.addfile(member, io.BytesIO(b"abc"))
    return hashlib.md5(path.read_bytes()).hexdigest()


def test_only_the_six_files_are_taken_out_of_an_archive(
    served: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{CIFAR10_FOLDER}/{name}" for name in CIFAR10_FILES]
    escaping = ["../escaped", f"{CIFAR10_FOLDER}/../../escaped", str(tmp_path / "escaped")]
    monkeypatch.setattr(cifar10, "_MD5", write_archive(served / "cifar.tar.gz", [*escaping, *names]))
    monkeypatch.setattr(cifar10, "_URL", f"{address}cifar.tar.gz")
    cifar10.download(Request(tmp_path / "new" / "data"))
    made = {path.relative_to(tmp_path / "new").as_posix() for path in (tmp_path / "new").rglob("*.*")}
    assert made == {"data/cifar.tar.gz", *(f"data/{name}" for name in names)}
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("wrong", ["address", "sum", "content"])
def test_a_download_that_fails_is_one_sentence(
    wrong: str, served: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    md5 = write_archive(served / "cifar.tar.gz", ["readme"])
    monkeypatch.setattr(cifar10, "_MD5", "0" * 32 if wrong == "sum" else md5)
    monkeypatch.setattr(cifar10, "_URL", address + ("nothing" if wrong == "address" else "cifar.tar.gz"))
    with pytest.raises(InputError, match=r"'cifar10' could not be downloaded \(.*\); expected") as raised:
        load_dataset("cifar10", tmp_path / "data", download=True)
    assert "\n" not in str(raised.value)
