"""Answering with a trained trial: one row, or a whole table in batches.

`predict_packed` and `predict_*` run with the extension owner's rights, take values only, and ask
`easeml.serving_trial` at every call whether the caller may; `write_predictions` reads with the caller's rights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from . import cache
from . import columns as columns_of
from .architectures import architecture, complete
from .devices import bind
from .encoding import Fields, category_code, encode, fields_from_numbers, fields_from_values
from .errors import InvalidArgument, InvalidData, NotAllowed, ShapeMismatch
from .session import answering, entry_point, from_json, query
from .states import read_state
from .trainers import LiveTrial, trainer_for

Json = dict[str, Any]
Answer = tuple[str | None, float | None, float | None, int]
ROWS_AT_ONCE = 4096
N_SERVED = 8
LABELS = ["packed.labels", "packed.predicted_values"]


class Served:
    """A trial ready to answer."""

    def __init__(self, data: cache.Dataset, live: LiveTrial, trial_id: int) -> None:
        self.data, self.live, self.trial_id = data, live, trial_id

    def outputs(self, fields: Fields) -> np.ndarray[Any, Any]:
        """Probabilities (n, classes) or values in the target's units (n, 1)."""
        inputs = torch.from_numpy(encode(self.data.encoder, fields))
        return self.data.raw(self.live.outputs(inputs))

    def answer(self, fields: Fields) -> Answer:
        """(label, probability, value, trial) of one row; the label of a regression is its value as text."""
        outputs = self.outputs(fields)[0]
        if self.data.task.kind == "regression":
            value = float(outputs[0])
            return repr(value), None, value, self.trial_id
        best = int(outputs.argmax())
        return self.data.encoder["target"]["labels"][best], float(outputs[best]), None, self.trial_id


def served(plpy: Any, GD: Json, dataset: str, trial_id: int | None) -> Served:
    """Return the trial that answers for the caller, restored once a session. Raises what serving_trial refuses."""
    sql = "SELECT dataset_id, serving_trial_id, checkpoint_id FROM easeml.serving_trial($1, $2)"
    row = query(plpy, GD, sql, ["text", "int8"], [dataset, trial_id])[0]
    key = (row["dataset_id"], row["checkpoint_id"])
    bind("cpu", 1, None)  # one thread: many sessions predict at once
    chosen: Served = cache.bounded(GD, "served", N_SERVED).get(key, lambda: _restore(plpy, GD, row), lambda _: 1)
    return chosen


def _restore(plpy: Any, GD: Json, row: Mapping[str, Any]) -> Served:
    sql = "SELECT architecture, config FROM easeml.trials WHERE trial_id = $1"
    trial = query(plpy, GD, sql, ["int8"], [row["serving_trial_id"]])[0]
    data = cache.dataset(plpy, GD, row["dataset_id"])
    chosen = architecture(trial["architecture"])
    config = complete(chosen, json.loads(trial["config"]))
    state = read_state(plpy, GD, row["serving_trial_id"], row["checkpoint_id"])
    live = trainer_for(chosen.trainer).resume(chosen, config, data.task, state)
    return Served(data, live, row["serving_trial_id"])


@answering
def predict_json(plpy: Any, GD: Json, dataset: str, inputs: str | None, trial_id: int | None) -> Answer:
    """Predict for a row given as a JSON object of columns."""
    row = from_json(inputs)
    if not isinstance(row, dict):
        raise ShapeMismatch(
            f"inputs: expected a json object of columns, got {'NULL' if row is None else type(row).__name__}",
            hint="Give the whole row: easeml.predict(dataset, to_jsonb(t)).",
        )
    chosen = served(plpy, GD, dataset, trial_id)
    return chosen.answer(fields_from_values(chosen.data.encoder, row))


@answering
def predict_numbers(plpy: Any, GD: Json, dataset: str, inputs: list[Any] | None, trial_id: int | None) -> Answer:
    """Predict for a row given as numbers in the order of the inputs (NULL: missing)."""
    if inputs is None:
        raise ShapeMismatch("inputs: expected an array of numbers, got NULL")
    chosen = served(plpy, GD, dataset, trial_id)
    return chosen.answer(fields_from_numbers(chosen.data.encoder, np.array(inputs, dtype=np.float64)))


@answering
def predict_bytes(plpy: Any, GD: Json, dataset: str, inputs: bytes | None, trial_id: int | None) -> Answer:
    """Predict for an image given as 8-bit values."""
    if inputs is None:
        raise ShapeMismatch("inputs: expected bytea, got NULL")
    chosen = served(plpy, GD, dataset, trial_id)
    return chosen.answer(fields_from_numbers(chosen.data.encoder, np.frombuffer(inputs, np.uint8)))


