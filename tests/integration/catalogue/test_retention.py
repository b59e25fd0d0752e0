"""Old rows leave when they are asked to, and nothing that somebody needs leaves with them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner

from easeml_db.cli import commands
from easeml_db.errors import EasemlError
from tests.stored_plans import INSTANCES

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from stored_rows.catalogue_rows import TINY, fill

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

BY_RUN = ("decisions", "beliefs", "forecasts", "allocations", "events", "units", "evaluations", "states")
FOREVER = ("states", "runs", "versions", "dropped_tenants")  # by default
TABLES = {
    "decisions": ("arm_openings", "arm_opening_candidates"), "beliefs": ("priors", "posteriors"),
    "forecasts": ("forecasts",), "allocations": ("trial_groups", "allocations"), "events": ("events",),
    "units": ("training_units",), "evaluations": ("evaluations",), "states": ("checkpoints",),
}  # fmt: skip
RESULTS = """
SELECT (SELECT jsonb_agg(to_jsonb(l) - 'status' ORDER BY l.trial_id) FROM easeml.leaderboard l) AS leaderboard,
    (SELECT jsonb_agg(c ORDER BY c.trial_id, c.epoch) FROM easeml.learning_curves c) AS curves,
    (SELECT jsonb_object_agg(t.tenant, round(t.used_hours::numeric, 9)) FROM easeml.tenant_status t) AS hours
