"""Series and trees as sessions have them, for the tests of networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from easeml_plpy.columns.encoder import ObjectsField
from easeml_plpy.columns.object_rows import numbers_of, packed, standardised, unpacked
from easeml_plpy.columns.task import Objects, Task, TaskKind
from easeml_plpy.prediction.task_objects import objects_of


def field_of(n_numbers: int, *recursive: str, name: str = "field1") -> ObjectsField:
    """Return the field of objects that hold one array of numbers."""
    tensors = ((name, (n_numbers,)),)
    field = ObjectsField(column="input", type="_float4", dtype="f4", tensors=tensors, recursive=recursive)
    return field.of_length(1)


def read(field: ObjectsField, given: Sequence[Any]) -> tuple[torch.Tensor, ObjectsField]:
    """Return rows given as JSON, standardised as packing does it, and their field."""
    objects = [objects_of(field, each) for each in given]
    sized = field.of_length(max(len(row.numbers) for row in objects))
    rows = unpacked(sized, packed(objects), len(objects))
    numbers = numbers_of(sized, rows)
    measured = replace(sized, mean=numbers.mean(axis=0), scale=np.maximum(numbers.std(axis=0), 1e-6))
    return torch.from_numpy(standardised(measured, rows)), measured


def task_of(field: ObjectsField, n_outputs: int, kind: TaskKind = "classification") -> Task:
    """Return what is learned of such rows."""
    return Task(kind, field.shape, n_outputs, objects=Objects(field.n_numbers, field.n_links))