@entry_point
def predict_packed(
    plpy: Any,
    GD: Json,
    dataset: str,
    trial_id: int | None,
    n_rows: int,
    payload: bytes,
    texts: list[str | None] | None,
) -> tuple[Any, ...]:
    """Predict for many rows: return (labels, probabilities or values, trial).

    payload: the numbers and arrays of each row as `record_send` writes them; texts: the categorical inputs, one
    column after another (so that the caller need not know the owner's categories).
    """
    chosen = served(plpy, GD, dataset, trial_id)
    inputs = chosen.data.encoder["inputs"]
    try:
        decoded, _ = columns_of.decode_rows(
            [field for field in inputs if field["kind"] != "categorical"], None, payload, n_rows
        )
    except InvalidData as error:
        raise ShapeMismatch(
            str(error.message),
            detail=error.detail,
            hint="Rows must have the shape that the data set was made with.",
        ) from error
    numbers, columns = iter(decoded), iter(np.array(texts or [], dtype=object).reshape(-1, n_rows))
    fields = [_codes(field, next(columns)) if field["kind"] == "categorical" else next(numbers) for field in inputs]
    outputs = np.concatenate(
        [chosen.outputs([part[i : i + ROWS_AT_ONCE] for part in fields]) for i in range(0, n_rows, ROWS_AT_ONCE)]
    )
    if chosen.data.task.kind == "regression":
        return None, outputs[:, 0].tolist(), chosen.trial_id
    best = outputs.argmax(axis=1)
    labels = chosen.data.encoder["target"]["labels"]
    return (
        [labels[code] for code in best.tolist()],
        outputs[np.arange(n_rows), best].tolist(),
        chosen.trial_id,
    )


def _codes(field: Json, values: Any) -> np.ndarray[Any, Any]:
    codes = {value: category_code(field, value) for value in set(values)}
    return np.array([codes[value] for value in values], np.int32)


# One statement over the whole source: some thousand rows at a time are packed, predicted and written with their keys.
FILL = """
INSERT INTO {output}
SELECT u.*
FROM generate_series(0, {n_pages}, {step}) AS page
CROSS JOIN LATERAL (
    SELECT count(*)::int AS n, string_agg(record_send(ROW({numbers})), ''::bytea) AS payload,
        {texts} AS texts{key_arrays}
    FROM {relation} WHERE ctid >= format('(%s,0)', page)::tid AND ctid < format('(%s,0)', page + {step})::tid
) AS chunk
CROSS JOIN LATERAL easeml.predict_packed($1, $2, chunk.n, chunk.payload, chunk.texts) AS packed
CROSS JOIN LATERAL unnest({columns}) AS u
WHERE chunk.n > 0
"""

PRIMARY_KEY = """
SELECT a.attname AS column
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = $1 AND i.indisprimary ORDER BY array_position(i.indkey, a.attnum)
"""

OUTPUT_NAME = """
SELECT to_regclass($1) IS NOT NULL AS is_taken,
    (SELECT string_agg(quote_ident(part), '.') FROM unnest(parse_ident($1)) AS part) AS name
"""


@answering
def write_predictions(plpy: Any, GD: Json, request: str) -> int:
    """Create the output table and fill it in one statement; return the number of rows.

    Neither rows nor keys pass through Python one by one.
    """
    wanted = from_json(request)
    plan = plpy.prepare("SELECT easeml.serving_encoder($1, $2) AS encoder", ["text", "int8"])
    encoder = json.loads(plpy.execute(plan, [wanted["dataset"], wanted["trial_id"]])[0]["encoder"])
    inputs = encoder["inputs"]
    columns = columns_of.read_columns(plpy, wanted["relation"])
    columns_of.require(columns, [field["column"] for field in inputs], "source", wanted["source"])
    _check_types(wanted, columns, inputs)
    keys = [columns[key]["quoted"] for key in _key_columns(plpy, wanted["relation"], columns, inputs)]
    output = _create_output(plpy, wanted, keys, encoder["task"])
    relation = _scannable(plpy, wanted)
    predictions = ["packed.predicted_values"] if encoder["task"] == "regression" else LABELS
    sql = FILL.format(
        output=output,
        relation=relation,
        columns=", ".join([*(f"chunk.k{i}" for i in range(len(keys))), *predictions]),
        key_arrays="".join(f", array_agg({key}) AS k{i}" for i, key in enumerate(keys)),
        **_inputs_sql(columns, inputs),
        **_pages(plpy, relation),
    )
    n_rows: int = plpy.execute(plpy.prepare(sql, ["text", "int8"]), [wanted["dataset"], wanted["trial_id"]]).nrows()
    if relation != wanted["source"]:
        plpy.execute(f"DROP TABLE {relation}")
    return n_rows


