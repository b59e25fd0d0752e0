"""Queries stay fast on a large catalogue: foreign keys have indexes, and views read only rows that are asked for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from stored_rows.catalogue_rows import QUICK, fill

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

# Rows that a plan may read where a person asks for a run or a page: of the tables that grow, all have thousands.
FEW = 1000
# An index serves a foreign key when its first columns are columns of the key; that of the tenant alone finds too many.
UNINDEXED = """
SELECT c.conrelid::regclass::text || ': ' || pg_get_constraintdef(c.oid) FROM pg_constraint c
WHERE c.contype = 'f' AND c.connamespace = 'easeml'::regnamespace AND NOT EXISTS (
    SELECT FROM pg_index i CROSS JOIN LATERAL generate_series(1, i.indnkeyatts) n
    WHERE i.indrelid = c.conrelid AND i.indpred IS NULL
        AND (string_to_array(i.indkey::text, ' ')::smallint[])[1:n] <@ c.conkey
        AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.conrelid AND a.attname <> 'tenant'
            AND a.attnum = ANY ((string_to_array(i.indkey::text, ' ')::smallint[])[1:n])))
"""
TRIALS_FETCHED = "SELECT pg_stat_get_xact_tuples_fetched('easeml.trials'::regclass)"
RUN = QUICK.n_runs - 3
PAGES = {
    "a page of runs": "SELECT * FROM easeml.run_status ORDER BY run_id DESC LIMIT 20",
    "a run": f"SELECT * FROM easeml.run_status WHERE run_id = {RUN}",
    "the newest run": "SELECT (SELECT run_id FROM easeml.run_status ORDER BY run_id DESC LIMIT 1) AS run_id",
    "allocations of a run": f"SELECT * FROM easeml.trial_allocations WHERE run_id = {RUN // 3 * 3}",
    "the last units": "SELECT * FROM easeml.training_timeline ORDER BY started_at DESC LIMIT 20",
    "what a run may gain": f"SELECT * FROM easeml.run_regret WHERE run_id = {RUN}",
}


@pytest.fixture(scope="module")
def filled(module_database: Session) -> Session:
    fill(module_database, QUICK)
    return module_database


def rows_read(plan: dict[str, Any]) -> float:
    """How many rows the nodes of a plan that read tables have looked at, in all their loops."""
    removed = sum(plan.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Join Filter", "Index Recheck"))
    own = (plan["Actual Rows"] + removed) * plan["Actual Loops"] if "Relation Name" in plan else 0
    return own + sum(rows_read(part) for part in plan.get("Plans", ()))


def test_every_foreign_key_has_an_index(module_database: Session) -> None:
    assert module_database.values(UNINDEXED) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_reads_few_rows_of_a_large_catalogue(page: str, filled: Session) -> None:
    assert filled.value("SELECT count(*) FROM easeml.training_units") > 10 * FEW
    for role in ("postgres", "easeml_reader"):
        with filled.transaction(force_rollback=True):
            filled.execute(f"SET LOCAL ROLE {role}")
            (plan,) = filled.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {PAGES[page]}")
            assert rows_read(plan["Plan"]) < FEW, json.dumps(plan, indent=1)


@pytest.mark.parametrize("view", ["leaderboard", "learning_curves", "trial_metrics"])
def test_a_large_run_is_read_without_the_rows_of_others(view: str, filled: Session) -> None:
    large = QUICK.n_runs // 2 - 1
    own = QUICK.largest_run * (4 * QUICK.n_epochs + 4)  # trials, units, evaluations and metrics, those twice
    values = 4 * QUICK.largest_run * (QUICK.n_epochs + 1)
    assert filled.value("SELECT count(*) FROM easeml.epoch_metrics") > 1.5 * own
    (plan,) = filled.value(f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM easeml.{view} WHERE run_id = {large}")
    assert rows_read(plan["Plan"]) <= own + values, json.dumps(plan, indent=1)


def reads_of(plan: dict[str, Any], table: str) -> int:
    """How many rows of a table a plan fetches, in all its loops."""
    own = plan["Actual Rows"] * plan["Actual Loops"] if plan.get("Relation Name") == table else 0
    return int(own + sum(reads_of(part, table) for part in plan.get("Plans", ())))


@pytest.mark.parametrize("role", ["postgres", "easeml_reader"])
def test_the_timeline_of_a_large_run_reads_each_of_its_trials_once(role: str, filled: Session) -> None:
    """Neither the trials of all runs, nor the trial of each unit by itself."""
    asked = f"SELECT * FROM easeml.training_timeline WHERE run_id = {QUICK.n_runs // 2 - 1} ORDER BY started_at"
    with filled.transaction(force_rollback=True):
        filled.execute(f"SET LOCAL ROLE {role}")
        filled.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        (plan,) = filled.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {asked}")
    assert reads_of(plan["Plan"], "trials") == QUICK.largest_run, json.dumps(plan, indent=1)
    assert reads_of(plan["Plan"], "training_units") == QUICK.largest_run * QUICK.n_epochs


def test_waiting_for_a_run_does_not_look_for_its_best_trial(filled: Session) -> None:
    asked = f"SELECT n_units_done, n_units FROM easeml.run_status WHERE run_id = {QUICK.n_runs // 2 - 1}"
    (plan,) = filled.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {asked}")
    assert QUICK.largest_run <= rows_read(plan["Plan"]) < 1.1 * QUICK.largest_run


def test_the_status_of_tenants_looks_up_one_decision_of_each_open_run(filled: Session) -> None:
    (plan,) = filled.value("EXPLAIN (ANALYZE, FORMAT JSON) SELECT tenant, last_decision FROM easeml.tenant_status")
    assert filled.value("SELECT count(*) FROM easeml.arm_opening_candidates") > 10 * FEW
    assert rows_read(plan["Plan"]) < 2 * FEW, json.dumps(plan, indent=1)


def test_the_hours_of_a_tenant_read_no_trial_of_a_finished_run(filled: Session) -> None:
    owned = "SELECT count(*) FROM easeml.trials t JOIN easeml.runs r USING (run_id) WHERE t.tenant = 'tenant_1' AND {}"
    n_open = filled.value(owned.format("r.is_open"))
    assert filled.value(owned.format("NOT r.is_open")) > 5 * n_open
    with filled.transaction():
        before = filled.value(TRIALS_FETCHED)
        hours = filled.value("SELECT easeml.used_hours('tenant_1')")
        assert filled.value(TRIALS_FETCHED) - before <= n_open
    plainly = "SELECT sum(slot_seconds) / 3600 FROM easeml.trials WHERE tenant = 'tenant_1'"
    assert hours == pytest.approx(filled.value(plainly) + 100 / 3600)


def test_a_page_of_a_tenant_asks_about_the_runs_that_it_shows(filled: Session) -> None:
    """The planner takes the rows of a tenant for few, and would work out the progress of all its runs."""
    n_runs = filled.value("SELECT count(*) FROM easeml.runs WHERE tenant = 'tenant_1'")
    with filled.transaction(force_rollback=True):
        filled.execute("UPDATE easeml.tenant_roles SET role = 'easeml_tenant'::regrole WHERE tenant = 'tenant_1'")
        filled.execute("SET LOCAL ROLE easeml_tenant")
        asked = "SELECT * FROM easeml.run_status ORDER BY run_id DESC LIMIT 2"
        assert len(filled.rows(asked)) == 2
        (plan,) = filled.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {asked}")
    assert n_runs == QUICK.n_runs / QUICK.n_tenants
    assert rows_read(plan["Plan"]) < n_runs * QUICK.n_trials_each, json.dumps(plan, indent=1)


def test_nobody_looks_for_the_best_trial_where_one_is_deployed(filled: Session) -> None:
    asked = "EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM easeml.answering"
    deployed = """INSERT INTO easeml.deployments (tenant, dataset_name, trial_id)
        SELECT tenant, 'sales', max(trial_id) FROM easeml.trials WHERE status = 'finished' GROUP BY tenant"""
    with filled.transaction(force_rollback=True):
        filled.execute("DELETE FROM easeml.deployments")
        (searched,) = filled.value(asked)
        filled.execute(deployed)
        (plan,) = filled.value(asked)
    assert rows_read(searched["Plan"]) > QUICK.n_runs * QUICK.n_trials_each / 2
    assert 0 < rows_read(plan["Plan"]) < 20 * QUICK.n_tenants, json.dumps(plan, indent=1)


def test_the_last_decision_is_that_of_the_newest_decision_number(filled: Session) -> None:
    told = """SELECT tenant, last_served_at, last_decision FROM easeml.tenant_status ORDER BY tenant"""
    plainly = """SELECT o.tenant::text AS tenant, max(c.decided_at) FILTER (WHERE c.is_chosen) AS last_served_at,
            (array_agg(c.reason ORDER BY c.decision_id DESC, c.is_chosen DESC))[1] AS last_decision
        FROM easeml.tenants o LEFT JOIN (easeml.policy_decisions c JOIN easeml.runs q USING (run_id))
            ON q.tenant = o.tenant AND q.status IN ('queued', 'running') GROUP BY 1 ORDER BY 1"""
    assert filled.rows(told) == filled.rows(plainly)


def test_the_time_of_a_run_goes_on_within_a_transaction(filled: Session) -> None:
    elapsed = "SELECT elapsed_seconds FROM easeml.run_status WHERE status <> 'queued' AND finished_at IS NULL LIMIT 1"
    with filled.transaction():
        first = filled.value(elapsed)
        filled.execute("SELECT pg_sleep(0.01)")
        assert filled.value(elapsed) > first
