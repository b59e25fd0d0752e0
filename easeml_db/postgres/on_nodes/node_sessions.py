"""Opening the sessions of packings and jobs on nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from easeml_db import __version__
from easeml_db.errors import NotAllowed, VersionMismatch
from easeml_db.postgres.nodes.citus_coordinator.store import DelegatedStore
from easeml_db.postgres.nodes.nodes import CITUS, GREENPLUM, Node, connect_to
from easeml_db.postgres.on_nodes.delegated_works import DelegatedWork
from easeml_db.postgres.on_nodes.node_works import NodeWork, told_by

SETTINGS = {
    "statement_timeout": "0", "idle_session_timeout": "0", "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "10s", "jit": "off", "client_connection_check_interval": "1s",
}  # fmt: skip
# Citus hides shards in pg_class, and takes a LOCK of one, be it that of a reader, for a change.
ENGINE_SETTINGS = {CITUS: {"citus.override_table_visibility": "off", "citus.enable_manual_changes_to_shards": "on"}}
PREDICTIONS = "predictions"
VERSION = "SELECT easeml_segment.version() AS version"


async def open_work(node: Node, what: str = "packing") -> NodeWork:
    """Open a session on a node that serves this control server with the same version. Raises EasemlError."""
    if node.engine == GREENPLUM and what != PREDICTIONS:
        raise NotAllowed(
            f"segment {node.segment_name} is of a Greenplum cluster, and packs no rows of tables there",
            hint="Make a foreign table here of it (postgres_fdw), name that one as the source, placement => 'bound'.",
        )
    settings = SETTINGS | ENGINE_SETTINGS.get(node.engine, {})
    store = await connect_to(node, f"easeml {what}", settings)
    work = DelegatedWork(node, store) if isinstance(store, DelegatedStore) else NodeWork(node, store)
    try:
        await work.set_up(settings)
        await check_fit(work)
    except BaseException:
        await work.connection.close()
        raise
    return work


async def check_fit(work: NodeWork) -> None:
    """Refuse a node with another version of the extension, or one that serves another segment. Raises VersionMismatch,
    InvalidData.
    """
    (found,) = await work.execute(VERSION)
    if found["version"] != __version__:
        raise VersionMismatch(
            f"segment {work.node.segment_name}: its extension is {found['version']}, this package is {__version__}"
        )
    async with told_by(work.node):
        await work.store.hold(work.node.token)


@asynccontextmanager
async def node_work(node: Node, what: str = "packing") -> AsyncIterator[NodeWork]:
    """Open a session on a node for a block. Raises EasemlError."""
    work = await open_work(node, what)
    try:
        yield work
    finally:
        await work.connection.close()
