"""Plans before anything runs: what is known of trials is read, nothing is started, and what cannot be planned is
refused.

Units are written by hand, so that their times are known: an epoch of `mlp` takes 24 seconds on a slot.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner

from easeml_db.cli import commands
from easeml_db.decisions.planner.declared import UNDECLARED

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

TABLE = """
CREATE TABLE lena.mine AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 120) i
"""
UNITS = """
INSERT INTO easeml.training_units (trial_id, run_id, tenant, epoch, position, partition_number, slot_id, attempt, seed,
    lease_number, started_at, finished_at, training_seconds, n_rows, checkpoint_id, state_bytes, state_sha256)
SELECT trial_id, run_id, tenant, epoch, q, q, 1, 1, 0, 1, now(), now() + interval '10 seconds', 0, 1, 0, 0, ''
FROM easeml.trials, generate_series(1, 2) epoch, generate_series(0, 1) q WHERE run_id = %(run)s
"""
EVALUATIONS = """
INSERT INTO easeml.evaluations (trial_id, run_id, tenant, epoch, split, partition_number, slot_id, attempt,
    lease_number, started_at, finished_at, statistics)
SELECT trial_id, run_id, tenant, epoch, 'validation', q, 1, 1, 1, now(), now() + interval '2 seconds', '{}'
FROM easeml.trials, generate_series(1, 2) epoch, generate_series(0, 1) q WHERE run_id = %(run)s
"""
METRICS = """
INSERT INTO easeml.epoch_metrics (trial_id, run_id, tenant, epoch, split, metric_value, n_rows)
SELECT trial_id, run_id, tenant, epoch, 'validation', 0.5 + trial_number / 50.0 + epoch / 20.0, 1
FROM easeml.trials, generate_series(1, 2) epoch WHERE run_id = %(run)s
"""
HALVING = "procedure => 'successive_halving', n_configs => 9, max_epochs => 9, architectures => ARRAY['mlp']"
PLAN = f"SELECT * FROM easeml.plan('flowers', {HALVING}{{}})"


@pytest.fixture(scope="module")
def lena(module_database: Session) -> Session:
    """A tenant who has trained three trials of mlp for two epochs each, by hand; there is no coordinator."""
    module_database.execute("SELECT easeml.set_slots(2)")
    session = module_database.as_role("lena", "easeml_tenant")
    module_database.execute("CREATE SCHEMA lena AUTHORIZATION lena")
    session.execute(TABLE)
    session.execute("SELECT easeml.create_dataset('flowers', 'lena.mine', '{x}', 'y', n_partitions => 2)")
    run = session.value("SELECT easeml.select_models('flowers', '{mlp}', n_configs => 3, max_epochs => 2)")
    for statement in (UNITS, EVALUATIONS, METRICS):
        module_database.execute(statement, {"run": run})
    module_database.execute("UPDATE easeml.trials SET status = 'running', n_steps_done = 8")
    return session


@pytest.fixture(scope="module")
def anna(module_database: Session) -> Session:
    return module_database.as_role("anna", "easeml_admin")


def total(rows: list[dict[str, Any]], plan: str = "planned") -> dict[str, Any]:
    (row,) = [row for row in rows if row["plan"] == plan and row["stage"] is None]
    return row


def test_a_plan_shows_stages_time_and_cost_of_each_alternative(lena: Session) -> None:
    found = lena.rows(PLAN.format(", deadline => interval '400 seconds'"))
    stages = [row for row in found if row["plan"] == "planned" and row["stage"] is not None]
    assert [(row["n_trials"], row["n_epochs"]) for row in stages] == [(9, 1), (3, 2), (1, 6)]
    # On 2, 2 and 1 slots: 108 + 72 + 144 seconds, at 1 for each slot and hour.
    assert [row["n_slots"] for row in stages] == [2, 2, 1]
    assert total(found)["seconds_mean"] == pytest.approx(324, rel=0.05)
    assert total(found)["cost_mean"] == pytest.approx(504 / 3600, rel=0.05)
    assert total(found)["seconds_p50"] <= total(found)["seconds_p95"] <= 400
    assert {row["plan"] for row in found} == {"planned", "static"}  # nine slots for nine trials there are not
    assert total(found, "static")["cost_mean"] >= total(found)["cost_mean"]
    assert 0.95 <= total(found)["chance"] <= 1  # confidence is 0.95
    assert {row["chance"] for row in stages} == {None}


def test_what_is_unknown_can_be_timed_by_a_bounded_run(lena: Session) -> None:
    try:
        run = lena.value("SELECT easeml.profile_dataset('flowers', '{linear,mlp}', seed => 7, max_seconds => 20)")
        found = (
            "SELECT procedure, allocation, max_seconds, max_epochs, seed, scheduler FROM easeml.runs WHERE run_id = %s"
        )
        # Any trial may be next: where time is too short for all, the longest would keep architectures waiting.
        assert tuple(lena.rows(found, run)[0].values()) == ("random", "hopping", 20, 2, 7, "random")
        trials = "SELECT architecture FROM easeml.trials WHERE run_id = %s ORDER BY trial_number"
        assert lena.values(trials, run) == 3 * ["linear", "mlp"]
        wide = lena.value(
            "SELECT easeml.profile_dataset('flowers', '{sgd,mlp}', '{\"learning_rate\": 0.1}', n_configs => 1,"
            " allocation => 'data_parallel')"
        )
        assert lena.values(trials, wide) == ["sgd", "mlp"]
        assert lena.rows(found, wide)[0]["allocation"] == "data_parallel"
        usual = lena.value("SELECT easeml.profile_dataset('flowers', n_configs => 2)")
        assert set(Counter(lena.values(trials, usual)).values()) == {2}
    finally:
        lena.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs WHERE max_seconds IS NOT NULL")


def test_as_many_trials_of_each_architecture_are_timed_where_some_do_not_fit(
    lena: Session, module_database: Session
) -> None:
    """What takes all partitions at once is not chosen where no segment has them all."""
    trials = "SELECT architecture FROM easeml.trials WHERE run_id = %s"
    try:
        everywhere = lena.value("SELECT easeml.profile_dataset('flowers', n_configs => 2)")
        module_database.execute("UPDATE easeml.datasets SET placement = 'bound' WHERE dataset_name = 'flowers'")
        apart = lena.value("SELECT easeml.profile_dataset('flowers', n_configs => 2)")
        timed = [Counter(lena.values(trials, run)) for run in (everywhere, apart)]
        assert timed[1].keys() < timed[0].keys()
        assert set(timed[1].values()) == {2}
    finally:
        module_database.execute("UPDATE easeml.datasets SET placement = 'shared' WHERE dataset_name = 'flowers'")
        lena.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs WHERE max_seconds IS NOT NULL")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("n_configs => 0", "n_configs: expected 1 to 100, got 0"),
        ("n_configs => NULL", "n_configs: expected 1 to 100, got NULL"),
        ("max_seconds => NULL", "max_seconds: expected a number above 0, got NULL"),
        ("max_seconds => -1", "max_seconds: expected"),
        ("allocation => 'wide'", "there is no allocation 'wide'"),
        ("architectures => '{mlpp}'", "mlpp"),
    ],
)
def test_what_cannot_be_timed_is_refused(lena: Session, arguments: str, said: str) -> None:
    before = lena.value("SELECT count(*) FROM easeml.runs")
    with pytest.raises(psycopg.Error, match=said):
        lena.execute(f"SELECT easeml.profile_dataset('flowers', {arguments})")
    assert lena.value("SELECT count(*) FROM easeml.runs") == before


def test_what_a_slot_waits_between_two_units_is_counted(lena: Session, module_database: Session) -> None:
    """Units of a second with 0.2 s between them; another trial ends on slot 2 meanwhile, and once there is no work."""
    run = lena.value("SELECT easeml.select_models('flowers', '{mlp}', n_configs => 2, max_epochs => 9)")
    moments = [(1, 0.0), (1, 1.2), (1, 2.4), (1, 60.0 - 5), (2, 0.5), (2, 1.7)]
    for k, (trial, began) in enumerate(moments):
        module_database.execute(
            UNITS.replace("generate_series(1, 2) epoch, generate_series(0, 1) q", f"(VALUES ({k}, 0)) v(epoch, q)")
            .replace("position, partition_number, slot_id", "slot_id, position, partition_number")
            .replace("q, q, 1, 1, 0, 1,", f"{trial}, q, q, 1, 0, 1,")
            .replace("now()", f"'2030-01-01'::timestamptz + interval '{began} seconds'")
            .replace("10 seconds", "1 second")
            + f" AND trial_number = {trial}",
            {"run": run},
        )
    known = (
        "SELECT easeml.known_times(d, 'random') -> 'turn_seconds' FROM easeml.datasets d WHERE dataset_name = 'flowers'"
    )
    try:
        module_database.execute("UPDATE easeml.trials SET n_steps_done = 4 WHERE run_id = %s", [run])
        assert lena.value(known) is None  # it has not begun
        module_database.execute("UPDATE easeml.runs SET started_at = '2030-01-01' WHERE run_id = %s", [run])
        assert lena.value(known) == {"mlp": pytest.approx(0.2)}
    finally:
        lena.execute("SELECT easeml.drop_run(%s, force => true)", [run])


def test_what_passes_before_the_first_unit_and_after_the_last_is_in_the_plan(
    lena: Session, module_database: Session
) -> None:
    """Two runs took 0.4 and 0.8 s beside their trials; one waited a minute for others, which says nothing."""
    plan = PLAN.format(", deadline => interval '1000 seconds', max_cost => 9")
    before = total(lena.rows(plan))["seconds_mean"]
    runs = []
    try:
        for waited in (0.3, 0.7, 60.0):
            runs.append(lena.value("SELECT easeml.select_models('flowers', '{sgd}', n_configs => 1, max_epochs => 1)"))
            module_database.execute(
                "UPDATE easeml.trials SET started_at = '2030-01-01', finished_at = '2030-01-02' WHERE run_id = %s",
                [runs[-1]],
            )
            module_database.execute("UPDATE easeml.runs SET status = 'running' WHERE run_id = %s", [runs[-1]])
            module_database.execute(
                "UPDATE easeml.runs SET status = 'finished', finished_at = '2030-01-02 00:00:00.1',"
                " created_at = '2030-01-01'::timestamptz - %s * interval '1 s' WHERE run_id = %s",
                [waited, runs[-1]],
            )
        assert total(lena.rows(plan))["seconds_mean"] == pytest.approx(before + 0.6, abs=1e-6)
    finally:
        for run_id in runs:
            lena.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])


def test_the_first_unit_of_a_slot_on_a_partition_counts_once_and_not_for_every_epoch(
    lena: Session, module_database: Session
) -> None:
    """Of the two first of twelve units each takes 4 seconds longer: a run reads its rows once."""
    before = total(lena.rows(PLAN.format("")), "static")["seconds_mean"]
    with module_database.transaction(force_rollback=True):
        module_database.execute(
            "UPDATE easeml.training_units u SET started_at = started_at - interval '4 seconds'"
            " WHERE trial_id = (SELECT min(trial_id) FROM easeml.training_units) AND epoch = 1"
        )
        module_database.execute("SET LOCAL ROLE lena")
        known = module_database.value(
            "SELECT easeml.timed_trials(d) FROM easeml.datasets d WHERE dataset_name = 'flowers'"
        )
        after = total(module_database.rows(PLAN.format("")), "static")["seconds_mean"]
    assert [row["epoch_seconds"] for row in known] == [24, 24, 24]
    assert [row["reading_seconds"] for row in known] == [4, None, None]
    assert after == pytest.approx(before + 2 * 4, abs=1e-6)


def test_trials_that_trained_in_batches_are_known_as_such(lena: Session, module_database: Session) -> None:
    known = (
        "SELECT DISTINCT t -> 'is_batched' FROM easeml.datasets d, jsonb_array_elements(easeml.timed_trials(d)) t"
        " WHERE dataset_name = 'flowers'"
    )
    assert lena.values(known) == [False]
    with module_database.transaction(force_rollback=True):
        module_database.execute("UPDATE easeml.training_units SET stack = '{3,0,4}'")
        module_database.execute("SET LOCAL ROLE lena")
        assert module_database.values(known) == [True]


def test_nothing_is_started_and_nothing_is_written(lena: Session, module_database: Session) -> None:
    tables = ("runs", "trials", "events", "training_units")
    counts = " UNION ALL ".join(f"SELECT count(*) FROM easeml.{table}" for table in tables)
    before = module_database.rows(counts)
    with lena.transaction():
        lena.execute("SET TRANSACTION READ ONLY")
        lena.execute(PLAN.format(""))
    assert module_database.rows(counts) == before


def test_the_frontier_goes_from_two_slots_to_one(lena: Session) -> None:
    found = lena.rows(f"SELECT * FROM easeml.plan_frontier('flowers', {HALVING})")
    assert found[0]["n_slots"][:2] == [2, 2]
    assert found[-1]["cost_mean"] <= found[0]["cost_mean"]
    assert [row["seconds_mean"] for row in found] == sorted(row["seconds_mean"] for row in found)


def test_a_price_list_for_devices_that_were_never_measured_says_what_it_assumes(lena: Session) -> None:
    found = lena.rows(PLAN.format(", price_list => 'aws-p3', deadline => interval '10 minutes'"))
    assert "nothing was measured on cuda: a slot is taken to be as fast as one of cpu" in total(found)["note"]
    assert "mlp was never trained on several slots" in total(found)["note"]
    assert {row["instance_type"] for row in found if row["stage"] is not None} <= {
        "p3.2xlarge",
        "p3.8xlarge",
        "p3.16xlarge",
    }


def test_procedures_without_stages_are_played_on_the_curves_of_the_past(lena: Session) -> None:
    for procedure in UNDECLARED:
        found = lena.rows(
            "SELECT * FROM easeml.plan('flowers', '{mlp}', procedure => %s, n_configs => 6, max_epochs => 4)", procedure
        )
        assert total(found)["seconds_p95"] > total(found)["seconds_p50"]


def test_another_dataset_is_reckoned_by_its_rows(lena: Session) -> None:
    lena.execute("CREATE TABLE lena.twice AS SELECT * FROM lena.mine UNION ALL SELECT * FROM lena.mine")
    lena.execute("SELECT easeml.create_dataset('twice', 'lena.twice', '{x}', 'y', n_partitions => 2)")
    once, twice = (
        # The fastest plan: of those that cost the same, chance would choose.
        total(lena.rows(PLAN.replace("flowers", name).format(", max_cost => 1000, confidence => NULL")))
        for name in ("flowers", "twice")
    )
    assert twice["seconds_mean"] == pytest.approx(2 * once["seconds_mean"], rel=0.1)
    assert "never timed on this dataset" in twice["note"]


@pytest.mark.parametrize(
    ("arguments", "sqlstate", "said"),
    [
        (", deadline => interval '1 second'", "ML001", "deadline: expected at least .* s, the fastest plan, got 1 s"),
        (", deadline => interval '-5 minutes'", "ML001", "deadline: expected an interval above 0"),
        (", deadline => interval '90 years'", "ML001", "deadline: expected an interval above 0 and below 30 years"),
        (", max_cost => 0.0001", "ML001", "max_cost: expected at least 0.1"),
        (", max_cost => 0", "ML001", "max_cost: expected a number above 0"),
        (", max_cost => 'NaN'", "ML001", "max_cost: expected a number above 0"),
        (", deadline => interval '400 s', max_cost => 0.1", "ML001", "max_cost: .*, the cheapest plan within 400 s"),
        (", confidence => 1", "ML001", "confidence: expected at least 0.5"),
        (", price_list => 'gold'", "ML003", "there is no price list 'gold'"),
        (", price_list => NULL", "ML003", "there is no price list NULL"),
        (", procedure_options => '{\"n_trials\": 32}'", "ML001", "procedure_options.n_trials"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_a_line(lena: Session, arguments: str, sqlstate: str, said: str) -> None:
    with pytest.raises(psycopg.Error, match=said) as refused:
        lena.execute(PLAN.format(arguments))
    assert refused.value.sqlstate == sqlstate
    assert refused.value.diag.message_primary
    assert "\n" not in refused.value.diag.message_primary


def test_an_architecture_that_was_never_trained_is_named_with_what_to_do(lena: Session) -> None:
    with pytest.raises(
        psycopg.Error, match="nothing is known of how long linear takes on dataset 'flowers'"
    ) as refused:
        lena.execute(PLAN.format("").replace("mlp", "linear"))
    assert refused.value.sqlstate == "ML010"
    assert "SELECT easeml.profile_dataset('flowers', '{linear}')" in str(refused.value.diag.message_hint)


def test_a_tenant_learns_nothing_of_how_long_trials_of_others_take(lena: Session, module_database: Session) -> None:
    mallory = module_database.as_role("mallory", "easeml_tenant")
    module_database.execute("CREATE SCHEMA mallory AUTHORIZATION mallory")
    mallory.execute(TABLE.replace("lena", "mallory"))
    mallory.execute("SELECT easeml.create_dataset('flowers', 'mallory.mine', '{x}', 'y', n_partitions => 2)")
    with pytest.raises(psycopg.Error, match="nothing is known of how long mlp takes"):
        mallory.execute(PLAN.format(""))
    forged = 'SELECT easeml.timed_trials(jsonb_populate_record(d, \'{"tenant": "lena"}\')) FROM easeml.datasets d'
    assert mallory.value(forged) == []


def test_a_tenant_plans_within_its_slots(lena: Session, module_database: Session) -> None:
    module_database.execute("SELECT easeml.create_tenant('lena', max_slots => 1)")
    try:
        found = lena.rows(PLAN.format(""))
        assert {row["n_slots"] for row in found} == {1}
        with pytest.raises(psycopg.Error, match="fastest plan"):
            lena.execute(PLAN.format(", deadline => interval '400 seconds'"))
    finally:
        module_database.execute("UPDATE easeml.tenants SET max_slots = NULL")


# Price lists


G5 = [{"instance_type": "g5", "n_slots": 4, "price_per_hour": 5.67, "start_seconds": 30, "max_instances": 2}]


def test_administrators_make_and_drop_price_lists_and_tenants_plan_with_them(lena: Session, anna: Session) -> None:
    anna.execute("SELECT easeml.create_price_list('ours', %s::jsonb, 'of last year')", [json.dumps(G5)])
    (row,) = lena.rows("SELECT * FROM easeml.prices WHERE price_list = 'ours'")
    assert (row["device_kind"], row["billed_by"], row["start_seconds"], row["caveat"]) == (
        "cuda",
        "second",
        30,
        "of last year",
    )
    found = lena.rows(PLAN.format(", price_list => 'ours'"))
    assert max(row["n_slots"] for row in found) <= 8
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        lena.execute("SELECT easeml.drop_price_list('ours')")
    anna.execute("SELECT easeml.drop_price_list('ours')")
    assert not lena.rows("SELECT FROM easeml.prices WHERE price_list = 'ours'")


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ([], "types: expected an array of 1 to 8"),
        ({}, "types: expected an array"),
        (None, "types: expected an array"),
        ([{"n_slots": 1, "price_per_hour": 1}], r"types\[0\].instance_type: expected a text"),
        ([G5[0] | {"price_per_hour": -1}], r"types\[0\].price_per_hour: expected a number of at least 0, got -1"),
        ([G5[0] | {"start_seconds": -1}], r"types\[0\].start_seconds: expected a number of at least 0"),
        ([{"instance_type": "g5", "n_slots": 1}], r"types\[0\].price_per_hour: expected a number, got null"),
        ([G5[0] | {"price": 3}], r"types\[0\].price: expected one of"),
        ([G5[0] | {"n_slots": 1.5}], r"types\[0\].n_slots: expected a whole number"),
        ([G5[0] | {"device_kind": "tpu"}], "device_kind: expected cpu or cuda, got 'tpu'"),
        ([G5[0], G5[0]], "expected each instance type once"),
    ],
)
def test_price_lists_that_nobody_can_mean_are_refused(anna: Session, types: Any, said: str) -> None:
    with pytest.raises(psycopg.Error, match=said) as refused:
        anna.execute("SELECT easeml.create_price_list('bad', %s::jsonb)", [json.dumps(types)])
    assert refused.value.sqlstate == "ML001"


def test_a_price_list_in_use_is_not_dropped_and_no_name_is_used_twice(anna: Session) -> None:
    for name in ("local", "aws-p3"):
        with pytest.raises(psycopg.Error, match="comes with easeml and stays"):
            anna.execute("SELECT easeml.drop_price_list(%s)", [name])
    with pytest.raises(psycopg.Error, match="there is a price list 'local' already"):
        anna.execute("SELECT easeml.create_price_list('local', %s::jsonb)", [json.dumps(G5)])
    with pytest.raises(psycopg.Error, match="there is no price list 'gold'"):
        anna.execute("SELECT easeml.drop_price_list('gold')")


# The command line


def shell(session: Session, *arguments: str) -> Any:
    """Run a command as the role of a session."""
    dsn = psycopg.conninfo.make_conninfo(session.dsn, user=session.info.user)
    return CliRunner().invoke(commands, [*arguments, "--dsn", dsn])


SHELL_PLAN = (
    "plan", "flowers", "--procedure", "successive_halving", "--n-configs", "9", "--max-epochs", "9",
    "--architectures", "mlp",
)  # fmt: skip


def test_the_shell_draws_slots_over_time_for_each_alternative(lena: Session) -> None:
    result = shell(lena, *SHELL_PLAN, "--deadline", "400 seconds")
    assert result.exit_code == 0, result.output
    assert "planned: 5 min" in result.output
    assert "% of cases" in result.output
    assert "static: " in result.output
    assert "     2 |####" in result.output
    rows = json.loads(shell(lena, *SHELL_PLAN, "--json").output)
    assert total(rows)["seconds_mean"] > 0
    assert total(rows)["chance"] is None


def test_the_shell_draws_the_frontier(lena: Session) -> None:
    result = shell(lena, *SHELL_PLAN, "--frontier")
    assert result.exit_code == 0, result.output
    assert "*" in result.output
    assert shell(lena, *SHELL_PLAN, "--frontier", "--max-cost", "3").exit_code == 2


def test_price_lists_travel_as_csv(anna: Session, tmp_path: Path, module_database: Session) -> None:
    exported = shell(module_database, "price", "export", "aws-p3")
    path = tmp_path / "prices.csv"
    path.write_text(exported.output, encoding="utf-8")
    assert shell(module_database, "price", "import", "copy", str(path), "--caveat", "a copy").exit_code == 0
    assert shell(module_database, "price", "export", "copy").output == exported.output
    assert "copy: a copy" in shell(module_database, "price").output
    assert shell(module_database, "price", "drop", "copy").exit_code == 0
    path.write_text("instance_type,n_slots,price_per_hour\ng5,four,1\n", encoding="utf-8")
    refused = shell(module_database, "price", "import", "copy", str(path))
    assert "line 2: n_slots: expected a number, got 'four'" in str(refused.exception)


# Runs under way


def test_a_run_under_way_says_when_it_is_done_and_what_it_costs(lena: Session) -> None:
    """Three trials of two epochs have no epoch left; a fourth run of three trials has six epochs of 24 s and three
    tests of 4 s on two slots."""
    run = lena.value("SELECT easeml.select_models('flowers', '{mlp}', n_configs => 3, max_epochs => 2)")
    (row,) = lena.rows("SELECT *, extract(epoch FROM eta_at - now()) AS seconds FROM easeml.forecast(%s)", run)
    assert row["seconds_left"] == pytest.approx(78, rel=0.15)
    assert row["eta_earliest_at"] < row["eta_at"] < row["eta_p95_at"]
    assert row["cost_so_far"] == 0
    assert row["cost_expected"] == pytest.approx((6 * 24 + 3 * 4) / 3600, rel=0.15)
    assert row["is_at_risk"] is False
    (shown,) = json.loads(shell(lena, "run", "forecast", str(run), "--json").output)
    assert shown["eta_at"]
    lena.execute("SELECT easeml.cancel(%s)", [run])
    assert lena.rows("SELECT * FROM easeml.forecast(%s)", run) == []


def test_a_staged_run_has_its_rungs_left_and_a_limit_ends_it(lena: Session, module_database: Session) -> None:
    select = f"SELECT easeml.select_models('flowers', {HALVING}{{}})"
    free, limited = (lena.value(select.format(more)) for more in ("", ", max_seconds => 60"))
    found = {row["run"]: row for row in lena.rows("SELECT * FROM easeml.forecast()")}
    # As the plan says: 108 + 72 + 144 seconds.
    assert found[free]["seconds_left"] == pytest.approx(324, rel=0.15)
    assert found[limited]["seconds_left"] == pytest.approx(60, rel=0.05)
    lena.execute("SELECT easeml.cancel(run_id) FROM easeml.runs WHERE status = 'queued'")


def test_runs_that_are_played_on_and_runs_of_which_nothing_is_known_have_a_forecast_or_a_reason(lena: Session) -> None:
    select = "SELECT easeml.select_models('flowers', '{mlp}', procedure => %s, n_configs => 6)"
    played = [lena.value(select, procedure) for procedure in UNDECLARED]
    unknown = lena.value("SELECT easeml.select_models('flowers', '{linear}', max_epochs => 2)")
    found = {row["run"]: row for row in lena.rows("SELECT * FROM easeml.forecast()")}
    assert "nothing is known of how long linear takes" in found[unknown]["note"]
    assert all(found[run]["seconds_left"] > 0 for run in played)
    lena.execute("SELECT easeml.cancel(run_id) FROM easeml.runs WHERE status = 'queued'")
