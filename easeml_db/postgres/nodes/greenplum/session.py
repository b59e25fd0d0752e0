"""The session of a slot on a segment of Greenplum: one query for a unit, and the state beside it afterwards.

A unit's INSERT goes into a table that only its session has. The state is then copied to where others read it, on the
same segment. So no lock is held while something trains, and what removes old states waits for nobody.
"""

from __future__ import annotations

import json
from typing import Any

import psycopg

from easeml_db.errors import CorruptCheckpoint, SlotLost, from_sqlstate
from easeml_db.postgres.connection import MISSING
from easeml_db.postgres.nodes.greenplum.statements import KEEP, STORES, TOLD, unit_statement
from easeml_db.postgres.nodes.greenplum.store import GreenplumStore
from easeml_db.postgres.nodes.node_orders import mates_of
from easeml_db.postgres.nodes.node_session import NodeUnitSession
from easeml_db.postgres.sessions.unit_session import Result


class GreenplumUnitSession(NodeUnitSession):
    """The session of a slot on any node, except that rows and state of a unit are arguments of a query."""

    _store: GreenplumStore
    _is_spoilt = False

    async def call(self, procedure: str, text: str) -> Result:
        """Do an order and return what came of it. A session that was cancelled is not used again, since what is left of
        the cancel ends later calls; nor is one that met an error: the cluster may have reset it."""
        try:
            return await super().call(procedure, text)
        finally:
            if self._is_cancelled or self._is_spoilt:
                await self.close()

    async def _result_of(self, procedure: str, text: str, opened: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(await self._worked(procedure, text, opened))
        if "failure" not in result:
            return result
        failure = result["failure"]
        error = from_sqlstate(*(failure[name] for name in ("sqlstate", "message", "detail", "hint")))
        if isinstance(error, CorruptCheckpoint) and opened["state"] is not None:
            for number in [opened["state"]["checkpoint_id"], *(mate.checkpoint_id for mate in mates_of(opened))]:
                await self._store.drop_state(number)
            raise SlotLost(str(error)) from error
        raise error

    async def _worked(self, procedure: str, text: str, opened: dict[str, Any]) -> str:
        """Do a unit; return its result once its state is where others read it.

        When a segment has crashed, sessions of the cluster go on without their temporary tables: no trial is to blame.
        """
        try:
            return await self._done(procedure, text, opened)
        except psycopg.Error as error:
            self._is_spoilt = True
            if error.sqlstate in MISSING and "pg_temp" in str(error):
                raise SlotLost("the cluster has reset the session: one of its segments has crashed") from error
            raise

    async def _done(self, procedure: str, text: str, opened: dict[str, Any]) -> str:
        remote = self._remote
        statement = unit_statement(self._store.segment, procedure, text, opened)
        if procedure not in STORES:
            row = await (await remote.execute(statement)).fetchone()
        else:
            async with remote.transaction():
                await remote.execute(statement)
                row = await (await remote.execute(TOLD)).fetchone()
                await remote.execute(KEEP)
        if row is None:
            raise SlotLost("its rows are not on the segment any more")
        return str(row["told"])
