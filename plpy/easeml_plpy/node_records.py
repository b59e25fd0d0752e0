"""Recording what a node has measured, on the control server. It needs no torch."""

from __future__ import annotations

import json

from .recording import evaluated_state, record_evaluation
from .session import Session, entry_point
from .units import Unit, context_of, opened_from_text


@entry_point
def record_node_evaluation(session: Session, unit: str, context: str, told: str) -> str:
    """Record the sums of a partition; return JSON {"metrics", "pruned_bytes"}, as a unit on this server does.

    `unit` is the order as it is recorded, with what was done of the further partitions of a whole round. `context` is
    what easeml.open_node_unit returned, `told` what easeml_segment.evaluate_on_node did.
    """
    alone = {name: value for name, value in json.loads(unit).items() if name != "gang"}
    order, opened = Unit.from_text(json.dumps(alone)), context_of(opened_from_text(context), "cpu")
    return json.dumps(record_evaluation(session, unit, opened, evaluated_state(order, opened), json.loads(told)))
