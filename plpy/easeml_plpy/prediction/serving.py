"""Which trial answers for which role: the one step from the rights of the asking role to those of the service.

Functions that predict run with the caller's rights, and only there does the server's current_user name the caller.
`served` leaves that name in the session object in `GD`, which only PL/Python, hence only code of superusers, can write.
`open_serving`, which runs with the owner's rights, takes the name from there, and refuses if there is none.

A name is resolved once per statement, so that one trial answers all rows of a statement.
"""

from __future__ import annotations

import functools
import json
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple

from easeml_plpy.row_forms import datasets
from easeml_plpy.server.cache import Bounded
from easeml_plpy.server.devices import be_for_answers, bind
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import (
    CorruptCheckpoint,
    InvalidArgument,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    from_sqlstate,
)
from easeml_plpy.server.memory import is_exhausted
from easeml_plpy.server.session import Command, Kept, Session, Statement, only_column
from easeml_plpy.states.states import read_state
from easeml_plpy.trainers import answering_trial, architecture
from easeml_plpy.trainers.contract import AnsweringTrial

N_SERVED = 8
SERVED_BYTES = 1 << 30
MEMORY_VARIABLE = "EASEML_PREDICTION_MEMORY_BYTES"
"""In the server's environment, which no role of the database can change: RLIMIT_DATA of a session that predicts."""


@dataclass(frozen=True)
class Served:
    """A trial ready to answer, with the view that it takes; `n_bytes` is the size of its state."""

    data: datasets.Dataset
    view: str
    live: AnsweringTrial
    trial_id: int
    n_bytes: int


