"""Dealing rows: an order by hash, a split even over the labels, partitions in turn. Narrow columns only."""

from __future__ import annotations

from .encoder import LabelTarget, Target
from .errors import InvalidData
from .pack_request import PackRequest
from .session import Session

SPLITS = ("train", "validation", "test")


# Rows at even distances in the order of (label, hash) go to a split: exact counts overall, even shares of each label.
# The first row of each label always trains, so that no class is unknown to the trials (where labels are kept).
ORDER = """
CREATE TEMPORARY TABLE easeml_order ON COMMIT DROP AS
WITH keyed AS (
    SELECT ctid AS row, {label} AS label,
        hash_record_extended(ROW(h, row_number() OVER (PARTITION BY h ORDER BY ctid)), {seed}) AS k
    FROM pg_temp.easeml_rows
), marked AS (
    SELECT row, label, k, {has_labels} AND row_number() OVER (PARTITION BY label ORDER BY k) = 1 AS must_train
    FROM keyed
), counted AS (
    SELECT *, row_number() OVER (PARTITION BY must_train ORDER BY label, k) AS n,
        count(*) OVER (PARTITION BY must_train) AS n_all
    FROM marked
), tested AS (
    SELECT row, label, k, must_train, NOT must_train AND n * {n_test} / n_all > (n - 1) * {n_test} / n_all AS is_test
    FROM counted
), rest AS (
    SELECT row, k, is_test, must_train OR is_test AS is_settled,
        row_number() OVER (PARTITION BY must_train OR is_test ORDER BY label, k) AS n,
        count(*) OVER (PARTITION BY must_train OR is_test) AS n_all
    FROM tested
), divided AS (
    SELECT row, k, CASE
        WHEN is_test THEN 'test'
        WHEN NOT is_settled AND n * {n_validation} / n_all > (n - 1) * {n_validation} / n_all THEN 'validation'
        ELSE 'train' END AS split
    FROM rest
), placed AS (
    SELECT row, split, row_number() OVER (PARTITION BY split ORDER BY k) - 1 AS place FROM divided
)
SELECT row, split, (place % {n_partitions})::int AS part, (place / {n_partitions})::int AS position FROM placed
"""


def order_rows(session: Session, request: PackRequest, target: Target) -> None:
    """Fill temporary table easeml_order (row, split, part, position) from the hashes and labels of easeml_rows.

    Identical rows have one hash: a count of the copies tells them apart, and spreads them.
    """
    has_labels = isinstance(target, LabelTarget)
    n_rows = session.execute("SELECT count(*) AS n FROM pg_temp.easeml_rows")[0]["n"]
    session.execute(
        ORDER.format(
            label="y" if has_labels else "true",
            has_labels=has_labels,
            seed=int(request.seed),
            n_test=int(n_rows * request.test_fraction + 0.5),
            n_validation=int(n_rows * request.validation_fraction + 0.5),
            n_partitions=int(request.n_partitions),
        )
    )


def check_splits(session: Session, request: PackRequest) -> int:
    """Return the number of training rows; refuse a source with too few rows for its partitions and splits."""
    rows = session.execute("SELECT split, count(*) AS n FROM pg_temp.easeml_order GROUP BY split")
    counts: dict[str, int] = dict.fromkeys(SPLITS, 0) | {row["split"]: int(row["n"]) for row in rows}
    total = sum(counts.values())
    for split, fraction in (("validation", request.validation_fraction), ("test", request.test_fraction)):
        if not counts[split]:
            raise InvalidData(f"{split}_fraction: {fraction} of {total} rows leaves no {split} row")
    if min(counts.values()) < request.n_partitions:
        raise InvalidData(
            f"{total} rows are too few for {request.n_partitions} partitions",
            detail="; ".join(f"{counts[split]} {split} rows" for split in SPLITS),
            hint=f"Each partition needs a row of each: ask for at most {min(counts.values())} partitions, or for other"
            " fractions.",
        )
    return counts["train"]
