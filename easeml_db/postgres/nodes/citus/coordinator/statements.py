"""Statements for the coordinator of a Citus cluster about one of its workers. Pure: values in, SQL out.

A statement is an argument of a function in a query of one key, whose shard is on the worker: Citus sends such a query
there as it is, in a transaction, too. A unit commits, so it is a procedure, and Citus delegates its call by that key.
Where Citus cannot, it runs a call on the coordinator and says nothing; so both look first at which node they are.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString, TypeAlias

from psycopg import sql

# The least key that is on a worker, and all workers that there are.
PLACED: LiteralString = """
SELECT (SELECT min(k.segment_key) FROM generate_series(1, 256) k(segment_key) JOIN pg_catalog.pg_dist_placement p
        ON p.shardid = get_shard_id_for_distribution_column('easeml_worker.keys', k.segment_key)
        WHERE p.groupid = {worker}) AS key,
    ARRAY(SELECT n.groupid FROM pg_catalog.pg_dist_node n WHERE n.noderole = 'primary' AND n.groupid > 0 ORDER BY 1)
        AS workers
"""
ON_WORKER: LiteralString = """
SELECT r.* FROM easeml_worker.keys k
CROSS JOIN LATERAL easeml_segment.on_worker({worker}, {statement}, ARRAY[{pieces}]::bytea[]) r({columns})
WHERE k.segment_key = {key}
"""
FOUND: LiteralString = "WITH q AS (?) SELECT to_jsonb(q) FROM q"
COUNTED: LiteralString = "WITH q AS (?) SELECT to_jsonb(count(*)) FROM q"
ARRIVED: LiteralString = "INSERT INTO {into} VALUES {rows} RETURNING 1 AS is_written"
UNIT: LiteralString = """
CALL easeml_segment.unit_on_worker({key}, {worker}, {work}, {order}::jsonb, {context}::jsonb, NULL)
"""
CHUNK_COLUMNS: LiteralString = "checkpoint_id bigint, chunk_number integer, bytes bytea"
BLOCK_COLUMNS: LiteralString = (
    "dataset_id bigint, split text, partition_number integer, block_number integer, n_rows integer, inputs bytea,"
    " targets bytea"
)
JSON: LiteralString = "found jsonb"
Row: TypeAlias = Sequence[object]
INSTALLATION: tuple[LiteralString, ...] = (
    "CREATE EXTENSION IF NOT EXISTS easeml_segment CASCADE",
    "ALTER EXTENSION easeml_segment UPDATE",
    "CREATE SCHEMA IF NOT EXISTS easeml_worker",
    "CREATE TABLE IF NOT EXISTS easeml_worker.keys (segment_key integer PRIMARY KEY)",
    """
    SELECT create_distributed_table('easeml_worker.keys', 'segment_key', colocate_with => 'none',
        shard_count => greatest(32, (SELECT 2 * count(*)::integer FROM pg_dist_node)))
    WHERE NOT EXISTS (SELECT FROM pg_dist_partition p WHERE p.logicalrelid = 'easeml_worker.keys'::regclass)
    """,
    "INSERT INTO easeml_worker.keys SELECT * FROM generate_series(1, 256) ON CONFLICT DO NOTHING",
    """
    SELECT create_distributed_function('easeml_segment.unit_on_worker(integer, integer, text, jsonb, jsonb, jsonb)',
        'segment_key', colocate_with => 'easeml_worker.keys')
    """,
    "GRANT USAGE ON SCHEMA easeml_worker TO easeml_segment",
    "GRANT SELECT ON easeml_worker.keys TO easeml_segment",
)


@dataclass(frozen=True)
class CitusWorker:
    """A worker by its group, and a key whose shard it has."""

    group: int
    key: int

    def asked(self, statement: str, columns: str) -> sql.Composed:
        """Return the query that has the worker execute a statement, and returns what that returns."""
        return self._on_worker(sql.Literal(statement), columns)

    def found(self, statement: str) -> sql.Composed:
        """Return the same for a statement whose rows may be of any columns, a change as well: each comes as JSON."""
        return self.asked(FOUND.replace("?", statement), JSON)

    def written(self, into: sql.Composable, rows: Sequence[Row]) -> tuple[sql.Composed, list[str | bytes]]:
        """Return the query by which the worker writes rows, and its values: each that is bytes is one by itself, since
        Citus writes an array of them out as a text, and reads it, ten times slower."""
        statement, pieces = arrived(into, rows)
        query = self._on_worker(sql.Placeholder(), JSON, [sql.SQL("%b::bytea")] * len(pieces))
        return query, [COUNTED.replace("?", statement), *pieces]

    def _on_worker(
        self, statement: sql.Composable, columns: str, pieces: Sequence[sql.Composable] = ()
    ) -> sql.Composed:
        return sql.SQL(ON_WORKER).format(
            worker=sql.Literal(self.group),
            statement=statement,
            pieces=sql.SQL(", ").join(pieces),
            columns=sql.SQL(columns),
            key=sql.Literal(self.key),
        )

    def unit(self, work: str, order: str, context: str) -> sql.Composed:
        """Return the call that does a unit on the worker."""
        return sql.SQL(UNIT).format(
            key=sql.Literal(self.key),
            worker=sql.Literal(self.group),
            work=sql.Literal(work),
            order=sql.Literal(order),
            context=sql.Literal(context),
        )


def placed(worker: int) -> sql.Composed:
    """Return the query of the key of a worker."""
    return sql.SQL(PLACED).format(worker=sql.Literal(worker))


def arrived(into: sql.Composable, rows: Sequence[Row]) -> tuple[str, list[bytes]]:
    """Return the statement that writes rows, and the values of theirs that are bytes, which it takes from its argument.

    >>> arrived(sql.SQL("chunks (checkpoint_id, bytes)"), [(7, b"state")])
    ('INSERT INTO chunks (checkpoint_id, bytes) VALUES (7, ($1)[1]) RETURNING 1 AS is_written', [b'state'])
    """
    pieces = [value for row in rows for value in row if isinstance(value, bytes)]
    numbers = itertools.count(1)

    def written(row: Row) -> sql.Composed:
        values = [sql.SQL("($1)[{}]").format(next(numbers)) if isinstance(v, bytes) else sql.Literal(v) for v in row]
        return sql.SQL("({})").format(sql.SQL(", ").join(values))

    values = sql.SQL(", ").join(map(written, rows))
    return sql.SQL(ARRIVED).format(into=into, rows=values).as_string(), pieces


def place_of(stored: bytes) -> str:
    """Return a tid of the binary format as SQL writes it.

    >>> place_of(bytes([0, 0, 1, 2, 0, 5]))
    '(258,5)'
    """
    return "({},{})".format(*struct.unpack(">IH", stored))
