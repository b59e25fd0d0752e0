"""What the coordinator of a Citus cluster is told about a worker: the SQL that was seen to run there, on 12.1.12."""

from __future__ import annotations

import pytest
from psycopg import sql

from easeml_db.errors import NotFound, NotReady
from easeml_db.postgres.nodes.citus.coordinator.connections import worker_of
from easeml_db.postgres.nodes.citus.coordinator.statements import CHUNK_COLUMNS, CitusWorker, arrived

WORKER = CitusWorker(group=2, key=5)


def text(statement: sql.Composable) -> str:
    """A statement in one line."""
    return " ".join(statement.as_string().split())


def test_a_statement_is_an_argument_in_a_query_of_one_key() -> None:
    """Citus planned it as one task on the worker, whatever the statement did: Custom Scan (Citus Adaptive), Task
    Count: 1."""
    assert text(WORKER.asked("SELECT 'it''s'", CHUNK_COLUMNS)) == (
        "SELECT r.* FROM easeml_worker.keys k CROSS JOIN LATERAL easeml_segment.on_worker(2, 'SELECT ''it''''s''',"
        " ARRAY[]::bytea[]) r(checkpoint_id bigint, chunk_number integer, bytes bytea) WHERE k.segment_key = 5"
    )


def test_rows_of_any_columns_come_as_json_and_a_change_returns_some() -> None:
    said = text(WORKER.found("DELETE FROM t RETURNING a"))
    assert "'WITH q AS (DELETE FROM t RETURNING a) SELECT to_jsonb(q) FROM q'" in said
    assert said.endswith("r(found jsonb) WHERE k.segment_key = 5")


def test_a_unit_is_a_call_whose_first_argument_is_the_key() -> None:
    """All arguments are constants: a call with a subquery among them is not delegated."""
    assert text(WORKER.unit("train_on_node", '{"a": 1}', "{}")) == (
        "CALL easeml_segment.unit_on_worker(5, 2, 'train_on_node', '{\"a\": 1}'::jsonb, '{}'::jsonb, NULL)"
    )


def test_bytes_that_arrive_are_pieces_and_other_values_stand_in_the_statement() -> None:
    rows = [(7, b"x", "it's", b"y"), (8, b"z", None, b"")]
    statement, pieces = arrived(sql.SQL("t (a, b, c, d)"), rows)
    assert statement == (
        "INSERT INTO t (a, b, c, d) VALUES (7, ($1)[1], 'it''s', ($1)[2]), (8, ($1)[3], NULL, ($1)[4])"
        " RETURNING 1 AS is_written"
    )
    assert pieces == [b"x", b"y", b"z", b""]
    query, values = WORKER.written(sql.SQL("t (a)"), [(b"x",)])
    assert "easeml_segment.on_worker(2, %s, ARRAY[%b::bytea]::bytea[]) r(found jsonb)" in text(query)
    assert values == [
        "WITH q AS (INSERT INTO t (a) VALUES (($1)[1]) RETURNING 1 AS is_written) SELECT to_jsonb(count(*)) FROM q",
        b"x",
    ]


def test_a_worker_that_is_not_there_or_has_no_key_is_refused() -> None:
    assert worker_of(2, {"workers": [1, 2], "key": 5}) == WORKER
    with pytest.raises(NotFound, match="its cluster has no worker 3, but 1, 2"):
        worker_of(3, {"workers": [1, 2], "key": None})
    with pytest.raises(NotReady, match="worker 2 of its cluster has no shard of easeml_worker"):
        worker_of(2, {"workers": [1, 2], "key": None})
