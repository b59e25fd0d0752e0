"""The engine of segments of Greenplum clusters: its content says which one it is; the service is the coordinator."""

from __future__ import annotations

from collections.abc import Mapping

from easeml_db.errors import NotAllowed
from easeml_db.postgres.nodes.cluster_watch import ClusterWatch
from easeml_db.postgres.nodes.engine import Engine, PlainConnection, Watch, member
from easeml_db.postgres.nodes.greenplum.connections import connect_segment
from easeml_db.postgres.nodes.greenplum.facts import hold_now, installation, look_now
from easeml_db.postgres.nodes.greenplum.session import GreenplumUnitSession
from easeml_db.postgres.nodes.node_session import NodeUnitSession
from easeml_db.postgres.nodes.node_store import Facts, NodeStore
from easeml_db.postgres.nodes.node_works import NodeWork
from easeml_db.postgres.nodes.nodes import Node
from easeml_db.postgres.nodes.plain.engine import PostgresNode

PREDICTIONS = "predictions"
IDENTITY = "SELECT identity FROM easeml_segment.node"


class Greenplum(PostgresNode):
    """A segment of a cluster."""

    name = "greenplum"
    options = " --engine greenplum --content 0"
    session: type[NodeUnitSession] = GreenplumUnitSession

    def serves(self, content: int | None) -> bool:
        """Return whether a segment of the cluster is named."""
        return content is not None

    def check_work(self, node: Node, what: str) -> None:
        """Refuse everything but predictions: no function on a segment may read its tables."""
        if what != PREDICTIONS:
            raise NotAllowed(
                f"segment {node.segment_name} is of a Greenplum cluster, and packs no rows of tables there",
                hint="Make a foreign table here of it (postgres_fdw), name that one as the source,"
                " placement => 'bound'.",
            )

    def look(self, connection: PlainConnection, content: int | None) -> Facts:
        """Return the facts that cluster and segment report."""
        return look_now(connection, member(content))

    def hold(self, connection: PlainConnection, content: int | None, token: str) -> None:
        """Make the segment serve a token, and no other."""
        hold_now(connection, member(content), token)

    def install(self, service: str, connection: PlainConnection) -> None:
        """Execute the statements that make the database of the cluster ready; it has no extension of its own."""
        (said,) = [row["version"] for row in connection.execute("SELECT version()")]
        script = installation(said)
        connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
        connection.execute(script.encode())

    async def connect(
        self, dsn: str, content: int | None, application_name: str, settings: Mapping[str, str]
    ) -> NodeStore:
        """Open a session on the coordinator about the segment."""
        return await connect_segment(dsn, member(content), application_name, settings)

    def watch(self, dsn: str, unit_lease_seconds: float) -> Watch:
        """Return a watch on the coordinator: processes of segments cannot be seen there."""
        return ClusterWatch(dsn)

    async def cluster_of(self, work: NodeWork) -> str | None:
        """Return the identity of the cluster."""
        (row,) = await work.execute(IDENTITY)
        return str(row["identity"])


ENGINES: tuple[Engine, ...] = (Greenplum(),)
