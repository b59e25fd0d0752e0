"""The session that stands between PL/Python bodies and the package, over a fake `plpy`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from easeml_plpy import __version__
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotFound, TrialFailed
from easeml_plpy.server.session import Command, Kept, Session, Statement
from easeml_plpy.units.units import GangOrder, Member, Unit, trial_to_blame


class Refused(Exception):
    """What the fake's `error` raises in place of an SQL error."""

    def __init__(self, message: str, fields: dict[str, str]) -> None:
        super().__init__(message)
        self.fields = fields


class SPIError(Exception):
    """The fake's error of the server."""


class Rows(list[dict[str, Any]]):
    """A result, or a cursor over it."""

    def nrows(self) -> int:
        return len(self)

    def fetch(self, count: int) -> Rows:
        fetched = Rows(self[:count])
        del self[:count]
        return fetched

    def close(self) -> None:
        assert not self


class FakePlPy:
    """Answers each statement with the rows that it was given for it, and writes down what happened."""

    SPIError = SPIError

    def __init__(self, answers: dict[str, list[dict[str, Any]]] | None = None, version: str = __version__) -> None:
        self.answers = {"SELECT easeml.version() AS version": [{"version": version}]} | (answers or {})
        self.prepared: list[str] = []
        self.executed: list[tuple[str, list[Any]]] = []
        self.n_commits = 0

    def prepare(self, query: str, argtypes: Sequence[str]) -> str:
        self.prepared.append(query)
        return query

    def execute(self, query: str, arguments: Sequence[Any] = ()) -> Rows:
        self.executed.append((query, list(arguments)))
        return Rows(self.answers.get(query, []))

    def cursor(self, query: str, arguments: Sequence[Any] = ()) -> Rows:
        return self.execute(query, arguments)

    def commit(self) -> None:
        self.n_commits += 1

    def notice(self, message: str) -> None:
        raise AssertionError(message)

    def error(self, message: str, **fields: str) -> None:
        raise Refused(message, fields)


@dataclass(frozen=True)
class Point:
    x: int
    y: int


POINTS = Statement("SELECT x, y FROM points WHERE x > $1", ("int4",), Point)


def test_rows_are_records_and_a_plan_is_kept() -> None:
    plpy = FakePlPy({POINTS.sql: [{"x": 1, "y": 2}, {"x": 3, "y": 4}]})
    session = Session(plpy)
    assert session.rows(POINTS, 0) == list(session.each(POINTS, 0)) == [Point(1, 2), Point(3, 4)]
    assert session.row(POINTS, 0) == Point(1, 2)
    assert session.run(Command(POINTS.sql, POINTS.types), 0) == 2
    assert plpy.prepared == [POINTS.sql]
    assert plpy.executed == [(POINTS.sql, [0])] * 4


def test_a_plan_of_one_call_is_not_kept() -> None:
    plpy = FakePlPy()
    session = Session(plpy)
    for _ in range(2):
        session.run(Command("INSERT INTO made VALUES ($1)", ("int4",), is_kept=False), 1)
    assert len(plpy.prepared) == 2


def test_a_session_lasts_and_keeps_what_is_named() -> None:
    plpy, shared = FakePlPy(), dict[str, object]()
    kept: Kept[list[int]] = Kept(list)
    session = Session.of(plpy, shared)
    session.kept(kept).append(1)
    assert Session.of(plpy, shared) is session
    assert session.kept(kept) == [1]
    assert session.kept(Kept(list)) == session.without_kept().kept(kept) == []
    assert len(plpy.executed) == 1, "versions are compared once"


def test_another_version_is_refused_at_every_call() -> None:
    plpy, shared = FakePlPy(version="9.9.9"), dict[str, object]()

    @entry_point()
    def listed(session: Session) -> int:
        raise AssertionError("refused before")

    for _ in range(2):
        with pytest.raises(Refused, match=r"extension easeml is 9\.9\.9") as refused:
            listed(plpy, shared)
        assert refused.value.fields["sqlstate"] == "ML008"
    assert not shared


def test_errors_of_ours_become_sql_errors_and_others_pass() -> None:
    @entry_point()
    def fails(session: Session, name: str, is_ours: bool) -> int:
        raise NotFound(f"no {name}", hint="Look again.") if is_ours else RuntimeError(name)

    with pytest.raises(Refused, match="no moon") as refused:
        fails(FakePlPy(), {}, "moon", True)
    assert refused.value.fields == {"sqlstate": "ML003", "hint": "Look again."}
    with pytest.raises(RuntimeError, match="moon"):
        fails(FakePlPy(), {}, "moon", False)


def test_a_trial_is_blamed_for_its_own_errors_only() -> None:
    session = Session(FakePlPy())
    for error in (NotFound("gone"), SPIError("cancelled")):
        with pytest.raises(type(error)), trial_to_blame(session):
            raise error
    with pytest.raises(TrialFailed, match="ZeroDivisionError: by hand"), trial_to_blame(session):
        raise ZeroDivisionError("by hand\nand more")
    with pytest.raises(TrialFailed, match="out of memory"), trial_to_blame(session):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")


def test_a_pause_lets_a_cancel_through_and_releases_the_snapshot_once_its_interval_is_over() -> None:
    plpy = FakePlPy()
    often, never = SessionPause(Session(plpy), 0.0), SessionPause(Session(plpy), 3600.0)
    for _ in range(3):
        often()
        never()
    pinned = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"
    assert [sql for sql, _ in plpy.executed] == ["SELECT 1", pinned] * 3
    assert plpy.n_commits == 3


# Orders


FIELDS = {
    "trial_id": 7, "step": 4, "kind": "train", "epoch": 2, "position": 0, "partition_number": 1, "seed": 2**62,
    "slot_id": 3, "lease_number": 9, "attempt": 1,
}  # fmt: skip
MEMBERS = [{"step": step, "position": step, "partition_number": 0, "seed": 5, "slot_id": step} for step in (4, 5)]


def test_an_order_is_parsed_once() -> None:
    text = json.dumps(FIELDS)
    unit = Unit.from_text(text)
    assert {name: getattr(unit, name) for name in FIELDS} == FIELDS
    assert (unit.text, unit.gang, unit.measured_seconds) == (text, None, 0.0)
    assert Unit.from_text(json.dumps({**FIELDS, "measured_seconds": 0.5})).measured_seconds == 0.5


def test_an_order_of_a_gang_names_its_members_by_rank() -> None:
    gang = {"token": "ab", "rank": 1, "timeout_seconds": 2.5, "members": MEMBERS}
    unit = Unit.from_text(json.dumps({**FIELDS, "gang": gang}))
    assert unit.gang == GangOrder("ab", 1, 2.5, (Member(4, 4, 0, 5, 4), Member(5, 5, 0, 5, 5)))


def test_an_order_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        Unit.from_text(json.dumps({**FIELDS, "colour": "red"}))
