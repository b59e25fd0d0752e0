"""Answering with a trained trial: one row, or packed rows in batches.

All entry points here run with the extension owner's rights and take values only. They ask `easeml.serving_trial` at
every call whether the caller may use the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from . import columns as columns_of
from . import datasets
from .cache import Bounded
from .devices import bind
from .encoder import CategoricalField, Field, LabelTarget
from .encoding import encode
from .errors import InvalidData, ShapeMismatch
from .live_trials import resumed_trial
from .row_values import category_code, fields_from_numbers, fields_from_values
from .session import Kept, Session, Statement, answering, tenant_entry_point
from .states import read_state
from .trainers import LiveTrial
from .value_types import JSON, Array

Answer: TypeAlias = tuple[str | None, float | None, float | None, int]
"""(label, probability, value, trial) of one row; the label of a regression is its value as text."""
Answers: TypeAlias = tuple[list[str] | None, list[float], int]
"""(labels, probabilities or values, trial) of many rows; a regression has no labels."""

ROWS_AT_ONCE = 4096
N_SERVED = 8


class _Serving(NamedTuple):
    """Which trial answers, and with which state."""

    dataset_id: int
    serving_trial_id: int
    checkpoint_id: int


class _Trial(NamedTuple):
    architecture: str
    config: str


SERVING_TRIAL = Statement(
    "SELECT dataset_id, serving_trial_id, checkpoint_id FROM easeml.serving_trial($1, $2)", ("text", "int8"), _Serving
)
TRIAL = Statement("SELECT architecture, config FROM easeml.trials WHERE trial_id = $1", ("int8",), _Trial)


@dataclass(frozen=True)
class Served:
    """A trial ready to answer."""

    data: datasets.Dataset
    live: LiveTrial
    trial_id: int

    def outputs(self, fields: Sequence[Array]) -> Array:
        """Return probabilities (n, classes) or values in the target's units (n, 1)."""
        inputs = torch.from_numpy(encode(self.data.encoder, fields))
        return self.data.raw(self.live.outputs(inputs))

    def answer(self, fields: Sequence[Array]) -> Answer:
        """Answer for one row."""
        outputs = self.outputs(fields)[0]
        target = self.data.encoder.target
        if not isinstance(target, LabelTarget):
            value = float(outputs[0])
            return repr(value), None, value, self.trial_id
        best = int(outputs.argmax())
        return target.labels[best], float(outputs[best]), None, self.trial_id

    def answers(self, fields: Sequence[Array], n_rows: int) -> Answers:
        """Answer for many rows."""
        pages = ([part[i : i + ROWS_AT_ONCE] for part in fields] for i in range(0, n_rows, ROWS_AT_ONCE))
        outputs = np.concatenate([self.outputs(page) for page in pages])
        target = self.data.encoder.target
        if not isinstance(target, LabelTarget):
            return None, outputs[:, 0].tolist(), self.trial_id
        best = outputs.argmax(axis=1)
        labels = [target.labels[code] for code in best.tolist()]
        return labels, outputs[np.arange(n_rows), best].tolist(), self.trial_id


SERVED: Kept[Bounded[Served]] = Kept(lambda: Bounded(N_SERVED))


def served(session: Session, dataset: str, trial_id: int | None) -> Served:
    """Return the trial that answers for the caller, restored once a session. Raises what serving_trial refuses."""
    serving = session.row(SERVING_TRIAL, dataset, trial_id)
    bind("cpu", 1, None)  # one thread: many sessions predict at once
    key = (serving.dataset_id, serving.checkpoint_id)
    return session.kept(SERVED).get(key, lambda: _restored(session, serving))


def _restored(session: Session, serving: _Serving) -> Served:
    trial = session.row(TRIAL, serving.serving_trial_id)
    data = datasets.dataset(session, serving.dataset_id)
    state = read_state(session, serving.serving_trial_id, serving.checkpoint_id)
    live = resumed_trial(trial.architecture, json.loads(trial.config), data.task, state)
    return Served(data, live, serving.serving_trial_id)


@answering
def predict_json(session: Session, dataset: str, inputs: str | None, trial_id: int | None) -> Answer:
    """Predict for a row given as a JSON object of columns."""
    row: JSON = None if inputs is None else json.loads(inputs)
    if not isinstance(row, dict):
        raise ShapeMismatch(
            f"inputs: expected a json object of columns, got {'NULL' if row is None else type(row).__name__}",
            hint="Give the whole row: easeml.predict(dataset, to_jsonb(t)).",
        )
    chosen = served(session, dataset, trial_id)
    return chosen.answer(fields_from_values(chosen.data.encoder, row))


@answering
def predict_numbers(
    session: Session, dataset: str, inputs: Sequence[float | None] | None, trial_id: int | None
) -> Answer:
    """Predict for a row given as numbers in the order of the inputs (NULL: missing)."""
    if inputs is None:
        raise ShapeMismatch("inputs: expected an array of numbers, got NULL")
    chosen = served(session, dataset, trial_id)
    return chosen.answer(fields_from_numbers(chosen.data.encoder, np.array(inputs, dtype=np.float64)))


@answering
def predict_bytes(session: Session, dataset: str, inputs: bytes | None, trial_id: int | None) -> Answer:
    """Predict for an image given as 8-bit values."""
    if inputs is None:
        raise ShapeMismatch("inputs: expected bytea, got NULL")
    chosen = served(session, dataset, trial_id)
    return chosen.answer(fields_from_numbers(chosen.data.encoder, np.frombuffer(inputs, np.uint8)))


@tenant_entry_point
def predict_packed(
    session: Session,
    dataset: str,
    trial_id: int | None,
    n_rows: int,
    payload: bytes,
    texts: list[str | None] | None,
) -> Answers:
    """Predict for many rows: return (labels, probabilities or values, trial).

    payload: the numbers and arrays of each row as `record_send` writes them; texts: the categorical inputs, one
    column after another (so that the caller need not know the owner's categories).
    """
    chosen = served(session, dataset, trial_id)
    inputs = chosen.data.encoder.inputs
    columns = iter([(texts or [])[start : start + n_rows] for start in range(0, len(texts or []), n_rows)])
    numbers = iter(_numbers(inputs, payload, n_rows))
    fields = [
        _codes(field, next(columns)) if isinstance(field, CategoricalField) else next(numbers) for field in inputs
    ]
    return chosen.answers(fields, n_rows)


def _numbers(inputs: Sequence[Field], payload: bytes, n_rows: int) -> list[Array]:
    """Return the fields of the columns that are no categories. Raises ShapeMismatch."""
    sent = [field for field in inputs if not isinstance(field, CategoricalField)]
    try:
        return columns_of.decode_rows(sent, payload, n_rows)
    except InvalidData as error:
        raise ShapeMismatch(
            str(error.message),
            detail=error.detail,
            hint="Rows must have the shape that the dataset was made with.",
        ) from error


def _codes(field: CategoricalField, values: Sequence[str | None]) -> Array:
    codes = {value: category_code(field, value) for value in set(values)}
    return np.array([codes[value] for value in values], field.stored_type)
