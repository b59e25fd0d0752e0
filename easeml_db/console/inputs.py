"""The example input of a task that the form shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MOST_NUMBERS = 12
"""A larger tensor is named by its shape, which is shorter than its numbers."""
Entry = Mapping[str, Any]


def example_input(inputs: Sequence[Entry], recursive: Sequence[str]) -> str:
    """Return an input of a task as easeml.infer takes it, with zeros."""
    tensors = [entry for entry in inputs if entry.get("role") != "link"]
    if not recursive:
        return _object(tensors)
    if len(recursive) == 1:
        return f"[{_object(tensors)}, {_object(tensors)}]"
    child = _fields(tensors)
    (first, *others) = recursive
    links = [f"{json.dumps(first)}: {{{child}}}", *(f"{json.dumps(name)}: null" for name in others)]
    return f"{{{', '.join([child, *links])}}}"


def _object(tensors: Sequence[Entry]) -> str:
    return _tensor(tensors[0]) if len(tensors) == 1 else f"{{{_fields(tensors)}}}"


def _fields(tensors: Sequence[Entry]) -> str:
    return ", ".join(f"{json.dumps(entry['name'])}: {_tensor(entry)}" for entry in tensors)


def _tensor(entry: Entry) -> str:
    if entry["n_values"] > MOST_NUMBERS:
        return f"Tensor{json.dumps(entry['shape'], separators=(',', ':'))}"
    zeros: Any = 0
    for size in reversed(entry["shape"]):
        zeros = [zeros] * size
    return json.dumps(zeros)
