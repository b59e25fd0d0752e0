"""Prediction for tables of a Greenplum cluster, each row on the segment that has it: the part of the cluster's
coordinator.

The needed rows are copied (tenant_rows.py), each on its own segment. There they are packed and predicted some
thousand at a time (segment_prediction.py), and the answers go to a table that is distributed like the source. The query
carries the state to the segments; no row passes through the coordinator. Errors are values: `plpy.error` of PostgreSQL
9.4 takes no SQLSTATE.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.columns import Column
from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.nodes.greenplum.cluster_tables import ClusterTable, open_table
from easeml_plpy.nodes.greenplum.segment_prediction import MARK
from easeml_plpy.nodes.node_prediction import hand_over, place_of, remark_of, rows_in_remark
from easeml_plpy.packing.on_nodes.tables import check_rights, check_same
from easeml_plpy.packing.on_nodes.tenant_rows import TenantTable, copied_rows
from easeml_plpy.prediction.prediction_outputs import key_columns
from easeml_plpy.prediction.probabilities import label_target
from easeml_plpy.prediction.table_prediction import TableFilling, TableRequest, check_types
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.failures import told_by
from easeml_plpy.server.plpython import GlobalData, PlPy
from easeml_plpy.server.session import Command, NodeSession, Session, Statement, only_column
from easeml_plpy.server.value_types import Told

KEYS: Statement[list[int]] = Statement(
    "SELECT array_agg(k.key ORDER BY k.content) AS keys FROM (SELECT gp_segment_id AS content, min(segment_key) AS key"
    " FROM easeml_segment.keys GROUP BY gp_segment_id) k",
    (),
    only_column,
)
ENCODER: Statement[Encoder] = Statement(
    "SELECT convert_from(encoder, 'UTF8') AS encoder FROM easeml_segment.datasets"
    " WHERE segment_key = $1 AND dataset_id = $2",
    ("int4", "int8"),
    lambda encoder: Encoder.from_text(encoder),
)
LIKE_KEYS: Statement[str] = Statement(
    "SELECT clause FROM easeml_segment.distribution_of('easeml_segment.keys'::regclass)", (), only_column
)
SORTED = Command("SELECT set_config('enable_hashagg', 'off', true)", ())
"""Groups come sorted: hashed, all of them would lie in memory at once."""
# Grouped by the key, so each segment answers for its own rows. What comes from the segment of the state is brought to
# all others, and handed over where a process does not have it yet.
FILL = """
INSERT INTO {output}
SELECT {written}
FROM (SELECT {kept}, (z.answered).* FROM (
    SELECT chunk.*, easeml_segment.predict_on_segment($1,
        CASE WHEN easeml_segment.knows_trial($2) THEN NULL ELSE brought.pieces END,
        chunk.n, chunk.payload, chunk.texts) AS answered
    FROM (SELECT s.segment_key, s.place, count(*)::integer AS n, {payload} AS payload, {texts} AS texts, {key_arrays}
        FROM (SELECT *, (row_number() OVER (PARTITION BY segment_key) - 1) / {chunk_rows} AS place FROM {staged}) s
        GROUP BY s.segment_key, s.place) chunk
    CROSS JOIN (SELECT array_agg(p.bytes ORDER BY p.number) AS pieces FROM (
            SELECT segment_key, -1 AS number, encoder AS bytes FROM easeml_segment.datasets
            WHERE segment_key = $3 AND dataset_id = $4
            UNION ALL
            SELECT segment_key, chunk_number, bytes FROM easeml_segment.checkpoint_chunks
            WHERE segment_key = $3 AND checkpoint_id = $5
        ) p GROUP BY p.segment_key) brought
) z) packed
"""


def predict_on_cluster(plpy: PlPy, GD: GlobalData, told: str) -> str:
    """Write the output of a job, and return JSON {"n_rows"}, or {"failure": {"sqlstate", "message", "detail", "hint"}},
    after which the transaction must be rolled back. An output that this job has written before stays unchanged.
    """
    try:
        return json.dumps({"n_rows": _predicted(NodeSession.of(plpy, GD), json.loads(told))})
    except Exception as error:
        failure = _failure(error)
        if failure is None:
            raise
        return json.dumps({"failure": failure})


def _failure(error: Exception) -> Told | None:
    """Return an error as a value; one of a segment comes as the words of an error of the server."""
    words = str(error)
    if MARK in words:
        failure: Told = json.JSONDecoder().raw_decode(words[words.index(MARK) + len(MARK) :])[0]
        return failure
    return told_by(error)


def _predicted(session: Session, order: Told) -> int:
    remark = remark_of(order)
    place = place_of(session, order, remark)
    done = rows_in_remark(place.remark, remark)
    if done is not None:
        return done
    keys_of_segments = session.row(KEYS)
    brought_to = keys_of_segments[order["content"]]
    encoder = session.row(ENCODER, brought_to, order["dataset_id"])
    if encoder.objects is not None:
        raise NotAllowed("series and trees go in, and no table of rows holds them", hint="Call easeml.infer.")
    if order["probabilities"]:
        label_target(order["dataset"], encoder, hint="Leave out probabilities => true.")
    tables, columns, keys = _opened(session, order, encoder)
    needed = [columns[name] for name in _needed(keys, encoder)]
    key = f"(ARRAY[{', '.join(map(str, keys_of_segments))}])[gp_segment_id + 1] AS segment_key"
    staged = {column.name: column._replace(quoted=f"c{k}") for k, column in enumerate(needed)}
    taken = [key, *(f"{column.quoted} AS {staged[column.name].quoted}" for column in needed)]
    named = f"SELECT {', '.join(f'{staged[column.name].quoted} AS {column.quoted}' for column in needed)}"
    copied = [TenantTable(table.relation, table.name, table.name) for table in tables]
    with copied_rows(session, copied, taken, order["role"], place=session.row(LIKE_KEYS)) as copy:
        request = TableRequest(None, None, tables[0].relation, copy, place.name, order["probabilities"])
        filling = TableFilling(request, staged, encoder, [columns[name].quoted for name in keys])
        empty = filling.empty_sql(f"({named} FROM {copy}) copied")
        session.execute(f"CREATE TABLE {place.name} AS {empty} {tables[0].clause}")
        session.run(SORTED)
        command = Command(_fill_sql(filling, keys), ("text", "int8", "int4", "int8", "int8"), is_kept=False)
        values = (json.dumps(order), order["job_id"], brought_to, order["dataset_id"], order["checkpoint_id"])
        n_rows = session.run(command, *values)
    hand_over(session, place.name, order["role"], f"{remark}{n_rows} rows")
    return n_rows


def _needed(keys: Sequence[str], encoder: Encoder) -> list[str]:
    return list(dict.fromkeys([*keys, *(field.source for field in encoder.inputs)]))


def _opened(session: Session, order: Told, encoder: Encoder) -> tuple[list[ClusterTable], dict[str, Column], list[str]]:
    """Lock the tables; return them, the columns of the first, and the names of the columns that identify the row of a
    prediction, including the distribution columns, so that the output can be distributed alike.
    """
    sources = list(dict.fromkeys(field.source for field in encoder.inputs))
    opened = (open_table(session, name, order["role"], sources) for name in order["tables"])
    tables = [*{table.relation: table for table in opened}.values()]
    first = tables[0]
    columns = columns_of.read_columns(session, first.relation)
    named, _ = key_columns(session, first.relation, columns, encoder.inputs, order["key"])
    keys = list(dict.fromkeys([*named, *first.columns]))
    needed = _needed(keys, encoder)
    others = []
    for table in tables:
        table_columns = columns_of.read_columns(session, table.relation)
        columns_of.require(table_columns, keys, "key", table.name)
        check_rights(session, table.relation, table.name, order["role"], keys)
        others.append((table.name, {name: column.type for name, column in table_columns.items()}))
    check_same({name: columns[name].type for name in needed}, others[1:], first.name)
    check_types(first.name, columns, encoder.inputs)
    return tables, columns, keys


def _fill_sql(filling: TableFilling, keys: Sequence[str]) -> str:
    values = [value.replace("{schema}", NodeSession.schema) for _, value in filling.written.values()]
    return FILL.format(
        output=filling.wanted.output,
        written=", ".join([*(f"unnest(packed.k{k})" for k in range(len(keys))), *values]),
        kept=", ".join(f"z.k{k}" for k in range(len(keys))),
        key_arrays=", ".join(f"array_agg(s.{filling.columns[key].quoted}) AS k{k}" for k, key in enumerate(keys)),
        payload=filling.payload_sql(NodeSession.schema, is_by_column=True),
        texts=filling.texts_sql(),
        chunk_rows=filling.chunk_rows,
        staged=filling.wanted.source,
    )
