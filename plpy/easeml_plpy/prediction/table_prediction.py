"""Predicting for a whole table: one statement packs, predicts and writes, some thousand rows at a time.

All of it runs with the caller's rights. The packed rows go to `easeml.predict_packed`, which answers only within such a
statement. Neither rows nor keys pass through Python one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.columns import Column, Columns
from easeml_plpy.columns.encoder import (
    Encoder,
    Field,
    LabelTarget,
    NumberField,
    NumberTarget,
    NumericField,
    TensorField,
)
from easeml_plpy.columns.sent_columns import payload_sql
from easeml_plpy.packing.foreign_code import reading
from easeml_plpy.packing.paged_relations import has_pages, pages_sql, size_of, within_sql
from easeml_plpy.prediction.prediction import FILLING
from easeml_plpy.prediction.prediction_outputs import OUTPUT_OID, Addition, is_there, key_columns
from easeml_plpy.prediction.probabilities import label_target
from easeml_plpy.prediction.serving import served
from easeml_plpy.server.chunks import STATEMENT_ROWS
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidArgument, NotAllowed, NotFound, ShapeMismatch
from easeml_plpy.server.session import Command, NodeSession, Session, Statement, only_column

# A single label that is empty makes an empty text, which string_to_array would take for no label.
LABELS = "CASE packed.labels WHEN '' THEN ARRAY[''] ELSE string_to_array(packed.labels, packed.separator) END"
VALUES = "{schema}.numbers_of(packed.predicted_values)"
LABEL_COLUMNS = {
    "predicted_label": ("text", f"unnest({LABELS})"),
    "probability": ("double precision", f"unnest({VALUES})"),
}
EVERY_COLUMN = {"probabilities": ("jsonb", "jsonb_array_elements(packed.probabilities::jsonb)")}
VALUE_COLUMN = {"predicted_value": ("double precision", f"unnest({VALUES})")}
"""What is written of the predictions: by column its type, and SQL of its values for all rows that were packed."""
ELEMENTS = {"i2": "int2", "i4": "int4", "f4": "float4", "f8": "float8"}

PREDICT = {Session.schema: "predict_packed", NodeSession.schema: "predict_packed_on_node"}
MOST_PROBABILITIES = 1 << 18
"""The most probabilities that are written as JSON at once."""

# One statement over the whole source: some thousand rows at a time are packed, predicted and written with their keys.
FILL = """
INSERT INTO {output}
SELECT {columns}
FROM {pages}
CROSS JOIN LATERAL (
    SELECT count(*)::int AS n, {payload} AS payload, {texts} AS texts{key_arrays}
    FROM {relation} WHERE {within}
) AS chunk
CROSS JOIN LATERAL {{schema}}.{predict}($1, $2, chunk.n, chunk.payload, chunk.texts) AS packed
WHERE chunk.n > 0
"""


@dataclass(frozen=True)
class TableRequest:
    """A request to predict for a table: the relation by oid and by its name quoted for SQL, the quoted name of the new
    table, and whether it gets the probabilities of all classes.
    """

    dataset: str | None
    trial_id: int | None
    relation: int
    source: str
    output: str
    has_probabilities: bool


SOURCE_NAME: Statement[str] = Statement(
    "SELECT format('%I.%I', n.nspname, c.relname) AS name"
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1",
    ("oid",),
    only_column,
)
OUTPUT_NAME: Statement[str] = Statement(
    "SELECT string_agg(quote_ident(part), '.') AS name FROM unnest(parse_ident($1)) AS part", ("text",), only_column
)


@entry_point(returns_failure=True)
def write_predictions(
    session: Session,
    dataset: str | None,
    relation: int,
    output: str,
    trial_id: int | None,
    if_exists: str | None,
    key: Sequence[str] | None,
    probabilities: bool | None,
) -> int:
    """Create the output table and fill it in one statement, or add to the one that is there; return how many rows were
    written."""
    source = session.rows(SOURCE_NAME, relation)
    if not source:
        raise NotFound(
            f"source: there is no table or view with the number {relation}", hint="Call easeml.predict_table."
        )
    output_name = session.row(OUTPUT_NAME, output)
    request = TableRequest(dataset, trial_id, relation, source[0], output_name, bool(probabilities))
    encoder = served(session, dataset, trial_id).data.encoder
    if encoder.objects is not None:
        raise NotAllowed("series and trees go in, and no table of rows holds them", hint="Call easeml.infer.")
    if probabilities:
        label_target(dataset, encoder, hint="Leave out probabilities => true.")
    columns = columns_of.read_columns(session, relation)
    columns_of.require(columns, [field.source for field in encoder.inputs], "source", request.source)
    check_types(request.source, columns, encoder.inputs)
    names, is_key = key_columns(session, relation, columns, encoder.inputs, key)
    filling = TableFilling(request, columns, encoder, [columns[name].quoted for name in names])
    with reading(session, relation):
        if if_exists not in ("append", "update") or not is_there(session, request.output):
            return filling.fill(session, request.source, request.output)
        return _add(session, filling, is_key, if_exists)


def _add(session: Session, filling: TableFilling, is_key: bool, if_exists: str) -> int:
    """Add predictions to the table that is there; return how many rows were written."""
    request = filling.wanted
    if not is_key:
        raise InvalidArgument(
            f"key: expected columns that tell rows apart, and {request.source} has no primary key",
            hint="Name them: key => '{id}'.",
        )
    addition = Addition(request.source, request.output, filling.keys, list(filling.written), if_exists)
    with reading(session, session.row(OUTPUT_OID, request.output) or 0, "output", is_written=True):
        return addition.add(session, lambda rows, table: filling.fill(session, rows, table))


@dataclass(frozen=True)
class TableFilling:
    """Predictions on their way into a new table; `keys` are quoted for SQL."""

    wanted: TableRequest
    columns: Columns
    encoder: Encoder
    keys: Sequence[str]

    @property
    def written(self) -> dict[str, tuple[str, str]]:
        """The columns of the predictions, with type and SQL."""
        if isinstance(self.encoder.target, NumberTarget):
            return VALUE_COLUMN
        return LABEL_COLUMNS | EVERY_COLUMN if self.wanted.has_probabilities else LABEL_COLUMNS

    @property
    def chunk_rows(self) -> int:
        """How many rows to predict for at once."""
        target = self.encoder.target
        if not isinstance(target, LabelTarget) or not self.wanted.has_probabilities:
            return STATEMENT_ROWS
        return max(1, min(STATEMENT_ROWS, MOST_PROBABILITIES // len(target.labels)))

    def empty_sql(self, source: str) -> str:
        """Return a query of no rows, which has the columns of the output."""
        typed = (f"NULL::{sql_type} AS {name}" for name, (sql_type, _) in self.written.items())
        return f"SELECT {', '.join([*self.keys, *typed])} FROM {source} LIMIT 0"

    def payload_sql(self, schema: str, *, is_by_column: bool = False) -> str:
        """Return SQL of the numbers, images and arrays, as `sent_columns` has them sent."""
        numbers = [field for field in self.encoder.inputs if isinstance(field, NumericField | TensorField)]
        values = [(field, input_value_sql(self.columns[field.source], field)) for field in numbers]
        return payload_sql(values, schema, is_by_column=is_by_column)

    def texts_sql(self) -> str:
        """Return SQL of the texts."""
        texts = [field for field in self.encoder.inputs if isinstance(field, CategoricalField | TextField)]
        values = [(field, input_value_sql(self.columns[field.source], field)) for field in texts]
        return columns_of.texts_sql(values, "")

    def fill(self, session: Session, source: str, output: str) -> int:
        """Create the output with a row for each row of the source, which has its columns; return the number of rows."""
        session.execute(f"CREATE TABLE {output} AS {self.empty_sql(source)}")
        scanned = _scannable(session, self.wanted) if source == self.wanted.source else source
        step = size_of(session, scanned).pages_of(self.chunk_rows)
        kept = (f"unnest(chunk.k{i})" for i in range(len(self.keys)))
        sql = FILL.format(
            output=output,
            predict=PREDICT[session.schema],
            relation=scanned,
            columns=", ".join([*kept, *(values for _, values in self.written.values())]),
            key_arrays="".join(f", array_agg({key}) AS k{i}" for i, key in enumerate(self.keys)),
            payload=self.payload_sql(session.schema),
            texts=self.texts_sql(),
            pages=pages_sql("$3", step),
            within=within_sql(step),
        )
        n_rows = _fill(session, self.wanted, sql, scanned)
        if scanned not in (source, self.wanted.source):
            session.execute(f"DROP TABLE {scanned}")
        return n_rows


def _fill(session: Session, request: TableRequest, sql: str, relation: str) -> int:
    """Execute the one statement; packed rows are answered only while it runs. Return the number of rows."""
    filling = session.kept(FILLING)
    filling.is_on, filling.has_probabilities = True, request.has_probabilities
    try:
        command = Command(sql, ("text", "int8", "regclass"), is_kept=False)
        return session.run(command, request.dataset, request.trial_id, relation)
    finally:
        filling.is_on = False


def _scannable(session: Session, request: TableRequest) -> str:
    """Return a relation that can be read by page: the source, or a temporary copy of a view or of many tables."""
    if has_pages(session, request.relation):
        return request.source
    session.execute(f"CREATE TEMPORARY TABLE easeml_source ON COMMIT DROP AS SELECT * FROM {request.source}")
    return "pg_temp.easeml_source"


def check_types(source: str, columns: Columns, inputs: Sequence[Field], then: str = "predict for that") -> None:
    """Refuse a column whose type is of another kind than that of the dataset."""
    for field in inputs:
        column = columns[field.source]
        now = columns_of.input_field(column)
        # Whether a column of texts is a category depends on its rows, not on its type.
        kind = CategoricalField if isinstance(field, TextField) else type(field)
        if field.within and column.type in columns_of.JSONS:
            continue
        if (type(now), now.type == "bytea") != (kind, field.type == "bytea"):
            raise ShapeMismatch(
                f"source: column {field.column!r} of {source} has type {columns_of.shown_type(column.type)}",
                detail=f"The dataset was made from {columns_of.shown_type(field.type)}.",
                hint=f"Cast it in a view, and {then}.",
            )


def _value_sql(column: Column, field: Field) -> str:
    """Return SQL of a value as packing had it."""
    value = columns_of.value_sql(columns_of.input_field(column), column.quoted)
    return columns_of.member_sql(field, value) if field.within else value


def input_value_sql(column: Column, field: Field) -> str:
    """Return SQL of an input of a row, as `sent_columns` sends numbers and `texts_sql` texts."""
    return _number_sql(column, field) if isinstance(field, NumericField | TensorField) else _value_sql(column, field)


def _number_sql(column: Column, field: NumberField) -> str:
    """Return SQL of a number or array in the very type that the dataset's rows were sent in."""
    value = _value_sql(column, field)
    if isinstance(field, NumericField) or not field.is_array:
        return value
    array = f"({value})::{ELEMENTS[field.wire]}[]"
    if field.missing:
        size = math.prod(field.shape)
        array = f"coalesce(array_replace({array}, NULL, 'NaN'), array_fill('NaN'::float8, ARRAY[{size}]))"
    return array
