"""Recording what a node has measured, on the control server. It needs no torch."""

from __future__ import annotations

import json

from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Session
from easeml_plpy.units.recording import evaluated_state, record_evaluation
from easeml_plpy.units.units import Unit, context_of, opened_from_text


@entry_point()
def record_node_evaluation(session: Session, unit: str, context: str, told: str) -> str:
    """Record the sums of a partition; return JSON {"metrics", "pruned_bytes"}, as a unit on this server does.

    `unit` is the order in recorded form, with the work on the further partitions of a whole round. `context` is the
    result of easeml.open_node_unit, `told` that of easeml_segment.evaluate_on_node.
    """
    alone = {name: value for name, value in json.loads(unit).items() if name != "gang"}
    order, opened = Unit.from_text(json.dumps(alone)), context_of(opened_from_text(context), "cpu")
    return json.dumps(record_evaluation(session, unit, opened, evaluated_state(order, opened), json.loads(told)))
