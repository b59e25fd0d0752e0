"""On a node: a trial's answers for the held-out rows on this node, block by block, as `answers` computes them, and the
inputs that it relies on, for these rows or for one row, as `explain` finds them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from easeml_plpy.columns.encoding import fields_from_bytes
from easeml_plpy.evaluation.answers import Examined, paged_outputs
from easeml_plpy.evaluation.explain import explained, explained_row
from easeml_plpy.evaluation.question import SPLITS, Question
from easeml_plpy.nodes.node_prediction import job_limit_bytes, trial_on_node
from easeml_plpy.prediction.serving import Served
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.devices import bind
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Command, NodeSession, Session
from easeml_plpy.units.live_trials import resumed_trial
from easeml_plpy.units.outputs import measurable_on

NEW_TABLE = """
CREATE TEMPORARY TABLE easeml_answers (split text, partition_number integer, block_number integer, n_rows integer,
    outputs bytea, targets bytea) ON COMMIT DROP
"""
ANSWERED = Command(
    "INSERT INTO pg_temp.easeml_answers VALUES ($1, $2, $3, $4, $5, $6)",
    ("text", "int4", "int4", "int4", "bytea", "bytea"),
    is_kept=False,
)
SUBJECTS = {"explain": explained, "explain_row": explained_row}


@entry_point(of=NodeSession)
def answer_on_node(session: Session, told: str) -> str:
    """Fill the temporary table; return how many rows were answered as JSON. Raises CorruptCheckpoint."""
    order = json.loads(told)
    bind("cpu", 1, job_limit_bytes(session, order))
    session.execute(NEW_TABLE)
    served = trial_on_node(session, order, resumed_trial)
    n_rows = 0
    for split in SPLITS:
        for part in order["parts"]:
            n_rows += _answer(session, replace(served, live=measurable_on(split, served.live)), order, (split, part))
    return json.dumps({"n_rows": n_rows})


@entry_point(of=NodeSession)
def explain_on_node(session: Session, told: str) -> str:
    """Return the importance of inputs on the held-out rows here, or their contributions for a given row: the rows of
    easeml.explain or easeml.explain_row, as JSON {"rows"}.
    """
    order = json.loads(told)
    bind("cpu", 1, job_limit_bytes(session, order))
    examined = Examined(
        dataset_name=order["dataset"],
        dataset_id=order["dataset_id"],
        n_partitions=order["n_partitions"],
        trial_id=order["trial_id"],
        checkpoint_id=order["checkpoint_id"],
        architecture=order["architecture"],
        config=json.dumps(order["config"]),
        metric=order["metric"],
        is_elsewhere=False,
    )
    rows = SUBJECTS[order["subject"]](Question(session, examined, order["options"]))
    return json.dumps({"rows": list(rows)}, allow_nan=False)


def _answer(session: Session, served: Served, order: Mapping[str, Any], place: tuple[str, int]) -> int:
    """Answer the blocks of a split in a partition; return their rows."""
    n_rows = 0
    for number, stored in enumerate(session.each(datasets.BLOCKS, order["dataset_id"], *place)):
        fields = fields_from_bytes(served.data.encoder, stored.inputs, stored.n_rows)
        outputs = paged_outputs(served, fields).astype(np.float64).tobytes()
        session.run(ANSWERED, *place, number, stored.n_rows, outputs, stored.targets)
        n_rows += stored.n_rows
    return n_rows
