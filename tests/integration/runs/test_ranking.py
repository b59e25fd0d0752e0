"""The best trial of a run is the same for all who ask, also where trials are equal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from stored_rows.catalogue_rows import TINY, fill

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

# Few values, so that many trials are equal; some have no loss, some are ensembles, some were not measured.
TIES = """
UPDATE easeml.trials SET best_metric_value = (trial_id * 7 % 3) / 2.0, architecture = CASE trial_id % 5
    WHEN 0 THEN 'ensemble' ELSE architecture END, best_loss = nullif(trial_id * 11 % 3, 0),
    best_checkpoint_id = coalesce(best_checkpoint_id, 0)
WHERE trial_id % 4 > 0;
UPDATE easeml.trials SET best_metric_value = NULL, best_loss = NULL WHERE trial_id % 4 = 0;
UPDATE easeml.runs SET is_higher_better = run_id % 2 = 0
"""
ROWS = """
SELECT t.run_id, t.trial_id, t.trial_number, l.rank, t.architecture, t.best_metric_value AS value, t.best_loss AS loss,
    r.is_higher_better, s.best_trial_id, easeml.best_of_run(t.run_id) AS best_of_run,
    t.trial_id IN (SELECT easeml.kept_trials(ARRAY[t.run_id])) AS is_kept
FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.run_status s USING (run_id)
JOIN easeml.leaderboard l USING (trial_id) ORDER BY t.run_id, l.rank, t.trial_number
"""


def test_the_best_trial_is_the_same_for_all_who_ask(database: Session) -> None:
    fill(database, TINY)
    with database.transaction(force_rollback=True):
        database.execute("SET LOCAL session_replication_role = replica")
        for statement in TIES.split(";\n"):
            database.execute(statement)
        rows = database.rows(ROWS)
    measured = [row for row in rows if row["value"] is not None]
    assert len(measured) > 2 * len({row["run_id"] for row in measured})
    for run_id in {row["run_id"] for row in measured}:
        own = [row for row in measured if row["run_id"] == run_id]
        keys = [
            (
                -row["value"] if row["is_higher_better"] else row["value"],
                row["loss"] is None,
                row["loss"] or 0.0,
                row["architecture"] != "ensemble",
            )
            for row in own
        ]
        assert keys == sorted(keys)
        assert [row["rank"] for row in own] == [1 + sum(other < key for other in keys) for key in keys]
        best = own[0]["trial_id"]
        assert own[0]["best_trial_id"] == own[0]["best_of_run"] == best
        assert own[0]["is_kept"]
