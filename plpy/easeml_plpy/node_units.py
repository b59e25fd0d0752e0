"""Units on a node: opened and recorded on the control server, trained and measured here.

A node knows no runs. A unit gets its order and its context in the call, reads packed rows and states of this server,
and writes its new state here, never pointed to until the control server records the unit. What it returns is what is
recorded there. The work itself is that of a unit on the control server (training.py, evaluation.py, pilot.py).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .checkpoint import digest
from .evaluation import evaluate_opened
from .pilot import MeanRows, PilotTimes, pilot_opened
from .recording import EvaluatedState, EvaluationFacts, RecordedTraining, TrainingFacts
from .session import Command, Session, node_entry_point, pinned
from .states import CHUNK_BYTES
from .training import train_opened
from .units import Unit, UnitContext, bound_context, opened_from_text
from .warming import import_all

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
    """What a node is told of a unit: its context, and what only units on nodes need."""

    context: UnitContext
    new_checkpoint_id: int
    mean_rows: MeanRows


def _opened(text: str) -> _Opened:
    """Parse what easeml.open_node_unit returned, and bind the session to its slot."""
    told = json.loads(text)
    return _Opened(bound_context(opened_from_text(text)), told["new_checkpoint_id"], MeanRows(**told["mean_rows"]))


@node_entry_point
def warm_node(session: Session) -> None:
    """Import torch and what trains with it, so that the first unit does not pay for it."""
    import_all()


@node_entry_point
@pinned
def train_on_node(session: Session, unit: str, context: str, result: str | None) -> tuple[str]:
    """Train and store the new state; return JSON {"facts", "checkpoint_id", "sha256", "n_bytes"}.

    Raises TrialFailed, CorruptCheckpoint; a cancel passes through and stores nothing.
    """
    order, opened = Unit.from_text(unit), _opened(context)
    stored: dict[str, Any] = {}

    def record(facts: TrainingFacts, state: bytes) -> RecordedTraining:
        stored["sha256"] = digest(state)
        _store(session, order, opened.new_checkpoint_id, state, stored["sha256"])
        return {"checkpoint_id": opened.new_checkpoint_id, "state_bytes": len(state), "pruned_bytes": 0}

    facts, recorded = train_opened(session, order, opened.context, record)
    told = {"checkpoint_id": recorded["checkpoint_id"], "n_bytes": recorded["state_bytes"], **stored}
    return (json.dumps({"facts": facts, **told}),)


@node_entry_point
@pinned
def evaluate_on_node(session: Session, unit: str, context: str, result: str | None) -> tuple[str]:
    """Measure; return the facts that are to be recorded as JSON {"statistics", "read_bytes"}."""
    order, opened = Unit.from_text(unit), _opened(context)

    def record(measured: EvaluatedState, facts: EvaluationFacts) -> EvaluationFacts:
        return facts

    _, facts = evaluate_opened(session, order, opened.context, record)
    return (json.dumps(facts),)


@node_entry_point
@pinned
def pilot_on_node(session: Session, unit: str, context: str, result: str | None) -> tuple[str]:
    """Time a fresh trial on rows of one partition; return what easeml.pilot_unit returns."""
    order, opened = Unit.from_text(unit), _opened(context)

    def record(times: PilotTimes) -> None:
        """Leave it to the control server."""

    return (pilot_opened(session, order, opened.context, opened.mean_rows, record),)


def _store(session: Session, order: Unit, checkpoint_id: int, state: bytes, sha256: str) -> None:
    session.run(STORE, checkpoint_id, order.trial_id, order.lease_number, len(state), sha256)
    view = memoryview(state)
    for number, start in enumerate(range(0, len(state), CHUNK_BYTES)):
        session.run(STORE_CHUNK, checkpoint_id, number, view[start : start + CHUNK_BYTES])
