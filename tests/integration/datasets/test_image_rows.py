"""Images that are placed in memory: the same blocks, byte for byte, as when the server places them.

A view of the table has no pages of its own, so the server places its rows in a temporary table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

BLOCKS = """
SELECT split, partition_number, block_number, n_rows, inputs, targets, row_keys, row_hashes
FROM easeml.blocks WHERE dataset_id = %s ORDER BY split, partition_number, block_number
"""
DATASET = """
SELECT encoder, explanations, input_shape, n_outputs, block_rows, n_skipped_rows,
    (SELECT jsonb_agg(to_jsonb(p) - 'dataset_id' ORDER BY partition_number) FROM easeml.partitions p
        WHERE p.dataset_id = d.dataset_id) AS partitions
FROM easeml.datasets d WHERE dataset_id = %s
"""
IMAGE = "decode(md5(i::text), 'hex')"


def make(database: Session, *, label: str, image: str = IMAGE, n_rows: int = 300) -> None:
    """Make a table t(i, name, image, x, y) and the view v of it."""
    database.execute(
        f"CREATE TABLE t AS SELECT i, '\"' || chr(92) || i AS name, {image} AS image,"
        f" nullif(i % 7, 3)::float8 / 3 AS x,"
        f" ({label}) AS y FROM generate_series(1, {n_rows}) i"
    )
    database.execute("CREATE VIEW v AS SELECT * FROM t")


def packed(database: Session, source: str, **options: Any) -> tuple[Any, Any]:
    """Pack a source; return its blocks and what the dataset says of itself."""
    options = {"inputs": ["image"], "input_shape": [4, 4], "n_partitions": 3, **options}
    named = "".join(f", {key} => %({key})s" for key in options)
    sql = f"SELECT easeml.create_dataset(%(source)s, %(source)s, target => 'y'{named}) AS id"
    dataset_id = database.rows(sql, source=source, **options)[0]["id"]
    return database.rows(BLOCKS, dataset_id), database.rows(DATASET, dataset_id)


def has_temporary_tables(database: Session) -> bool:
    return bool(database.value("SELECT pg_my_temp_schema() <> 0"))


@pytest.mark.parametrize(
    ("label", "options"),
    [
        ("'class ' || i % 4", {}),
        ("'class ' || i % 4", {"key_columns": ["i"], "seed": -(2**63)}),
        ("i % 3", {"key_columns": ["name"], "block_rows": 17}),
        ("i % 3 = 0", {"key_columns": ["i", "name"], "n_partitions": 1, "validation_fraction": 0.3}),
        ("(i % 3)::numeric / 2", {"task": "classification", "test_fraction": 0.4}),
        ("(ARRAY['b', 'a', 'c'])[1 + i % 3]::word", {"inputs": ["x", "image", "i"]}),
    ],
)
def test_blocks_are_those_that_the_server_makes(scratch: Session, label: str, options: dict[str, Any]) -> None:
    scratch.execute("CREATE TYPE word AS ENUM ('c', 'b', 'a')")
    make(scratch, label=label)
    in_memory = packed(scratch, "t", **options)
    assert not has_temporary_tables(scratch)
    assert in_memory == packed(scratch, "v", **options)
    assert has_temporary_tables(scratch)


@pytest.mark.parametrize("options", [{}, {"key_columns": ["i"]}, {"key_columns": ["name"]}])
def test_images_that_come_again_are_spread_alike(scratch: Session, options: dict[str, Any]) -> None:
    make(scratch, label="i % 2", image="decode(md5((i % 20)::text), 'hex')")
    in_memory = packed(scratch, "t", **options)
    assert not has_temporary_tables(scratch)
    assert in_memory == packed(scratch, "v", **options)


@pytest.mark.parametrize(
    ("label", "options"),
    [
        ("CASE WHEN i > 5 THEN 'class ' || i % 4 END", {}),  # rows without a label
        ("CASE i WHEN 7 THEN 'rare' ELSE 'common' END", {}),  # a class that no test row has
        ("i % 3", {"split_column": "s"}),
        ("i % 3", {"n_folds": 3}),
        ("i / 2.0", {}),
        ("i", {}),
        ("i % 3", {"task": "regression"}),  # numbers of which each split has all
        ("(i % 5)::float8", {}),
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_server(
    scratch: Session, label: str, options: dict[str, Any]
) -> None:
    make(scratch, label=label)
    scratch.execute("ALTER TABLE t ADD s text")
    scratch.execute("UPDATE t SET s = (ARRAY['train', 'test', 'validation'])[1 + i / 101]")
    scratch.execute("CREATE OR REPLACE VIEW v AS SELECT * FROM t")
    found = packed(scratch, "t", **options)
    assert has_temporary_tables(scratch)
    assert found == packed(scratch, "v", **options)


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ("image = '\\x00' WHERE i = 9", {}, "holds values of different lengths"),
        ("image = NULL WHERE i = 9", {}, "is NULL in some rows"),
        ("image = NULL", {}, "is NULL in some rows"),
        ("y = 1", {}, "has one class only"),
        ("i = 5", {"key_columns": ["i"]}, "should name one row each"),
        ("x = 'Infinity'", {"inputs": ["image", "x"]}, "has infinite values"),
        ("x = 1e200 WHERE i = 7", {"inputs": ["image", "x"]}, r"'x' has numbers beyond 1e\+150"),
        ("y = y", {"input_shape": [5, 5]}, "makes 25 values, but column 'image' holds 16"),
        ("y = y", {"n_partitions": 46}, "300 rows are too few for 46 partitions"),
    ],
)
def test_bad_rows_are_refused_as_by_the_server(
    scratch: Session, changed: str, options: dict[str, Any], message: str
) -> None:
    make(scratch, label="i % 2")
    scratch.execute(f"UPDATE t SET {changed}")
    with pytest.raises(psycopg.Error, match=message) as refused:
        packed(scratch, "t", **options)
    assert (refused.value.sqlstate or "").startswith("ML")


def test_whoever_may_read_some_columns_packs_those(scratch: Session) -> None:
    make(scratch, label="i % 2")
    scratch.execute("CREATE ROLE reader_of_columns IN ROLE easeml_tenant")
    scratch.execute("GRANT SELECT (image, y) ON t TO reader_of_columns")
    scratch.execute("SET LOCAL ROLE reader_of_columns")
    sql = "SELECT easeml.create_dataset('t', 't', '{image}', 'y', input_shape => '{4,4}')"
    dataset_id = scratch.value(sql)
    scratch.execute("RESET ROLE")
    assert sum(block["n_rows"] for block in scratch.rows(BLOCKS, dataset_id)) == 300


def test_an_empty_table_of_images_is_refused(scratch: Session) -> None:
    make(scratch, label="i % 2", n_rows=0)
    with pytest.raises(psycopg.Error, match="has no rows"):
        packed(scratch, "t")
