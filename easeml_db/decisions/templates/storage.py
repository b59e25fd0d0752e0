"""The columns that store the examples of a program, and the learning task on them."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

from easeml_db.decisions.templates.catalogue import match
from easeml_db.decisions.templates.parsing import parse_program
from easeml_db.decisions.templates.printing import print_program, print_tensor
from easeml_db.decisions.templates.program import ObjectType, Program, Tensor
from easeml_db.decisions.templates.scanning import EXAMPLE
from easeml_db.errors import InvalidArgument, NotAllowed

Storage = Literal["bytes", "numbers"]
STORAGES: tuple[Storage, ...] = ("bytes", "numbers")
CHANNELS = (1, 3, 4)
"""The last size of a picture: grey, colours, colours and how opaque they are."""
MOST_CLASSES = 10_000
MOST_OBJECTS = 10_000
"""Of a series or a tree."""
MOST_STEPS = 2000
"""Of a series that comes out: each is written by itself."""
NOMINAL_OBJECTS = 64
"""The length with which architectures are asked whether they fit, before a series or tree has been fed."""


def describe_program(text: str | None, storage: str | None) -> str:
    """Return the columns and the task of a program as JSON. Raises InvalidArgument, NotAllowed.

    storage: bytes (a bytea of 8-bit values), numbers (an array of real), None: bytes for pictures, else numbers.
    """
    if storage not in (None, *STORAGES):
        raise InvalidArgument(
            f"storage: expected {' or '.join(STORAGES)}, got {storage!r}",
            hint="bytes are whole numbers from 0 to 255, such as pixels; leave it out, and the program decides.",
        )
    if text is None:
        raise InvalidArgument("program: expected a text, got NULL", hint=EXAMPLE)
    program = parse_program(text)
    template = match(program)
    _refuse_what_is_not_stored(program, template.workload)
    (output,) = program.output.tensors
    output_shape = _output_shape(program.output)
    return json.dumps(
        {
            "program": print_program(program),
            "template": template.name,
            "workload": template.workload,
            "inputs": _input_columns(program.input, storage),
            "recursive": program.input.recursive,
            "n_links": _n_links(program.input) if program.input.recursive else None,
            "output": _output_column(program.output, storage) if output_shape else None,
            "output_shape": output_shape,
            "task": "regression" if output_shape or output.n_values == 1 else "classification",
            "n_outputs": math.prod(output_shape) if output_shape else output.n_values,
            "input_shape": _encoded_shape(program.input),
        }
    )


def _output_shape(kind: ObjectType) -> list[int] | None:
    """Return the shape of an output tensor or series, None for classes or one number. A step of a series has an
    additional number: whether the step exists.
    """
    (tensor,) = kind.tensors
    if kind.recursive:
        return [NOMINAL_OBJECTS, tensor.n_values + 1]
    return list(tensor.shape) if tensor.rank > 1 else None


def _output_column(kind: ObjectType, storage: str | None) -> dict[str, Any]:
    """Return the column of a tensor or a series that comes out."""
    (tensor,) = kind.tensors
    if not kind.recursive:
        return _column("output", tensor, storage, None)
    return _of_objects(_column("output", tensor, "numbers", None), MOST_STEPS)


def _of_objects(column: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the column that holds a tensor of all objects of an example, up to a largest number of objects."""
    return {**column, "text": f"{column['text']} of each object", "role": "object", "most_objects": most}


def named(kind: ObjectType) -> list[tuple[str, Tensor]]:
    """Return the tensors of an object with their names."""
    return list(zip(kind.names, kind.tensors, strict=True))


def _column(name: str, tensor: Tensor, storage: str | None, kind: ObjectType | None) -> dict[str, Any]:
    """Return the column of a tensor of the input, or of the output. With a prefix, no name can mean another column of
    the table."""
    is_picture = tensor.rank == 3 and tensor.shape[-1] in CHANNELS and tensor.n_values > 1
    return {
        "name": name,
        "column": "output" if kind is None else "input" if len(kind.tensors) == 1 else f"input_{name}",
        "type": "bytea" if (storage or ("bytes" if is_picture else "numbers")) == "bytes" else "real[]",
        "shape": tensor.shape,
        "n_values": tensor.n_values,
        "text": print_tensor(Tensor(tensor.shape)),
    }


def _input_columns(kind: ObjectType, storage: str | None) -> list[dict[str, Any]]:
    """Return the columns of the input; those of series and trees hold a tensor, or a link, of all objects."""
    if not kind.recursive:
        return [_column(name, tensor, storage, kind) for name, tensor in named(kind)]
    if storage == "bytes":
        raise InvalidArgument("storage: expected numbers, as series and trees are kept, got 'bytes'")
    columns = [_of_objects(_column(name, tensor, "numbers", kind), MOST_OBJECTS) for name, tensor in named(kind)]
    links = kind.recursive if _n_links(kind) else ()
    return columns + [_link_column(name) for name in links]


def _link_column(name: str) -> dict[str, Any]:
    """Return the column that says for each object of a tree which one it leads to, by its place, or NULL."""
    text = "a place, or NULL, of each object"
    column = f"input_{name}"
    return {
        "name": name,
        "column": column,
        "type": "integer[]",
        "shape": [],
        "n_values": 1,
        "text": text,
        "role": "link",
    }


def _n_links(kind: ObjectType) -> int:
    """Count the columns of links: the order of a series says which object is the next."""
    return len(kind.recursive) if len(kind.recursive) > 1 else 0


def _encoded_shape(kind: ObjectType) -> list[int]:
    if kind.recursive:
        return [NOMINAL_OBJECTS, sum(tensor.n_values for tensor in kind.tensors) + 1 + _n_links(kind)]
    if len(kind.tensors) == 1:
        return list(kind.tensors[0].shape)
    return [sum(tensor.n_values for tensor in kind.tensors)]


def _refuse_what_is_not_stored(program: Program, workload: str) -> None:
    """Refuse a program whose objects cannot be stored yet, or whose output no architecture learns."""
    hint = (
        "Programs with one tensor as output work: Tensor[3] are classes, Tensor[1] is a number, one of several sizes is"
        " a tensor, and {[Tensor[3]],[next]} is a series."
    )
    outputs = program.output.tensors
    if len(program.output.recursive) > 1:
        (first, *_) = outputs
        raise NotAllowed(
            f"program: {workload} would return trees, which nothing here learns",
            hint=f"Let the objects of a tree come out as a series, each after the one that leads to it: output:"
            f" {{[{print_tensor(Tensor(first.shape))}],[next]}}. {hint}",
        )
    if not program.input.tensors or len(outputs) != 1 or (program.output.recursive and outputs[0].rank != 1):
        raise NotAllowed(f"program: nothing here learns {workload} of this shape", hint=hint)
    if outputs[0].rank == 1 and not program.output.recursive and outputs[0].n_values > MOST_CLASSES:
        raise InvalidArgument(
            f"program: expected an output of at most {MOST_CLASSES} classes, got {outputs[0].n_values}"
        )
