"""The rows of a source in a temporary table, and what is inferred from them: task, labels, shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.columns import Column, Columns
from easeml_plpy.columns.encoder import Field, LabelTarget, NumberTarget, Target
from easeml_plpy.columns.task import TaskKind
from easeml_plpy.packing import row_keys
from easeml_plpy.packing.pack_request import PackRequest
from easeml_plpy.packing.packing_statistics import INTEGERS
from easeml_plpy.server.errors import InvalidArgument, InvalidData
from easeml_plpy.server.failures import told_by
from easeml_plpy.server.session import Session

MAX_LABELS = 10_000
LARGEST = 1e150  # of numbers: the squares of larger ones are infinite
FEW_LABELS, MANY_LABELS, SHARE_OF_LABELS = 10, 30, 1 / 20
"""Whole numbers up to the first are labels, beyond the second numbers; between, if they are few for their rows."""
REALS = {"float4", "float8", "numeric"}
C_ORDERED = {"text", "varchar", "bpchar"}
PAST_A_LIMIT = "54000"
"""SQLSTATE of a row that exceeds a limit of the server, such as its page."""


class RowsSql(NamedTuple):
    """SQL of the rows of a source: their input values i0.., the target, what the hash of a row is made of, its key, and
    what names it for users, its key or the hash."""

    values: Sequence[str]
    target: str
    hashed: str
    key: str
    row_key: str

    @property
    def has_key(self) -> bool:
        """Whether a key identifies the rows."""
        return self.row_key == self.key

    def hashed_rows(self, request: PackRequest, further: Sequence[str], condition: str = "") -> str:
        """Return a query of (i0.., y, further.., key, h). y has its own type: labels keep their order, numbers their
        precision."""
        columns = ", ".join([*self.values, f"{self.target} AS y", *further, f'{self.key} COLLATE "C" AS key'])
        return (
            f"SELECT *, hash_record_extended(ROW({self.hashed}), {int(request.seed)}) AS h"
            f" FROM (SELECT {columns} FROM {request.source} {condition} OFFSET 0) AS source"
        )


def rows_sql(session: Session, request: PackRequest, columns: Columns, inputs: Sequence[Field]) -> RowsSql:
    """Return SQL of the rows that are to be packed."""
    values = [f"{columns_of.placed_sql(field, columns[field.column].quoted)} AS i{k}" for k, field in enumerate(inputs)]
    read = [columns_of.read_sql(field, f"i{k}") for k, field in enumerate(inputs)]
    hashed = [columns_of.hash_sql(field, value, session.schema) for field, value in zip(inputs, read, strict=True)]
    target = columns[request.target].quoted
    if request.task == "classification":
        target = label_sql(columns[request.target])
    names = row_keys.key_columns(session, request, columns)
    key = row_keys.key_sql(columns, names)
    row_key = key if names else f"{row_keys.hash_sql(request, columns, inputs, target)}::text"
    return RowsSql(values, target, ", ".join([*hashed, "y"]), key, row_key)


def copy_rows(session: Session, request: PackRequest, columns: Columns, rows: RowsSql) -> None:
    """Fill temporary table easeml_rows (i0.., y, s, key, h): input values, target, splitting value, key, hash. Raises
    InvalidData if a row does not fit into a page of the server.
    """
    split = f"{_split_sql(request, columns)} AS s"
    try:
        session.execute(f"CREATE TEMPORARY TABLE easeml_rows ON COMMIT DROP AS {rows.hashed_rows(request, [split])}")
    except Exception as error:
        failure = told_by(error)
        if failure is None or failure["sqlstate"] != PAST_A_LIMIT:
            raise
        raise InvalidData(
            f"a row of {request.source} with {len(rows.values)} inputs does not fit into a page of the server",
            detail=failure["message"],
            hint="Put the numbers into one column, an array such as real[], or name fewer inputs.",
        ) from error


def label_sql(column: Column) -> str:
    """Return SQL of a label under its own type: 1.0 and 1.00 are one."""
    return f"trim_scale({column.quoted})" if column.type == "numeric" else column.quoted


def _split_sql(request: PackRequest, columns: Columns) -> str:
    """Return SQL of the value that splits a row: its time unchanged, its group as text, or the name of its split."""
    if request.split_by is None:
        return "NULL::int"
    column = columns[request.split_by.column]
    if request.split_by.argument == "time_column":
        return column.quoted
    text = f'({columns_of.text_sql(column.type, column.quoted)}) COLLATE "C"'
    return f"lower(btrim({text}))" if request.split_by.argument == "split_column" else text


def drop_rows_without_target(session: Session, request: PackRequest) -> int:
    """Return how many rows have no target; refuse an empty source and one without any target."""
    counts = session.execute("SELECT count(*) AS n, count(y) AS n_known FROM pg_temp.easeml_rows")[0]
    n_skipped = n_without_target(session, request, int(counts["n"]), int(counts["n_known"]))
    if n_skipped:
        session.execute("DELETE FROM pg_temp.easeml_rows WHERE y IS NULL")
    return n_skipped


def n_without_target(session: Session, request: PackRequest, n_rows: int, n_known: int) -> int:
    """Return how many of the rows have no target, and say so. Raises InvalidData."""
    if n_rows == 0:
        raise InvalidData(f"{request.source} has no rows", hint="Load rows into it first.")
    if n_known == 0:
        raise InvalidData(
            f"the target {request.target!r} is NULL in all {n_rows} rows",
            hint="Rows to train on have a target: fill it, or name another.",
        )
    if n_known < n_rows:
        session.notice(f"{n_rows - n_known} of {n_rows} rows have a NULL target and are left out")
    return n_rows - n_known


def task_of(request: PackRequest, column: Column) -> TaskKind:
    """Return the requested task, by default that of the target's type. Raises if the type does not allow it."""
    task = request.task or ("regression" if column.type in REALS else "classification")
    if task == "regression" and column.type not in columns_of.NUMBERS:
        raise InvalidArgument(
            f"task: column {request.target!r} has type {columns_of.shown_type(column.type)}, regression needs a number",
            hint="Leave the task out, or cast the column to a number in a view.",
        )
    if column.type not in columns_of.NUMBERS | {"bool"} and not column.is_text:
        raise InvalidArgument(
            f"target: column {request.target!r} has type {columns_of.shown_type(column.type)},"
            " which is neither a label nor a number",
            hint="Targets are texts, booleans, enums and numbers; cast it in a view.",
        )
    return task


