"""Dictionaries and lists of tensors and plain values in one file, which reading can run nothing from.

It is a `tensor_file` with two arrays beside the tensors: ``tree``, JSON that says where each of them belongs, and
``sha256``, a checksum of all others, so that a single bit that has turned is found. How a tensor lies in memory is kept
as well: a network may compute other last bits from the same numbers in another layout.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from continual_crust.errors import InputError
from continual_crust.tensor_file import NotATensorFile, pack, unpack

_TREE, _SUM = "tree", "sha256"


def pack_tree(tree: Any) -> bytes:
    """The bytes of a file that holds a tree; keys are texts or whole numbers.

    >>> unpack_tree(pack_tree({"weights": {3: torch.ones(2)}, "epochs": [1, None, 0.5]}))
    {'weights': {3: tensor([1., 1.])}, 'epochs': [1, None, 0.5]}
    """
    tensors: dict[str, Tensor] = {}
    tensors[_TREE] = _as_bytes(json.dumps(_plain(tree, "", tensors), separators=(",", ":")).encode())
    tensors[_SUM] = _as_bytes(hashlib.sha256(pack(tensors)).digest())
    return pack(tensors)


def unpack_tree(content: bytes) -> Any:
    """The tree in a file.

    Raises
    ------
    NotATensorFile
        If the bytes are anything but what :func:`pack_tree` gave.
    """
    tensors = unpack(content)
    if _TREE not in tensors or _SUM not in tensors:
        raise NotATensorFile("it holds arrays, but does not say where they belong")
    if hashlib.sha256(pack({name: part for name, part in tensors.items() if name != _SUM})).digest() != _bytes_of(
        tensors[_SUM]
    ):
        raise NotATensorFile("it does not match its checksum")
    try:
        return _tree(json.loads(_bytes_of(tensors[_TREE])), tensors)
    except (ValueError, KeyError, TypeError, RuntimeError, RecursionError):
        raise NotATensorFile("it does not say where its arrays belong") from None


def _plain(node: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """A node as JSON; its tensors go to `tensors`, under names that tell where they come from."""
    if isinstance(node, Tensor):
        name = f"{len(tensors)}{path}"
        tensors[name] = node
        # Not `is_contiguous`, which overlooks dimensions of size one; the choice of a kernel does not.
        usual = torch.empty(node.shape, device="meta").stride()
        return {"tensor": name} if node.stride() == usual else {"tensor": name, "strides": list(node.stride())}
    if isinstance(node, Mapping):
        for key in node:
            _check_plain(key, f"a key of {path[1:] or 'a state'}")
        return {"entries": [[key, _plain(value, f"{path}.{key}", tensors)] for key, value in node.items()]}
    if isinstance(node, list | tuple):
        return [_plain(value, f"{path}.{at}", tensors) for at, value in enumerate(node)]
    if node is not None:
        _check_plain(node, path[1:])
    return node


def _check_plain(value: object, where: str) -> None:
    """Refuse what JSON has not, or would bring back as something else."""
    if not isinstance(value, str | int | float):
        raise InputError(
            f"{where} is a {type(value).__name__}, which cannot be saved; keep tensors, numbers and texts, in lists "
            "and dictionaries."
        )


def _tree(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(node, list):
        return [_tree(value, tensors) for value in node]
    if isinstance(node, dict):
        if "tensor" in node:
            return _laid_out(tensors[node["tensor"]], node.get("strides"))
        return {key: _tree(value, tensors) for key, value in node["entries"]}
    return node


def _laid_out(tensor: Tensor, strides: list[int] | None) -> Tensor:
    if strides is None:
        return tensor
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    # Only what lies without gaps is brought back, or a small file could ask for any amount of memory.
    if last + 1 != tensor.numel():
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def _as_bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _bytes_of(tensor: Tensor) -> bytes:
    content: bytes = tensor.numpy().tobytes()
    return content
