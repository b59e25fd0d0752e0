"""The request of easeml.create_dataset for packing, read from the row of the begun dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from easeml_plpy.columns.task import MAX_RANK, TaskKind
from easeml_plpy.server.errors import InvalidArgument, NotFound
from easeml_plpy.server.session import Session, Statement


class SplitBy(NamedTuple):
    """The argument that says how rows are split, and the column that it names."""

    argument: str
    column: str


SPLIT_ARGUMENTS = ("split_column", "time_column", "group_column")


@dataclass(frozen=True)
class PackRequest:
    """The arguments of easeml.create_dataset, with the source as an oid and as a name quoted for SQL.

    `key_columns` name the rows; if there are none, the primary key does. With `n_folds` training rows also validate,
    and each fold is a partition. None: rows are split at random, `task` follows from the target's type, `input_shape`
    from the arrays, `block_rows` from the size of a row.
    """

    dataset_id: int
    relation: int
    source: str
    inputs: tuple[str, ...]
    target: str
    n_partitions: int
    validation_fraction: float
    test_fraction: float
    seed: int
    task: TaskKind | None
    input_shape: tuple[int, ...] | None
    block_rows: int | None
    split_by: SplitBy | None
    key_columns: tuple[str, ...]
    n_folds: int | None


def request_of(
    inputs: Sequence[str],
    input_shape: Sequence[int | None] | None,
    key_columns: Sequence[str] | None,
    **fields: object,
) -> PackRequest:
    if input_shape is not None and len(input_shape) > MAX_RANK:
        raise InvalidArgument(f"input_shape: expected at most {MAX_RANK} sizes, got {len(input_shape)}")
    if input_shape is not None and (not input_shape or any(size is None or size < 1 for size in input_shape)):
        raise InvalidArgument(f"input_shape: expected sizes of 1 or more, got {list(input_shape)}")
    shape = None if input_shape is None else tuple(input_shape)
    named = [(argument, fields.pop(argument)) for argument in SPLIT_ARGUMENTS]
    split_by = next((SplitBy(argument, str(column)) for argument, column in named if column is not None), None)
    return PackRequest(
        **fields,  # type: ignore[arg-type]
        inputs=tuple(inputs),
        input_shape=shape,  # type: ignore[arg-type]
        split_by=split_by,
        key_columns=tuple(key_columns or ()),
    )


# The name is looked up once more and written by the server, since what it is put into is SQL.
BEGUN = Statement(
    """
SELECT d.dataset_id, s.relation::oid::bigint AS relation, easeml.qualified_name(s.relation) AS source,
    d.input_columns AS inputs, d.target_column AS target, d.n_partitions, d.validation_fraction, d.test_fraction,
    d.seed, o.task, o.input_shape, o.block_rows, o.split_column, o.time_column, o.group_column, o.key_columns,
    o.n_folds
FROM easeml.datasets d CROSS JOIN LATERAL (SELECT to_regclass(d.source) AS relation) s
CROSS JOIN LATERAL jsonb_to_record(d.options) o(task text, input_shape integer[], block_rows integer,
    split_column text, time_column text, group_column text, key_columns text[],
    n_folds integer)
WHERE d.dataset_id = $1 AND d.packing_xid = pg_current_xact_id()
    AND d.tenant = easeml.current_tenant() AND easeml.qualified_name(s.relation) IS NOT NULL
""",
    ("int8",),
    request_of,
)


def begun_dataset(session: Session, dataset_id: int) -> PackRequest:
    """Return what is to be packed, once easeml has checked it. Raises NotFound, InvalidArgument."""
    requests = session.rows(BEGUN, dataset_id)
    if not requests:
        raise NotFound(f"dataset {dataset_id} was not begun in this transaction, or its source is gone")
    return requests[0]
