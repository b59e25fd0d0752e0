"""The places of rows: a split, and within it a partition and a position. It reads narrow columns only."""

from __future__ import annotations

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.columns import Columns
from easeml_plpy.columns.encoder import LabelTarget, Target
from easeml_plpy.packing import memory_order
from easeml_plpy.packing.dealing import SPLITS, Wanted, deal
from easeml_plpy.packing.pack_request import PackRequest, SplitBy
from easeml_plpy.packing.rare_classes import notify_missing, put_into_each_split
from easeml_plpy.server.errors import InvalidArgument, InvalidData
from easeml_plpy.server.session import Session

GROUPABLE = columns_of.NUMBERS | columns_of.TIMES | {"bool"}

ORDER = """
CREATE TEMPORARY TABLE easeml_order ON COMMIT DROP AS
WITH placed AS (
    SELECT row, split, row_number() OVER (PARTITION BY split ORDER BY k) - 1 AS place FROM pg_temp.easeml_dealt
)
SELECT row, split, (place % {n_partitions})::int AS part, (place / {n_partitions})::int AS position FROM placed
"""


# Folds in turn in the order of (label, hash), so that each has its share of each label; groups have theirs already.
FOLDED = """
CREATE TEMPORARY TABLE easeml_order ON COMMIT DROP AS
WITH folded AS (
    SELECT row, split, k,
        coalesce(fold, (row_number() OVER (PARTITION BY split ORDER BY label, k) - 1) % {n_folds}) AS part
    FROM pg_temp.easeml_dealt
)
SELECT row, split, part::int, (row_number() OVER (PARTITION BY split, part ORDER BY k) - 1)::int AS position FROM folded
"""


def check_column(request: PackRequest, by: SplitBy, columns: Columns) -> None:
    """Refuse a column that cannot say how rows are split. Raises InvalidArgument."""
    columns_of.require(columns, [by.column], by.argument, request.source)
    column = columns[by.column]
    if by.column == request.target or (by.argument == "split_column" and by.column in request.inputs):
        what = "the target" if by.column == request.target else "among the inputs"
        raise InvalidArgument(f"{by.argument}: column {by.column!r} is {what}: a model must not learn from the split")
    if by.argument == "time_column" and column.type not in columns_of.TIMES | columns_of.NUMBERS:
        raise InvalidArgument(
            f"time_column: column {by.column!r} has type {column.type}: expected a date, a timestamp or a number",
            hint="Cast it in a view.",
        )
    if by.argument != "time_column" and not (column.is_text or column.type in GROUPABLE):
        raise InvalidArgument(
            f"{by.argument}: column {by.column!r} has type {column.type}: expected words, numbers or dates"
        )


def order_rows(session: Session, request: PackRequest, target: Target) -> None:
    """Fill temporary table easeml_order (row, split, part, position) from the hashes and labels of easeml_rows."""
    n_rows = int(session.execute("SELECT count(*) AS n FROM pg_temp.easeml_rows")[0]["n"])
    sizes = split_sizes(request, n_rows, has_labels=isinstance(target, LabelTarget))
    is_held = request.split_by is None and not request.n_folds and n_rows <= memory_order.MOST_ROWS
    if is_held and memory_order.order_held_rows(session, sizes, request.seed, request.n_partitions):
        return
    deal(session, request, sizes)
    if isinstance(target, LabelTarget):
        if request.split_by is None:
            put_into_each_split(session, sizes)
        notify_missing(session, target, sizes)
    if request.n_folds:
        session.execute(FOLDED.format(n_folds=int(request.n_folds)))
    else:
        session.execute(ORDER.format(n_partitions=int(request.n_partitions)))
    session.execute("DROP TABLE pg_temp.easeml_dealt")


def split_sizes(request: PackRequest, n_rows: int, *, has_labels: bool) -> Wanted:
    """Return how many of the rows each split should get."""
    n_validation, n_test = (
        int(n_rows * fraction + 0.5) for fraction in (request.validation_fraction, request.test_fraction)
    )
    if request.n_folds:
        n_validation = 0
    return Wanted(n_rows - n_validation - n_test, n_validation, n_test, has_labels, request.n_folds or 0)


def check_splits(session: Session, request: PackRequest) -> int:
    """Return the number of training rows; refuse a source with too few rows for its partitions and splits."""
    splits = ("train", "test") if request.n_folds else SPLITS
    rows = session.execute("SELECT split, count(*) AS n FROM pg_temp.easeml_order GROUP BY split")
    counts: dict[str, int] = dict.fromkeys(splits, 0) | {row["split"]: int(row["n"]) for row in rows}
    for split, n in counts.items():
        if not n:
            _refuse_empty(request, split, sum(counts.values()))
    if min(counts.values()) < request.n_partitions:
        kind = "folds" if request.n_folds else "partitions"
        raise InvalidData(
            f"{sum(counts.values())} rows are too few for {request.n_partitions} {kind}",
            detail="; ".join(f"{n} {split} rows" for split, n in counts.items()),
            hint=f"Each {kind[:-1]} needs a row of each: ask for at most {min(counts.values())} {kind}, or for other"
            " fractions.",
        )
    return counts["train"]


def _refuse_empty(request: PackRequest, split: str, n_rows: int) -> None:
    by = request.split_by
    if by is not None and by.argument == "split_column":
        raise InvalidData(
            f"split_column: none of {n_rows} rows says {split!r} in column {by.column!r}",
            hint="Trials learn from train, validation ranks them, and test measures the best: each needs rows.",
        )
    fraction = {"validation": request.validation_fraction, "test": request.test_fraction}.get(split)
    if fraction is None:
        raise InvalidData(f"the fractions leave none of {n_rows} rows to train on")
    raise InvalidData(f"{split}_fraction: {fraction} of {n_rows} rows leaves no {split} row")
