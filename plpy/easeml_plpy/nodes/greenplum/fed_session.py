"""A session whose statements are answered with what came in the call: a segment of Greenplum may read no tables.

There a function that runs beside the rows may execute nothing but SELECT without tables. The plan of the query that
calls it reads the packed rows and the chunks of states, and hands them over as arrays. What a unit writes leaves as
rows that the function returns. Between the two a unit is that of any node (node_units.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

from easeml_plpy.architectures.registered import NAMED
from easeml_plpy.nodes.node_units import STORE, STORE_CHUNK
from easeml_plpy.row_forms.datasets import BLOCKS, DATASET
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.plpython import GlobalData, PlPy, Row, SqlValue
from easeml_plpy.server.session import NodeSession, Session, Statement
from easeml_plpy.states.states import CHUNKS, STATE

R = TypeVar("R")
ENCODER, BLOCK, STATE_CHUNK = "encoder", "block ", "state"
"""Kinds of pieces; that of a block has its split behind it."""


class Piece(NamedTuple):
    """A piece of what a unit reads. `owner`: dataset, partition or state; `number`: its place in that; `n_rows`: of a
    block; then its bytes, a block's inputs and targets."""

    kind: str
    owner: int
    number: int
    n_rows: int | None
    first: bytes
    second: bytes | None


class KnownState(NamedTuple):
    """Length and hash of a state, as the control server knows them."""

    n_bytes: int
    sha256: str


class StateChunk(NamedTuple):
    """A row of a new state: which it is, and a chunk of its bytes."""

    checkpoint_id: int
    chunk_number: int
    trial_id: int
    lease_number: int
    n_bytes: int
    sha256: str
    bytes: bytes


@dataclass
class Fed:
    """What a unit may read, and what it has written so far."""

    pieces: Mapping[tuple[str, int], Sequence[Piece]]
    states: Mapping[int, KnownState]
    registered: Mapping[str, Row]
    written: list[StateChunk] = field(default_factory=list)
    _header: tuple[int, int, int, str] = (0, 0, 0, "")

    @classmethod
    def of(cls, pieces: Iterable[Piece], context: str) -> Fed:
        """Group pieces, which come in any order; `context` is the result of easeml.open_node_unit."""
        grouped: dict[tuple[str, int], list[Piece]] = {}
        for piece in sorted(pieces, key=lambda piece: piece[:3]):
            grouped.setdefault((piece.kind, piece.owner), []).append(piece)
        opened = json.loads(context)
        return cls(grouped, dict(_states_in(opened)), cls.registered_in(opened))

    @staticmethod
    def registered_in(opened: Mapping[str, Any]) -> dict[str, Row]:
        """Return by name the registered architectures in a result of easeml.open_node_unit."""
        rows = ({**row, "hyperparameters": json.dumps(row["hyperparameters"])} for row in opened["registered"])
        return {row["architecture"]: row for row in rows}

    def rows(self, statement: Statement[Any], values: Sequence[Any]) -> Iterable[Row] | None:
        """Return the rows of a statement that units execute, None for any other."""
        answer = ANSWERS.get(statement.sql)
        return None if answer is None else answer(self, values)

    def write(self, sql: str, values: Sequence[Any]) -> None:
        """Take what a unit stores. Raises NotAllowed for anything else."""
        if sql == STORE.sql:
            number, trial_id, lease_number, n_bytes, sha256 = values
            self._header = (trial_id, lease_number, n_bytes, sha256)
        elif sql == STORE_CHUNK.sql:
            number, chunk_number, chunk = values
            self.written.append(StateChunk(number, chunk_number, *self._header, bytes(chunk)))
        else:
            raise NotAllowed(f"a segment of Greenplum writes states and nothing else, got: {sql}")

    def chunks(self, checkpoint_id: int) -> list[bytes]:
        """Return the bytes of a state."""
        return [piece.first for piece in self.pieces.get((STATE_CHUNK, checkpoint_id), ())]

    def _encoder(self, values: Sequence[Any]) -> Iterator[Row]:
        (dataset_id,) = values
        for piece in self.pieces.get((ENCODER, dataset_id), ()):
            yield {"encoder": piece.first.decode()}

    def _blocks(self, values: Sequence[Any]) -> Iterator[Row]:
        _, split, partition_number = values
        for piece in self.pieces.get((BLOCK + split, partition_number), ()):
            yield {"n_rows": piece.n_rows, "inputs": piece.first, "targets": piece.second}

    def _state(self, values: Sequence[Any]) -> Iterator[Row]:
        _, checkpoint_id = values
        if checkpoint_id in self.states and self.chunks(checkpoint_id):
            yield {"state": None, **self.states[checkpoint_id]._asdict()}

    def _chunks(self, values: Sequence[Any]) -> Iterator[Row]:
        _, checkpoint_id = values
        for chunk in self.chunks(checkpoint_id):
            yield {"bytes": chunk}

    def _registered(self, values: Sequence[Any]) -> Iterator[Row]:
        (name,) = values
        if name in self.registered:
            yield self.registered[name]


ANSWERS: dict[str, Callable[[Fed, Sequence[Any]], Iterable[Row]]] = {
    DATASET.sql: Fed._encoder,
    BLOCKS.sql: Fed._blocks,
    STATE.sql: Fed._state,
    CHUNKS.sql: Fed._chunks,
    NAMED.sql: Fed._registered,
}


def _states_in(opened: Mapping[str, Any]) -> Iterator[tuple[int, KnownState]]:
    """Return the state that a unit starts from, and those of which an ensemble is made."""
    candidates = [] if opened["composition"] is None else opened["composition"]["candidates"]
    for state in [*([opened["state"]] if opened["state"] is not None else []), *candidates]:
        yield state["checkpoint_id"], KnownState(state["n_bytes"], state["sha256"])


class FedSession(NodeSession):
    """One process of a segment of Greenplum."""

    fed: Fed

    @classmethod
    def fed_with(cls, plpy: PlPy, GD: GlobalData, fed: Fed) -> Self:
        """Return the process's session, with what came for one unit. Raises VersionMismatch."""
        session = cls.of(plpy, GD)
        session.fed = fed
        return session

    def rows(self, statement: Statement[R], *values: SqlValue) -> list[R]:
        """Answer a statement, or have the server do what needs no tables."""
        answer = None if not hasattr(self, "fed") else self.fed.rows(statement, values)
        return super().rows(statement, *values) if answer is None else [statement.row(**row) for row in answer]

    def row(self, statement: Statement[R], *values: SqlValue) -> R:
        """Answer a statement of one row."""
        return self.rows(statement, *values)[0]

    def each(self, statement: Statement[R], *values: SqlValue, at_once: int = 1) -> Iterator[R]:
        """Answer a statement row by row."""
        return iter(self.rows(statement, *values))

    def run(self, command: Any, *values: SqlValue) -> int:
        """Take what the unit writes."""
        self.fed.write(command.sql, values)
        return 1

    def pin(self) -> None:
        """Do nothing: the function has its path for as long as it runs."""

    def let_go(self) -> None:
        """Do nothing: the query that called commits, if the coordinator of the cluster says so."""


def shed(session: Session) -> None:
    """Forget what came with a call: the next one brings its own."""
    if isinstance(session, FedSession):
        session.fed = Fed({}, {}, {})
