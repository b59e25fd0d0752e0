"""Named queries: SQL files under headings `-- name:`, read as data."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from easeml_db.postgres.extension_files import sql_folder


@cache
def queries(name: str) -> dict[str, str]:
    """Return the statements of queries/<name>.sql, or of all files in queries/<name>/, by their names."""
    folder = Path(sql_folder() / "queries")
    files = sorted((folder / name).glob("*.sql")) or [folder / f"{name}.sql"]
    return parse("\n".join(path.read_text(encoding="utf-8") for path in files))


def parse(text: str) -> dict[str, str]:
    """Split a file of named queries; comment lines are left out. Raises KeyError when a name comes twice."""
    statements: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("-- name:"):
            name = line.removeprefix("-- name:").strip()
            if name in statements:
                raise KeyError(f"two queries are named {name!r}")
            lines = statements[name] = []
        elif not line.startswith("--"):
            lines.append(line)
    return {name: "\n".join(lines).strip() for name, lines in statements.items()}
