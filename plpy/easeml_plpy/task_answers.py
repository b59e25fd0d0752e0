"""What a task answers for one input: the output tensor, and for classes the name of the best."""

from __future__ import annotations

import json

from .encoder import LabelTarget
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
    found: dict[str, object] = {"output": outputs.tolist(), "trial_id": chosen.trial_id}
    target = chosen.data.encoder.target
    if isinstance(target, LabelTarget):
        best = int(outputs.argmax())
        found |= {"label": target.labels[best], "probability": float(outputs[best])}
    return json.dumps(found)
