"""On a node: how its training rows, and its rows of a source, are distributed over bins. Only counts leave the node.

The steps of one comparison are calls of one session, which keeps the columns in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.coded_fields import CategoricalField
from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.drift.bins import N_BINS, Bins, CategoryBins, NumberBins, seen_codes
from easeml_plpy.drift.columns import Compared, compared_columns, target_field
from easeml_plpy.drift.measure import count_rows, periods_of, rows_at_most
from easeml_plpy.drift.new_rows import Source
from easeml_plpy.drift.order_keys import number_of
from easeml_plpy.drift.training_rows import Block, block_values
from easeml_plpy.nodes.node_prediction import RELATION, job_limit_bytes
from easeml_plpy.packing.on_nodes.tables import check_same, may_read, open_table
from easeml_plpy.packing.on_nodes.tenant_rows import copied_rows
from easeml_plpy.prediction.table_prediction import check_types
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.devices import bind
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.session import Kept, NodeSession, Session, Statement
from easeml_plpy.server.value_types import Array, Told


class _Size(NamedTuple):
    partition_number: int
    block_number: int
    n_rows: int
    n_bytes: int


@dataclass
class _Kept:
    """The state of a session between the steps: values by column, numbers also sorted, and the source."""

    values: list[Array] = field(default_factory=list)
    in_order: list[Array] = field(default_factory=list)
    source: Source | None = None


STAGED = "pg_temp.easeml_staged"
"""The rows of the source, which several steps read."""
KEPT: Kept[_Kept] = Kept(_Kept)
SIZES = Statement(
    "SELECT partition_number, block_number, n_rows, octet_length(inputs) AS n_bytes FROM easeml_segment.version_blocks"
    " WHERE dataset_id = $1 AND split = 'train' AND partition_number = ANY ($2)",
    ("int8", "int4[]"),
    _Size,
)
BLOCK = Statement(
    "SELECT n_rows, inputs, targets FROM easeml_segment.version_blocks"
    " WHERE dataset_id = $1 AND split = 'train' AND partition_number = $2 AND block_number = $3",
    ("int8", "int4", "int4"),
    Block,
)


@entry_point(of=NodeSession)
def drift_on_node(session: Session, step: str, told: str) -> str:
    """Do a step; return its answer as JSON."""
    order = json.loads(told)
    bind("cpu", 1, job_limit_bytes(session, order))
    return json.dumps(STEPS[step](session, order))


def _encoder(session: Session, message: Told) -> Encoder:
    return datasets.dataset(session, message["dataset_id"]).encoder


def _compared(session: Session, message: Told) -> list[Compared]:
    return compared_columns(_encoder(session, message), has_target=message["has_target"])


def _open_source(session: Session, message: Told) -> Told:
    """Find the rows that are compared; return how many there are, their periods, and whether they have targets."""
    encoder, options = _encoder(session, message), message["options"]
    if encoder.objects is not None:
        raise NotAllowed("series and trees go in, whose columns cannot be compared")
    needed = list(dict.fromkeys(input_field.source for input_field in encoder.inputs))
    tables = {name: open_table(session, name, message["role"], needed) for name in message["tables"]}
    by_table = {name: columns_of.read_columns(session, session.row(RELATION, name)) for name in tables}
    first = next(iter(tables))
    check_types(first, by_table[first], encoder.inputs, "name that")
    has_target = target_field(encoder) is not None and all(
        encoder.target.column in names for names in by_table.values()
    )
    extra = [encoder.target.column] if has_target else []
    extra += [] if options["time_column"] is None else [options["time_column"]]
    for name, columns in by_table.items():
        columns_of.require(columns, extra, "time_column", name)
        may_read(session, name, message["role"], extra)
    needed = list(dict.fromkeys([*needed, *extra]))
    types = {name: {key: columns[key].type for key in needed} for name, columns in by_table.items()}
    check_same(types[first], [(name, types[name]) for name in by_table if name != first], first)
    opened, quoted = [table for table, _ in tables.values()], [by_table[first][key].quoted for key in needed]
    with copied_rows(session, opened, quoted, message["role"]) as copy:
        session.execute(f"CREATE TEMPORARY TABLE easeml_staged ON COMMIT DROP AS TABLE {copy}")
    relation = STAGED
    columns = columns_of.read_columns(session, session.row(RELATION, relation))
    periods = periods_of(relation, columns, options)
    compared = compared_columns(encoder, has_target=has_target)
    source = Source(relation, columns, compared, encoder.target.column, periods, rows_at_most(options))
    session.kept(KEPT).source = source
    n_rows = source.counts(session).n_rows
    times = [] if periods is None else source.first_periods(session)
    return {"n_rows": n_rows, "periods": times, "has_target": has_target, "most": source.most}


def _sizes(session: Session, message: Told) -> Told:
    """Return the training blocks that were packed here: partition, number, rows, bytes."""
    return {"blocks": [list(block) for block in session.rows(SIZES, message["dataset_id"], message["parts"])]}


def _read_trained(session: Session, message: Told) -> Told:
    """Read the named blocks and keep their columns; return the content of each."""
    kept, compared = session.kept(KEPT), _compared(session, message)
    encoder, has_target = _encoder(session, message), message["has_target"]
    blocks = (session.row(BLOCK, message["dataset_id"], *place) for place in message["blocks"])
    parts = [block_values(encoder, compared, block, has_target=has_target) for block in blocks]
    kept.values = [np.concatenate(values) for values in zip(*parts, strict=True)] if parts else []
    kept.values = kept.values or [
        np.empty(0, int if isinstance(column, CategoricalField) else float) for column in compared
    ]
    kept.in_order = [np.sort(values[np.isfinite(values)]) for values in kept.values]
    return {"columns": [_facts(*column) for column in zip(compared, kept.values, kept.in_order, strict=True)]}


def _facts(column: Compared, values: Array, in_order: Array) -> Told:
    if isinstance(column, CategoricalField):
        return {"seen": seen_codes(values, len(column.categories)).tolist()}
    distinct = np.unique(in_order)
    ends = [float(in_order[0]), float(in_order[-1])] if len(in_order) else []
    return {"n": len(in_order), "ends": ends, "distinct": distinct.tolist() if len(distinct) <= N_BINS else None}


def _ranks(session: Session, message: Told) -> Told:
    """Return how many numbers of some columns are no greater than some others."""
    kept = session.kept(KEPT).in_order
    return {
        "ranks": {
            place: np.searchsorted(kept[int(place)], [number_of(key) for key in keys], side="right").tolist()
            for place, keys in message["thresholds"].items()
        }
    }


def bins_from(settled: Sequence[Told]) -> list[Bins]:
    """Return the settled bins; their counts of training rows are empty until they are counted."""
    return [
        CategoryBins(np.array(column["place"]), np.array(column["seen"]), np.array(column.get("trained", [])))
        if "place" in column
        else NumberBins(np.array(column["edges"], float), *_ends(column), np.array(column.get("trained", [])))
        for column in settled
    ]


def _ends(column: Told) -> tuple[float, float]:
    low, high = column["ends"] or (np.inf, -np.inf)
    return low, high


def _count_trained(session: Session, message: Told) -> Told:
    """Return how many of the training rows are in each bin."""
    counted = [
        bins.counts(values) for bins, values in zip(bins_from(message["bins"]), session.kept(KEPT).values, strict=True)
    ]
    return {"counts": [counts.tolist() for counts in counted]}


def _count_new(session: Session, message: Told) -> Told:
    """Return by period and column how many rows of the source are in each bin, and what no training row had."""
    source, bins = session.kept(KEPT).source, bins_from(message["bins"])
    if source is None:
        raise NotAllowed("the source was not opened before")
    compared = _compared(session, message)
    zeros = [np.zeros(n, int) for n in message["widths"]]
    chunks = (chunk._replace(columns=chunk.columns[: len(compared)], texts=chunk.texts[: len(compared)])
              for chunk in source.every(session, message["step"]))  # fmt: skip
    seen = count_rows(chunks, bins, zeros)
    return {
        "periods": [
            [period, [[column.counts.tolist(), column.n_unseen, column.unseen.most_common()] for column in columns]]
            for period, columns in seen.items()
        ]
    }


STEPS: Mapping[str, Callable[[Session, Told], Told]] = {
    "source": _open_source,
    "sizes": _sizes,
    "trained": _read_trained,
    "ranks": _ranks,
    "counts": _count_trained,
    "new": _count_new,
}
