"""What a unit on a segment of Greenplum is fed with, and what it gives back."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from easeml_plpy.nodes.greenplum.fed_session import Fed, Piece, StateChunk
from easeml_plpy.nodes.greenplum.segment_units import work_on_segment, worked
from easeml_plpy.nodes.node_units import STORE, STORE_CHUNK
from easeml_plpy.row_forms.datasets import BLOCKS, DATASET
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.states.states import CHUNKS, STATE

CONTEXT = {"composition": None, "registered": [], "state": {"checkpoint_id": 31, "n_bytes": 4, "sha256": "f" * 64}}


def fed(*pieces: Piece, **told: Any) -> Fed:
    return Fed.of(pieces, json.dumps({**CONTEXT, **told}))


def answer(found: Fed, statement: Any, *values: Any) -> Any:
    rows = found.rows(statement, values)
    return None if rows is None else list(rows)


def test_pieces_come_in_whatever_order_and_are_read_in_theirs() -> None:
    found = fed(
        Piece("state", 31, 1, None, b"cd", None),
        Piece("block train", 2, 1, 5, b"in1", b"ta1"),
        Piece("block validation", 2, 0, 9, b"other", b""),
        Piece("block train", 2, 0, 8, b"in0", b"ta0"),
        Piece("encoder", 7, 0, None, b"{}", None),
        Piece("state", 31, 0, None, b"ab", None),
    )
    assert answer(found, BLOCKS, 7, "train", 2) == [
        {"n_rows": 8, "inputs": b"in0", "targets": b"ta0"},
        {"n_rows": 5, "inputs": b"in1", "targets": b"ta1"},
    ]
    assert answer(found, DATASET, 7) == [{"encoder": "{}"}]
    assert answer(found, STATE, 1, 31) == [{"state": None, "n_bytes": 4, "sha256": "f" * 64}]
    assert [row["bytes"] for row in answer(found, CHUNKS, 1, 31)] == [b"ab", b"cd"]


def test_a_state_that_did_not_come_is_gone_and_other_statements_are_not_answered() -> None:
    assert answer(fed(), STATE, 1, 31) == []
    assert answer(fed(Piece("state", 32, 0, None, b"ab", None)), STATE, 1, 32) == []
    assert fed().rows(SimpleNamespace(sql="SELECT 1"), ()) is None  # type: ignore[arg-type]


def test_a_new_state_leaves_as_rows_of_which_the_first_has_what_is_told() -> None:
    found = fed()
    found.write(STORE.sql, (40, 5, 2, 3, "e" * 64))
    for number, chunk in enumerate((b"ab", memoryview(b"c"))):
        found.write(STORE_CHUNK.sql, (40, number, chunk))
    rows = worked(found.written, "{}")
    assert rows == [(40, 0, 5, 2, 3, "e" * 64, b"ab", "{}"), (40, 1, 5, 2, 3, "e" * 64, b"c", None)]
    assert worked([], "{}") == [(*[None] * len(StateChunk._fields), "{}")]
    with pytest.raises(NotAllowed, match="writes states and nothing else"):
        found.write("INSERT INTO easeml.runs", ())


def test_an_error_of_ours_is_told_and_one_of_the_server_passes() -> None:
    class Cancelled(Exception):
        spidata = (0, None, None)

    def execute(*_: object) -> Any:
        raise Cancelled

    class OtherVersion:
        SPIError = Cancelled

        def prepare(self, *_: object) -> str:
            return ""

        def execute(self, *_: object) -> Any:
            return [{"version": "0.1.0"}]

    arguments = ("train_unit", "{}", json.dumps(CONTEXT), [], [], [], [], [], [])
    (row,) = work_on_segment(OtherVersion(), {}, *arguments)  # type: ignore[arg-type]
    assert json.loads(str(row[-1]))["failure"]["sqlstate"] == "ML008"
    broken = SimpleNamespace(prepare=lambda *_: "", execute=execute, SPIError=Cancelled)
    Cancelled.spidata = (sum((ord(c) - 48) << 6 * k for k, c in enumerate("57014")), None, None)
    with pytest.raises(Cancelled):
        work_on_segment(broken, {}, *arguments)  # type: ignore[arg-type]
