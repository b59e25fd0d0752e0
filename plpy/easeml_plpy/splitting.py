"""Dealing rows: an order by hash, a split even over the labels, partitions in turn. Narrow columns only."""

from __future__ import annotations

from typing import Any

from .errors import InvalidData

SPLITS = ("train", "validation", "test")

Json = dict[str, Any]


# Every 1/f-th row in the order of (label, hash) goes to a split: exact shares overall, even shares of each label.
# The first row of each label always trains, so that no class is unknown to the trials (where labels are kept).
ORDER = """
CREATE TEMPORARY TABLE easeml_order ON COMMIT DROP AS
WITH keyed AS (
    SELECT ctid AS row, {label} AS label,
        hash_record_extended(ROW(h, row_number() OVER (PARTITION BY h ORDER BY ctid)), {seed}) AS k
    FROM pg_temp.easeml_rows
), ranked AS (
    SELECT row, label, k, row_number() OVER (ORDER BY label, k) AS n,
        {has_labels} AND row_number() OVER (PARTITION BY label ORDER BY k) = 1 AS must_train
    FROM keyed
), tested AS (
    SELECT row, label, k, must_train, NOT must_train AND floor(n * {test}) > floor((n - 1) * {test}) AS is_test
    FROM ranked
), rest AS (
    SELECT row, k, must_train, is_test, row_number() OVER (PARTITION BY is_test ORDER BY label, k) AS n FROM tested
), divided AS (
    SELECT row, k, CASE
        WHEN is_test THEN 'test'
        WHEN NOT must_train AND floor(n * {validation}) > floor((n - 1) * {validation}) THEN 'validation'
        ELSE 'train' END AS split
    FROM rest
), placed AS (
    SELECT row, split, row_number() OVER (PARTITION BY split ORDER BY k) - 1 AS place FROM divided
)
SELECT row, split, (place % {n_partitions})::int AS part, (place / {n_partitions})::int AS position FROM placed
"""


def order_rows(plpy: Any, wanted: Json, target: Json) -> None:
    """Fill temporary table easeml_order (row, split, part, position) from the hashes and labels of easeml_rows.

    Identical rows have one hash: a count of the copies tells them apart, and spreads them.
    """
    has_labels = target["task"] == "classification"
    validation = wanted["validation_fraction"] / (1.0 - wanted["test_fraction"])
    plpy.execute(
        ORDER.format(
            label="y" if has_labels else "true",
            has_labels=has_labels,
            seed=int(wanted["seed"]),
            test=f"{wanted['test_fraction']!r}::float8",
            validation=f"{validation!r}::float8",
            n_partitions=int(wanted["n_partitions"]),
        )
    )


def check_splits(plpy: Any, wanted: Json) -> None:
    """Refuse a source with too few rows for its partitions and splits."""
    rows = plpy.execute("SELECT split, count(*) AS n FROM pg_temp.easeml_order GROUP BY split")
    counts = {row["split"]: int(row["n"]) for row in rows}
    total = sum(counts.values())
    if counts.get("train", 0) < wanted["n_partitions"]:
        raise InvalidData(
            f"{total} rows are too few for {wanted['n_partitions']} partitions",
            detail=f"{counts.get('train', 0)} rows are left to train on.",
            hint="Ask for fewer partitions, or smaller validation and test fractions.",
        )
    for split in SPLITS[1:]:
        if not counts.get(split):
            raise InvalidData(f"{split}_fraction: {wanted[f'{split}_fraction']} of {total} rows leaves no {split} row")
