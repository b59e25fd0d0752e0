"""easeml.drift: new rows beside those that were trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

SETUP = """
CREATE TABLE sales AS SELECT i AS id, timestamptz '2026-01-01 00:00Z' + i * interval '1 minute' AS sold_at,
    (i * 7919) % 1000 / 10.0 AS price, nullif((i * 31) % 20, 0) AS amount,
    (ARRAY['red', 'green', 'blue'])[1 + (i * 17) % 3] AS colour, ARRAY[i % 10, 1]::real[] AS pair,
    jsonb_build_object('size', i % 50) AS facts, CASE WHEN (i * 7919) % 1000 > 500 THEN 'yes' ELSE 'no' END AS bought
FROM generate_series(1, 4000) i;
CREATE TABLE fresh AS SELECT * FROM sales WHERE id <= 2000;
CREATE TABLE moved AS SELECT id, sold_at, price + 60 AS price, amount, pair, facts,
    CASE WHEN id % 2 = 0 THEN 'violet' ELSE 'red' END AS colour FROM sales WHERE id <= 1000;
UPDATE moved SET amount = NULL WHERE id % 2 = 0;
UPDATE moved SET pair = NULL WHERE id = 7;
CREATE VIEW narrow AS SELECT price FROM sales;
CREATE VIEW odd AS SELECT price::text AS price, amount, colour, pair, facts FROM sales;
CREATE VIEW nothing AS SELECT * FROM sales WHERE false;
SELECT easeml.create_dataset('sales', 'sales', '{price,amount,colour,pair,facts}', 'bought', n_partitions => 2);
"""


@pytest.fixture(scope="module")
def shop(module_database: Session) -> Session:
    for statement in SETUP.strip().split(";\n"):
        module_database.execute(statement)
    return module_database


def drift(session: Session, arguments: str) -> dict[str, dict[str, Any]]:
    return {row["input"]: row for row in session.rows(f"SELECT * FROM easeml.drift('sales'{arguments})")}


def test_rows_of_the_same_population_drift_nowhere(shop: Session) -> None:
    found = drift(shop, ", 'fresh'")
    assert list(found) == ["price", "amount", "colour", "pair", "facts.size", "bought"]
    assert {row["drift"] for row in found.values()} == {"none"}
    assert {row["n_compared"] for row in found.values()} == {2000}
    assert {row["since"] for row in found.values()} == {None}
    assert [found[name]["kind"] for name in ("price", "colour", "pair", "bought")] == [
        "number", "category", "mean of an array", "category",
    ]  # fmt: skip
    assert drift(shop, "").keys() == found.keys()


def test_what_moved_is_named_with_new_gone_and_missing_values(shop: Session) -> None:
    found = drift(shop, ", 'moved'")
    assert {name: row["drift"] for name, row in found.items()} == {
        "price": "large", "amount": "large", "colour": "large", "pair": "none", "facts.size": "none",
    }  # fmt: skip
    assert "bought" not in found  # a source needs no target
    colour, price, amount = found["colour"], found["price"], found["amount"]
    assert (colour["unseen"], colour["unseen_values"], sorted(colour["gone_values"])) == (
        0.5,
        ["violet"],
        ["blue", "green"],
    )
    assert price["unseen"] == pytest.approx(0.6, abs=0.01)
    assert amount["trained_missing"] == pytest.approx(0.05, abs=0.01)
    assert amount["missing"] == 0.5
    assert price["psi"] > price["chance_psi"] > 0


def test_periods_are_told_apart_by_a_column_of_times(shop: Session) -> None:
    rows = shop.rows("SELECT * FROM easeml.drift('sales', 'moved', 'sold_at', '8 hours') WHERE input = 'colour'")
    assert [row["since"].isoformat() for row in rows] == [f"2026-01-01T{hour:02}:00:00+00:00" for hour in (0, 8, 16)]
    assert [row["n_compared"] for row in rows] == [479, 480, 41]
    assert all(row["drift"] == "large" for row in rows)


def test_of_many_rows_so_many_are_read(shop: Session) -> None:
    assert {row["n_compared"] for row in drift(shop, ", 'fresh', n_rows => 100").values()} == {100}


@pytest.mark.parametrize(
    ("arguments", "sqlstate", "message"),
    [
        ("'sales', 'narrow'", "ML001", "source: public.narrow has no column 'amount'"),
        ("'sales', 'odd'", "ML009", "source: column 'price' of public.odd has type text"),
        ("'sales', 'nowhere'", "ML003", "source: there is no table or view 'nowhere'"),
        ("'sales', 'nothing'", "ML002", "public.nothing has no rows"),
        ("'nobody'", "ML003", "there is no dataset 'nobody'"),
        ("'sales', version => 9", "ML003", "dataset 'sales' has no version 9"),
        ("'sales', every => '0'", "ML001", "every: expected a positive interval, got 00:00:00"),
        ("'sales', every => '-1 day'", "ML001", "every: expected a positive interval, got -1 days"),
        ("'sales', every => NULL", "ML001", "every: expected a positive interval, got None"),
        ("'sales', time_column => 'then'", "ML001", "time_column: public.sales has no column 'then'"),
        ("'sales', time_column => 'price'", "ML001", "time_column: expected a date or timestamp, and 'price' has type"),
        ("'sales', time_column => 'sold_at', every => '1 minute'", "ML001", "every: expected at most 1000 periods"),
        ("'sales', n_rows => 0", "ML001", "n_rows: expected 1 to 1000000, got 0"),
        ("'sales', n_rows => NULL", "ML001", "n_rows: expected 1 to 1000000, got NULL"),
    ],
)
def test_bad_arguments_are_refused_in_words(shop: Session, arguments: str, sqlstate: str, message: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        shop.execute(f"SELECT * FROM easeml.drift({arguments})")
    assert refused.value.sqlstate == sqlstate
    assert message in (refused.value.diag.message_primary or "")
