"""The probabilities of all classes, from the trial that answers predictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from easeml_plpy.columns.encoder import Encoder, LabelTarget
from easeml_plpy.prediction.client_row import fields_from_numbers, fields_from_values, numbers_of_array, row_of_text
from easeml_plpy.prediction.prediction import by_label, outputs_of
from easeml_plpy.prediction.serving import served
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotAllowed, ShapeMismatch
from easeml_plpy.server.session import Session
from easeml_plpy.server.value_types import Array

FIELDS: Mapping[str, Callable[[Encoder, bytes], Sequence[Array]]] = {
    "json": lambda encoder, inputs: fields_from_values(encoder, row_of_text(inputs.decode(), encoder)),
    "numbers": lambda encoder, inputs: fields_from_numbers(encoder, numbers_of_array(inputs)),
    "bytes": lambda encoder, inputs: fields_from_numbers(encoder, np.frombuffer(inputs, np.uint8)),
}
"""How a row is given: the text of a JSON object, an array of double precision as the server stores it, an image."""


def label_target(dataset: str | None, encoder: Encoder, *, hint: str) -> LabelTarget:
    """Return the target of a classification. Raises NotAllowed."""
    if not isinstance(encoder.target, LabelTarget):
        raise NotAllowed(f"dataset {dataset!r} is a regression, which has no probabilities", hint=hint)
    return encoder.target


@entry_point(returns_failure=True)
def class_probabilities(session: Session, dataset: str, given: str, inputs: bytes | None, trial_id: int | None) -> str:
    """Return a JSON object of labels and their probabilities."""
    chosen = served(session, dataset, trial_id)
    target = label_target(dataset, chosen.data.encoder, hint="Call easeml.predict_value.")
    if inputs is None:
        raise ShapeMismatch("inputs: expected a row, got NULL")
    outputs = outputs_of(chosen, FIELDS[given](chosen.data.encoder, inputs))
    return json.dumps(by_label(target, outputs)[0])
