"""Nothing of ours reads or writes the memory of the server's process behind its back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.contract.test_imports import PRODUCT, modules

CALLS_OF_LIBRARIES = {
    "easeml_plpy.server.memory": "mallopt of the C library",
    "easeml_plpy.trainers.lightgbm.c_interface": "the C interface of LightGBM",
}
BY_ADDRESS = {"in_dll", "from_address", "from_buffer", "memmove", "memset", "pythonapi", "PyDLL"}


def product_files() -> Iterator[tuple[str, Path]]:
    """Every module that the product ships."""
    for package in PRODUCT:
        yield from modules(package)


def nodes(path: Path) -> list[ast.AST]:
    """The syntax tree of a module, as a list."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports_ctypes(node: ast.AST) -> bool:
    """Whether a statement imports ctypes."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    return any(name.split(".")[0] == "ctypes" for name in (*names, module))


def touches_memory(node: ast.AST) -> bool:
    """Whether an expression takes an address, or an assignment writes through one."""
    if isinstance(node, ast.Attribute):
        is_write = isinstance(node.ctx, ast.Store) and node.attr in ("value", "contents")
        return node.attr in BY_ADDRESS or is_write
    return isinstance(node, ast.Name) and node.id in BY_ADDRESS


def test_only_calls_of_two_libraries_need_ctypes() -> None:
    users = {name for name, path in product_files() if any(map(imports_ctypes, nodes(path)))}
    assert users == set(CALLS_OF_LIBRARIES)


def test_no_address_is_read_or_written() -> None:
    found = [(name, node) for name, path in product_files() if name in CALLS_OF_LIBRARIES for node in nodes(path)]
    assert [(name, ast.unparse(node)) for name, node in found if touches_memory(node)] == []
