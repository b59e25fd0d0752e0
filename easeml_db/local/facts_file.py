"""Facts about a private server that commands keep in one JSON file in its folder: port, binaries, builds."""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path
from typing import Any

from easeml_db.errors import InvalidData, NotReady
from easeml_db.local.folder_contents import FACTS
from easeml_db.local.private_files import write_private


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the stored facts. Raises NotReady before the first start, InvalidData for a damaged file."""
    path = folder / FACTS
    if not path.exists():
        hint = f"Start one: easeml up --data {shlex.quote(str(folder))}"
        raise NotReady(f"there is no private server in {folder}", hint=hint)
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        facts = error
    if not isinstance(facts, dict):
        raise InvalidData(
            f"{path} is damaged: expected one JSON object",
            hint='It says where the server\'s programs are, and its port: {"binaries": "/usr/lib/postgresql/15/bin",'
            ' "port": 5433}.',
        )
    return facts


def remember(folder: Path, **facts: Any) -> None:
    """Add to the stored facts."""
    former: dict[str, Any] = {}
    with contextlib.suppress(NotReady):
        former = read_facts(folder)
    write_private(folder / FACTS, json.dumps(former | facts))
