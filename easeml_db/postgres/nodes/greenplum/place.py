"""Segments of a Greenplum cluster as segments."""

from __future__ import annotations

from easeml_db.errors import InvalidArgument

SERVER, CONTENT = "the coordinator of a Greenplum cluster", "which segment of Greenplum (0, 1, ...)"


def check_place(service: str | None, content: int | None) -> None:
    """Refuse a content that is no segment of a cluster. Raises InvalidArgument."""
    if service is None:
        raise InvalidArgument(
            "service: expected that of a Greenplum cluster: its coordinator",
            hint="Say service => 'name', a section of pg_service.conf.",
        )
    if content is None or content < 0:
        raise InvalidArgument(
            "content: expected which segment of the Greenplum cluster it is, got"
            f" {'NULL' if content is None else content}",
            hint="SELECT content FROM gp_segment_configuration there: 0, 1, ... Add each of them.",
        )
