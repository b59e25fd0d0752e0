"""Rows that numpy places: the same blocks, byte for byte, as when the server sorts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.datasets.test_image_rows import packed

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

# What a test changes in a session, which other tests get after it.
WATCH = """
DO LANGUAGE plpython3u $$
from easeml_plpy.packing import memory_order, splitting
GD["before"] = splitting.deal, memory_order.MOST_ROWS
def deal(*arguments):
    plpy.notice("the server sorts")
    return GD["before"][0](*arguments)
splitting.deal = deal
$$
"""
SORT = "DO LANGUAGE plpython3u $$ from easeml_plpy.packing import memory_order; memory_order.MOST_ROWS = -1 $$"
RESTORE = """
DO LANGUAGE plpython3u $$
from easeml_plpy.packing import memory_order, splitting
splitting.deal, memory_order.MOST_ROWS = GD.pop("before")
$$
"""


@pytest.fixture
def told(scratch: Session) -> Iterator[list[str]]:
    """The notices of a session, one of which says that the server sorts rows."""
    told: list[str] = []
    scratch.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    scratch.execute(WATCH)
    yield told
    scratch.execute(RESTORE)


@pytest.mark.parametrize(
    ("label", "options"),
    [
        ("'class ' || i % 4", {}),
        ("'class ' || i % 4", {"key_columns": ["i"], "seed": -(2**63)}),
        ("nullif(i % 5, 4)", {"block_rows": 17, "task": "classification"}),
        ("i % 3 = 0", {"n_partitions": 1, "validation_fraction": 0.3}),
        ("(i % 3)::numeric / 2", {"task": "classification", "test_fraction": 0.4}),
        ("(ARRAY['b', 'a', 'c'])[1 + i % 3]::word", {"inputs": ["x", "soil"]}),
        ("sin(i)", {"n_partitions": 7}),
        ("sin(i)::real", {"n_partitions": 2, "validation_fraction": 0.01, "test_fraction": 0.02}),
    ],
)
def test_blocks_are_those_of_rows_that_the_server_sorts(
    scratch: Session, told: list[str], label: str, options: dict[str, Any]
) -> None:
    scratch.execute("CREATE TYPE word AS ENUM ('c', 'b', 'a')")
    scratch.execute(  # every fifth row comes again
        "CREATE TABLE t AS SELECT i, i % 240 + 0.5 AS x, (ARRAY['clay', 'sand', NULL])[1 + i % 3] AS soil,"
        f" ({label}) AS y FROM generate_series(1, 300) i"
    )
    options = {"inputs": ["x"], "input_shape": None, "n_folds": 0, **options}
    held = packed(scratch, "t", **options)
    assert "the server sorts" not in told
    scratch.execute("SELECT easeml.drop_dataset('t')")
    scratch.execute(SORT)
    assert packed(scratch, "t", **options) == held
    assert "the server sorts" in told


def test_a_class_with_few_rows_is_left_to_the_server(scratch: Session, told: list[str]) -> None:
    scratch.execute(
        "CREATE TABLE t AS SELECT i, i AS x, CASE WHEN i < 4 THEN 'rare' ELSE 'x' || i % 2 END AS y"
        " FROM generate_series(1, 300) i"
    )
    packed(scratch, "t", inputs=["x"], input_shape=None, n_folds=0, key_columns=["i"])
    assert "the server sorts" in told
    rare = scratch.values("SELECT split FROM easeml.dataset_rows('t') WHERE row_key::integer < 4")
    assert sorted(rare) == ["test", "train", "validation"]
