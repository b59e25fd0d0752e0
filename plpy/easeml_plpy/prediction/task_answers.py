"""The answer of a task for one input: the output tensor, and for classes the name of the most probable one."""

from __future__ import annotations

import json
from collections.abc import Mapping

from easeml_plpy.columns.encoder import LabelTarget, ObjectsField, TensorTarget
from easeml_plpy.prediction.client_row import fields_from_values, row_of_text
from easeml_plpy.prediction.prediction import outputs_of
from easeml_plpy.prediction.probabilities import FIELDS
from easeml_plpy.prediction.serving import Served, served
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotFound, ShapeMismatch
from easeml_plpy.server.session import Session
from easeml_plpy.server.value_types import JSON


@entry_point(returns_failure=True)
def infer_output(session: Session, dataset: str, given: str, inputs: bytes | None, trial_id: int | None) -> str:
    """Return {"output": [...], "trial_id": ...} as JSON, with label and probability if the outputs are classes."""
    chosen = _asked(session, dataset, trial_id)
    if inputs is None:
        raise ShapeMismatch("input: expected a value, got NULL")
    encoder = chosen.data.encoder
    if given == "json":
        text = inputs.decode()
        row = row_of_text(f'{{"input": {text}}}' if text.startswith("[") else text, encoder)
        if encoder.objects is not None:
            by_column = _object_by_column(encoder.objects, row)
        else:  # tensors: `input` alone, or several by their names
            by_column = {name if name == "input" else f"input_{name}": value for name, value in row.items()}
        fields = fields_from_values(encoder, by_column)
    else:
        fields = FIELDS[given](encoder, inputs)
    outputs = outputs_of(chosen, fields)[0]
    target = chosen.data.encoder.target
    shaped = target.shaped(outputs) if isinstance(target, TensorTarget) else outputs
    answer: dict[str, object] = {"output": shaped.tolist(), "trial_id": chosen.trial_id}
    if isinstance(target, LabelTarget):
        best = int(outputs.argmax())
        answer |= {"label": target.labels[best], "probability": float(outputs[best])}
    return json.dumps(answer)


def _asked(session: Session, task: str, trial_id: int | None) -> Served:
    """Return the trial that answers. Raises what `served` does, of a task that is not there in words of tasks."""
    try:
        return served(session, task, trial_id)
    except NotFound as error:
        if not error.message.startswith("there is no dataset"):
            raise
        raise NotFound(
            f"there is no task {task!r} that you may ask",
            hint="SELECT task_name FROM easeml.task_status lists yours; one that somebody lets you use is tenant.task.",
        ) from error


def _object_by_column(field: ObjectsField, row: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return a series or tree by its column: given as `input`, or as its first object."""
    is_object = {name for name, _ in field.tensors} <= row.keys()
    return {field.column: row if is_object else row.get("input", row)}