def _key_columns(plpy: Any, relation: int, columns: Json, inputs: Sequence[Json]) -> list[str]:
    """The primary key's columns, or every column that is no input and no array."""
    keys = [row["column"] for row in plpy.execute(plpy.prepare(PRIMARY_KEY, ["oid"]), [relation])]
    used = {field["column"] for field in inputs}
    return keys or [name for name, column in columns.items() if name not in used and not column["type"].startswith("_")]


def _create_output(plpy: Any, wanted: Json, keys: Sequence[str], task: str) -> str:
    """Create the empty output table; return its quoted name."""
    if wanted["output"] is None:
        raise InvalidArgument("output: expected the name of a new table, got NULL")
    found = plpy.execute(plpy.prepare(OUTPUT_NAME, ["text"]), [wanted["output"]])[0]
    if found["is_taken"]:
        raise NotAllowed(f"output: {wanted['output']} exists already", hint="Drop it, or give another name.")
    name: str = found["name"]
    label = "NULL::text AS predicted_label, NULL::double precision AS probability"
    predicted = "NULL::double precision AS predicted_value" if task == "regression" else label
    plpy.execute(f"CREATE TABLE {name} AS SELECT {', '.join([*keys, predicted])} FROM {wanted['source']} LIMIT 0")
    return name


def _scannable(plpy: Any, wanted: Json) -> str:
    """Name of a relation that can be read by page: the source, or a temporary copy of a view or of many tables."""
    sql = (
        "SELECT c.relkind IN ('r', 'm') AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = c.oid)"
        " AS has_pages FROM pg_catalog.pg_class c WHERE c.oid = $1"
    )
    if plpy.execute(plpy.prepare(sql, ["oid"]), [wanted["relation"]])[0]["has_pages"]:
        source: str = wanted["source"]
        return source
    plpy.execute(f"CREATE TEMPORARY TABLE easeml_source ON COMMIT DROP AS SELECT * FROM {wanted['source']}")
    return "pg_temp.easeml_source"


def _pages(plpy: Any, relation: str) -> dict[str, int]:
    """How many pages there are, and how many hold about ROWS_AT_ONCE rows."""
    sql = f"SELECT pg_relation_size($1) / 8192 AS n_pages, (SELECT count(*) FROM {relation}) AS n_rows"
    size = plpy.execute(plpy.prepare(sql, ["regclass"]), [relation])[0]
    return {"n_pages": size["n_pages"], "step": max(1, size["n_pages"] * ROWS_AT_ONCE // max(size["n_rows"], 1))}


def _check_types(wanted: Json, columns: Json, inputs: Sequence[Json]) -> None:
    """Refuse a column whose type is of another kind than that of the data set."""
    for field in inputs:
        column = columns[field["column"]]
        now = columns_of.input_field(column)
        if (now["kind"], now["type"] == "bytea") != (field["kind"], field["type"] == "bytea"):
            raise ShapeMismatch(
                f"source: column {field['column']!r} of {wanted['source']} has type {column['type']}",
                detail=f"The data set was made from {field['type']}.",
            )


def _inputs_sql(columns: Json, inputs: Sequence[Json]) -> dict[str, str]:
    """SQL of what goes into the packed rows, and of the categorical columns, one after another."""
    numbers = [_number_sql(columns[field["column"]], field) for field in inputs if field["kind"] != "categorical"]
    texts = [columns[field["column"]]["quoted"] for field in inputs if field["kind"] == "categorical"]
    arrays = " || ".join(f"array_agg({text}::text)" for text in texts)
    return {"numbers": ", ".join(numbers), "texts": arrays or "NULL::text[]"}


def _number_sql(column: Json, field: Json) -> str:
    """SQL of a number or array in the very type that the data set's rows were sent in."""
    if field["kind"] == "numeric":
        return columns_of.send_sql(field, columns_of.value_sql(columns_of.input_field(column), column["quoted"]), "")
    if field["type"] == "bytea":
        return str(column["quoted"])
    element = {"i2": "int2", "i4": "int4", "f4": "float4", "f8": "float8"}[field["wire"]]
    array = f"({columns_of.value_sql(columns_of.input_field(column), column['quoted'])})::{element}[]"
    if field["missing"]:
        size = int(np.prod(field["shape"]))
        array = f"coalesce(array_replace({array}, NULL, 'NaN'), array_fill('NaN'::float8, ARRAY[{size}]))"
    return columns_of.send_sql(field, array, "")
