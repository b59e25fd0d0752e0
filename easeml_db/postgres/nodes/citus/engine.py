"""The engine of Citus workers: reached one by one, or through the coordinator of their cluster alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from easeml_db.errors import NotReady, VersionMismatch
from easeml_db.postgres.nodes.citus.coordinator.connections import connect_worker, install
from easeml_db.postgres.nodes.citus.coordinator.session import CoordinatorUnitSession
from easeml_db.postgres.nodes.citus.coordinator.work import CoordinatorWork
from easeml_db.postgres.nodes.citus.tables import ReadShards, resolve
from easeml_db.postgres.nodes.cluster_watch import ClusterWatch
from easeml_db.postgres.nodes.engine import Engine, PlainConnection, Tables
from easeml_db.postgres.nodes.node_store import NodeStore
from easeml_db.postgres.nodes.nodes import Node

OLDEST = 12


class CitusWorker(Engine):
    """A worker that is reached itself."""

    options = " --engine citus"
    # Citus hides shards in pg_class, and takes a LOCK of one, be it that of a reader, for a change.
    settings = MappingProxyType(
        {"citus.override_table_visibility": "off", "citus.enable_manual_changes_to_shards": "on"}
    )

    def check(self, service: str, facts: Mapping[str, Any]) -> None:
        """Refuse a server that is no worker of a cluster, and one before version 12."""
        check_worker(service, facts.get("citus"))

    async def resolve(self, role: str, named: Tables, peers: Mapping[str, Node]) -> ReadShards:
        return await resolve(role, named, peers)


class CitusThroughCoordinator(CitusWorker):
    """A worker of a cluster of which only the coordinator is reached; its content is its group."""

    options = " --engine citus --content 1"
    session = CoordinatorUnitSession
    work = CoordinatorWork

    def serves(self, content: int | None) -> bool:
        return content is not None

    def install(self, service: str, connection: PlainConnection) -> None:
        install(connection)

    async def connect(
        self, dsn: str, content: int | None, application_name: str, settings: Mapping[str, str]
    ) -> NodeStore:
        return await connect_worker(dsn, int(content or 0), application_name, settings)

    def watch(self, dsn: str, unit_lease_seconds: float) -> ClusterWatch:
        # Only the coordinator can be watched: processes of workers cannot be seen there.
        return ClusterWatch(dsn)


def check_worker(service: str, citus: Mapping[str, Any] | None) -> None:
    """Refuse a server by what it reports of Citus. Raises VersionMismatch, NotReady."""
    if citus is None:
        raise NotReady(
            f"service {service}: its database has no extension citus, and its segment says engine => 'citus'",
            hint="Name the database of the cluster in pg_service.conf, or add the segment with engine => 'postgres'.",
        )
    if int(citus["version"].partition(".")[0]) < OLDEST:
        raise VersionMismatch(
            f"service {service}: its Citus is {citus['version']}, expected {OLDEST} or newer",
            hint="Update Citus on all nodes of the cluster.",
        )
    if citus["name"] is None:
        raise NotReady(
            f"service {service}: its Citus knows no cluster that it belongs to",
            hint="On the coordinator: SELECT citus_add_node('host', port), start_metadata_sync_to_node('host', port).",
        )


ENGINES = (CitusWorker(), CitusThroughCoordinator())
