"""What a task answers for one input: the output tensor, and for classes the name of the best."""

from __future__ import annotations

import json

from .encoder import LabelTarget, TensorTarget
from .errors import ShapeMismatch
from .prediction import outputs_of
from .probabilities import FIELDS
from .serving import served
from .session import Session, answering


@answering
def infer_output(session: Session, dataset: str, given: str, inputs: bytes | None, trial_id: int | None) -> str:
    """Return {"output": [...], "trial_id": ...} as JSON, with label and probability where classes come out."""
    chosen = served(session, dataset, trial_id)
    if inputs is None:
        raise ShapeMismatch("input: expected a value, got NULL")
    outputs = outputs_of(chosen, FIELDS[given](chosen.data.encoder, inputs))[0]
    target = chosen.data.encoder.target
    shaped = target.shaped(outputs) if isinstance(target, TensorTarget) else outputs
    found: dict[str, object] = {"output": shaped.tolist(), "trial_id": chosen.trial_id}
    if isinstance(target, LabelTarget):
        best = int(outputs.argmax())
        found |= {"label": target.labels[best], "probability": float(outputs[best])}
    return json.dumps(found)
