"""Named arrays in one plain file, in the layout of safetensors.

A file is an 8-byte little-endian length, a JSON header of that length and the raw values of all arrays, in the order
of the header and without gaps::

    {"weight": {"dtype": "F32", "shape": [10, 128], "data_offsets": [0, 5120]}, ...}

Chosen over a pickle because reading one can run nothing, and over npz because there is nothing to unpack: every size
is checked against the length of the file before a byte of memory is asked for, so a small file cannot claim a large
array. Any safetensors library reads these files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
LARGEST_HEADER = 100_000_000
"""More is refused, as safetensors does."""


class NotATensorFile(ValueError):
    """The bytes are not what :func:`pack` makes; says why."""


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a file that holds these tensors; the same tensors always give the same bytes.

    >>> sorted(unpack(pack({"a": torch.ones(2), "b": torch.zeros(0, 3)})))
    ['a', 'b']
    """
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    position = 0
    # Wide types first keeps every array aligned to its own width.
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        if tensor.dtype not in _NAMES:
            raise NotATensorFile(f"'{name}' is of type {tensor.dtype}, which has no place in a file")
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        values = flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""
        end = position + len(values)
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, end]}
        parts.append(values)
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def unpack(content: bytes) -> dict[str, Tensor]:
    """The tensors of a file.

    Raises
    ------
    NotATensorFile
        If anything about the bytes is not as described above.
    """
    if len(content) < 8:
        raise NotATensorFile("it is too short")
    length = int.from_bytes(content[:8], "little")
    if length > min(LARGEST_HEADER, len(content) - 8):
        raise NotATensorFile("its header is cut off")
    try:
        header = json.loads(content[8 : 8 + length].decode())
    except (ValueError, RecursionError):
        raise NotATensorFile("its header is not JSON") from None
    if not isinstance(header, dict):
        raise NotATensorFile("its header is not a table of tensors")
    header.pop("__metadata__", None)
    body = np.frombuffer(content, np.uint8, offset=8 + length)
    tensors, filled = {}, 0
    for name, entry in header.items():
        dtype, shape, (start, end) = _entry(name, entry)
        if start != filled or not start <= end <= len(body):
            raise NotATensorFile(f"'{name}' does not lie where the one before it ends")
        if end - start != math.prod(shape) * dtype.itemsize:
            raise NotATensorFile(f"'{name}' has another size than its shape says")
        # A copy, because the buffer may be read-only and need not be aligned.
        empty = torch.zeros(shape, dtype=dtype, device="cpu")
        tensors[name] = torch.from_numpy(body[start:end].copy()).view(dtype).reshape(shape) if end > start else empty
        filled = end
    if filled != len(body):
        raise NotATensorFile("there is more in it than its header names")
    return tensors


def _entry(name: str, entry: Any) -> tuple[torch.dtype, list[int], tuple[int, int]]:
    try:
        dtype, shape, (start, end) = _TYPES[entry["dtype"]], list(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise NotATensorFile(f"its header does not say what '{name}' is") from None
    numbers = [*shape, start, end]
    # The bound keeps products of shapes with a zero in them from reaching torch as an overflow.
    if any(type(number) is not int or not 0 <= number < 1 << 48 for number in numbers):
        raise NotATensorFile(f"its header gives '{name}' an impossible shape")
    return dtype, shape, (start, end)
