"""State of a trial <-> bytes, in the safetensors format: no pickle, so loading a state runs no code.

Equal states give equal bytes: the library orders tensors by (item size, name), and all attributes are one metadata
entry whose keys are sorted. Trainers decide which tensors a state has; entry points decide where payloads are stored.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import safetensors

from easeml_plpy.server.errors import CorruptCheckpoint, InvalidArgument
from easeml_plpy.server.value_types import JSON, Array

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Payload: TypeAlias = bytes | bytearray | memoryview

_ATTRIBUTES = "attributes"
_SIZES = {"F": (16, 32, 64), "I": (8, 16, 32, 64), "U": (8, 16, 32, 64)}
_KINDS = {"F": "float", "I": "int", "U": "uint"}
ARRAY_TYPES = {"BOOL": "bool"} | {f"{kind}{n}": f"{_KINDS[kind]}{n}" for kind, sizes in _SIZES.items() for n in sizes}
TENSOR_TYPES = {**ARRAY_TYPES, "BF16": "bfloat16"}
"""What safetensors calls the types of numbers, and what numpy and torch call them."""
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded state: tensors on the CPU, each writable and in memory of its own, and JSON attributes.

    `arrays` gives the same numbers without importing torch. `entries`: as safetensors has read them.
    """

    entries: Sequence[tuple[str, Mapping[str, Any]]]
    attributes: dict[str, JSON]

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors by name."""
        # Copies: torch aligns its own memory, and kernels may round differently on other alignments.
        return {name: _view(entry).clone() for name, entry in self.entries}

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The tensors as arrays of numpy."""
        return {
            name: np.frombuffer(entry["data"], ARRAY_TYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
            for name, entry in self.entries
        }

    def fill(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Overwrite tensors of the same names, types and shapes; return False, and write nothing, if the tensors differ
        in these.
        """
        stored = {name: _view(entry) for name, entry in self.entries}
        if {name: _kind(view) for name, view in stored.items()} != {name: _kind(new) for name, new in tensors.items()}:
            return False
        for name, tensor in tensors.items():
            tensor.copy_(stored[name])
        return True

    def read(self, name: str, kind: type[T]) -> T:
        """Return an attribute of that type. Raises CorruptCheckpoint."""
        value = self.attributes.get(name)
        if not isinstance(value, kind):
            raise CorruptCheckpoint(f"state has {name} {value!r}, expected a value of type {kind.__name__}")
        return value


def dump(tensors: Mapping[str, torch.Tensor | Array], attributes: Mapping[str, JSON]) -> bytes:
    """Return the payload of a state, the same bytes for the same state. Raises InvalidArgument."""
    on_cpu = {name: _on_cpu(name, value) for name, value in tensors.items()}
    text = _attributes_text(attributes)
    return bytes(safetensors.serialize(dict(map(_specified, on_cpu.items())), metadata={_ATTRIBUTES: text}))


def load(payload: Payload) -> Checkpoint:
    """Return the state in a payload. Raises CorruptCheckpoint."""
    data = bytes(payload)
    try:
        # It refuses a file of another format, or one that is longer or shorter than it declares.
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
        (header_bytes,) = _LENGTH.unpack_from(data)
        header = json.loads(data[_LENGTH.size : _LENGTH.size + header_bytes])
        attributes = json.loads(header["__metadata__"][_ATTRIBUTES])
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError, struct.error) as error:
        raise CorruptCheckpoint(f"checkpoint cannot be read: {error}") from error
    return Checkpoint(entries, attributes)


def digest(payload: Payload) -> str:
    """Return the SHA-256 of a payload, 64 hexadecimal digits."""
    return hashlib.sha256(payload).hexdigest()


def verify(payload: Payload, expected_hex: str) -> None:
    """Raise CorruptCheckpoint unless the payload has the expected digest."""
    actual_hex = digest(payload)
    if actual_hex != expected_hex:
        raise CorruptCheckpoint(
            "checkpoint does not match its digest",
            detail=f"expected sha256 {expected_hex}, got {actual_hex} over {len(payload)} bytes",
            hint="The stored bytes were changed; resume the trial from an earlier checkpoint.",
        )


def _view(entry: Mapping[str, Any]) -> torch.Tensor:
    """Return a tensor over the bytes of an entry."""
    import torch

    dtype = getattr(torch, TENSOR_TYPES[entry["dtype"]])
    if not entry["data"]:
        return torch.empty(entry["shape"], dtype=dtype)
    return torch.frombuffer(entry["data"], dtype=dtype).reshape(entry["shape"])


def _kind(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape


def _specified(named: tuple[str, torch.Tensor]) -> tuple[str, safetensors.TensorSpec]:
    """Return where the bytes of a tensor are; safetensors.torch takes longer to do so than to copy a megabyte."""
    name, tensor = named
    dtype = str(tensor.dtype).removeprefix("torch.")
    where = {"data_ptr": tensor.data_ptr(), "data_len": tensor.nbytes}
    return name, safetensors.TensorSpec(dtype=dtype, shape=tensor.shape, **where)


def _on_cpu(name: str, value: torch.Tensor | Array) -> torch.Tensor:
    """Return a contiguous CPU tensor of the value."""
    import torch

    if name == "__metadata__":
        raise InvalidArgument(f"a tensor cannot be named {name!r}")
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().contiguous()
    try:
        return torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), order="C"))
    except TypeError as error:
        raise InvalidArgument(f"tensor {name!r}: {value.dtype} cannot be stored") from error


def _attributes_text(attributes: Mapping[str, JSON]) -> str:
    try:
        return json.dumps(dict(attributes), sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"checkpoint attributes are not JSON: {error}") from error
