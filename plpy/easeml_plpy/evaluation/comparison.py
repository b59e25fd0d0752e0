"""Comparison of two trials of one dataset on rows that neither has learned from: may the later one replace the earlier
one?

They may be of different versions, whose encoders differ. The rows are test rows of the later trial's version, and the
earlier trial gets them in the codes of its own. Rows that the earlier trial's version does not have count; if these are
few, all rows that it did not train on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.encoder import Encoder, Field, LabelTarget, NumericField
from easeml_plpy.drift.bins import MISSING, UNKNOWN
from easeml_plpy.evaluation import classification, regression
from easeml_plpy.evaluation.answers import Block, Examined, blocks_of, examined_trial, paged_outputs, restored
from easeml_plpy.evaluation.scores import score_values
from easeml_plpy.prediction.serving import Served
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.session import Session, Statement
from easeml_plpy.server.value_types import Array
from easeml_plpy.units.outputs import measurable_on

FEW_ROWS = 30
MOST_ROWS, MOST_BYTES = 20_000, 256 << 20
EVERY_SPLIT, LEARNED = ("train", "validation", "test"), ("train", "validation")


class _Fresh(NamedTuple):
    is_fresh: list[bool]


# Of each test block of one version: which of its rows are in none of these splits of another.
FRESH = Statement(
    "SELECT array_agg(o.key IS NULL ORDER BY k.place) AS is_fresh FROM easeml.version_blocks b"
    " CROSS JOIN LATERAL unnest(coalesce(b.row_keys, b.row_hashes::text[])) WITH ORDINALITY k(key, place)"
    " LEFT JOIN (SELECT DISTINCT unnest(coalesce(w.row_keys, w.row_hashes::text[])) AS key FROM easeml.version_blocks w"
    " WHERE w.dataset_id = $2 AND w.split = ANY ($3)) o ON o.key = k.key"
    " WHERE b.dataset_id = $1 AND b.split = 'test' GROUP BY b.partition_number, b.block_number"
    " ORDER BY b.partition_number, b.block_number",
    ("int8", "int8", "text[]"),
    _Fresh,
)


@entry_point(returns_failure=True)
def compare_trials(
    session: Session, dataset: str | None, before_trial_id: int | None, after_trial_id: int | None
) -> tuple[float, float, int]:
    """Return the metric of both trials, and the number of rows. Raises NotAllowed if there are none."""
    before, after = (examined_trial(session, dataset, trial_id) for trial_id in (before_trial_id, after_trial_id))
    rows = _rows(session, before, after)
    encoders = [datasets.dataset(session, trial.dataset_id).encoder for trial in (before, after)]
    recoded = _recoded(encoders[1], encoders[0], rows.fields)
    outputs = [
        _in_classes_of(encoders[1], encoders[0], _outputs(session, before, recoded)),
        _outputs(session, after, rows.fields),
    ]
    values = [_value(after.metric, encoders[1], rows.targets, answers) for answers in outputs]
    return values[0], values[1], len(rows.targets)


class _Rows(NamedTuple):
    fields: list[Array]
    targets: Array


def _rows(session: Session, before: Examined, after: Examined) -> _Rows:
    """Return the rows that count, in the codes of the later version."""
    for splits in (EVERY_SPLIT, LEARNED):
        fresh = [stored.is_fresh for stored in session.rows(FRESH, after.dataset_id, before.dataset_id, list(splits))]
        if sum(map(sum, fresh)) >= FEW_ROWS:
            break
    chosen = list(_chosen(blocks_of(session, after, "test"), fresh))
    if not chosen:
        raise NotAllowed("there are no test rows that the trial that answers did not train on")
    parts = zip(*(block.fields for block in chosen), strict=True)
    return _Rows([np.concatenate(part) for part in parts], np.concatenate([block.targets for block in chosen]))


def _chosen(blocks: Iterator[Block], fresh: Sequence[Sequence[bool]]) -> Iterator[Block]:
    """Yield the fresh rows of blocks, up to a bound."""
    n_rows = n_bytes = 0
    for block, is_fresh in zip(blocks, fresh, strict=True):
        row_bytes = sum(part.nbytes for part in block.fields) // max(len(block.targets), 1)
        rows = np.flatnonzero(is_fresh)[: min(MOST_ROWS - n_rows, (MOST_BYTES - n_bytes) // max(row_bytes, 1))]
        n_rows, n_bytes = n_rows + len(rows), n_bytes + len(rows) * row_bytes
        if len(rows):
            yield block._replace(fields=[part[rows] for part in block.fields], targets=block.targets[rows])


def _outputs(session: Session, examined: Examined, fields: Sequence[Array]) -> Array:
    served: Served = restored(session, examined)
    return paged_outputs(replace(served, live=measurable_on("test", served.live)), fields)


def _recoded(encoder: Encoder, other: Encoder, fields: Sequence[Array]) -> list[Array]:
    """Return the fields of one version in the stored form of another. Raises NotAllowed if that is impossible."""
    of_column = {field.column: (field, values) for field, values in zip(encoder.inputs, fields, strict=True)}
    missing = [field.column for field in other.inputs if field.column not in of_column]
    if missing:
        raise NotAllowed(f"the version of the trial that answers has an input {missing[0]!r}, and this one has not")
    return [_recoded_field(*of_column[field.column], field) for field in other.inputs]


def _recoded_field(field: Field, values: Array, other: Field) -> Array:
    if isinstance(field, CategoricalField) and isinstance(other, CategoricalField):
        codes = np.array([other.codes.get(name, UNKNOWN) for name in field.categories] + [UNKNOWN, MISSING])
        n_known = len(other.categories)
        recoded = codes[values]  # MISSING is the last
        missing = MISSING if other.missing else n_known
        return np.where(recoded == UNKNOWN, n_known, np.where(recoded == MISSING, missing, recoded)).astype(np.int32)
    is_same_text = isinstance(field, TextField) and isinstance(other, TextField) and field.analyzer == other.analyzer
    if is_same_text and isinstance(other, TextField):
        width = max(other.width, values.shape[1])
        padded = np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=-1)
        return np.ascontiguousarray(padded[:, : other.width])
    if type(field) is type(other) and (isinstance(field, NumericField) or field.shape == other.shape):
        return values
    raise NotAllowed(f"input {field.column!r} has become something else since the version of the trial that answers")


def _in_classes_of(encoder: Encoder, other: Encoder, outputs: Array) -> Array:
    """Return probabilities of one version's classes as those of another's; a class unknown to the first has none."""
    if not isinstance(encoder.target, LabelTarget) or not isinstance(other.target, LabelTarget):
        return outputs
    probabilities = np.zeros((len(outputs), len(encoder.target.labels)))
    for place, label in enumerate(other.target.labels):
        if label in encoder.target.labels:
            probabilities[:, encoder.target.labels.index(label)] = outputs[:, place]
    return probabilities


def _value(metric: str, encoder: Encoder, targets: Array, outputs: Array) -> float:
    if isinstance(encoder.target, LabelTarget):
        answers = classification.ClassAnswers(targets, outputs.astype(np.float64))
        scores = [score for score in classification.SCORES if score.name == metric]
        return score_values(scores, answers)[metric]
    numbers = regression.NumberAnswers(targets.astype(np.float64), outputs[:, 0].astype(np.float64))
    return score_values([score for score in regression.SCORES if score.name == metric], numbers)[metric]
