"""Identifiers of rows by which a user finds them again: their key, or without one a hash of their values."""

from __future__ import annotations

from collections.abc import Sequence

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.columns import Columns
from easeml_plpy.columns.encoder import Field
from easeml_plpy.packing.pack_request import PackRequest
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Session


def key_columns(session: Session, request: PackRequest, columns: Columns) -> tuple[str, ...]:
    """Return the columns that identify rows: the requested ones, else the primary key, else none. Raises
    InvalidArgument.
    """
    columns_of.require(columns, request.key_columns, "key_columns", request.source)
    return request.key_columns or tuple(session.rows(columns_of.PRIMARY_KEY, request.relation))


def key_sql(columns: Columns, names: Sequence[str]) -> str:
    """Return SQL of a source row's key as text, NULL without key columns."""
    if not names:
        return "NULL::text"
    if len(names) == 1:
        return columns_of.text_sql(columns[names[0]].type, columns[names[0]].quoted)
    return f"ROW({', '.join(columns[name].quoted for name in names)})::text"


def hash_sql(request: PackRequest, columns: Columns, inputs: Sequence[Field], target: str) -> str:
    """Return SQL of the hash of a source row's values under the seed, which the shuffle orders rows by."""
    values = [columns_of.hash_sql(field, columns_of.value_sql(field, columns[field.column].quoted)) for field in inputs]
    return f"hash_record_extended(ROW({', '.join([*values, target])}), {int(request.seed)})"


def check_keys(session: Session, request: PackRequest) -> None:
    """Refuse keys that the caller has named and that do not identify the rows."""
    if not request.key_columns:
        return
    repeated = session.execute(
        "SELECT key, count(*) AS n FROM pg_temp.easeml_rows GROUP BY key HAVING count(*) > 1 OR key IS NULL"
        " ORDER BY n DESC, key LIMIT 1"
    )
    if repeated:
        raise InvalidData(
            f"key_columns: {', '.join(request.key_columns)} should name one row each, but {repeated[0]['n']} rows"
            f" have {repeated[0]['key']!r}",
            hint="Name further columns. Without key_columns the primary key names rows, or a hash of their values.",
        )
