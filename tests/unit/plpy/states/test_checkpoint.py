"""Checkpoints: equal states give equal bytes, bytes give the state back, damage is noticed."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from easeml_plpy.server.errors import CorruptCheckpoint, InvalidArgument
from easeml_plpy.states import checkpoint

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]
SHAPES = [(), (0,), (0, 3), (1,), (2, 3), (2, 3, 5)]


def with_header(header: Any, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_tensor_comes_back_writable_with_dtype_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.arange(30)[: int(np.prod(shape))].reshape(shape) % 7).to(dtype)
    loaded = checkpoint.load(checkpoint.dump({"a": tensor}, {})).tensors["a"]
    assert loaded.dtype == dtype
    assert loaded.shape == tensor.shape
    assert torch.equal(loaded, tensor)
    loaded.zero_()


def test_attributes_come_back_exactly() -> None:
    attributes: dict[str, Any] = {
        "n": 3,
        "rate": 0.1 + 0.2,
        "names": ["ä", None, True],
        "nested": {"b": 1, "a": [1.5]},
    }
    assert checkpoint.load(checkpoint.dump({}, attributes)).attributes == attributes


def test_order_of_insertion_does_not_change_the_bytes() -> None:
    a, b, c = torch.randn(3), torch.randn(2).double(), torch.arange(2)
    one = checkpoint.dump({"a": a, "b": b, "c": c}, {"x": 1, "y": {"p": 1, "q": 2}})
    other = checkpoint.dump({"c": c, "b": b, "a": a}, {"y": {"q": 2, "p": 1}, "x": 1})
    assert one == other


def test_numpy_arrays_of_any_layout_equal_their_tensors() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    read_only = array.copy()
    read_only.flags.writeable = False
    expected = checkpoint.dump({"a": torch.from_numpy(array)}, {})
    for same in (array, read_only, np.asfortranarray(array), array.astype(">f4"), array[::-1][::-1]):
        assert checkpoint.dump({"a": same}, {}) == expected
    assert checkpoint.dump({"a": array[:, ::-1]}, {}) != expected


def test_the_bytes_are_those_that_the_library_writes() -> None:
    shared = torch.randn(6)
    tensors = {f"{dtype}/{shape}": torch.ones(shape, dtype=dtype) for dtype in DTYPES for shape in SHAPES}
    tensors |= {"turned": torch.randn(3, 4).T, "half": shared[:3], "other half": shared[3:]}
    apart = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    expected = safetensors.torch.save(apart, metadata={"attributes": '{"x":1}'})
    assert checkpoint.dump(tensors, {"x": 1}) == expected


def test_zero_dimensional_numpy_arrays_stay_so() -> None:
    payload = checkpoint.dump({"a": np.asarray(np.float64(2.5))}, {})
    assert checkpoint.load(payload).tensors["a"].shape == ()


def test_parameters_and_strided_views_are_stored_as_they_read() -> None:
    weight = torch.nn.Parameter(torch.randn(3, 4))
    loaded = checkpoint.load(checkpoint.dump({"w": weight, "t": weight.t()}, {})).tensors
    assert torch.equal(loaded["w"], weight)
    assert torch.equal(loaded["t"], weight.t())


def test_the_safetensors_library_reads_what_is_written() -> None:
    tensors = {str(dtype): torch.ones(3, 5).to(dtype) for dtype in DTYPES}
    payload = checkpoint.dump(tensors, {"n": 1})
    read = safetensors.torch.load(payload)
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)


def test_what_the_safetensors_library_writes_can_be_read() -> None:
    tensor = torch.randn(4, 2)
    payload = safetensors.torch.save({"a": tensor}, {"attributes": '{"n": 1}'})
    loaded = checkpoint.load(payload)
    assert torch.equal(loaded.tensors["a"], tensor)
    assert loaded.attributes == {"n": 1}


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_bytes_can_be_loaded_and_verified(wrap: Any) -> None:
    payload = checkpoint.dump({"a": torch.ones(3)}, {"n": 1})
    checkpoint.verify(wrap(payload), checkpoint.digest(payload))
    assert torch.equal(checkpoint.load(wrap(payload)).tensors["a"], torch.ones(3))


def test_loaded_tensors_do_not_share_memory_with_the_payload() -> None:
    payload = bytearray(checkpoint.dump({"a": torch.ones(3)}, {}))
    loaded = checkpoint.load(payload)
    payload[-12:] = bytes(12)
    assert torch.equal(loaded.tensors["a"], torch.ones(3))


def test_one_changed_bit_fails_verification() -> None:
    payload = bytearray(checkpoint.dump({"a": torch.ones(3)}, {}))
    expected = checkpoint.digest(payload)
    payload[-1] ^= 1
    with pytest.raises(CorruptCheckpoint, match="digest") as caught:
        checkpoint.verify(payload, expected)
    assert expected in (caught.value.detail or "")


def test_every_truncation_is_noticed() -> None:
    payload = checkpoint.dump({"a": torch.ones(3), "b": torch.ones(2)}, {"n": 1})
    for n_bytes in range(len(payload)):
        with pytest.raises(CorruptCheckpoint):
            checkpoint.load(payload[:n_bytes])


META = {"attributes": "{}"}


@pytest.mark.parametrize(
    "payload",
    [
        with_header([1]),
        with_header({}),
        with_header({"__metadata__": {}}),
        with_header({"__metadata__": {"attributes": "{"}}),
        with_header({"__metadata__": META}, b"x"),
        with_header({"__metadata__": META, "a": 1}),
        with_header({"__metadata__": META, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}),
        with_header({"__metadata__": META, "a": {"dtype": "O8", "shape": [1], "data_offsets": [0, 8]}}),
        with_header({"__metadata__": META, "a": {"dtype": "U8", "shape": [-1], "data_offsets": [1, 0]}}, b"x"),
        with_header({"__metadata__": META, "a": {"dtype": "U8", "shape": ["1"], "data_offsets": [0, 1]}}, b"x"),
        with_header({"__metadata__": META, "a": {"dtype": "U8", "shape": [-1, -1], "data_offsets": [0, 1]}}, b"x"),
        with_header({"__metadata__": META, "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1.5]}}, b"x"),
    ],
)
def test_nonsense_is_a_corrupt_checkpoint(payload: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        checkpoint.load(payload)


def test_what_cannot_be_stored_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="cannot be stored"):
        checkpoint.dump({"a": np.array(["text"])}, {})
    with pytest.raises(InvalidArgument, match="__metadata__"):
        checkpoint.dump({"__metadata__": torch.ones(1)}, {})
    with pytest.raises(InvalidArgument, match="JSON"):
        checkpoint.dump({}, {"loss": float("nan")})
