"""On the control server: the encoder, from what the blocks of all nodes add to the statistics, in their order."""

from __future__ import annotations

from typing import Any

from easeml_plpy.packing.explanations import notices
from easeml_plpy.packing.on_nodes.block_facts import facts_from_bytes
from easeml_plpy.packing.on_nodes.request import fields_of, target_of
from easeml_plpy.packing.on_nodes.source_columns import facts_of
from easeml_plpy.packing.packing_statistics import PackingStatistics
from easeml_plpy.packing.version_facts import version_facts
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import Told

FACTS: Statement[bytes] = Statement(
    "SELECT facts FROM pg_temp.easeml_facts ORDER BY part, block", (), only_column, is_kept=False
)


def finish(session: Session, message: Told) -> dict[str, Any]:
    """Return the facts to record about the dataset. Raises InvalidData if rows were lost on the way."""
    dealt = sorted(message["rows"])
    if dealt != sorted(entry for answer in message["found"] for entry in answer["rows"]):
        raise InvalidData("rows were lost between the nodes", hint="Pack the dataset again.")
    inputs, target = fields_of(message), target_of(message)
    statistics = PackingStatistics(inputs, target, message["n_train_rows"])
    for facts in session.each(FACTS, at_once=8):
        statistics.add(facts_from_bytes(facts))
    fields = statistics.fields(inputs)
    for line in notices(fields, statistics.distinct(fields)):
        session.notice(line)
    return version_facts(fields, statistics.measured_target(target), facts_of(message))
