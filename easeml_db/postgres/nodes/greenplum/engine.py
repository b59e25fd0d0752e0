"""The engine of segments of Greenplum clusters: its content says which one it is; the service is the coordinator."""

from __future__ import annotations

from collections.abc import Mapping

from easeml_db.errors import NotAllowed
from easeml_db.postgres.nodes.cluster_watch import ClusterWatch
from easeml_db.postgres.nodes.engine import Engine, PlainConnection
from easeml_db.postgres.nodes.greenplum.connections import connect_segment
from easeml_db.postgres.nodes.greenplum.facts import installation
from easeml_db.postgres.nodes.greenplum.session import GreenplumUnitSession
from easeml_db.postgres.nodes.node_store import NodeStore
from easeml_db.postgres.nodes.node_works import NodeWork
from easeml_db.postgres.nodes.nodes import Node

PREDICTIONS = "predictions"
IDENTITY = "SELECT identity FROM easeml_segment.node"


class Greenplum(Engine):
    """A segment of a cluster."""

    options = " --engine greenplum --content 0"
    session = GreenplumUnitSession

    def serves(self, content: int | None) -> bool:
        return content is not None

    def check_work(self, node: Node, what: str) -> None:
        """Refuse everything but predictions: no function on a segment may read its tables."""
        if what != PREDICTIONS:
            raise NotAllowed(
                f"segment {node.segment_name} is of a Greenplum cluster, and packs no rows of tables there",
                hint="Make a foreign table here of it (postgres_fdw), name that one as the source,"
                " placement => 'bound'.",
            )

    def install(self, service: str, connection: PlainConnection) -> None:
        """Execute the statements that make the database of the cluster ready; it has no extension of its own."""
        (said,) = [row["version"] for row in connection.execute("SELECT version()")]
        script = installation(said)
        connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
        connection.execute(script.encode())

    async def connect(
        self, dsn: str, content: int | None, application_name: str, settings: Mapping[str, str]
    ) -> NodeStore:
        return await connect_segment(dsn, int(content or 0), application_name, settings)

    def watch(self, dsn: str, unit_lease_seconds: float) -> ClusterWatch:
        # Only the coordinator can be watched: processes of segments cannot be seen there.
        return ClusterWatch(dsn)

    async def cluster_of(self, work: NodeWork) -> str | None:
        (row,) = await work.execute(IDENTITY)
        return str(row["identity"])


ENGINES = (Greenplum(),)
