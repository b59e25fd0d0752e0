"""Sessions on the coordinator of a Citus cluster that are about one of its workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from easeml_db.errors import NotFound, NotReady, SlotLost
from easeml_db.postgres.connection import MISSING, connect_as
from easeml_db.postgres.nodes.citus.coordinator.statements import INSTALLATION, CitusWorker, placed
from easeml_db.postgres.nodes.citus.coordinator.store import CoordinatorStore

# The process of the worker keeps Python, its packages and decoded rows for as long as the session lasts.
OWN_SETTINGS = {"citus.max_cached_connection_lifetime": "-1"}
INSTALL = "Install it on the whole cluster: easeml segment install SERVICE --engine citus --delegated."

NOT_COMMITTED = "failed to commit transaction"  # Citus's own message


class CoordinatorConnection(psycopg.AsyncConnection[dict[str, Any]]):
    """A connection to the coordinator that notices when a worker cannot commit.

    Citus takes what is sent to a worker for a reading, so it only warns, and its own COMMIT succeeds.
    """

    has_lost = False

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        """Work in a transaction. Raises SlotLost at its end if the worker has not kept it."""
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            yield transaction
        if self.has_lost:
            raise SlotLost("a worker of the cluster could not commit: nothing of the transaction is there")

    def heed(self, notice: psycopg.errors.Diagnostic) -> None:
        """Record a warning of the coordinator."""
        self.has_lost |= (notice.message_primary or "").startswith(NOT_COMMITTED)


async def connect_worker(dsn: str, group: int, application_name: str, settings: Mapping[str, str]) -> CoordinatorStore:
    """Open an autocommit session about a worker. Raises ServerUnavailable, NotFound, NotReady, psycopg.Error."""
    connection = await connect_as(CoordinatorConnection, dsn, application_name, settings)
    connection.add_notice_handler(connection.heed)
    try:
        for name, value in OWN_SETTINGS.items():
            await connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        row = await (await connection.execute(placed(group))).fetchone()
        worker = worker_of(group, row or {})
        if await (await connection.execute(worker.found("SELECT true AS is_here"))).fetchone() is None:
            raise NotReady(f"key {worker.key} of easeml_worker.keys has no row", hint=INSTALL)
        return CoordinatorStore(connection, worker)
    except psycopg.Error as error:
        await connection.close()
        raise refusal(error) from error
    except BaseException:
        await connection.close()
        raise


def install(connection: psycopg.Connection[dict[str, Any]]) -> None:
    """Create the extension on all workers through their coordinator, and the keys that route queries to them."""
    for statement in INSTALLATION:
        connection.execute(statement)


def worker_of(group: int, row: Mapping[str, Any]) -> CitusWorker:
    """Return a worker from the coordinator's row of keys and workers. Raises NotFound, NotReady."""
    workers: Sequence[int] = row["workers"]
    if group not in workers:
        groups = ", ".join(map(str, workers)) or "none"
        raise NotFound(f"its cluster has no worker {group}, but {groups}", hint="pg_dist_node has them as groupid.")
    if row["key"] is None:
        raise NotReady(
            f"worker {group} of its cluster has no shard of easeml_worker.keys, by which it could be reached",
            hint="On the coordinator: SELECT rebalance_table_shards('easeml_worker.keys').",
        )
    return CitusWorker(group, row["key"])


def refusal(error: psycopg.Error) -> Exception:
    """Return NotReady for the error of a coordinator without keys, and any other error as it is."""
    return NotReady("its database knows no workers of Citus", hint=INSTALL) if error.sqlstate in MISSING else error
