"""Files with an example of a task on each line, as JSON: read in parts that a statement can take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from easeml_loaders.files import reading
from easeml_plpy.errors import InvalidData

MOST_BYTES = 8 << 20
"""Of the lines of a part, together: a fraction of what easeml.feed takes."""


def lines_of_json(path: Path) -> Iterator[tuple[int, str]]:
    """Yield parts of the file: the number of the first line, and its lines as one JSON array. Raises InvalidData."""
    part: list[str] = []
    first, size = 1, 0
    with reading(path), path.open(encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, 1):
                if size + len(line) > MOST_BYTES and part:
                    yield first, f"[{','.join(part)}]"
                    part, first, size = [], number, 0
                if line.strip():
                    part.append(line)
                    size += len(line)
        except UnicodeDecodeError as error:
            raise InvalidData(f"{path}: expected JSON in UTF-8: {error}") from error
    if part:
        yield first, f"[{','.join(part)}]"