def _store() -> Bounded[Served]:
    """Return a store for eight trials, or fewer large ones."""
    return Bounded(SERVED_BYTES, lambda served: max(served.n_bytes, SERVED_BYTES // N_SERVED))


class _Call(NamedTuple):
    """Who asks, and when the statement and its transaction began: a procedure that commits has several transactions
    in one statement."""

    asker: str
    statement: str
    transaction: str


@dataclass
class _Resolved:
    """The meaning of names in the current statement."""

    call: _Call | None = None
    served: Bounded[Served] = field(default_factory=_store)


@dataclass
class _Crossing:
    """The data passed to the owner's rights, a name, and back, a trial; empty except at that moment."""

    asker: str | None = None
    served: Served | None = None


@dataclass
class _Process:
    """The kind of server process that this is, which never changes."""

    backend_type: str | None = None


class _Opened(NamedTuple):
    serving_trial_id: int | None
    failure: str | None


class _Choice(NamedTuple):
    tenant: str
    dataset_name: str
    dataset_id: int
    serving_trial_id: int
    checkpoint_id: int
    passed_over: list[str] | None
    is_audited: bool


class _Trial(NamedTuple):
    architecture: str
    config: str


CALL = Statement(
    "SELECT current_user AS asker, statement_timestamp() AS statement, transaction_timestamp() AS transaction",
    (),
    _Call,
)
OPEN = Statement("SELECT serving_trial_id, failure FROM easeml.open_serving($1, $2)", ("text", "int8"), _Opened)
BACKEND_TYPE: Statement[str | None] = Statement(
    "SELECT backend_type FROM pg_stat_get_activity(pg_backend_pid())", (), only_column
)
SERVING_TRIAL = Statement(
    "SELECT tenant, dataset_name, dataset_id, serving_trial_id, checkpoint_id, passed_over, is_audited"
    " FROM easeml.serving_trial($1, $2, $3)",
    ("name", "text", "int8"),
    _Choice,
)
LOG = Command("SELECT easeml.log_prediction($1, $2, $3, $4)", ("name", "text", "name", "int8"))
TRIAL = Statement("SELECT architecture, config FROM easeml.trials WHERE trial_id = $1", ("int8",), _Trial)

PROCESS: Kept[_Process] = Kept(_Process)
RESOLVED: Kept[_Resolved] = Kept(_Resolved)
CROSSING: Kept[_Crossing] = Kept(_Crossing)
RESTORED: Kept[Bounded[Served]] = Kept(_store)


def served(session: Session, dataset: str | None, trial_id: int | None) -> Served:
    """Return the trial that answers for the current user. Raises what serving_trial refuses."""
    resolved, call = session.kept(RESOLVED), session.row(CALL)
    if resolved.call != call:
        resolved.call, resolved.served = call, _store()
    return resolved.served.get((dataset, trial_id), lambda: _opened(session, call.asker, dataset, trial_id))


def _opened(session: Session, asker: str, dataset: str | None, trial_id: int | None) -> Served:
    """Open the trial with the owner's rights; the name is set only for that time."""
    crossing = session.kept(CROSSING)
    crossing.asker = asker
    try:
        opened = session.row(OPEN, dataset, trial_id)
        restored = crossing.served
    finally:
        crossing.asker = crossing.served = None
    if opened.failure is not None:
        failure = json.loads(opened.failure)
        raise from_sqlstate(failure["sqlstate"], failure["message"], failure["detail"], failure["hint"])
    if restored is None:
        raise NotAllowed("easeml.open_serving has opened nothing")
    return restored


@entry_point(returns_failure=True)
def open_serving(session: Session, dataset: str | None, trial_id: int | None) -> int:
    """Restore the trial that answers for the role that `served` has named; return its number. Runs as the owner."""
    crossing = session.kept(CROSSING)
    asker, crossing.asker = crossing.asker, None
    if asker is None:
        raise NotAllowed("easeml.open_serving cannot be called directly", hint="Call easeml.predict.")
    _check_client(session)
    bind("cpu", 1, session.kept(MEMORY))  # one thread: many sessions predict at once
    be_for_answers()
    choice, served = _chosen(session, asker, dataset, trial_id)
    if choice.passed_over:
        _warn_of_choice(session, choice)
    if choice.is_audited:
        session.run(LOG, choice.tenant, choice.dataset_name, asker, choice.serving_trial_id)
    crossing.served = served
    return choice.serving_trial_id


def _chosen(session: Session, asker: str, dataset: str | None, trial_id: int | None) -> tuple[_Choice, Served]:
    """Find the trial that answers, and restore it; a state that is dropped or replaced meanwhile is looked up again."""
    choice = session.row(SERVING_TRIAL, asker, dataset, trial_id)
    while True:
        key = (choice.dataset_id, choice.checkpoint_id)
        try:
            return choice, session.kept(RESTORED).get(key, functools.partial(_restored, session, choice))
        except (CorruptCheckpoint, NotFound):
            before, choice = choice, session.row(SERVING_TRIAL, asker, dataset, trial_id)
            if choice == before:
                raise


def _check_client(session: Session) -> None:
    """Refuse autovacuum, which evaluates index expressions as the table's owner, and workers of other kinds."""
    process = session.kept(PROCESS)
    process.backend_type = backend_type = process.backend_type or session.row(BACKEND_TYPE)
    if backend_type != "client backend":
        raise NotAllowed(
            f"predictions are answered in sessions of clients only, and this is {backend_type or 'of an unknown kind'}",
            hint="An index expression or a parallel worker cannot predict; store predictions in a column.",
        )


def _warn_of_choice(session: Session, choice: _Choice) -> None:
    """Warn that a bare name means datasets of several tenants."""
    names = [f"{choice.tenant}.{choice.dataset_name}", *(choice.passed_over or ())]
    session.warn(
        f"several tenants let you use a dataset {choice.dataset_name!r}; {names[0]} answers, by the oldest grant",
        hint=f"Name the one that you mean: {', '.join(map(repr, names))}.",
    )


def _restored(session: Session, choice: _Choice) -> Served:
    trials = session.rows(TRIAL, choice.serving_trial_id)
    if not trials:
        raise NotFound(f"trial {choice.serving_trial_id} is gone")
    trial = trials[0]
    data = datasets.dataset(session, choice.dataset_id)
    chosen = architecture(trial.architecture)
    view = chosen.view
    with within_memory():
        state = read_state(session, choice.serving_trial_id, choice.checkpoint_id)
        live = answering_trial(chosen, json.loads(trial.config), data.task(view), state)
    return Served(data, view, live, choice.serving_trial_id, len(state))


def memory_limit_bytes() -> int | None:
    """Return how much memory a session that predicts may have; None: no limit. Raises InvalidArgument."""
    text = os.environ.get(MEMORY_VARIABLE, "")
    if text and not (text.isascii() and text.isdigit()):
        raise InvalidArgument(f"the server's environment has {MEMORY_VARIABLE}={text!r}, expected a number of bytes")
    return int(text) if text else None


MEMORY: Kept[int | None] = Kept(memory_limit_bytes)  # no process of the server gets another environment


class _WithinMemory:
    """The context manager of `within_memory`. A generator would cost more than one row's arithmetic."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *rest: object) -> None:
        if error is None or not is_exhausted(error):
            return
        limit = memory_limit_bytes()
        raise QuotaExceeded(
            "the prediction ran out of memory" + (f": a session may use {limit} bytes" if limit else ""),
            hint=f"An administrator can raise {MEMORY_VARIABLE} in the server's environment, or ask a smaller trial.",
        ) from error


_WITHIN_MEMORY = _WithinMemory()


def within_memory() -> AbstractContextManager[None]:
    """Turn an out-of-memory error into one line."""
    return _WITHIN_MEMORY
