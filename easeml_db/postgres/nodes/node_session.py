"""The session of a slot on another server: units are opened and recorded here, and trained there.

The commit point is the row on the control server. The node writes the new state first, under a number that no row has
yet; then one fenced transaction here records the unit, the row of the state and the trial's pointer to it. A crash in
between leaves bytes to which nothing points; they are removed later. The state at the end of an epoch is copied here in
that same transaction, so the control server always has the states that predict and those that an epoch begins with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import psycopg

from easeml_db.errors import (
    CorruptCheckpoint,
    EasemlError,
    NotFound,
    OutOfSpace,
    ServerUnavailable,
    SlotLost,
    TrialFailed,
)
from easeml_db.postgres.connection import is_replaced, unit_error
from easeml_db.postgres.nodes.node_cache import Hop, NodeCache
from easeml_db.postgres.nodes.node_orders import ends_epoch, later, mates_of, parts_of, recorded_order
from easeml_db.postgres.nodes.node_rows import HERE, NodeRows, note_copy
from easeml_db.postgres.nodes.node_store import Connection, KnownState, NodeStore
from easeml_db.postgres.nodes.segment_store import ControlSource
from easeml_db.postgres.nodes.state_search import found_on_a_node
from easeml_db.postgres.nodes.transfers import bring_known, bring_state, fetch_state, has_state
from easeml_db.postgres.sessions.slot_session import SHOW_IDLE
from easeml_db.postgres.sessions.unit_session import Result

WORK = {
    "train_unit": "train_on_node",
    "evaluate_unit": "evaluate_on_node",
    "pilot_unit": "pilot_on_node",
    "train_round": "train_round_on_node",
    "evaluate_round": "evaluate_round_on_node",
}
TRAINING, EVALUATING = ("train_unit", "train_round"), ("evaluate_unit", "evaluate_round")
BATCHES = {"train_batch": "train_unit", "evaluate_batch": "evaluate_unit"}
OPEN = "SELECT easeml.open_node_unit(%s::jsonb) AS opened"
STORE = "SELECT easeml.store_node_state(%s::jsonb, %s::jsonb, %s, false) AS tenant"
RECORD_TRAINING = """
SELECT r.*, easeml.note_hop(%s::jsonb, %s::jsonb) AS noted
FROM easeml.record_node_training(%s::jsonb, %s, %s::jsonb, %s) r
"""
RECORD_EVALUATION = """
SELECT easeml.record_node_evaluation(%s::jsonb, %s::jsonb, %s::jsonb) AS recorded,
    easeml.next_segments(%s::jsonb) AS segments, easeml.note_hop(%s::jsonb, %s::jsonb) AS noted
"""
RECORD_PILOT = "SELECT easeml.record_pilot(%s::jsonb, %s, %s)"
FindCache = Callable[[Connection, int], Awaitable[NodeCache]]


class _Unit(NamedTuple):
    """An order, as given and as JSON for recording; and, as JSON, how the state that it starts from arrived."""

    order: dict[str, Any]
    text: str
    hop: str | None


def _needed(unit: dict[str, Any], state: dict[str, Any]) -> KnownState:
    """Return the state of a unit's trial that the node must have."""
    return KnownState(state["checkpoint_id"], unit["trial_id"], state["n_bytes"], state["sha256"])


