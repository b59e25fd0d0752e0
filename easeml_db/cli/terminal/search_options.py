"""Options of commands for the arguments of easeml.select_models, whose texts come from that function's COMMENT."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import click

from easeml_db.cli.terminal.arguments import json_value, name_list
from easeml_db.postgres.extension_files import sql_folder

COMMENT = re.compile(r"COMMENT ON FUNCTION easeml\.select_models\([^;]*? IS\s+\$\$(.*?)\$\$;", re.DOTALL)
ENTRY = re.compile(r"^(\w+): (.*(?:\n    .*)*)", re.MULTILINE)
KINDS: dict[str, dict[str, Any]] = {
    "architectures": {"callback": name_list}, "search_space": {"callback": json_value},
    "procedure_options": {"callback": json_value}, "n_configs": {"type": int}, "max_epochs": {"type": int},
    "max_seconds": {"type": float}, "seed": {"type": int}, "max_cost": {"type": float},
}  # fmt: skip
FORMS: dict[Any, str] = {name_list: " Names with commas.", json_value: " Or @FILE."}
Command = TypeVar("Command", bound=Callable[..., Any])


@cache
def argument_texts() -> dict[str, str]:
    """Return the text of each argument in the COMMENT."""
    comment = COMMENT.search((sql_folder() / "runs" / "start.sql").read_text(encoding="utf-8"))
    assert comment is not None, "easeml.select_models has a COMMENT"
    return {name: " ".join(text.split()) for name, text in ENTRY.findall(comment[1])}


def search_options(*names: str) -> Callable[[Command], Command]:
    """Give a command an option for each argument, with the first sentence of the argument's text."""

    def add(command: Command) -> Command:
        for name in reversed(names):
            kind = KINDS.get(name, {})
            first = argument_texts()[name].partition(". ")[0].removesuffix(".")
            text = f"{first[0].upper()}{first[1:]}.{FORMS.get(kind.get('callback'), '')}"
            command = click.option(f"--{name.replace('_', '-')}", help=text, **kind)(command)
        return command

    return add
