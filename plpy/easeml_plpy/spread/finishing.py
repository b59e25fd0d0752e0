"""On the control server: the encoder, from what the blocks of all nodes add to the statistics, in their order."""

from __future__ import annotations

from typing import Any

from ..encoder import Encoder
from ..encoding import encoded_shape
from ..errors import InvalidData
from ..explanations import explanations, notices
from ..packing_statistics import PackingStatistics
from ..session import Session, Statement, only_column
from ..value_types import Told
from .block_facts import facts_from_bytes
from .request import fields_of, target_of
from .settling import facts_of

FACTS: Statement[bytes] = Statement(
    "SELECT facts FROM pg_temp.easeml_facts ORDER BY part, block", (), only_column, is_kept=False
)


def finish(session: Session, told: Told) -> dict[str, Any]:
    """Return the facts to record about the dataset. Raises InvalidData if rows were lost on the way."""
    dealt = sorted(told["rows"])
    if dealt != sorted(entry for each in told["found"] for entry in each["rows"]):
        raise InvalidData("rows were lost between the nodes", hint="Pack the dataset again.")
    inputs, target = fields_of(told), target_of(told)
    statistics = PackingStatistics(inputs, target, told["n_train_rows"])
    for facts in session.each(FACTS, at_once=8):
        statistics.add(facts_from_bytes(facts))
    fields = statistics.fields(inputs)
    measured = statistics.measured_target(target)
    shape = encoded_shape(fields)
    for line in notices(fields, statistics.distinct(fields)):
        session.notice(line)
    return {
        "task": measured.task,
        "n_outputs": measured.n_outputs,
        "input_shape": list(shape),
        "encoder": Encoder(tuple(fields), shape, measured).to_json(),
        "explanations": explanations(fields, facts_of(told)),
    }