class NodeUnitSession:
    """Two connections, to the control server and to the node. `caches` are the nodes by segment, this one among them;
    `find_cache` gives that of a segment, also where none of its slots is in service."""

    def __init__(
        self,
        slot_id: int,
        control: Connection,
        store: NodeStore,
        cache: NodeCache,
        caches: Mapping[int, NodeCache],
        find_cache: FindCache,
    ) -> None:
        self.slot_id = slot_id
        self._control, self._cache, self._caches = control, cache, caches
        self._store, self._remote = store, store.connection
        self._find_cache = find_cache
        self._is_cancelled = False

    @property
    def is_closed(self) -> bool:
        """Return whether one of the connections is lost or closed."""
        return self._control.closed or self._remote.closed

    @property
    def pid(self) -> int:
        """Return the number of the node's process."""
        return self._remote.info.backend_pid

    async def call(self, procedure: str, text: str) -> Result:
        """Carry out an order and return its result. Raises the class of its error."""
        self._is_cancelled = False
        if procedure in BATCHES:
            return await self._batch(BATCHES[procedure], json.loads(text)["batch"])
        if procedure not in WORK:
            raise TrialFailed(f"{procedure} needs slots of the control server", hint="Add slots to segment local.")
        return await self._alone(procedure, text)

    async def _alone(self, procedure: str, text: str) -> Result:
        try:
            return await self._unit(procedure, text)
        except psycopg.Error as error:
            if is_replaced(error):
                await self.close()  # the next session looks at the node again
            problem = unit_error(error)
            if isinstance(problem, OutOfSpace):
                self._cache.make_room(json.loads(text)["lease_number"])
            raise problem from error
        except ServerUnavailable as error:  # in a transfer: the unit is blameless, and runs again
            raise SlotLost(str(error)) from error

    async def cancel(self) -> None:
        """Ask the unit to stop, wherever it is."""
        self._is_cancelled = True
        for connection in (self._remote, self._control):
            if not connection.closed:
                try:
                    await connection.cancel_safe()
                except psycopg.Error:
                    continue  # no server, nothing to cancel

    async def show_idle(self) -> None:
        """Clear a unit that failed from the slot's row; one that is recorded does so itself."""
        try:
            await self._control.execute(SHOW_IDLE, [self.slot_id])
        except psycopg.Error:
            return  # a lost session's row is cleared by the next one

    async def close(self) -> None:
        """Close both connections."""
        await self._remote.close()
        await self._control.close()

    async def _batch(self, procedure: str, units: list[dict[str, Any]]) -> Result:
        """Carry out the members of a batch one after another: each is recorded, or fails, by itself."""
        n_bytes, failures = 0, {}
        for unit in units:
            self._check_cancelled()  # which may have come when nothing was under way
            try:
                n_bytes += int((await self._alone(procedure, json.dumps(unit)))["pruned_bytes"])
            except SlotLost:
                raise
            except EasemlError as error:
                message = {"message": error.message, "detail": error.detail, "hint": error.hint}
                failures[str(unit["trial_id"])] = {"sqlstate": error.sqlstate, **message}
        return {"pruned_bytes": n_bytes, "failures": failures}

    async def _unit(self, procedure: str, text: str) -> Result:
        opened = (await self._one(self._control, OPEN, text))["opened"]
        with self._cache.in_use.using(opened["new_checkpoint_id"]):
            order, began = json.loads(text), time.monotonic()
            hop = await self._prepare(order, text, opened)
            came = None if hop is None else json.dumps(asdict(hop))
            self._check_cancelled()
            result = await self._result_of(procedure, text, later(opened, time.monotonic() - began))
            self._check_cancelled()
            unit = _Unit(order, recorded_order(order, result), came)
            return await self._record(procedure, unit, opened, result)

    async def _result_of(self, procedure: str, text: str, opened: dict[str, Any]) -> dict[str, Any]:
        """Carry out the unit there. States with unexpected content count as lost on that node."""
        try:
            return await self._called(procedure, text, opened)
        except psycopg.Error as error:
            read = [opened["state"]["checkpoint_id"]] if opened["state"] is not None else []
            read += [mate.checkpoint_id for mate in mates_of(opened)]
            if error.sqlstate == CorruptCheckpoint.sqlstate and read:
                for checkpoint_id in read:
                    await self._store.drop_state(checkpoint_id)
                raise SlotLost(str(unit_error(error))) from error
            raise

    async def _called(self, procedure: str, text: str, opened: dict[str, Any]) -> dict[str, Any]:
        statement = f"CALL easeml_segment.{WORK[procedure]}(%s::jsonb, %s::jsonb, NULL)"
        result: dict[str, Any] = (await self._one(self._remote, statement, text, json.dumps(opened)))["result"]
        return result

    def _check_cancelled(self) -> None:
        """Raise SlotLost if a cancel came between two statements."""
        if self._is_cancelled:
            raise SlotLost("the unit was cancelled")

    # Before

    async def _prepare(self, unit: dict[str, Any], text: str, opened: dict[str, Any]) -> Hop | None:
        """Bring the unit's rows and the state that it starts from to the node; return how the state came."""
        for part in parts_of(unit, opened):
            copy = await self._cache.rows.need(self._control, self._store, part, self._rows_of)
            if copy is not None:
                await note_copy(self._control, text, copy)
            self._check_cancelled()
        await self._store.register(opened["registered"])
        for mate in mates_of(opened):
            await bring_known(self._control, self._store, mate, unit["lease_number"])
            self._check_cancelled()
        state = opened["state"]
        if state is None:
            return None
        landed = await self._cache.arrived(state["checkpoint_id"])
        needed = _needed(unit, state)
        if await has_state(self._store, needed):
            return landed
        return await self._fetch(unit, text, state, needed)

    async def _rows_of(self, segment_id: int) -> NodeRows:
        return (await self._find_cache(self._control, segment_id)).rows

    async def _fetch(self, unit: dict[str, Any], text: str, state: dict[str, Any], needed: KnownState) -> Hop | None:
        """Bring a state that is not on the node; return how it came, or None if it arrived by itself meanwhile."""
        lease_number, began = unit["lease_number"], time.monotonic()
        sources: list[tuple[int, int]] = []

        async def bring(cache: NodeCache) -> None:
            if cache is self._cache:
                raise NotFound("it was looked for there")
            n_bytes = await cache.send(self._store, needed, lease_number)
            if not await has_state(self._store, needed):
                raise NotFound("it has another one under that number")
            sources.append((cache.node.segment_id, n_bytes))

        if state["is_elsewhere"]:
            await found_on_a_node(self._control, text, self._caches, state["segments"], bring)
        else:
            source = ControlSource(self._control)
            sources.append((HERE, await bring_state(source, self._store, needed, lease_number)))
        ((segment_id, n_bytes),) = sources
        if not n_bytes:
            return None
        return Hop(segment_id, self._cache.node.segment_id, n_bytes, time.monotonic() - began, is_ahead=False)

    # After

    async def _record(self, procedure: str, unit: _Unit, opened: dict[str, Any], result: dict[str, Any]) -> Result:
        text = unit.text
        if procedure == "pilot_unit":
            await self._one(self._control, RECORD_PILOT, text, result["train_seconds"], result["evaluate_seconds"])
            return result
        if procedure in EVALUATING:
            values = (text, json.dumps(opened), json.dumps(result), text, text, unit.hop)
            row = await self._one(self._control, RECORD_EVALUATION, *values)
            recorded, state = {**row["recorded"], "segments": row["segments"]}, opened["state"]
        else:
            recorded = await self._record_training(unit, opened, result)
            state = {**result, "checkpoint_id": opened["new_checkpoint_id"]}
        self._push(unit.order, state, recorded["segments"])
        return {**recorded, "pruned_bytes": recorded["pruned_bytes"] or 0}

    async def _record_training(self, unit: _Unit, opened: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
        order, text, hop = unit
        # The number is the one that was ordered, whatever the node says.
        state = _needed(order, {**result, "checkpoint_id": opened["new_checkpoint_id"]})
        said = json.dumps({**result, "checkpoint_id": state.checkpoint_id})
        segment_id, started_at = self._cache.node.segment_id, opened["started_at"]
        if not ends_epoch(order, opened):
            return await self._one(self._control, RECORD_TRAINING, text, hop, text, started_at, said, segment_id)
        async with self._control.transaction():
            tenant = (await self._one(self._control, STORE, text, said, segment_id))["tenant"]
            if tenant is not None:
                await self._keep_here(state, tenant)
            return await self._one(self._control, RECORD_TRAINING, text, hop, text, started_at, said, None)

    async def _keep_here(self, state: KnownState, tenant: str) -> None:
        """Copy a new state to the control server. Raises SlotLost if the node sends other bytes than it reported."""
        try:
            n_bytes = await fetch_state(self._store, self._control, state, tenant)
        except CorruptCheckpoint as error:
            raise SlotLost(str(error)) from error
        if not n_bytes:
            raise SlotLost(f"checkpoint {state.checkpoint_id} is not on the node that made it")

    def _push(self, unit: dict[str, Any], state: dict[str, Any], segment_ids: list[int]) -> None:
        """Send the state ahead to the trial's next node, and to nodes that keep copies."""
        lease_number, needed = unit["lease_number"], _needed(unit, state)
        self._cache.recorded(lease_number)
        for target in (self._caches.get(segment_id) for segment_id in segment_ids):
            if target is not None and target is not self._cache:
                self._cache.push(target, needed, lease_number)

    @staticmethod
    async def _one(connection: Connection, statement: str, *values: object) -> dict[str, Any]:
        """Return the only row of a statement."""
        return await (await connection.execute(statement.encode(), list(values))).fetchone() or {}
