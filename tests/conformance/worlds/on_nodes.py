"""Worlds whose slots are on nodes, and not on the control server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests import citus, greenplum
from tests.conformance.worlds.on_postgres import BREAK, WarmOnPostgres
from tests.conformance.worlds.world import PATIENCE_SECONDS

if TYPE_CHECKING:
    from easeml_db.postgres.nodes.node_cache import NodeCache
    from tests.fixtures.sessions import Session

# Nodes of every kind; those of a Citus cluster where EASEML_TEST_CITUS names one.
ON_NODES = ("nodes", "citus_coordinator", "citus") if "real" in citus.KINDS else ("nodes", "citus_coordinator")


class WarmOnNodes(WarmOnPostgres):
    """Both slots are on other servers, each on one of its own that holds both partitions."""

    services = "pg_"  # with the name of the node

    def __init__(self, database: Session, nodes: Mapping[str, Session], engine: str = "postgres") -> None:
        super().__init__(database)
        self.control, self.nodes = database, dict(nodes)
        for place, name in enumerate(nodes, start=1):
            self.add_segment(name, engine)
            move = "UPDATE easeml.slots SET segment_id = easeml.find_segment(%s) WHERE slot_id = %s"
            database.execute(move, [name, place])
        database.execute("UPDATE easeml.datasets SET placement = 'bound'")
        database.execute("SELECT easeml.replicate_dataset('points', 2)")

    def add_segment(self, name: str, engine: str) -> None:
        """Add the segment that is a node."""
        add = "SELECT easeml.add_segment(%s, service => %s, engine => %s)"
        self.control.execute(add, [name, f"{self.services}{name}", engine])

    def break_session(self, slot_id: int) -> None:
        for node in self.nodes.values():
            node.execute(BREAK, [f"easeml slot {slot_id}"])

    @property
    def caches(self) -> dict[int, NodeCache]:
        """What the executor keeps of each node."""
        return self.ports.executor._servers._caches  # type: ignore[attr-defined, no-any-return]


class WarmOnCitus(WarmOnNodes):
    """The same on two workers of a Citus cluster, each by a service that no other world has."""

    services = "pg_citus_"


class WarmOnCitusCoordinator(WarmOnNodes):
    """The same on two workers of a Citus cluster of which only the coordinator is reached."""

    services = "pg_cluster_"

    def __init__(self, database: Session, cluster: citus.CitusCoordinator) -> None:
        self.cluster = cluster
        self._groups = dict(zip(("east", "west"), cluster.workers, strict=True))
        super().__init__(database, {name: cluster.workers[group] for name, group in self._groups.items()}, "citus")

    def add_segment(self, name: str, engine: str) -> None:
        add = "SELECT easeml.add_segment(%s, service => %s, engine => %s, content => %s)"
        self.control.execute(add, [name, f"{self.services}{name}", engine, self._groups[name]])

    def break_session(self, slot_id: int) -> None:
        for entrance in self.cluster.entrances:
            entrance.execute(BREAK, [f"easeml slot {slot_id}"])


class WarmOnGreenplum(WarmOnPostgres):
    """Both slots are on segments of a Greenplum cluster, each on one of its own that holds both partitions."""

    patience_seconds = 5 * PATIENCE_SECONDS  # the processes of a cluster that is real import torch one by one

    def __init__(self, database: Session, cluster: Session) -> None:
        super().__init__(database)
        self.control, self.cluster = database, cluster
        for place in (1, 2):
            database.execute(
                "SELECT easeml.add_segment(%s, service => 'pg_cluster', engine => 'greenplum', content => %s)",
                [f"gp{place}", place - 1],
            )
            move = "UPDATE easeml.slots SET segment_id = easeml.find_segment(%s) WHERE slot_id = %s"
            database.execute(move, [f"gp{place}", place])
        database.execute("UPDATE easeml.datasets SET placement = 'bound'")
        database.execute("SELECT easeml.replicate_dataset('points', 2)")

    def break_session(self, slot_id: int) -> None:
        self.cluster.execute(greenplum.BREAK, [f"easeml slot {slot_id}"])

    @property
    def caches(self) -> dict[int, NodeCache]:
        """What the executor keeps of each segment."""
        return self.ports.executor._servers._caches  # type: ignore[attr-defined, no-any-return]
