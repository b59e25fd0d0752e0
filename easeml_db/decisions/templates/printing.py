"""Programs as text: parsing what is printed gives the same program."""

from __future__ import annotations

from easeml_db.decisions.templates.program import ObjectType, Program, Tensor


def print_program(program: Program) -> str:
    """Return the full form of a program, on one line."""
    return f"{{input: {print_type(program.input)}, output: {print_type(program.output)}}}"


def print_type(kind: ObjectType) -> str:
    """Return one end of a program."""
    return f"{{[{', '.join(map(print_tensor, kind.tensors))}],[{', '.join(kind.recursive)}]}}"


def print_tensor(tensor: Tensor) -> str:
    """Return a tensor with its name, if it has one of its own."""
    name = f"{tensor.name} :: " if tensor.name else ""
    return f"{name}Tensor[{','.join(map(str, tensor.shape))}]"
