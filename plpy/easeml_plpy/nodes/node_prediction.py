"""On a node: prediction for its tables, with a state that the control server has sent.

The tables are read under the rules of packing: only plain tables that a role of the asker's name may read. The output
is a new table, so that no trigger runs with the rights of the service.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.columns import Columns
from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.columns.task import Task
from easeml_plpy.packing.on_nodes.tables import check_same, may_read, open_table
from easeml_plpy.packing.on_nodes.tenant_rows import copied_rows
from easeml_plpy.prediction.prediction import FILLING
from easeml_plpy.prediction.prediction_outputs import key_columns
from easeml_plpy.prediction.probabilities import label_target
from easeml_plpy.prediction.serving import MEMORY, Served, within_memory
from easeml_plpy.prediction.table_prediction import TableFilling, TableRequest, check_types
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.devices import bind
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidArgument, NotAllowed
from easeml_plpy.server.identifiers import schema_and_name
from easeml_plpy.server.memory import slot_share
from easeml_plpy.server.session import NodeSession, Session, Statement, only_column
from easeml_plpy.server.value_types import JSON, Told
from easeml_plpy.states.states import read_state
from easeml_plpy.trainers import answering_trial, architecture
from easeml_plpy.trainers.contract import AnsweringTrial

Restore: TypeAlias = Callable[[str, Mapping[str, JSON], Task, bytes], AnsweringTrial]


class _Place(NamedTuple):
    """The place of the output: its name quoted for SQL, the rights there, and what exists there already."""

    name: str
    is_schema: bool
    is_open: bool
    is_ours_too: bool
    is_taken: bool
    remark: str | None


PLACE = Statement(
    """
SELECT format('%I.%I', p.schema, p.name) AS name, n.oid IS NOT NULL AS is_schema,
    coalesce(has_schema_privilege(r.oid, n.oid, 'CREATE'), false) AS is_open,
    coalesce(has_schema_privilege(n.oid, 'CREATE'), false) AS is_ours_too, c.oid IS NOT NULL AS is_taken,
    CASE c.relkind WHEN 'r' THEN obj_description(c.oid, 'pg_class') END AS remark
