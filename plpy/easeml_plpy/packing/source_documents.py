"""Columns of JSON while they are packed: each key of the objects in the training rows becomes a separate input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from easeml_plpy.columns.coded_fields import CategoricalField
from easeml_plpy.columns.columns import JSONS, TRAINING_ROWS, Source, check_number, member_sql
from easeml_plpy.columns.encoder import NumericField
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Session, Statement

MOST_KEYS = 256


class Key(NamedTuple):
    """A key of the objects in a column: in how many rows it is there, and there with any value, a number or boolean, an
    object or array."""

    key: str
    n_rows: int
    n_known: int
    n_numbers: int
    n_nested: int


def with_keys(session: Session, sources: Sequence[Source]) -> list[Source]:
    """Return the inputs, with JSON columns replaced by the inputs within them. Raises InvalidArgument, InvalidData."""
    return expanded(session, sources, read_keys(session, sources))


def read_keys(session: Session, sources: Sequence[Source]) -> dict[str, list[Key]]:
    """Return the keys of each column of JSON, the commonest first."""
    documents = [source for source in sources if source.field.type in JSONS]
    return {source.field.column: session.rows(_keys_of(source.value)) for source in documents}


def expanded(session: Session, sources: Sequence[Source], keys: Mapping[str, Sequence[Key]]) -> list[Source]:
    """Return the inputs with one for each key in place of its column. Raises InvalidArgument, InvalidData."""
    inputs = [key_input for source in sources for key_input in _inputs_of(session, source, keys)]
    check_number(len(inputs))
    return inputs


def _inputs_of(session: Session, source: Source, keys_by_column: Mapping[str, Sequence[Key]]) -> list[Source]:
    if source.field.type not in JSONS:
        return [source]
    keys = keys_by_column[source.field.column]
    nested = [key.key for key in keys if key.n_nested]
    flat = [key for key in keys if key.n_known > key.n_nested]
    column = source.field.column
    if not flat:
        raise InvalidData(
            f"input {column!r} holds no json objects with numbers, booleans or texts",
            hint="Each key of an object becomes an input; take what lies deeper out of it in a view.",
        )
    if nested:
        session.notice(f"input {column!r}: objects and arrays within it are not looked at: {', '.join(nested[:20])}")
    if len(flat) > MOST_KEYS:
        session.notice(f"input {column!r} has more than {MOST_KEYS} keys: the rarer ones are left out")
    return [_input(column, key, source.value) for key in flat[:MOST_KEYS]]


def _keys_of(value: str) -> Statement[Key]:
    """Return a statement for the keys, the commonest first."""
    sql = (
        "SELECT e.key, count(*) AS n_rows, count(*) FILTER (WHERE t.type <> 'null') AS n_known,"
        " count(*) FILTER (WHERE t.type IN ('number', 'boolean')) AS n_numbers,"
        " count(*) FILTER (WHERE t.type IN ('object', 'array')) AS n_nested"
        f" FROM (SELECT CASE jsonb_typeof({value}) WHEN 'object' THEN {value} END AS document FROM {TRAINING_ROWS}) d,"
        " jsonb_each(d.document) e, LATERAL (SELECT jsonb_typeof(e.value) AS type) t"
        f' GROUP BY 1 ORDER BY n_rows DESC, e.key COLLATE "C" LIMIT {2 * MOST_KEYS}'
    )
    return Statement(sql, (), Key, is_kept=False)


def _input(column: str, key: Key, value: str) -> Source:
    """Return the input that a key becomes: a number, if it never is a text."""
    name = f"{column}.{key.key}"
    kind = NumericField if key.n_numbers == key.n_known - key.n_nested else CategoricalField
    field = kind(column=name, type="jsonb", within=column)
    return Source(field, member_sql(field, value))
