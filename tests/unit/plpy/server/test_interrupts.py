"""A cancel ends Python wherever it is, over a fake `plpy` whose next statement the server cancels."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from easeml_plpy.server.entry_points import answered_by
from easeml_plpy.server.failures import Failure
from easeml_plpy.server.interrupts import interruptible
from easeml_plpy.server.session import Session

ENOUGH_TURNS = 10**9  # minutes: only the cancel ends these loops


class Cancelled(Exception):
    """The fake's error of the server."""


class Server:
    """A `plpy` that counts statements; the one after `n_fine` of them is cancelled."""

    SPIError = Cancelled

    def __init__(self, n_fine: int = 0) -> None:
        self.n_asked, self._n_fine = 0, n_fine

    def execute(self, sql: str) -> list[Any]:
        self.n_asked += 1
        if self.n_asked > self._n_fine:
            raise Cancelled("canceling statement due to statement timeout")
        return []


def work(n_turns: int = ENOUGH_TURNS) -> int:
    for turn in range(n_turns):
        if turn < 0:
            return turn
    return n_turns


def test_a_loop_without_any_call_is_ended() -> None:
    server: Any = Server()
    with pytest.raises(Cancelled), interruptible(server):
        work()
    assert server.n_asked == 1
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_work_goes_on_until_the_server_says_otherwise() -> None:
    server: Any = Server(n_fine=2)
    with pytest.raises(Cancelled):
        answered_by(server, work)
    assert server.n_asked == 3


def test_nothing_is_asked_outside_the_block() -> None:
    server: Any = Server()
    with interruptible(server):
        pass
    assert work(3_000_000) == 3_000_000
    assert server.n_asked == 0


def test_a_block_within_a_block_leaves_the_outer_one_interruptible() -> None:
    server: Any = Server()

    def nested() -> None:
        with interruptible(server):
            with interruptible(server):
                pass
            work()

    with pytest.raises(Cancelled):
        nested()


def test_nothing_is_asked_while_the_server_executes_except_by_python_within() -> None:
    """A statement at that moment would run on the connection of the statement under way, and free its memory."""
    server: Any = Server()
    told: list[str] = []

    def inner() -> None:
        with interruptible(server):
            work()

    class Outer(Server):
        def execute(self, sql: str) -> list[Any]:
            work(3_000_000)
            told.append("quiet before")
            with pytest.raises(Cancelled):
                inner()
            work(3_000_000)
            told.append("quiet after")
            return []

    outer: Any = Outer()
    with pytest.raises(Cancelled), interruptible(outer):  # at its end, since the server went on
        Session(outer).execute("SELECT 1")
    assert told == ["quiet before", "quiet after"]
    assert server.n_asked == 1
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_cancel_that_python_throws_away_is_raised_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lingering:
        def __del__(self) -> None:
            work()

    server: Any = Server()
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with pytest.raises(Cancelled), interruptible(server):
        Lingering()


def test_an_import_is_not_left_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("for turn in range(20_000_000):\n    pass\nis_whole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    server: Any = Server()
    with interruptible(server):
        import slow_to_import  # type: ignore[import-not-found]
    assert slow_to_import.is_whole
    assert server.n_asked == 0


def test_an_error_of_class_ml_is_still_a_value() -> None:
    from easeml_plpy.server.errors import NotFound

    def refuse() -> int:
        raise NotFound("there is no such thing")

    answer = answered_by(Server(), refuse)  # type: ignore[arg-type]
    assert isinstance(answer, Failure)
