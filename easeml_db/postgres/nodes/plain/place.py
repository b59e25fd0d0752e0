"""PostgreSQL servers, and parts of this one, as segments."""

from __future__ import annotations

from easeml_db.errors import InvalidArgument

SERVER, CONTENT = "a PostgreSQL server (default)", ""


def check_place(service: str | None, content: int | None) -> None:
    """Refuse a content. Raises InvalidArgument."""
    if content is not None:
        raise InvalidArgument(
            f"content: expected NULL for engine postgres, got {content}",
            hint="Only a cluster has several segments behind one service.",
        )
