"""Trees of tensors in a file: what they give back, and that no bytes are mistaken for one."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from continual_crust.errors import InputError
from continual_crust.tensor_file import NotATensorFile, pack
from continual_crust.tensor_tree import pack_tree, unpack_tree

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
TREES = st.recursive(
    PLAIN | st.lists(st.integers(0, 3), max_size=3).map(torch.ones),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
WHOLE = pack_tree({"weights": {3: torch.arange(6.0).reshape(2, 3)}, "epochs": [1, None, "two"]})


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and [*one] == [*other] and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@settings(deadline=None)
@given(TREES)
def test_a_tree_survives_a_file(tree: object) -> None:
    content = pack_tree(tree)
    assert same(unpack_tree(content), tree)
    assert pack_tree(unpack_tree(content)) == content


@pytest.mark.parametrize("layout", [lambda t: t, lambda t: t.transpose(1, 3), lambda t: t[:, :1].transpose(0, 1)])
def test_tensors_lie_as_they_lay(layout) -> None:
    tensor = layout(torch.arange(2 * 3 * 4 * 5, dtype=torch.int32).reshape(2, 3, 4, 5))
    dense = tensor if tensor.numel() == 120 else tensor.clone()
    back = unpack_tree(pack_tree([dense]))[0]
    assert torch.equal(back, dense)
    assert back.dtype == dense.dtype
    assert back.stride() == dense.stride()
    assert torch.equal(unpack_tree(pack_tree(tensor)), tensor)
    assert torch.equal(unpack_tree(pack_tree(tensor[:1].expand(4, -1, -1, -1))), tensor[:1].expand(4, -1, -1, -1))


@settings(deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_every_changed_byte_is_found(at: int, change: int) -> None:
    content = bytearray(WHOLE)
    content[at] ^= change
    with pytest.raises(NotATensorFile):
        unpack_tree(bytes(content))


@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=100))
def test_what_is_cut_off_or_foreign_is_refused(length: int, content: bytes) -> None:
    for candidate in (WHOLE[:length], content, WHOLE + b"\0"):
        with pytest.raises(NotATensorFile):
            unpack_tree(candidate)


NODES = st.recursive(
    PLAIN | st.sampled_from([{"tensor": "0.a"}, {"tensor": "tree"}, {"tensor": []}, {"entries": [[[], 1]]}]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["tensor", "entries", "strides"]), inner)
        | st.fixed_dictionaries(
            {"tensor": st.just("0.a"), "strides": st.lists(st.integers(-(2**40), 2**40), max_size=3)}
        )
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(NODES)
def test_a_forged_tree_is_refused_or_harmless(node: object) -> None:
    """With the right checksum, which whoever makes a file can make too."""
    text = json.dumps(node).encode()  # infinities and all
    tensors = {"0.a": torch.ones(2, 3), "tree": torch.tensor(list(text), dtype=torch.uint8)}
    tensors["sha256"] = torch.tensor(list(hashlib.sha256(pack(tensors)).digest()), dtype=torch.uint8)
    try:
        found = unpack_tree(pack(tensors))
    except NotATensorFile:
        return
    assert all(leaf is None or isinstance(leaf, bool | int | float | str | torch.Tensor) for leaf in leaves(found))
    assert all(leaf.untyped_storage().nbytes() <= len(text) + 24 for leaf in leaves(found) if torch.is_tensor(leaf))


def leaves(tree: object) -> list[object]:
    if isinstance(tree, dict):
        return [leaf for pair in tree.items() for part in pair for leaf in leaves(part)]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"own": {"counts": np.arange(3)}}, "own.counts is a ndarray, which cannot be saved; keep tensors"),
        ({"own": {(0, 1): 2}}, "a key of own is a tuple"),
        ({"own": [{1, 2}]}, "own.0 is a set"),
    ],
)
def test_what_would_not_come_back_is_not_saved(tree: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        pack_tree(tree)
