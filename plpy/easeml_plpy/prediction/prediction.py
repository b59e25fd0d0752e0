"""Prediction with a trained trial: for one row, or for packed rows in batches.

All entry points here run with the caller's rights. The trial comes from `serving`, which checks who calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.clipping import clipped_inputs
from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.encoder import Field, LabelTarget, Target, TensorTarget
from easeml_plpy.columns.one_row_math import RowNumbers
from easeml_plpy.columns.sent_columns import decode_payload
from easeml_plpy.prediction.client_row import (
    coded,
    fields_from_numbers,
    fields_from_values,
    numbers_of_array,
    row_of_text,
)
from easeml_plpy.prediction.serving import Served, served, within_memory
from easeml_plpy.server.chunks import ANSWER_ROWS
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidData, NotAllowed, ShapeMismatch
from easeml_plpy.server.session import Kept, NodeSession, Session
from easeml_plpy.server.value_types import Array

Answer: TypeAlias = tuple[str | None, float | None, float | None, int, list[str] | None]
"""(label, probability, value, trial, clipped inputs) of one row; the label of a regression is its value as text."""
Answers: TypeAlias = tuple[str | None, str | None, bytes, str | None, int]
"""(labels, what stands between them, their probabilities or values as float64, probabilities of all classes as a JSON
array where they are asked for, trial) of many rows; a regression has no labels. PL/Python would turn each element of a
list into text, for the server to read."""


class Filling:
    """Whether easeml.predict_table is filling a table now, because packed rows are answered only then; and whether with
    the probabilities of all classes. On a node it also holds the trial.
    """

    is_on = False
    has_probabilities = False
    served: Served | None = None


FILLING: Kept[Filling] = Kept(Filling)


def outputs_of(served: Served, fields: Sequence[Array]) -> Array:
    """Return probabilities (n, classes) or values in the target's units (n, 1). Raises ShapeMismatch."""
    check_finite(served.data.encoder.inputs, fields)
    with within_memory():
        inputs = served.data.encode(served.view, fields)
        return served.data.raw(served.live.outputs(inputs))


def check_finite(inputs: Sequence[Field], fields: Sequence[Array]) -> None:
    """Refuse infinite numbers, which no training row had; NaN is a missing number."""
    if isinstance(fields, RowNumbers) and fields.are_finite():
        return
    if (
        len(fields[0]) == 1
        and np.isfinite(np.concatenate([numbers if numbers.ndim == 1 else numbers.ravel() for numbers in fields])).all()
    ):
        return  # of a row most numbers are, and one look is enough
    for field, values in zip(inputs, fields, strict=True):
        if values.dtype.kind == "f" and np.isinf(values).any():
            n_rows = int(np.isinf(values.reshape(len(values), -1)).any(axis=1).sum())
            raise ShapeMismatch(
                f"input {field.column!r}: expected finite numbers, got an infinite one"
                + (f" in {n_rows} rows" if len(values) > 1 else ""),
                hint="Give NULL for a number that is not known; any finite number will do.",
            )


def answer(served: Served, fields: Sequence[Array]) -> Answer:
    """Answer for one row."""
    encoder = served.data.encoder
    target = encoder.target
    _refuse_tensors(target)
    outputs = outputs_of(served, fields)[0]
    clipped = clipped_inputs(encoder.inputs, encoder.row_bounds, fields)
    if not isinstance(target, LabelTarget):
        value = float(outputs[0])
        return repr(value), None, value, served.trial_id, clipped
    best = int(outputs.argmax())
    return target.labels[best], float(outputs[best]), None, served.trial_id, clipped


def _refuse_tensors(target: Target) -> None:
    if isinstance(target, TensorTarget):
        raise NotAllowed("tensors come out, which easeml.predict cannot return", hint="Call easeml.infer.")


def answers(served: Served, fields: Sequence[Array], n_rows: int, *, has_probabilities: bool) -> Answers:
    """Answer for many rows."""
    _refuse_tensors(served.data.encoder.target)
    pages = ([part[i : i + ANSWER_ROWS] for part in fields] for i in range(0, n_rows, ANSWER_ROWS))
    outputs = np.concatenate([outputs_of(served, page) for page in pages])
    target = served.data.encoder.target
    if not isinstance(target, LabelTarget):
        return None, None, _bytes_of(outputs[:, 0]), None, served.trial_id
    best = outputs.argmax(axis=1)
    labels = target.separator.join(map(target.labels.__getitem__, best.tolist()))
    every = json.dumps(by_label(target, outputs)) if has_probabilities else None
    return labels, target.separator, _bytes_of(outputs[np.arange(n_rows), best]), every, served.trial_id


