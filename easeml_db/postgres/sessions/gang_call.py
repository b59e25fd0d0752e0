"""The calls of one order, side by side on the sessions of its slots: the first failure ends them all.

A unit on one slot is a gang of one, and so is a whole round. The sessions of a gang exchange tensors in a group of
processes that they form under a token and keep. A token becomes invalid once one of its sessions is gone or a gang has
failed.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from easeml_db.coordinator.ports.messages import Order
from easeml_db.errors import EasemlError, SlotLost
from easeml_db.postgres.sessions.unit_session import Result, UnitSession
from easeml_db.words.training_unit import PILOT

# The procedure that does an order, by kind.
CALLS = {"train": "train_unit", "validate": "evaluate_unit", "test": "evaluate_unit", PILOT: "pilot_unit"}
GANG_CALLS = {"train": "train_gang", "validate": "evaluate_gang", "test": "evaluate_gang", PILOT: "train_gang"}
ROUND_CALLS = {"train": "train_round", "validate": "evaluate_round", "test": "evaluate_round"}
BATCH_CALLS = {"train": "train_batch", "validate": "evaluate_batch", "test": "evaluate_batch"}
MAX_GROUPS = 64  # that a session keeps: a process cannot take them down safely


class Tokens:
    """The token of each tuple of slots, for as long as their sessions can exchange under it."""

    def __init__(self) -> None:
        self._tokens: dict[tuple[int, ...], str] = {}
        self._n_groups: dict[int, int] = {}  # by slot, since its session was opened

    def of(self, slot_ids: tuple[int, ...]) -> str:
        """Return the token of these slots, by rank; a new one if there is none."""
        if slot_ids not in self._tokens:
            self._tokens[slot_ids] = secrets.token_hex(16)
            for slot_id in slot_ids:
                self._n_groups[slot_id] = self._n_groups.get(slot_id, 0) + 1
        return self._tokens[slot_ids]

    def worn_out(self, slot_ids: tuple[int, ...]) -> list[int]:
        """Return the slots that a new token would give more groups than a session is to keep."""
        if slot_ids in self._tokens:
            return []
        return [slot_id for slot_id in slot_ids if self._n_groups.get(slot_id, 0) >= MAX_GROUPS]

    def forget(self, slot_ids: tuple[int, ...]) -> None:
        """Drop the token of these slots: their group is broken."""
        self._tokens.pop(slot_ids, None)

    def session_gone(self, slot_id: int) -> None:
        """Drop all tokens of a slot: its session is gone, and all its groups with it."""
        self._n_groups.pop(slot_id, None)
        self._tokens = {slots: token for slots, token in self._tokens.items() if slot_id not in slots}


@dataclass(frozen=True)
class Outcome:
    """The outcome of an order: the result of rank 0, or the error that explains most; and the slots that are stuck."""

    result: Result | None
    error: EasemlError | None
    stuck: tuple[int, ...]


class GangCall:
    """One order on the sessions of its slots, by rank; None stands for a session that is gone."""

    def __init__(
        self, order: Order, sessions: Sequence[UnitSession | None], token: str = "", timeout_seconds: float = 0.0
    ) -> None:
        self.order = order
        self._sessions = dict(zip(order.slot_ids, sessions, strict=True))
        texts = [order_json(order, rank, token, timeout_seconds) for rank in range(len(sessions))]
        self._tasks = {
            slot: asyncio.ensure_future(self._call(slot, text))
            for slot, text in zip(order.slot_ids, texts, strict=True)
        }
        self._given_up = {slot: asyncio.get_running_loop().create_future() for slot in order.slot_ids}
        self._failures: list[EasemlError] = []  # as they came

    async def run(self) -> Outcome:
        """Wait until every rank has ended or was given up; at the first failure ask all others to stop."""
        ends = {slot: asyncio.ensure_future(self._end(slot)) for slot in self._tasks}
        try:
            await asyncio.wait(ends.values(), return_when=asyncio.FIRST_EXCEPTION)
            for slot, end in ends.items():
                session = self._sessions[slot]
                if not end.done() and session is not None:
                    await session.cancel()
            await asyncio.wait(ends.values())
        finally:
            for task in (*ends.values(), *self._tasks.values()):
                task.cancel()
        return self._outcome({slot: end.exception() for slot, end in ends.items()})

    def give_up(self, slot_id: int) -> None:
        """Wait for a rank no more."""
        if not self._given_up[slot_id].done():
            self._given_up[slot_id].set_result(None)

    async def _call(self, slot_id: int, text: str) -> Result:
        session = self._sessions[slot_id]
        if session is None:
            raise SlotLost(f"slot {slot_id} has no session")
        return await session.call(_calls_of(self.order)[self.order.unit.kind], text)

    async def _end(self, slot_id: int) -> None:
        task, given_up = self._tasks[slot_id], self._given_up[slot_id]
        await asyncio.wait([task, given_up], return_when=asyncio.FIRST_COMPLETED)
        if given_up.done():  # its session is closed as well, and that is no crash of the server
            raise _StuckRank
        try:
            await task
        except EasemlError as error:
            self._failures.append(error)
            raise

    def _outcome(self, errors: dict[int, BaseException | None]) -> Outcome:
        stuck = tuple(slot for slot, error in errors.items() if isinstance(error, _StuckRank))
        for error in errors.values():
            if error is not None and not isinstance(error, EasemlError | _StuckRank):
                raise error
        if stuck or self._failures:
            return Outcome(None, most_telling(self._failures), stuck)
        return Outcome(self._tasks[self.order.slot_id].result(), None, ())


def _calls_of(order: Order) -> Mapping[str, str]:
    """Return the procedures that do an order, by kind."""
    if order.is_batch:
        return BATCH_CALLS
    return GANG_CALLS if order.is_gang else ROUND_CALLS if order.is_whole else CALLS


class _StuckRank(Exception):
    """A rank was given up."""


def most_telling(failures: list[EasemlError]) -> EasemlError | None:
    """Return a trial's own error before that of a lost slot, and of these the first that says how it was lost."""
    others = [error for error in failures if not isinstance(error, SlotLost)]
    lost = [error for error in failures if error.detail is None]  # with one, it reports only another rank
    return next(iter(others or lost or failures), None)


def order_json(order: Order, rank: int = 0, token: str = "", timeout_seconds: float = 0.0) -> str:
    """Return a rank's part of an order as the unit procedures read it; token and timeout are a gang's."""
    parts = order.alone()
    if order.is_batch:
        return json.dumps({"batch": [_fields(part) for part in parts]})
    fields = _fields(parts[rank])
    if len(parts) > 1:
        keys = ("step", "position", "partition_number", "seed", "slot_id")
        members = [{key: _fields(part)[key] for key in keys} for part in parts]
        fields["gang"] = {"token": token, "rank": rank, "timeout_seconds": timeout_seconds, "members": members}
    return json.dumps(fields)


def _fields(order: Order) -> dict[str, Any]:
    fields = asdict(order.unit) | {key: getattr(order, key) for key in ("seed", "slot_id", "lease_number", "attempt")}
    del fields["run_id"], fields["trial_number"]
    if order.measured_seconds:
        fields["measured_seconds"] = order.measured_seconds
    return fields