"""
# The best trial of a run, by its own sort, which knows nothing of the one that is tested.
DEPLOY = """
SELECT easeml.perform_deploy(current_user, %(tenant)s, jsonb_build_object('trial_id', %(trial_id)s::bigint))
"""
BEST = """
SELECT DISTINCT ON (t.run_id) t.trial_id FROM easeml.trials t WHERE t.status = 'finished'
ORDER BY t.run_id, t.best_metric_value DESC, t.best_loss, t.trial_number
"""


@pytest.fixture(scope="module")
def catalogue(module_database: Session) -> Session:
    """Rows of a year, all of them older than two days."""
    fill(module_database, TINY)
    module_database.execute("SET session_replication_role = replica")
    module_database.execute(
        "UPDATE easeml.runs SET created_at = created_at - interval '60 days',"
        " started_at = started_at - interval '60 days', finished_at = finished_at - interval '60 days'"
    )
    module_database.execute("UPDATE easeml.datasets SET created_at = created_at - interval '60 days'")
    module_database.execute(
        "INSERT INTO easeml.forecasts (run_id, tenant, cost_so_far) SELECT run_id, tenant, 0 FROM easeml.runs"
    )
    module_database.execute("SET session_replication_role = origin")
    return module_database


@pytest.fixture
def rows(catalogue: Session) -> Iterator[Session]:
    """The same rows for each test."""
    with catalogue.transaction(force_rollback=True):
        catalogue.execute(
            "SELECT easeml.set_retention(what, '30 days') FROM easeml.retention WHERE what <> 'dropped_tenants'"
        )
        yield catalogue


def prune(session: Session, what: str, *, is_dry: bool = False) -> int:
    n_rows, last = 0, 0
    while last is not None:
        (batch,) = session.rows("SELECT * FROM easeml.prune_batch(%s, %s, %s)", what, last, is_dry)
        n_rows, last = n_rows + batch["n_rows"], batch["last"]
    return n_rows


def count(session: Session, *tables: str, where: str = "true") -> int:
    return sum(session.value(f"SELECT count(*) FROM easeml.{table} x WHERE {where}") for table in tables)


@pytest.mark.parametrize("what", BY_RUN)
def test_a_dry_run_counts_what_then_leaves_and_open_runs_keep_it(what: str, rows: Session) -> None:
    of_open = "x.run_id IN (SELECT run_id FROM easeml.runs WHERE is_open)" if what != "states" else "true"
    before, of_open_before = count(rows, *TABLES[what]), count(rows, *TABLES[what], where=of_open)
    n_counted = prune(rows, what, is_dry=True)
    assert n_counted > 0 or what == "allocations"
    assert count(rows, *TABLES[what]) == before
    assert prune(rows, what) == n_counted
    # Rows that a decision showed to other runs go with it.
    left = count(rows, *TABLES[what])
    assert left <= before - n_counted if what == "decisions" else left == before - n_counted
    assert prune(rows, what) == 0
    assert what in ("states", "decisions") or count(rows, *TABLES[what], where=of_open) == of_open_before


def test_nothing_leaves_unless_somebody_says_so(rows: Session) -> None:
    before = count(rows, *TABLES["units"])
    asked = "SELECT n_rows FROM easeml.prune_batch('units', NULL, NULL)"
    assert rows.value(asked) == rows.value("SELECT n_rows FROM easeml.prune_batch('units')") > 0
    assert count(rows, *TABLES["units"]) == before


def fetched(session: Session, table: str) -> int:
    """Rows of a table that this transaction has fetched."""
    return int(session.value(f"SELECT pg_stat_get_xact_tuples_fetched('easeml.{table}'::regclass)"))


@pytest.mark.parametrize("what", ["states", "runs"])
def test_what_is_needed_is_looked_up_once_for_many_runs(what: str, rows: Session) -> None:
    """Asked run by run, each would read the trials of all datasets."""
    if what == "runs":  # the newest 500 stay
        add_runs(rows, 500)
    before = fetched(rows, "trials")
    prune(rows, what, is_dry=True)
    assert fetched(rows, "trials") - before < 8 * count(rows, "trials")


def test_a_run_of_very_many_trials_has_a_batch_of_its_own(rows: Session) -> None:
    ended = rows.values("SELECT run_id FROM easeml.runs WHERE NOT is_open ORDER BY run_id")
    large = ended[2]
    rows.execute(
        "INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, status)"
        " SELECT t.run_id, t.arm_id, t.tenant, t.trial_number + n, t.architecture, t.config, t.max_epochs, t.status"
        " FROM (SELECT * FROM easeml.trials WHERE run_id = %s ORDER BY trial_number DESC LIMIT 1) t,"
        " generate_series(1, 2000) n",
        [large],
    )
    batch = "SELECT last FROM easeml.prune_batch('events', %s, false)"
    assert rows.value(batch, 0) == ended[1]
    assert rows.value(batch, ended[1]) == large
    assert rows.value(batch, large) == ended[-1]
    assert rows.value(batch, ended[-1]) is None


def test_nothing_that_was_not_chosen_leaves(catalogue: Session) -> None:
    assert {what: prune(catalogue, what, is_dry=True) for what in FOREVER} == dict.fromkeys(FOREVER, 0)


def test_what_is_young_stays(rows: Session) -> None:
    rows.execute("SELECT easeml.set_retention(what, '100 years') FROM easeml.retention")
    assert {prune(rows, what) for what in (*BY_RUN, *FOREVER)} == {0}


def test_results_and_hours_are_the_same_without_units(rows: Session) -> None:
    rows.execute("UPDATE easeml.trials SET slot_seconds = 7 + trial_id")
    before = rows.rows(RESULTS)
    for what in BY_RUN:
        if what != "states":
            prune(rows, what)
    assert rows.rows(RESULTS) == before
    assert before[0]["curves"][0]["training_loss"] is not None


@pytest.mark.parametrize("what", ["units", "evaluations", "states"])
def test_the_best_trial_of_each_run_keeps_its_rows(what: str, rows: Session) -> None:
    rows.execute("DELETE FROM easeml.servings; DELETE FROM easeml.deployments")
    prune(rows, what)
    best = set(rows.values(BEST))
    assert set(rows.values(f"SELECT trial_id FROM easeml.{TABLES[what][0]}")) == best
    assert len(best) == count(rows, "runs", where="x.status = 'finished'")


def worst_trial(session: Session) -> Any:
    (trial,) = session.rows(
        "SELECT t.*, d.dataset_name FROM easeml.trials t JOIN easeml.runs r USING (run_id) JOIN easeml.datasets d"
        " USING (dataset_id) WHERE t.status = 'finished' ORDER BY t.best_metric_value, t.trial_id LIMIT 1"
    )
    return trial


@pytest.mark.parametrize("why", ["deployed", "answered", "member", "parent"])
def test_what_answers_and_what_it_is_made_of_keeps_units_and_states(why: str, rows: Session) -> None:
    trial = worst_trial(rows)
    best = f"SELECT b.trial_id FROM ({BEST}) b JOIN easeml.trials t USING (trial_id) WHERE t.run_id = {trial['run_id']}"
    if why == "deployed":
        rows.execute(
            "INSERT INTO easeml.deployments (tenant, dataset_name, trial_id)"
            " VALUES (%(tenant)s, %(dataset_name)s, %(trial_id)s)"
            " ON CONFLICT (tenant, dataset_name) DO UPDATE SET trial_id = excluded.trial_id",
            trial,
        )
    elif why == "answered":
        rows.execute(
            "INSERT INTO easeml.servings (tenant, dataset_name, trial_id, is_deployed, metric, reason)"
            " VALUES (%(tenant)s, %(dataset_name)s, %(trial_id)s, false, 'accuracy', 'better')",
            trial,
        )
    elif why == "member":
        config = json.dumps({"members": [{"trial": trial["trial_number"], "weight": 1}]})
        rows.execute(
            f"UPDATE easeml.trials SET architecture = 'ensemble', config = %s WHERE trial_id IN ({best})", [config]
        )
    else:
        rows.execute(f"UPDATE easeml.trials SET parent_trial_id = %s WHERE trial_id IN ({best})", [trial["trial_id"]])
    for what in ("units", "states", "runs"):
        prune(rows, what)
    for table in ("training_units", "checkpoints"):
        assert count(rows, table, where=f"x.trial_id = {trial['trial_id']}") > 0
    assert rows.value("SELECT best_checkpoint_id IS NOT NULL FROM easeml.trials WHERE trial_id = %s", trial["trial_id"])


@pytest.mark.parametrize("status", ["cancelled", "failed"])
def test_a_run_that_can_be_resumed_keeps_what_it_needs(status: str, rows: Session) -> None:
    run_id = rows.value("SELECT min(run_id) FROM easeml.runs WHERE status = 'finished'")
    rows.execute("SET LOCAL session_replication_role = replica")
    rows.execute("UPDATE easeml.runs SET status = %s WHERE run_id = %s", [status, run_id])
    rows.execute("SET LOCAL session_replication_role = origin")
    of_run = f"x.run_id = {run_id}"
    tables = ("training_units", "evaluations", "priors", "posteriors")
    before = [count(rows, table, where=of_run) for table in tables]
    states = count(rows, "checkpoints")
    for what in ("units", "evaluations", "beliefs"):
        prune(rows, what)
    assert [count(rows, table, where=of_run) for table in tables] == before
    assert prune(rows, "states") == states - count(rows, "checkpoints")
    assert (
        count(
            rows,
            "checkpoints",
            where=f"x.trial_id IN (SELECT trial_id FROM easeml.trials t WHERE {of_run.replace('x.', 't.')})",
        )
        == TINY.n_trials_each
    )


def add_runs(session: Session, n: int) -> None:
    """Add finished runs without trials that are younger than all others."""
    columns = (
        "tenant, dataset_id, procedure, architectures, n_configs, max_epochs, metric, is_higher_better, seed,"
        " created_at"
    )
    session.execute(
        f"INSERT INTO easeml.runs ({columns}, status, finished_at)"
        f" SELECT {columns}, 'finished', now() FROM easeml.runs, generate_series(1, %s) WHERE run_id = 1",
        [n],
    )


def test_the_newest_runs_teach_priors_and_stay(rows: Session) -> None:
    rows.execute("DELETE FROM easeml.servings")
    rows.execute(INSTANCES)
    assert prune(rows, "runs") == 0
    add_runs(rows, 500)
    answering = set(rows.values("SELECT run_id FROM easeml.answering WHERE run_id IS NOT NULL"))
    kept = answering | set(rows.values("SELECT run_id FROM easeml.runs WHERE is_open OR run_id > %s", TINY.n_runs))
    n_runs = count(rows, "runs")
    assert prune(rows, "runs") == n_runs - len(kept) > 0
    assert set(rows.values("SELECT run_id FROM easeml.runs")) == kept
    of_instances = set(rows.values("SELECT run_id FROM easeml.instances"))
    assert of_instances == {run_id for run_id in kept if run_id <= TINY.n_runs}


def test_an_instance_that_is_not_stopped_yet_outlives_its_run(rows: Session) -> None:
    rows.execute("DELETE FROM easeml.servings")
    rows.execute(INSTANCES)
    rows.execute("UPDATE easeml.instances SET status = 'releasing'")
    add_runs(rows, 500)
    n_instances = count(rows, "instances")
    assert prune(rows, "runs") > 0
    assert count(rows, "instances") == n_instances > count(rows, "runs", where=f"x.run_id <= {TINY.n_runs}")


@pytest.mark.parametrize("what", ["runs", "states"])
def test_a_dry_run_does_not_announce_what_no_metric_guards(what: str, rows: Session) -> None:
    """Whoever has something deployed locks the metric of its dataset: without one the prune could not see that."""
    rows.execute("DELETE FROM easeml.servings")
    add_runs(rows, 500)
    n_before = prune(rows, what, is_dry=True)
    rows.execute(
        "DELETE FROM easeml.serving_metrics WHERE tenant IN"
        " (SELECT DISTINCT r.tenant FROM easeml.runs r ORDER BY 1 LIMIT 2)"
    )
    n_counted = prune(rows, what, is_dry=True)
    assert 0 < n_counted < n_before
    assert prune(rows, what) == n_counted


def test_versions_leave_that_nothing_uses(rows: Session) -> None:
    data = rows.rows("SELECT tenant, dataset_name, version, dataset_id FROM easeml.datasets ORDER BY dataset_id")[0]
    columns = (
        "tenant, dataset_name, source, input_columns, target_column, task, input_shape, n_outputs, n_partitions,"
        " validation_fraction, test_fraction, seed, block_rows, encoder, created_at"
    )
    copy = (
        f"INSERT INTO easeml.datasets ({columns}, version)"
        f" SELECT {columns}, %s FROM easeml.datasets WHERE dataset_id = %s RETURNING dataset_id"
    )
    unused, shared, newest = (rows.value(copy, version, data["dataset_id"]) for version in (11, 12, 13))
    rows.execute(
        "INSERT INTO easeml.blocks (dataset_id, tenant, split, partition_number, block_number, n_rows, inputs, targets)"
        " SELECT i, %s, 'train', 0, 0, 1, '', '' FROM unnest(%s::bigint[]) i",
        [data["tenant"], [unused, shared, newest]],
    )
    rows.execute("INSERT INTO easeml.kept_blocks VALUES (%s, %s, 'train', 0, 0, %s)", [newest, data["tenant"], shared])
    used = set(rows.values("SELECT dataset_id FROM easeml.runs"))
    before = set(rows.values("SELECT dataset_id FROM easeml.datasets"))
    by_name = "SELECT DISTINCT ON (tenant, dataset_name) dataset_id FROM easeml.datasets"
    newest_ids = set(rows.values(f"{by_name} ORDER BY tenant, dataset_name, version DESC"))
    n_counted = prune(rows, "versions", is_dry=True)
    assert prune(rows, "versions") == n_counted
    assert set(rows.values("SELECT dataset_id FROM easeml.datasets")) == used | newest_ids | {shared}
    assert unused in before - used
    assert count(rows, "blocks", where=f"x.dataset_id = {unused}") == 0


def refreshed_each_day(session: Session, n_versions: int) -> dict[str, Any]:
    """Give a dataset further versions with rows, each with a run and its one trial; return the last of them."""
    row = session.rows("SELECT tenant, dataset_name, dataset_id FROM easeml.datasets WHERE version = 2")[0]
    dataset = "tenant, dataset_name, source, input_columns, target_column, task, input_shape, n_outputs, n_partitions"
    dataset += ", validation_fraction, test_fraction, seed, block_rows, encoder, created_at"
    run = "procedure, architectures, n_configs, max_epochs, metric, is_higher_better, seed, created_at, finished_at"
    trial = "architecture, config, max_epochs, best_epoch, best_metric_value, best_loss"
    for version in range(3, 3 + n_versions):
        for name, made in {
            "dataset_id": f"datasets ({dataset}, version) SELECT {dataset}, {version} FROM easeml.datasets"
            " WHERE dataset_id = %(dataset_id)s",
            "block_number": "blocks (dataset_id, tenant, split, partition_number, block_number, n_rows, inputs,"
            " targets)"
            " VALUES (%(dataset_id)s, %(tenant)s, 'train', 0, 0, 1, '', '')",
            "run_id": f"runs (tenant, dataset_id, status, {run}) SELECT %(tenant)s, %(dataset_id)s, 'finished', {run}"
            " FROM easeml.runs WHERE status = 'finished' ORDER BY run_id LIMIT 1",
            "arm_id": "arms (run_id, tenant, architecture) VALUES (%(run_id)s, %(tenant)s, 'mlp')",
            "trial_id": f"trials (run_id, arm_id, tenant, trial_number, status, {trial}) SELECT %(run_id)s, %(arm_id)s,"
            f" %(tenant)s, 1, 'finished', {trial} FROM easeml.trials WHERE status = 'finished' LIMIT 1",
            "refresh_id": "refreshes (tenant, dataset_name, outcome, run_id, reason)"
            " VALUES (%(tenant)s, %(dataset_name)s, 'served', %(run_id)s, '')",
            "serving_id": "servings (tenant, dataset_name, trial_id, is_deployed, metric, reason)"
            " VALUES (%(tenant)s, %(dataset_name)s, %(trial_id)s, true, 'accuracy', 'refreshed')",
        }.items():
            row |= session.execute(f"INSERT INTO easeml.{made} RETURNING {name}", row).fetchall()[0]
    return row


def test_a_dataset_that_is_refreshed_each_day_does_not_grow_for_ever(rows: Session) -> None:
    rows.execute("DELETE FROM easeml.retention_settings")
    newest = refreshed_each_day(rows, 30)
    refreshed = rows.rows("SELECT run_id, dataset_id FROM easeml.runs WHERE run_id > %s ORDER BY run_id", TINY.n_runs)
    rows.execute("DELETE FROM easeml.deployments WHERE tenant = %(tenant)s", newest)
    deployed = rows.value("SELECT trial_id FROM easeml.trials WHERE run_id = %s", refreshed[4]["run_id"])
    rows.execute(
        "INSERT INTO easeml.deployments (tenant, dataset_name, trial_id) VALUES (%s, %s, %s)",
        [newest["tenant"], newest["dataset_name"], deployed],
    )
    others = count(rows, "runs") - 30
    answering = set(rows.values("SELECT run_id FROM easeml.answering WHERE run_id IS NOT NULL"))
    n_counted = prune(rows, "refreshed", is_dry=True)
    assert (n_counted, count(rows, "runs")) == (19, others + 30)
    assert prune(rows, "refreshed") == n_counted
    kept = [row for k, row in enumerate(refreshed) if k == 4 or k >= 20]
    assert count(rows, "runs") == others + len(kept)
    assert set(rows.values("SELECT run_id FROM easeml.answering WHERE run_id IS NOT NULL")) == answering
    for table in ("datasets", "blocks"):
        gone = {row["dataset_id"] for row in refreshed} - {row["dataset_id"] for row in kept}
        assert set(rows.values(f"SELECT dataset_id FROM easeml.{table}")) & gone == set()
        assert count(rows, table, where=f"x.dataset_id IN ({', '.join(str(r['dataset_id']) for r in kept)})") == 11
    history = "SELECT is_kept FROM easeml.serving_history WHERE reason = 'refreshed'"
    assert sum(rows.values(history)) == 11
    assert prune(rows, "refreshed") == 0


@pytest.mark.parametrize("state", ["gone", "dropped", "member", "restored", "busy"])
def test_rows_of_dropped_tenants_leave_once_that_is_chosen(state: str, rows: Session) -> None:
    tenant = "tenant_1"
    rows.execute(INSTANCES)
    rows.execute("CREATE ROLE former LOGIN")
    role = rows.value("SELECT 'former'::regrole::oid")
    if state in ("member", "busy"):
        rows.execute("GRANT easeml_tenant TO former")
    rows.execute(
        "UPDATE easeml.tenant_roles SET since = now() - interval '90 days', role = %s WHERE tenant = %s",
        [None if state == "restored" else role, tenant],
    )
    rows.execute("SET LOCAL session_replication_role = replica")
    rows.execute("UPDATE easeml.runs SET status = 'finished', finished_at = created_at WHERE tenant = %s", [tenant])
    rows.execute("SET LOCAL session_replication_role = origin")
    if state == "gone":
        rows.execute("DROP ROLE former")
    elif state == "busy":
        rows.execute("REVOKE easeml_tenant FROM former")
        rows.execute("UPDATE easeml.runs SET finished_at = now() WHERE tenant = %s", [tenant])
    rows.execute("UPDATE easeml.tenant_roles SET since = now() WHERE tenant <> %s", [tenant])
    assert prune(rows, "dropped_tenants") == 0
    rows.execute("SELECT easeml.set_retention('dropped_tenants', '30 days')")
    others = rows.rows("SELECT tenant, count(*) FROM easeml.trials WHERE tenant <> %s GROUP BY 1 ORDER BY 1", tenant)
    is_pruned = state in ("gone", "dropped")
    assert (prune(rows, "dropped_tenants") > 0) == is_pruned
    named = rows.values(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE a.attname = 'tenant'"
        " AND c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'r'"
    )
    left = {table for table in named if count(rows, table, where=f"x.tenant = '{tenant}'")}
    assert left == set() if is_pruned else {"datasets", "runs", "trials"} <= left
    assert (
        rows.rows("SELECT tenant, count(*) FROM easeml.trials WHERE tenant <> %s GROUP BY 1 ORDER BY 1", tenant)
        == others
    )


def test_a_trial_that_is_just_being_deployed_stays_and_nobody_waits(catalogue: Session) -> None:
    trial = worst_trial(catalogue)
    other = catalogue.again()
    with other.transaction(force_rollback=True):
        other.execute("SELECT easeml.lock_serving(%(tenant)s, %(dataset_name)s)", trial)
        with catalogue.transaction(force_rollback=True):
            catalogue.execute("SELECT easeml.set_retention('states', '1 day')")
            assert prune(catalogue, "states") > 0
            assert count(catalogue, "checkpoints", where=f"x.trial_id = {trial['trial_id']}") == 1


def test_a_trial_whose_state_is_just_being_removed_is_not_deployed(catalogue: Session) -> None:
    trial = worst_trial(catalogue)
    of_trial = "FROM easeml.checkpoints WHERE checkpoint_id = %(best_checkpoint_id)s"
    (state,) = catalogue.rows(f"SELECT * {of_trial}", **trial)
    with catalogue.again() as other, ThreadPoolExecutor(1) as pool:
        with catalogue.transaction():
            # As easeml.prune_runs and easeml.prune_states do, of one trial.
            catalogue.execute("SELECT easeml.lock_serving(%(tenant)s, %(dataset_name)s)", trial)
            catalogue.execute("UPDATE easeml.trials SET best_checkpoint_id = NULL WHERE trial_id = %(trial_id)s", trial)
            catalogue.execute(f"DELETE {of_trial}", trial)
            deploying = pool.submit(other.execute, DEPLOY, trial)
            catalogue.wait_until("SELECT cardinality(pg_blocking_pids(%s)) > 0", other.info.backend_pid)
        try:
            with pytest.raises(psycopg.Error, match="has no state any more: it was old, and was removed") as refused:
                deploying.result()
            assert refused.value.sqlstate == "ML010"
            assert catalogue.rows("SELECT FROM easeml.deployments WHERE trial_id = %(trial_id)s", **trial) == []
        finally:
            catalogue.execute(
                "INSERT INTO easeml.checkpoints OVERRIDING SYSTEM VALUE"
                " SELECT * FROM jsonb_populate_record(NULL::easeml.checkpoints, %s)",
                [json.dumps(state | {"state": None}, default=str)],
            )
            restore = "UPDATE easeml.trials SET best_checkpoint_id = %(best_checkpoint_id)s"
            catalogue.execute(f"{restore} WHERE trial_id = %(trial_id)s", trial)


def test_a_run_that_is_just_being_dropped_keeps_nothing_else_from_leaving(catalogue: Session) -> None:
    (first,) = catalogue.values("SELECT min(run_id) FROM easeml.arm_openings")
    with catalogue.again() as dropping, dropping.transaction(force_rollback=True):
        dropping.execute("DELETE FROM easeml.runs WHERE run_id = %s", [first])
        with catalogue.transaction(force_rollback=True):
            last, n_rows = 0, 0
            while last is not None:
                (batch,) = catalogue.rows("SELECT * FROM easeml.prune_batch('decisions', %s, false)", last)
                last, n_rows = batch["last"], n_rows + batch["n_rows"]
            assert n_rows > 0
            assert catalogue.values("SELECT DISTINCT run_id FROM easeml.arm_openings WHERE run_id = %s", first)


def test_what_was_removed_is_said_in_words(rows: Session) -> None:
    trial = worst_trial(rows)
    for what in ("units", "states"):
        prune(rows, what)
    for statement in (
        DEPLOY,
        "SELECT easeml.check_replay_options(%(trial_id)s, 'cpu', 1, NULL)",
    ):
        with pytest.raises(psycopg.Error, match=r"old, and w(as|ere) removed"), rows.transaction():
            rows.execute(statement, trial)


@pytest.mark.parametrize(
    ("what", "keep", "message"),
    [
        ("units", "0", "keep: expected a time to keep units for, got 00:00:00"),
        ("units", "-30 days", "keep: expected a time to keep units for, got -30 days"),
        ("units", "1 hour", "keep: expected at least 1 day, got 01:00:00"),
        ("units", "2000 years", "keep: expected at most 1000 years, got 2000 years"),
        ("unit", "30 days", "what: there is nothing called 'unit' to keep"),
        (None, "30 days", "what: there is nothing called NULL to keep"),
    ],
)
def test_a_retention_that_makes_no_sense_is_refused(
    what: str | None, keep: str, message: str, catalogue: Session
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        catalogue.execute("SELECT easeml.set_retention(%s, %s)", [what, keep])
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == ("ML001", message)
    assert count(catalogue, "retention_settings") == 0


def test_only_administrators_remove_rows(catalogue: Session) -> None:
    for role in ("easeml_tenant", "easeml_reader", "easeml_coordinator"):
        with catalogue.transaction(force_rollback=True):
            catalogue.execute(f"SET LOCAL ROLE {role}")
            assert len(catalogue.rows("SELECT * FROM easeml.retention")) == 13
            for statement in ("easeml.prune_batch('units')", "easeml.set_retention('units', '9 days')"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege), catalogue.transaction():
                    catalogue.execute(f"SELECT {statement}")
    with catalogue.transaction(force_rollback=True):
        catalogue.execute("SET LOCAL ROLE easeml_admin")
        catalogue.execute("SELECT easeml.set_retention(what, '30 days') FROM easeml.retention")
        assert sum(prune(catalogue, what) for what in (*BY_RUN, *FOREVER)) > 0


def test_a_run_changes_in_its_page(catalogue: Session) -> None:
    counted = "SELECT {} FROM unnest('{{easeml.runs,easeml.trials}}'::regclass[]) r"
    hot = counted.format("sum(pg_stat_get_xact_tuples_hot_updated(r))")
    with catalogue.transaction(force_rollback=True):
        before = catalogue.value(hot)
        run_id = catalogue.value("SELECT min(run_id) FROM easeml.runs WHERE status = 'queued'")
        catalogue.execute("UPDATE easeml.runs SET status = 'running', started_at = now() WHERE run_id = %s", [run_id])
        catalogue.execute("UPDATE easeml.runs SET planned_scheduler = 'random' WHERE run_id = %s", [run_id])
        catalogue.execute(
            "UPDATE easeml.trials SET n_steps_done = 1, slot_seconds = 1, training_seconds = 1, checkpoint_id = 1"
            " WHERE trial_id = (SELECT min(trial_id) FROM easeml.trials WHERE run_id = %s)",
            [run_id],
        )
        assert catalogue.value(hot) - before == 3


def easeml(session: Session, *arguments: str) -> Any:
    result = CliRunner().invoke(commands, [*arguments, "--dsn", session.dsn, "--json"], catch_exceptions=False)
    return json.loads(result.stdout)


@pytest.fixture
def events_come_back(catalogue: Session) -> Iterator[None]:
    """A command commits what it removes, and other tests want it too."""
    catalogue.execute("CREATE TEMP TABLE events_before AS SELECT * FROM easeml.events")
    yield
    catalogue.execute("DELETE FROM easeml.events")
    catalogue.execute("INSERT INTO easeml.events OVERRIDING SYSTEM VALUE SELECT * FROM events_before")


def test_a_time_that_is_none_is_refused_with_one_that_is(catalogue: Session) -> None:
    with pytest.raises(EasemlError, match="nonsense") as caught:
        easeml(catalogue, "retention", "units", "nonsense")
    assert caught.value.hint == "Write it as SQL does: '90 days', '12 hours'."


@pytest.mark.usefixtures("events_come_back")
def test_the_command_counts_before_it_removes(catalogue: Session) -> None:
    before = count(catalogue, "events")
    counted = {row["what"]: row["n_rows"] for row in easeml(catalogue, "prune")}
    assert count(catalogue, "events") == before
    assert (
        easeml(catalogue, "prune", "events", "--yes")[0]["n_rows"]
        == counted["events"]
        == before - count(catalogue, "events")
    )
    kept = {row["what"]: row["keep"] for row in easeml(catalogue, "retention", "events", "90 days")}
    assert (kept["events"], kept["runs"]) == ("90 days", "forever")
    easeml(catalogue, "retention", "events", "forever")
    assert catalogue.value("SELECT keep IS NULL FROM easeml.retention WHERE what = 'events'")
    catalogue.execute("DELETE FROM easeml.retention_settings")


@pytest.mark.parametrize("interval", ["-3 days", "0", "0 days"])
def test_the_command_refuses_an_interval_that_is_none_to_keep_for(interval: str, catalogue: Session) -> None:
    with pytest.raises(EasemlError, match="keep: expected a time to keep units for, got") as refused:
        easeml(catalogue, "retention", "units", interval)
    assert "for easeml retention the word is forever" in (refused.value.hint or "")
    assert catalogue.value("SELECT count(*) FROM easeml.retention_settings WHERE what = 'units'") == 0
