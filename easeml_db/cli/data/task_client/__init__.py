"""A small installable Python client for one task, written from two templates."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Any

from easeml_db.errors import InvalidArgument

HERE = Path(__file__).parent


def write_client(folder: Path, name: str, task: dict[str, Any]) -> str:
    """Write the package of a task into a folder that is not there yet; return the name of its command."""
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise InvalidArgument(f"{folder} is there already", hint="Name a folder that is not there, or an empty one.")
    package = package_name(name)
    inputs = task["specification"]["inputs"]
    texts = {
        "package": package,
        "task": repr(name),
        "shapes": repr({entry["name"]: tuple(entry["shape"]) for entry in inputs if entry.get("role") != "link"}),
        "recursive": repr(tuple(task["specification"].get("recursive", ()))),
        "dtype": "uint8" if inputs[0]["type"] == "bytea" else "float32",
        "classes": repr(tuple(task["classes"])) if task["classes"] is not None else "()",
        "tensors_come_out": repr(task["specification"]["output"] is not None),
        "output_shape": repr(tuple((task["specification"]["output"] or {}).get("shape", ()))),
        "output_type": _output_type(task),
        "program": task["program"],
    }
    (folder / package).mkdir(parents=True)
    for template, target in (("client.py.txt", f"{package}/__init__.py"), ("project.toml.txt", "pyproject.toml")):
        text = Template((HERE / template).read_text(encoding="utf-8")).substitute(texts)
        (folder / target).write_text(text, encoding="utf-8")
    (folder / package / "py.typed").touch()
    return package


def _output_type(task: dict[str, Any]) -> str:
    """Return the Python type of an example's output: a class, a number, or an array for a tensor or a series."""
    if task["classes"] is not None:
        return "str"
    return "float" if task["specification"]["output"] is None else "npt.NDArray[Any]"


def package_name(task: str) -> str:
    """Return a name that is valid in Python and in a shell: the letters, digits and _ of the task's name."""
    said = re.sub(r"[^a-z0-9]+", "_", task.lower()).strip("_")[:40]
    return f"easeml_task_{said}".rstrip("_")
