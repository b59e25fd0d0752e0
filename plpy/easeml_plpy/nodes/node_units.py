"""Units on a node: opened and recorded on the control server, trained and measured here.

A node knows no runs. A unit gets its order and its context in the call, reads packed rows and states of this server,
and writes its new state here; nothing points to that state until the control server records the unit. It returns what
the control server is to record. The work itself is the same as that of a unit on the control server (training.py,
evaluation.py, rounds.py, pilot.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from easeml_plpy.server.chunks import state_chunks
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Command, NodeSession, Session
from easeml_plpy.states.checkpoint import digest
from easeml_plpy.units.composition import Composition
from easeml_plpy.units.evaluation import evaluate_opened
from easeml_plpy.units.pilot import MeanRows, PilotTimes, pilot_opened
from easeml_plpy.units.recording import EvaluatedState, EvaluationFacts, RecordedTraining, TrainingFacts
from easeml_plpy.units.rounds import evaluate_opened_round, train_opened_round
from easeml_plpy.units.training import train_opened
from easeml_plpy.units.units import Unit, UnitContext, bound_context, opened_from_text
from easeml_plpy.units.warming import import_all

STORE = Command(
    "INSERT INTO easeml_segment.checkpoints (checkpoint_id, trial_id, lease_number, n_bytes, sha256)"
    " VALUES ($1, $2, $3, $4, $5)",
    ("int8", "int8", "int8", "int8", "text"),
)
STORE_CHUNK = Command(
    "INSERT INTO easeml_segment.checkpoint_chunks (checkpoint_id, chunk_number, bytes) VALUES ($1, $2, $3)",
    ("int8", "int4", "bytea"),
)


class _Opened(NamedTuple):
    """A unit as sent to a node: its context, and what only units on nodes need."""

    context: UnitContext
    new_checkpoint_id: int
    mean_rows: MeanRows


def _opened(text: str) -> _Opened:
    """Parse what easeml.open_node_unit returned, and bind the session to its slot."""
    entries = json.loads(text)
    context = bound_context(opened_from_text(text))
    if entries["composition"] is not None:
        context = context._replace(composition=Composition.from_json(entries["composition"]))
    return _Opened(context, entries["new_checkpoint_id"], MeanRows(**entries["mean_rows"]))


@entry_point(of=NodeSession)
def warm_node(session: Session) -> None:
    """Import torch and what trains with it, so that the first unit does not pay for it."""
    import_all()


@entry_point(of=NodeSession, is_pinned=True)
def train_on_node(session: Session, unit: str, context: str, result: str | None) -> tuple[str]:
    """Train as `train` does."""
    return (train(session, unit, context),)


def train(session: Session, unit: str, context: str) -> str:
    """Train and store the new state; return JSON {"facts", "checkpoint_id", "sha256", "n_bytes"}.

    Raises TrialFailed, CorruptCheckpoint; a cancel passes through and stores nothing.
    """
    order, opened = Unit.from_text(unit), _opened(context)
    stored = _Stored(session, order, opened.new_checkpoint_id)

    def record(facts: TrainingFacts, state: bytes) -> RecordedTraining:
        return stored.store(state)

    facts, _ = train_opened(session, order, opened.context, record)
    return json.dumps({"facts": facts, **stored.report})


@entry_point(of=NodeSession, is_pinned=True)
def train_round_on_node(session: Session, unit: str, context: str, result: str | None) -> tuple[str]:
    """Train as `train_round` does."""
    return (train_round(session, unit, context),)


def train_round(session: Session, unit: str, context: str) -> str:
    """Train over all partitions, which are here, and store the new state; return what `train` returns, and as "parts"
    the facts of each member of the order."""
    order, opened = Unit.from_text(unit), _opened(context)
    stored = _Stored(session, order, opened.new_checkpoint_id)
    all_facts: list[TrainingFacts] = []

    def record(parts: Sequence[TrainingFacts], state: bytes) -> RecordedTraining:
        all_facts.extend(parts)
        return stored.store(state)

    train_opened_round(session, order, opened.context, record)
    return json.dumps({"facts": all_facts[0], "parts": all_facts, **stored.report})


@entry_point(of=NodeSession, is_pinned=True)
def evaluate_on_node(session: Session, unit: str, context: str, result: str | None) -> tuple[str]:
    """Measure as `evaluate` does."""
    return (evaluate(session, unit, context),)


def evaluate(session: Session, unit: str, context: str) -> str:
    """Measure; return the facts that are to be recorded as JSON {"statistics", "read_bytes"}."""
    order, opened = Unit.from_text(unit), _opened(context)

    def record(measured: EvaluatedState, facts: EvaluationFacts) -> EvaluationFacts:
        return facts

    _, facts = evaluate_opened(session, order, opened.context, record)
    return json.dumps(facts)


@entry_point(of=NodeSession, is_pinned=True)
def evaluate_round_on_node(session: Session, unit: str, context: str, result: str | None) -> tuple[str]:
    """Measure as `evaluate_round` does."""
    return (evaluate_round(session, unit, context),)


def evaluate_round(session: Session, unit: str, context: str) -> str:
    """Measure the rows of all partitions, which are here; return what `evaluate` returns, and as "parts" the facts of
    each member of the order."""
    order, opened = Unit.from_text(unit), _opened(context)

    def record(measured: EvaluatedState, parts: Sequence[EvaluationFacts]) -> Sequence[EvaluationFacts]:
        return parts

    _, parts = evaluate_opened_round(session, order, opened.context, record)
    return json.dumps({**parts[0], "parts": parts})


@entry_point(of=NodeSession, is_pinned=True)
def pilot_on_node(session: Session, unit: str, context: str, result: str | None) -> tuple[str]:
    """Time as `pilot` does."""
    return (pilot(session, unit, context),)


def pilot(session: Session, unit: str, context: str) -> str:
    """Time a fresh trial on rows of one partition; return what easeml.pilot_unit returns."""
    order, opened = Unit.from_text(unit), _opened(context)

    def record(times: PilotTimes) -> None:
        """Leave it to the control server."""

    return pilot_opened(session, order, opened.context, opened.mean_rows, record)


class _Stored:
    """The new state of a unit under the number in the order; `report` describes it to the control server."""

    def __init__(self, session: Session, order: Unit, checkpoint_id: int) -> None:
        self._session, self._order, self._checkpoint_id = session, order, checkpoint_id
        self.report: dict[str, Any] = {}

    def store(self, state: bytes) -> RecordedTraining:
        """Store it."""
        number, n_bytes, sha256 = self._checkpoint_id, len(state), digest(state)
        self.report = {"checkpoint_id": number, "n_bytes": n_bytes, "sha256": sha256}
        self._session.run(STORE, number, self._order.trial_id, self._order.lease_number, n_bytes, sha256)
        for chunk_number, chunk in state_chunks(state):
            self._session.run(STORE_CHUNK, number, chunk_number, chunk)
        return {"checkpoint_id": number, "state_bytes": n_bytes, "pruned_bytes": 0}
