"""The output table of predictions: a new one, or an existing one to which they are added by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.columns import Columns
from easeml_plpy.columns.encoder import Field
from easeml_plpy.server.errors import InvalidArgument, InvalidData
from easeml_plpy.server.session import Session, Statement, only_column

STAGED, ADDED_SOURCE = "pg_temp.easeml_predicted", "pg_temp.easeml_added"
OUTPUT_OID: Statement[int | None] = Statement("SELECT to_regclass($1)::oid::bigint AS oid", ("text",), only_column)


class _Faults(NamedTuple):
    n_unnamed: int
    n_repeated: int


def key_columns(
    session: Session, relation: int, columns: Columns, inputs: Sequence[Field], key: Sequence[str] | None
) -> tuple[list[str], bool]:
    """Return the columns that identify the row of a prediction, and whether they are a key: those named, the primary
    key, or all columns that are neither inputs nor arrays.
    """
    if key is not None:
        if not key or len(set(key)) < len(key):
            raise InvalidArgument("key: expected columns of the source, each once", hint="For example key => '{id}'.")
        columns_of.require(columns, key, "key", "the source")
        return list(key), True
    primary = session.rows(columns_of.PRIMARY_KEY, relation)
    if primary:
        return primary, True
    used = {field.source for field in inputs}
    others = [name for name, column in columns.items() if name not in used and not column.is_array]
    if not others:
        raise InvalidArgument(
            "source: expected a primary key, or columns beside the inputs, that say which row a prediction is for",
            hint="ALTER TABLE ... ADD PRIMARY KEY, or name columns: key => '{id}'.",
        )
    session.notice(
        "the source has no primary key: all its columns beside the inputs are written with the predictions;"
        " key => '{id}' names those that you want"
    )
    return others, False


def is_there(session: Session, output: str) -> bool:
    """Return whether the table exists."""
    return session.row(OUTPUT_OID, output) is not None


class Addition(NamedTuple):
    """An addition to an existing table: the names of the source, the table, the key and the predicted columns, all
    quoted for SQL.
    """

    source: str
    output: str
    keys: Sequence[str]
    predicted: Sequence[str]
    mode: str

    def add(self, session: Session, predict: Callable[[str, str], object]) -> int:
        """Predict and write; return how many rows were written. `predict(source, output)` fills a new table.

        Predictions are staged, so that triggers of the table run only after prediction has ended.
        """
        self._check(session)
        source = self._added_rows(session) if self.mode == "append" else self.source
        predict(source, STAGED)
        n_rows = self._write(session)
        for table in {STAGED, source} - {self.source}:
            session.execute(f"DROP TABLE {table}")
        return n_rows

    def _check(self, session: Session) -> None:
        """Refuse a table without the columns, and rows that a key does not identify; lock the table against other
        writers.
        """
        session.execute(f"LOCK TABLE {self.output} IN SHARE ROW EXCLUSIVE MODE")
        oid = session.row(OUTPUT_OID, self.output)
        there = {column.quoted for column in columns_of.read_columns(session, oid or 0).values()}
        missing = [name for name in (*self.keys, *self.predicted) if name not in there]
        if missing:
            raise InvalidData(
                f"output: {self.output} has no column {', '.join(missing)}",
                hint=f"It needs the key and the predictions: {', '.join((*self.keys, *self.predicted))}.",
            )
        keys, unnamed = ", ".join(self.keys), " OR ".join(f"{key} IS NULL" for key in self.keys)
        sql = (
            f"SELECT count(*) FILTER (WHERE {unnamed}) AS n_unnamed,"
            f" count(*) - (SELECT count(*) FROM (SELECT DISTINCT {keys} FROM {self.source}) d) AS n_repeated"
            f" FROM {self.source}"
        )
        faults = session.row(Statement(sql, (), _Faults, is_kept=False))
        if faults.n_unnamed or faults.n_repeated:
            raise InvalidData(
                f"key: expected another {keys} in each row of {self.source}, got {faults.n_unnamed} rows with NULL and"
                f" {faults.n_repeated} that repeat one",
                hint="Name columns that tell rows apart: key => '{id}'.",
            )

    def _added_rows(self, session: Session) -> str:
        """Return a temporary table of the rows that the output does not have."""
        session.execute(
            f"CREATE TEMPORARY TABLE easeml_added ON COMMIT DROP AS SELECT s.* FROM {self.source} s"
            f" WHERE NOT EXISTS (SELECT FROM {self.output} o WHERE {self._same})"
        )
        return ADDED_SOURCE

    def _write(self, session: Session) -> int:
        changed = 0
        if self.mode == "update":
            values = ", ".join(f"{name} = s.{name}" for name in self.predicted)
            changed = session.execute(f"UPDATE {self.output} o SET {values} FROM {STAGED} s WHERE {self._same}").nrows()
        names = ", ".join((*self.keys, *self.predicted))
        added = session.execute(
            f"INSERT INTO {self.output} ({names}) SELECT {names} FROM {STAGED} s"
            f" WHERE NOT EXISTS (SELECT FROM {self.output} o WHERE {self._same})"
        )
        return changed + added.nrows()

    @property
    def _same(self) -> str:
        return " AND ".join(f"o.{key} = s.{key}" for key in self.keys)
