"""The columns that keep the examples of a program, and what is to be learned of them."""

from __future__ import annotations

import json
from typing import Any, Literal

from easeml_db.decisions.templates.catalogue import match
from easeml_db.decisions.templates.parsing import parse_program
from easeml_db.decisions.templates.printing import print_program, print_tensor
from easeml_db.decisions.templates.program import ObjectType, Program, Tensor
from easeml_db.errors import InvalidArgument, NotAllowed

Storage = Literal["bytes", "numbers"]
STORAGES: tuple[Storage, ...] = ("bytes", "numbers")
CHANNELS = (1, 3, 4)
"""The last size of a picture: grey, colours, colours and how opaque they are."""
MOST_CLASSES = 10_000


def describe_program(text: str, storage: str | None) -> str:
    """Return the columns and the task of a program as JSON. Raises InvalidArgument, NotAllowed.

    storage: bytes (a bytea of 8-bit values), numbers (an array of real), None: bytes for pictures, else numbers.
    """
    if storage not in (None, *STORAGES):
        raise InvalidArgument(
            f"storage: expected {' or '.join(STORAGES)}, got {storage!r}",
            hint="bytes are whole numbers from 0 to 255, such as pixels; leave it out, and the program decides.",
        )
    program = parse_program(text)
    template = match(program)
    _refuse_what_is_not_stored(program, template.workload)
    (output,) = program.output.tensors
    has_tensors = output.rank > 1
    return json.dumps(
        {
            "program": print_program(program),
            "template": template.name,
            "workload": template.workload,
            "inputs": [_column(name, tensor, storage, program.input) for name, tensor in named(program.input)],
            "output": _column("output", output, storage, None) if has_tensors else None,
            "task": "regression" if has_tensors or output.n_values == 1 else "classification",
            "n_outputs": output.n_values,
            "input_shape": _encoded_shape(program.input),
        }
    )


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


def _encoded_shape(kind: ObjectType) -> list[int]:
    if len(kind.tensors) == 1:
        return list(kind.tensors[0].shape)
    return [sum(tensor.n_values for tensor in kind.tensors)]


def _refuse_what_is_not_stored(program: Program, workload: str) -> None:
    """Refuse a program whose objects have no columns yet, or whose output nothing of ours learns."""
    hint = (
        "Programs without recursive fields and with one tensor as output work: Tensor[3] are classes, Tensor[1] is a"
        " number, one of several sizes is a tensor."
    )
    if program.input.recursive or program.output.recursive:
        raise NotAllowed(f"program: {workload} needs objects with recursive fields, which cannot be stored", hint=hint)
    outputs = program.output.tensors
    if not program.input.tensors or len(outputs) != 1:
        raise NotAllowed(f"program: nothing here learns {workload} of this shape", hint=hint)
    if outputs[0].rank == 1 and outputs[0].n_values > MOST_CLASSES:
        raise InvalidArgument(
            f"program: expected an output of at most {MOST_CLASSES} classes, got {outputs[0].n_values}"
        )