def by_label(target: LabelTarget, outputs: Array) -> list[dict[str, float]]:
    """Return the probabilities of rows (n, classes) by label."""
    return [dict(zip(target.labels, row, strict=True)) for row in outputs.tolist()]


def _bytes_of(numbers: Array) -> bytes:
    return numbers.astype(np.float64).tobytes()


@entry_point(returns_failure=True)
def predict_json(session: Session, dataset: str, inputs: str | None, trial_id: int | None) -> Answer:
    """Predict for a row given as the text of a JSON object of columns."""
    chosen = served(session, dataset, trial_id)
    encoder = chosen.data.encoder
    return answer(chosen, fields_from_values(encoder, row_of_text(inputs, encoder)))


@entry_point(returns_failure=True)
def predict_numbers(session: Session, dataset: str, inputs: bytes | None, trial_id: int | None) -> Answer:
    """Predict for a row given as numbers in the order of the inputs (NULL: missing), as the server stores an array."""
    if inputs is None:
        raise ShapeMismatch("inputs: expected an array of numbers, got NULL")
    numbers = numbers_of_array(inputs)
    chosen = served(session, dataset, trial_id)
    return answer(chosen, fields_from_numbers(chosen.data.encoder, numbers))


@entry_point(returns_failure=True)
def predict_bytes(session: Session, dataset: str, inputs: bytes | None, trial_id: int | None) -> Answer:
    """Predict for an image given as 8-bit values."""
    if inputs is None:
        raise ShapeMismatch("inputs: expected bytea, got NULL")
    chosen = served(session, dataset, trial_id)
    return answer(chosen, fields_from_numbers(chosen.data.encoder, np.frombuffer(inputs, np.uint8)))


@entry_point(for_tenants=True)
def predict_packed(
    session: Session,
    dataset: str,
    trial_id: int | None,
    n_rows: int,
    payload: bytes | None,
    texts: str | None,
) -> Answers:
    """Predict for many rows.

    payload: the numbers and arrays as sent_columns.py has them sent; texts: the inputs that are texts as a JSON array,
    one column after another (so that the caller need not know the owner's categories).
    """
    filling = session.kept(FILLING)
    if not filling.is_on:
        raise NotAllowed("easeml.predict_packed cannot be called directly", hint="Call easeml.predict_table.")
    return _packed_answers(served(session, dataset, trial_id), filling, n_rows, payload, texts)


@entry_point(of=NodeSession)
def predict_packed_on_node(
    session: Session,
    dataset: str | None,
    trial_id: int | None,
    n_rows: int,
    payload: bytes | None,
    texts: str | None,
) -> Answers:
    """Predict for many rows within easeml_segment.predict_on_node, with its trial."""
    filling = session.kept(FILLING)
    if not filling.is_on or filling.served is None:
        raise NotAllowed("easeml_segment.predict_packed_on_node cannot be called directly")
    return _packed_answers(filling.served, filling, n_rows, payload, texts)


def _packed_answers(chosen: Served, filling: Filling, n_rows: int, payload: bytes | None, texts: str | None) -> Answers:
    fields = packed_fields(chosen.data.encoder.inputs, n_rows, payload, texts)
    return answers(chosen, fields, n_rows, has_probabilities=filling.has_probabilities)


def packed_fields(
    inputs: Sequence[Field], n_rows: int, payload: bytes | None, texts: str | None, *, is_by_column: bool = False
) -> list[Array]:
    """Return the fields of packed rows. Raises ShapeMismatch."""
    sent = iter(_numbers(inputs, payload, n_rows, is_by_column=is_by_column))
    n_texts = sum(isinstance(field, CategoricalField | TextField) for field in inputs)
    columns = iter(columns_of.text_columns(texts, n_texts, n_rows))
    return [
        coded(field, next(columns)) if isinstance(field, CategoricalField | TextField) else next(sent)
        for field in inputs
    ]


def _numbers(inputs: Sequence[Field], payload: bytes | None, n_rows: int, *, is_by_column: bool) -> list[Array]:
    """Return the fields of the columns that are no texts. Raises ShapeMismatch."""
    sent = [field for field in inputs if not isinstance(field, CategoricalField | TextField)]
    try:
        return decode_payload(sent, payload, n_rows, is_by_column=is_by_column)
    except InvalidData as error:
        raise ShapeMismatch(
            str(error.message),
            detail=error.detail,
            hint="Rows must have the shape that the dataset was made with.",
        ) from error
