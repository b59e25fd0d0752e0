"""Workers of a Citus cluster as segments."""

from __future__ import annotations

from easeml_db.errors import InvalidArgument

SERVER, CONTENT = "a worker", "which worker of Citus (its groupid)"


def check_place(service: str | None, content: int | None) -> None:
    """Refuse a group that is no worker, and a part of this server. Raises InvalidArgument."""
    if content is not None and content < 1:
        raise InvalidArgument(
            "content: expected NULL, or the group of a worker that is reached through the coordinator of its Citus"
            f" cluster, got {content}",
            hint="SELECT groupid FROM pg_dist_node there: 1, 2, ... Group 0 is the coordinator.",
        )
    if service is None:
        raise InvalidArgument(
            "service: expected that of a Citus worker: this server is one of no cluster that it would ask",
            hint="Say service => 'name', a section of pg_service.conf.",
        )
