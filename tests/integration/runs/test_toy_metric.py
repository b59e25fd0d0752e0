"""A further metric is a file and a line: a toy is recorded, ranks a run, and is shown, on a real server.

Whoever adds one installs the package again. Here the file and the line are executed in the session that asks for the
run and does its units.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests import toy_metric

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

PRELUDE = Path(toy_metric.__file__).read_text(encoding="utf-8") + toy_metric.REGISTER
SELECT_MODELS = """
SELECT easeml.select_models('dots', '{linear}', procedure => 'grid', max_epochs => 1, metric => %s,
    search_space => '{"learning_rate": [0.0001, 0.1]}')
"""


def test_a_further_metric_is_recorded_ranks_and_is_shown(database: Session) -> None:
    database.execute("CREATE TABLE dots AS SELECT sin(i) AS x, sin(i) > 0.3 AS kind FROM generate_series(1, 400) i")
    database.execute("SELECT easeml.create_dataset('dots', 'dots', '{x}', 'kind', n_partitions => 2)")
    with pytest.raises(psycopg.Error, match=f"no classification metric '{toy_metric.NAME}'"):
        database.value(SELECT_MODELS, toy_metric.NAME)
    database.execute(f"DO LANGUAGE plpython3u $toy$\n{PRELUDE}\n$toy$".encode())
    run_id = database.value(SELECT_MODELS, toy_metric.NAME)
    database.execute("UPDATE easeml.runs SET status = 'running'")
    database.execute("UPDATE easeml.slots SET backend_pid = pg_backend_pid() WHERE slot_id = 1")
    lease = database.value("SELECT lease_number FROM easeml.coordinator_lease")
    for trial_id in database.values("SELECT trial_id FROM easeml.trials ORDER BY 1"):
        for step, kind in enumerate(("train", "train", "validate", "validate")):
            unit = {"trial_id": trial_id, "step": step, "kind": kind, "epoch": 1, "position": step % 2, "seed": 7,
                    "partition_number": step % 2, "slot_id": 1, "lease_number": lease, "attempt": 1}  # fmt: skip
            routine = "train_unit" if kind == "train" else "evaluate_unit"
            database.execute(f"CALL easeml.{routine}(%s, NULL)", [Jsonb(unit)])
    board = database.rows("SELECT * FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank", run_id)
    assert [row["config"]["learning_rate"] for row in board] == [0.1, 0.0001]
    assert [row["metric"] for row in board] == [toy_metric.NAME] * 2
    assert 0 < board[0]["validation_metric"] < board[1]["validation_metric"] < 2
    shown = database.rows(
        "SELECT trial_id, value FROM easeml.metric_history WHERE metric = %s AND is_ranking ORDER BY value",
        toy_metric.NAME,
    )
    assert shown == [{"trial_id": row["trial_id"], "value": row["validation_metric"]} for row in board]
    others = database.values("SELECT DISTINCT metric FROM easeml.metric_history WHERE NOT is_ranking ORDER BY 1")
    assert others == ["accuracy", "balanced_accuracy", "log_loss", "macro_f1"]