def target_of(session: Session, request: PackRequest, column: Column) -> Target:
    """Decide the task and describe the target: its labels, or that it is a number."""
    if task_of(request, column) == "classification" and not _is_measured(session, request, column):
        target = label_target(request, column, labels_in(session, column))
        _check_repeats(session, target)
        return target
    return number_target(request, column, numbers_in(session))


class TargetNumbers(NamedTuple):
    """In how many rows a target is no finite number, and whether it is the same in all of them."""

    n_bad: int
    is_constant: bool


def numbers_in(session: Session) -> TargetNumbers:
    """Examine a target of numbers."""
    bad = session.execute(
        "SELECT count(*) AS n FROM pg_temp.easeml_rows"
        f" WHERE NOT y::float8 BETWEEN -{LARGEST}::float8 AND {LARGEST}::float8"  # NaN is greater than all numbers
    )[0]["n"]
    row = session.execute("SELECT min(y) = max(y) AS is_constant FROM pg_temp.easeml_rows")[0]
    return TargetNumbers(int(bad), bool(row["is_constant"]))


def number_target(request: PackRequest, column: Column, numbers: TargetNumbers) -> NumberTarget:
    """Return a target that is a number. Raises InvalidData."""
    if numbers.n_bad:
        raise InvalidData(
            f"the target {request.target!r} is NaN, infinite or beyond {LARGEST:g} in {numbers.n_bad} rows",
            hint="Leave them out in a view.",
        )
    if numbers.is_constant:
        raise InvalidData(
            f"the target {request.target!r} has the same value in every row", hint="There is nothing to predict."
        )
    return NumberTarget(request.target, column.type)


def is_left_open(request: PackRequest, column: Column) -> bool:
    """Return whether it is open if a target of whole numbers has labels or numbers."""
    return request.task is None and column.type in INTEGERS


def are_few(n_rows: int, n_distinct: int) -> bool:
    """Return whether whole numbers are so few for their rows that they are labels."""
    return n_distinct <= FEW_LABELS or (n_distinct <= MANY_LABELS and n_distinct <= n_rows * SHARE_OF_LABELS)


def _is_measured(session: Session, request: PackRequest, column: Column) -> bool:
    """Return whether there are too many whole numbers to be labels, if the caller leaves the task open."""
    if not is_left_open(request, column):
        return False
    counts = session.execute("SELECT count(*) AS n, count(DISTINCT y) AS n_distinct FROM pg_temp.easeml_rows")[0]
    return are_measured(session, request, int(counts["n"]), int(counts["n_distinct"]))


def are_measured(session: Session, request: PackRequest, n: int, n_distinct: int) -> bool:
    """Return whether a number of distinct whole numbers is too large for labels, and send a notice if so."""
    if are_few(n, n_distinct):
        return False
    session.notice(
        f"the target {request.target!r} has {n_distinct} different whole numbers in {n} rows, so they are numbers to"
        " predict (regression); say task => 'classification' if they are labels"
    )
    return True


def labels_sql(column: Column, rows: str) -> str:
    """Return a query of the labels of rows with a target y in the order of their codes, and their ranks in that of the
    column."""
    collate = ' COLLATE "C"' if column.type in C_ORDERED else ""
    return (
        f"SELECT {columns_of.text_sql(column.type, 'y')} AS label, row_number() OVER (ORDER BY y) AS rank FROM {rows}"
        f" GROUP BY y ORDER BY y{collate} LIMIT {MAX_LABELS + 1}"
    )


def labels_in(session: Session, column: Column) -> list[str]:
    """Return the labels in the order of their type, one more than there may be at most."""
    return [row["label"] for row in session.execute(labels_sql(column, "pg_temp.easeml_rows"))]


def label_target(request: PackRequest, column: Column, labels: Sequence[str]) -> LabelTarget:
    """Return a target that is a label. Raises InvalidData."""
    if len(labels) < 2:
        raise InvalidData(
            f"the target {request.target!r} has one class only, {labels[0]!r}",
            hint="There is nothing to tell apart.",
        )
    if len(labels) > MAX_LABELS:
        raise InvalidData(
            f"the target {request.target!r} has more than {MAX_LABELS} classes",
            hint="Name a column whose values come again and again."
            if column.is_text
            else "If it is a number to predict, say task => 'regression'.",
        )
    return LabelTarget(request.target, column.type, tuple(labels))


def _check_repeats(session: Session, target: LabelTarget) -> None:
    """Refuse labels of which each row has another. Raises InvalidData."""
    if len(target.labels) <= FEW_LABELS:
        return
    n_rows = int(session.execute("SELECT count(*) AS n FROM pg_temp.easeml_rows")[0]["n"])
    if n_rows == len(target.labels):
        raise InvalidData(
            f"the target {target.column!r} has another value in each of {n_rows} rows: there are no classes to learn",
            hint="Name a column whose values come again and again, or a number: task => 'regression'.",
        )
