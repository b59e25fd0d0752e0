"""Checks of a model file from elsewhere, before anything is built from it.

Its digest only shows that it is complete. The content may still be forged, so sizes, indices and names are checked, and
the trial has to predict a row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from easeml_plpy.architectures import Architecture, complete, fits
from easeml_plpy.columns.calendar_parts import PARTS
from easeml_plpy.columns.coded_fields import CategoricalField, TextField
from easeml_plpy.columns.columns import ARRAYS, MOST_INPUTS
from easeml_plpy.columns.encoder import Encoder, Field, LabelTarget, NumericField, TensorField, TensorTarget
from easeml_plpy.columns.encoding import encoded_shape, encoded_width
from easeml_plpy.columns.quantiles import n_positions
from easeml_plpy.columns.target_statistics import N_FOLDS
from easeml_plpy.columns.task import MAX_RANK, Task
from easeml_plpy.columns.tokens import ANALYZERS, MOST_TOKENS, N_HASHES
from easeml_plpy.files.model_file import ModelDocument, ModelFile
from easeml_plpy.metrics import METRICS
from easeml_plpy.packing.source_rows import MAX_LABELS
from easeml_plpy.packing.source_texts import ALL_CATEGORIES
from easeml_plpy.prediction.prediction import outputs_of
from easeml_plpy.prediction.serving import Served, within_memory
from easeml_plpy.row_forms.combined import parts_of
from easeml_plpy.row_forms.datasets import Dataset
from easeml_plpy.server.errors import CorruptCheckpoint, EasemlError, InvalidData
from easeml_plpy.server.value_types import Array
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers import answering_trial, architecture, trainer_for
from easeml_plpy.trainers.committee import member_states
from easeml_plpy.trainers.contract import Blueprint
from easeml_plpy.trainers.ensemble import names_of

MOST_NUMBERS = 1 << 22
"""The most numbers in an encoded row."""
MOST_EPOCHS = 1_000_000
MOST_FOLDS = 20
MEASURED = frozenset({*METRICS, "n_rows", "metric_value", "n_classes", "metric_error"})
BROKEN = (AttributeError, LookupError, OverflowError, RuntimeError, TypeError, ValueError)
"""Errors that reading unexpected content raises."""
HINT = "Export the trial again where it was trained."


def restored(file: ModelFile) -> Served:
    """Return the trial of a file, ready to answer. Raises InvalidData, CorruptCheckpoint and what restoring raises."""
    document = file.document
    data = Dataset(_encoder(document.encoder))
    chosen = architecture(document.architecture)
    _demand(chosen.entry_point is None, f"{chosen.name} is a registered architecture, which no file may name")
    _check_document(document, data.task())
    try:
        with within_memory():
            _check_state(chosen, document.config, data, file.state)
            live = answering_trial(chosen, document.config, data.task(chosen.view), file.state)
            served = Served(data, chosen.view, live, 0, len(file.state))
            outputs = outputs_of(served, [_blank(field) for field in data.encoder.inputs])
    except EasemlError:
        raise
    except BROKEN as error:
        raise CorruptCheckpoint("the state in the file is not one of its architecture", hint=HINT) from error
    if outputs.shape != (1, data.task().n_outputs) or not np.isfinite(outputs).all():
        raise CorruptCheckpoint("the trial in the file does not answer for a row", hint=HINT)
    return served


def _check_document(document: ModelDocument, task: Task) -> None:
    metric = METRICS.get(document.metric)
    _demand(metric is not None and metric.task == task.kind, f"there is no {task.kind} metric {document.metric[:40]!r}")
    _demand(
        metric is not None and metric.is_higher_better == document.is_higher_better, "the metric has two directions"
    )
    _demand(1 <= document.best_epoch <= MOST_EPOCHS, f"epoch {document.best_epoch} is none")
    _demand(document.metrics.keys() <= {"validation", "test"}, "metrics are of other splits")
    for values in document.metrics.values():
        _demand(values.keys() <= MEASURED and _is_count(values.get("n_rows")), "metrics have other names")
        _demand(all(value is None or _is_number(value) for value in values.values()), "a metric is no number")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12


# The encoder


def _encoder(entries: Mapping[str, Any]) -> Encoder:
    """Return the encoder of a document. Raises InvalidData."""
    try:
        encoder = Encoder.from_json(entries)
        _demand(_with_numbers(encoder.to_json()) == _with_numbers(entries), "the encoder has other entries")
        _check_encoder(encoder)
    except BROKEN as error:
        raise InvalidData("the file's encoder cannot be read", hint=HINT) from error
    return encoder


def _with_numbers(document: object) -> Any:
    """Return a document whose numbers are all floats: jsonb writes 1.5e18 as an integer, with other last digits."""
    return json.loads(json.dumps(document), parse_int=float)


def _check_encoder(encoder: Encoder) -> None:
    fields, target = encoder.inputs, encoder.target
    _demand(1 <= len(fields) <= MOST_INPUTS, f"the encoder has {len(fields)} inputs")
    for field in fields:
        place = (field.column, field.type, field.within if not isinstance(field, TensorField) else "")
        _demand(all(isinstance(text, str) and len(text) <= 1000 for text in place), "an input has no name")
        _check_field(field)
    _demand(sum(map(encoded_width, fields)) <= MOST_NUMBERS, "rows are too long")
    _demand(encoded_shape(fields) == encoder.input_shape, "input_shape is another one")
    _demand(type(encoder.n_folds) is int and 0 <= encoder.n_folds <= MOST_FOLDS, "folds are not a number of some")
    _demand(not isinstance(target, TensorTarget), "tensors come out, which no file of a trial can say")
    _demand(encoder.objects is None, "series or trees go in, which no file of a trial can say")
    _demand(isinstance(target.column, str) and isinstance(target.type, str), "the target has no name")
    if isinstance(target, LabelTarget):
        _demand(2 <= len(target.labels) <= MAX_LABELS and _are_texts(target.labels), "labels are no texts")
    else:
        _demand(_is_number(target.mean) and _is_number(target.scale) and target.scale > 0, "the target has no scale")


def _check_field(field: Field) -> None:
    if isinstance(field, CategoricalField):
        _demand(len(field.categories) <= ALL_CATEGORIES and _are_texts(field.categories), "categories are no texts")
        targets = field.targets
        _demand(targets is None or targets.counts.shape == (N_FOLDS, len(field.categories) + 1), "categories differ")
    elif isinstance(field, TextField):
        _demand(field.analyzer in ANALYZERS and 1 <= field.width <= MOST_TOKENS, "a text is cut in an unknown way")
        _demand(len(field.tokens) == len(field.weights) <= N_HASHES, "tokens have no weights")
        _demand(bool(np.isfinite(field.weights).all()), "a token has no weight")
    else:
        _check_numbers(field)
    _demand(all(type(place) is int and 0 <= place < math.prod(field.shape) for place in field.missing), "flags differ")


def _check_numbers(field: NumericField | TensorField) -> None:
    size = math.prod(field.shape)
    if isinstance(field, TensorField):
        _demand(1 <= len(field.shape) <= MAX_RANK and all(type(n) is int and n > 0 for n in field.shape), "no shape")
        _demand(field.wire in ("", *ARRAYS.values()) and 0 <= field.wire_rank <= 6, "an array has an unknown type")
    else:
        _demand(set(field.calendar) <= set(PARTS), "a time has unknown parts")
    _demand(size <= MOST_NUMBERS and field.mean.size == field.scale.size and field.mean.size in (1, size), "no moments")
    _demand(
        bool(np.isfinite(field.mean).all() and (field.scale > 0).all() and np.isfinite(field.scale).all()), "no scale"
    )
    _demand(len(field.knots) in (0, n_positions(field)), "knots are missing")
    _demand(all(knots.ndim == 1 and bool((np.diff(knots) >= 0).all()) for knots in field.knots), "knots do not ascend")


def _are_texts(texts: tuple[str, ...]) -> bool:
    return all(isinstance(text, str) for text in texts) and len(set(texts)) == len(texts)


def _blank(field: Field) -> Array:
    """Return the field of one row whose values are all unknown."""
    missing = bool(field.missing)
    if isinstance(field, CategoricalField):
        return np.array([-1 if missing else len(field.categories)], field.stored_type)
    if isinstance(field, TextField):
        return np.full((1, *field.shape), -1, field.stored_type)
    value = math.nan if missing and field.stored_type.kind == "f" else 0
    return np.full((1, *field.shape), value, field.stored_type)


# The state


def _check_state(chosen: Architecture, config: Mapping[str, Any], data: Dataset, state: bytes) -> None:
    task = data.task(chosen.view)
    reason = fits(chosen, task)
    _demand(reason is None, f"its architecture does not fit its encoder: {reason}")
    if chosen.is_derived:
        for member, payload in _members(state):
            base = architecture(member["architecture"])
            _demand(not base.is_derived, "an ensemble has an ensemble as a member")
            _demand(base.entry_point is None, f"{base.name} is a registered architecture, which no file may name")
            _demand(_is_number(member["weight"]) and _is_count(member["start"]), "a member has no weight")
            _demand(member["task"].get("n_folds", 0) == task.n_folds, "a member has other folds than its rows")
            _check_place(member, data, base.view)
            _check_state(base, member["config"], data, payload)
        return
    blueprint = Blueprint(chosen, complete(chosen, config), task)
    for payload in member_states(chosen, task, state) if task.n_folds else [state]:
        trainer_for(chosen.trainer).check_foreign(blueprint, payload)


def _check_place(member: Mapping[str, Any], data: Dataset, view: str) -> None:
    """Refuse a member of other rows than those of the encoder: it would be built as large as it says."""
    stated, expected = _with_numbers(member["task"]), _with_numbers(asdict(data.task(view)))
    _demand({**expected, **stated} == expected, "a member has another task than its rows")
    starts = {part.view.name: part.start for part in parts_of(data.encoder)}
    _demand(member["start"] == starts.get(data.view(view).name), "a member begins elsewhere than its view")


def _members(state: bytes) -> Iterator[tuple[Mapping[str, Any], bytes]]:
    """Yield the description of each member with each of its states, found by name as the ensemble finds them."""
    loaded = checkpoint.load(state)
    for member, names in zip(members := loaded.read("members", list), names_of(members), strict=True):
        for name in names:
            yield member, loaded.arrays[name].tobytes()


def _demand(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise InvalidData(f"the file says what cannot be: {otherwise}", hint=HINT)
