"""The rows of a source, some thousand at a time, by the period that they are of.

They are read with the caller's rights. If there are many rows, every n-th is read, so memory and time are bounded for
any source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.columns import Column, Columns
from easeml_plpy.columns.encoder import NumericField, TensorField
from easeml_plpy.columns.encoding import row_bytes
from easeml_plpy.columns.sent_columns import decode_payload, payload_sql
from easeml_plpy.drift.columns import Compared, codes_of, values_of
from easeml_plpy.packing.source_rows import label_sql
from easeml_plpy.prediction.client_row import coded
from easeml_plpy.prediction.table_prediction import input_value_sql
from easeml_plpy.server.chunks import STATEMENT_ROWS
from easeml_plpy.server.errors import InvalidArgument, InvalidData
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import Array

MOST_ROWS, MOST_BYTES = 1_000_000, 256 << 20
MOST_PERIODS = 1_000
COUNTS = "SELECT count(*) AS n_rows, count(DISTINCT {period}) AS n_periods FROM {source}"
PERIODS = "SELECT DISTINCT {period} AS period FROM {source} ORDER BY 1 LIMIT {most}"
# Columns of the source may have any name, but hardly these.
CHUNKS = """
SELECT "easeml.period" AS period, count(*)::int AS n, {payload} AS payload, {texts} AS texts
FROM (SELECT {columns}, {period} AS "easeml.period", row_number() OVER ({order}) AS "easeml.number" FROM {source}) c
WHERE "easeml.number" % {step} = 0 GROUP BY 1, "easeml.number" / {chunk} ORDER BY 1, "easeml.number" / {chunk}
"""


@dataclass(frozen=True)
class Periods:
    """The column that says when a row was, quoted for SQL, and how many seconds a period has."""

    time: str
    seconds: float

    def sql(self) -> str:
        """Return SQL of the number of a row's period."""
        return f"floor(extract(epoch FROM {self.time})::float8 / {self.seconds!r}::float8)"


class Chunk(NamedTuple):
    """Values of rows of one period (None: rows have none), by column; and their texts, if there are any."""

    period: float | None
    columns: list[Array]
    texts: list[list[str | None] | None]


class _Sent(NamedTuple):
    period: float | None
    n: int
    payload: bytes | None
    texts: str | None


class Counts(NamedTuple):
    """Rows that have a time, and their periods."""

    n_rows: int
    n_periods: int


@dataclass(frozen=True)
class Source:
    """A relation by its name quoted for SQL, with its columns, of which at most `n_rows` are read; `target` is that of
    the dataset."""

    name: str
    columns: Columns
    compared: Sequence[Compared]
    target: str
    periods: Periods | None
    n_rows: int

    def chunks(self, session: Session) -> Iterator[Chunk]:
        """Yield the rows. Raises InvalidArgument for too many periods, InvalidData for an empty source."""
        counts = self.counts(session)
        check_counts(self.name, counts.n_rows, counts.n_periods)
        yield from self.every(session, -(-counts.n_rows // self.most))

    def every(self, session: Session, step: int) -> Iterator[Chunk]:
        """Yield every n-th row."""
        for sent in session.each(self._statement(session.schema, step)):
            numbers = iter(decode_payload(self._numbers(), sent.payload, sent.n))
            texts = iter(columns_of.text_columns(sent.texts, len(self._texts()), sent.n))
            yield self._chunk(sent.period, numbers, texts)

    def _chunk(self, period: float | None, numbers: Iterator[Array], texts: Iterator[list[str | None]]) -> Chunk:
        columns: list[Array] = []
        all_texts: list[list[str | None] | None] = []
        for field in self.compared:
            column_texts = next(texts) if isinstance(field, CategoricalField | TextField) else None
            all_texts.append(column_texts)
            if isinstance(field, CategoricalField):
                columns.append(codes_of(field, column_texts or ()))
            elif isinstance(field, TextField):
                columns.append(values_of(field, coded(field, column_texts or ())))
            else:
                columns.append(values_of(field, next(numbers)))
        return Chunk(period, columns, all_texts)

    def counts(self, session: Session) -> Counts:
        """Return how many rows and periods there are."""
        sql = COUNTS.format(period=self._period("1"), source=self._rows())
        return session.row(Statement(sql, (), Counts, is_kept=False))

    def first_periods(self, session: Session) -> list[float]:
        """Return the periods of the rows in their order, one more than there may be at most."""
        sql = PERIODS.format(period=self._period("NULL::float8"), source=self._rows(), most=MOST_PERIODS + 1)
        statement: Statement[float] = Statement(sql, (), only_column, is_kept=False)
        return session.rows(statement)

    @property
    def most(self) -> int:
        """How many rows are read at most."""
        return max(1, min(self.n_rows, MOST_BYTES // max(row_bytes(self.compared), 1)))

    def _period(self, none: str) -> str:
        return none if self.periods is None else self.periods.sql()

    def _statement(self, schema: str, step: int) -> Statement[_Sent]:
        needed = dict.fromkeys(self._column(field).quoted for field in self.compared)
        sql = CHUNKS.format(
            payload=payload_sql([(field, self._value(field)) for field in self._numbers()], schema),
            texts=columns_of.texts_sql([(field, self._value(field)) for field in self._texts()], ""),
            columns=", ".join(needed),
            period=self._period("NULL::float8"),
            order="" if self.periods is None else f"ORDER BY {self.periods.sql()}",
            source=self._rows(),
            step=step,
            chunk=step * STATEMENT_ROWS,
        )
        return Statement(sql, (), _Sent, is_kept=False)

    def _rows(self) -> str:
        """Return SQL of the rows that have a time."""
        return self.name if self.periods is None else f"{self.name} WHERE isfinite({self.periods.time})"

    def _numbers(self) -> list[NumericField | TensorField]:
        return [field for field in self.compared if isinstance(field, NumericField | TensorField)]

    def _texts(self) -> list[CategoricalField | TextField]:
        return [field for field in self.compared if isinstance(field, CategoricalField | TextField)]

    def _column(self, field: Compared) -> Column:
        return self.columns[field.source]

    def _value(self, field: Compared) -> str:
        column = self._column(field)
        if field.column == self.target and isinstance(field, CategoricalField):
            return columns_of.text_sql(column.type, label_sql(column))
        if isinstance(field, TensorField) and field.wire in ("f4", "f8") and field.wire_rank == 1:
            # An array that is missing is no error here, whatever training had.
            return f"({input_value_sql(column, replace(field, missing=(0,)))})::float{field.wire[1:]}[]"
        return input_value_sql(column, field)


def check_counts(name: str, n_rows: int, n_periods: int) -> None:
    """Raise InvalidData for an empty source, InvalidArgument for too many periods."""
    if not n_rows:
        raise InvalidData(f"{name} has no rows", hint="Compare rows that are there.")
    if n_periods > MOST_PERIODS:
        raise InvalidArgument(
            f"every: expected at most {MOST_PERIODS} periods, got {n_periods}",
            hint="Take longer ones: every => '1 month'.",
        )