FROM (VALUES ($1, $2)) p (schema, name) LEFT JOIN pg_roles r ON r.rolname = $3
LEFT JOIN pg_namespace n ON n.nspname = p.schema LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.name
""",
    ("text", "text", "text"),
    _Place,
)
RELATION: Statement[int] = Statement("SELECT to_regclass($1)::oid::bigint AS oid", ("text",), only_column)
QUOTED: Statement[str] = Statement("SELECT quote_ident($1) AS name", ("text",), only_column)
LITERAL: Statement[str] = Statement("SELECT quote_literal($1) AS text", ("text",), only_column)


def job_limit_bytes(session: Session, order: Told) -> int:
    """Return the memory limit of a job here: that of a slot of this node, at most that of a predicting session."""
    limit: int = order["limit"]["memory_limit_bytes"] or slot_share(order["limit"]["n_slots"])
    session_limit = session.kept(MEMORY)
    return limit if session_limit is None else min(limit, session_limit)


def trial_on_node(session: Session, order: Told, restore: Restore) -> Served:
    """Return a trial whose state was sent here, ready to answer. Raises CorruptCheckpoint."""
    data = datasets.dataset(session, order["dataset_id"])
    view = architecture(order["architecture"]).view
    with within_memory():
        state = read_state(session, order["trial_id"], order["checkpoint_id"])
        live = restore(order["architecture"], order["config"], data.task(view), state)
    return Served(data, view, live, order["trial_id"], len(state))


@entry_point(of=NodeSession)
def predict_on_node(session: Session, told: str) -> str:
    """Write the output, and return JSON {"n_rows"}; an output that this job has written before stays unchanged."""
    order = json.loads(told)
    bind("cpu", 1, job_limit_bytes(session, order))
    remark = remark_of(order)
    place = place_of(session, order, remark)
    done = rows_in_remark(place.remark, remark)
    if done is not None:
        return json.dumps({"n_rows": done})
    filling = session.kept(FILLING)
    filling.served = trial_on_node(session, order, to_answer)
    n_rows = _predict(session, order, place.name, filling.served.data.encoder)
    hand_over(session, place.name, order["role"], f"{remark}{n_rows} rows")
    return json.dumps({"n_rows": n_rows})


def to_answer(name: str, config: Mapping[str, JSON], task: Task, state: bytes) -> AnsweringTrial:
    """Return the trial in the form of easeml.predict_table: for prediction only."""
    return answering_trial(architecture(name), config, task, state)


def remark_of(order: Told) -> str:
    """Return how the remark on an output begins, by which a job knows it again."""
    return f"Predictions of trial {order['trial_id']} of dataset {order['dataset']}, job {order['job_id']} of easeml: "


def rows_in_remark(remark: str | None, ours: str) -> int | None:
    """Return the number of rows of the existing output; None if it does not belong to this job."""
    return int(remark.removeprefix(ours).split()[0]) if remark is not None and remark.startswith(ours) else None


def place_of(session: Session, order: Told, remark: str) -> _Place:
    """Return where the output goes. Raises NotAllowed, InvalidArgument."""
    place = session.row(PLACE, *schema_and_name(order["output"]), order["role"])
    schema = place.name.partition(".")[0]
    if not place.is_schema:
        raise InvalidArgument(f"output: there is no schema {schema}", hint="Make it on each node, or name another.")
    if not place.is_open:
        raise NotAllowed(
            f"role {order['role']} may make no table in schema {schema}", hint="GRANT CREATE ON SCHEMA to it, there."
        )
    if not place.is_ours_too:
        raise NotAllowed(
            f"the service may make no table in schema {schema}",
            hint="On that server, GRANT CREATE ON SCHEMA to the role that the service names.",
        )
    if place.is_taken and not (place.remark or "").startswith(remark):
        raise NotAllowed(f"output: {place.name} exists already", hint="Drop it there, or give another name.")
    return place


def _predict(session: Session, order: Told, output: str, encoder: Encoder) -> int:
    """Fill the output; return the number of rows."""
    if encoder.objects is not None:
        raise NotAllowed("series and trees go in, and no table of rows holds them", hint="Call easeml.infer.")
    if order["probabilities"]:
        label_target(order["dataset"], encoder, hint="Leave out probabilities => true.")
    sources = list(dict.fromkeys(field.source for field in encoder.inputs))
    tables = {name: open_table(session, name, order["role"], sources) for name in order["tables"]}
    first = next(iter(tables))
    columns = columns_of.read_columns(session, session.row(RELATION, first))
    keys = _keys(session, order, columns, encoder, tuple(tables))
    needed = list(dict.fromkeys([*keys, *sources]))
    check_types(first, columns, encoder.inputs)
    opened, quoted = [table for table, _ in tables.values()], [columns[name].quoted for name in needed]
    with copied_rows(session, opened, quoted, order["role"]) as source:
        relation = session.row(RELATION, source)
        request = TableRequest(None, order["trial_id"], relation, source, output, order["probabilities"])
        filling = TableFilling(request, columns, encoder, [columns[name].quoted for name in keys])
        return filling.fill(session, source, output)


def _keys(session: Session, order: Told, columns: Columns, encoder: Encoder, tables: Sequence[str]) -> list[str]:
    """Return the columns that say which row a prediction is for; the role may read them in each table."""
    keys, _ = key_columns(session, session.row(RELATION, tables[0]), columns, encoder.inputs, order["key"])
    types = {name: column.type for name, column in columns.items()}
    for table in tables:
        may_read(session, table, order["role"], keys)
    others = [(table, columns_of.read_columns(session, session.row(RELATION, table))) for table in tables[1:]]
    for table, table_columns in others:
        columns_of.require(table_columns, [*keys], "key", table)
    needed = {*keys, *(field.source for field in encoder.inputs)}
    check_same(
        {name: types[name] for name in needed},
        [(table, {name: column.type for name, column in table_columns.items()}) for table, table_columns in others],
        tables[0],
    )
    return keys


def hand_over(session: Session, output: str, role: str, remark: str) -> None:
    """Give the role all rights on the output. The service is no member of a tenant's role, so it remains the owner."""
    session.execute(f"COMMENT ON TABLE {output} IS {session.row(LITERAL, remark)}")
    session.execute(f"GRANT ALL ON {output} TO {session.row(QUOTED, role)}")
