"""Assignment of rows to splits: at random, by time, by a split column, or by groups. It reads narrow columns only.

Each way fills the temporary table easeml_dealt (row, label, k, split, fold) from easeml_rows; `k` is a row's place in
the shuffle, a hash under the seed, and only groups have their fold already. So the same rows, arguments and seed give
the same splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from easeml_plpy.packing.group_dealing import Bin, deal_groups
from easeml_plpy.packing.pack_request import PackRequest, SplitBy
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Session

SPLITS = ("train", "validation", "test")


class Wanted(NamedTuple):
    """How many rows each split is to have, and whether their targets are labels."""

    n_train: int
    n_validation: int
    n_test: int
    has_labels: bool
    n_folds: int = 0

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the splits that get rows: with folds none validates alone."""
        return tuple(split for split in SPLITS if split != "validation" or not self.n_folds)

    def bins(self) -> list[Bin]:
        """Return the bins for groups: the splits, or the folds and the test rows."""
        if not self.n_folds:
            return [Bin(split, self.of(split)) for split in SPLITS]
        folds = [Bin("train", self.n_train // self.n_folds, fold) for fold in range(self.n_folds)]
        return [*folds, Bin("test", self.n_test)]

    def of(self, split: str) -> int:
        """Return the number of rows that a split is to have."""
        return {"train": self.n_train, "validation": self.n_validation, "test": self.n_test}[split]


# Identical rows have one hash: a count of the copies tells them apart, and spreads them. What splits them and their
# keys say which copy is the first, so that the order of rows in the table decides nothing.
KEYED = """keyed AS (
    SELECT ctid AS row, {label} AS label, s,
        hash_record_extended(ROW(h, row_number() OVER (PARTITION BY h ORDER BY s, key, ctid)), {seed}) AS k
    FROM pg_temp.easeml_rows
)"""
DEALT = "CREATE TEMPORARY TABLE easeml_dealt ON COMMIT DROP AS WITH "

# Rows at even distances in the order of (label, hash) go to a split: exact counts overall, even shares of each label.
# The first row of each label always trains, so that no class is unknown to the trials (where labels are kept). All
# windows share that order, so the rows are sorted once: excluded rows are skipped in counting, not partitioned off.
AT_RANDOM = """, marked AS (
    SELECT row, label, k, {has_labels} AND row_number() OVER (PARTITION BY label ORDER BY k) = 1 AS must_train
    FROM keyed
), counted AS (
    SELECT *, count(*) FILTER (WHERE NOT must_train) OVER (ORDER BY label, k ROWS UNBOUNDED PRECEDING) AS n,
        count(*) FILTER (WHERE NOT must_train) OVER () AS n_all
    FROM marked
), tested AS (
    SELECT row, label, k, must_train, NOT must_train AND n * {n_test} / n_all > (n - 1) * {n_test} / n_all AS is_test
    FROM counted
), rest AS (
    SELECT row, label, k, is_test, must_train OR is_test AS is_settled,
        count(*) FILTER (WHERE NOT (must_train OR is_test)) OVER (ORDER BY label, k ROWS UNBOUNDED PRECEDING) AS n,
        count(*) FILTER (WHERE NOT (must_train OR is_test)) OVER () AS n_all
    FROM tested
)
SELECT row, label, k, CASE
    WHEN is_test THEN 'test'
    WHEN NOT is_settled AND n * {n_validation} / n_all > (n - 1) * {n_validation} / n_all THEN 'validation'
    ELSE 'train' END AS split, NULL::int AS fold
FROM rest
"""

# The shuffle orders rows of equal time, so shares are exact.
BY_TIME = """, ranked AS (
    SELECT row, label, k, row_number() OVER (ORDER BY s DESC, k) AS n FROM keyed
)
SELECT row, label, k, CASE WHEN n <= {n_test} THEN 'test' WHEN n <= {n_test} + {n_validation} THEN 'validation'
    ELSE 'train' END AS split, NULL::int AS fold
FROM ranked
"""

BY_WORD = " SELECT row, label, k, s AS split, NULL::int AS fold FROM keyed"
BY_GROUP = " SELECT row, label, k, g.split, g.fold FROM keyed JOIN pg_temp.easeml_groups g ON g.value = keyed.s"
WAYS = {"time_column": BY_TIME, "split_column": BY_WORD, "group_column": BY_GROUP}


def deal(session: Session, request: PackRequest, sizes: Wanted) -> None:
    """Give each row its split. Raises InvalidArgument, InvalidData."""
    by = request.split_by
    if by is not None:
        _check_values(session, by, sizes.splits)
    if by is not None and by.argument == "group_column":
        deal_groups(session, by.column, request.seed, sizes.bins(), has_labels=sizes.has_labels)
    session.execute(
        (DEALT + KEYED + (AT_RANDOM if by is None else WAYS[by.argument])).format(
            label="y" if sizes.has_labels else "true",
            has_labels=sizes.has_labels,
            seed=int(request.seed),
            n_test=sizes.n_test,
            n_validation=sizes.n_validation,
        )
    )
    if by is not None and by.argument == "group_column":
        session.execute("DROP TABLE pg_temp.easeml_groups")


def _check_values(session: Session, by: SplitBy, splits: Sequence[str]) -> None:
    n = session.execute("SELECT count(*) AS n FROM pg_temp.easeml_rows WHERE s IS NULL")[0]["n"]
    if n:
        raise InvalidData(
            f"{by.argument}: column {by.column!r} is NULL in {n} rows, so they belong to no split",
            hint="Fill it in, or leave these rows out: the source may be a view of the others.",
        )
    if by.argument == "split_column":
        _check_words(session, by.column, splits)


def _check_words(session: Session, column: str, splits: Sequence[str]) -> None:
    rows = session.execute("SELECT s, count(*) AS n FROM pg_temp.easeml_rows GROUP BY s ORDER BY n DESC, s LIMIT 20")
    words = [str(row["s"]) for row in rows]
    unknown = [word for word in words if word not in splits]
    if unknown:
        raise InvalidData(
            f"split_column: column {column!r} says {_listed(unknown)}: expected {', '.join(splits)}",
            hint="Let a view say it in these words, or name a group_column or a time_column if it is one of those.",
        )


def _listed(words: Sequence[str]) -> str:
    shown = ", ".join(repr(word[:40]) for word in words[:5])
    return f"{shown} and others" if len(words) > 5 else shown
