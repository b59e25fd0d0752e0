"""Runs that are planned: what cannot be kept is refused before anything is written, and the plan is kept with the run.

As in test_plans.py, units are written by hand: an epoch of `mlp` takes 24 seconds on a slot, and nothing trains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.postgres.queries import queries
from tests.integration.plans.test_plans import HALVING, SHELL_PLAN, anna, lena, shell

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

__all__ = ["anna", "lena"]
SELECT = f"SELECT easeml.select_models('flowers', {HALVING}{{}})"
PLANNED = ", allocation => 'planned'"
COUNTS = " UNION ALL ".join(
    f"SELECT count(*) FROM easeml.{table}" for table in ("runs", "arms", "trials", "plans", "planned_stages")
)


@pytest.fixture
def planned(lena: Session) -> Iterator[Any]:
    """Start planned runs that are dropped afterwards."""
    before = set(lena.values("SELECT run_id FROM easeml.runs"))
    yield lambda more: lena.value(SELECT.format(more))
    for run_id in set(lena.values("SELECT run_id FROM easeml.runs")) - before:
        lena.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])


def test_the_plan_is_kept_with_the_run_as_it_was_shown(lena: Session, planned: Any) -> None:
    limits = ", deadline => interval '400 seconds', max_cost => 0.5"
    shown = [
        row for row in lena.rows(f"SELECT * FROM easeml.plan('flowers', {HALVING}{limits})") if row["plan"] == "planned"
    ]
    run_id = planned(limits)
    (run,) = lena.rows("SELECT * FROM easeml.runs WHERE run_id = %s", run_id)
    assert (run["allocation"], run["price_list"], run["max_cost"]) == ("planned", "local", 0.5)
    assert (run["deadline"] - run["created_at"]).total_seconds() == pytest.approx(400, abs=5)
    kept = lena.rows("SELECT * FROM easeml.planned_stages WHERE run_id = %s ORDER BY stage", run_id)
    names = ("label", "n_trials", "n_slots", "instance_type", "seconds_mean", "seconds_p95", "cost_mean", "cost_p95")
    assert [[row[name] for name in names] for row in kept] == [
        [row[name] for name in names] for row in shown if row["stage"] is not None
    ]
    assert [(row["arm"], row["bracket"], row["target_epochs"]) for row in kept] == [("mlp", 0, n) for n in (1, 3, 9)]
    (revision,) = lena.rows("SELECT * FROM easeml.plan_revisions WHERE run_id = %s", run_id)
    assert (revision["reason"], revision["n_slots"], revision["is_within_limits"]) == ("start", [2, 2, 1], True)
    assert revision["end_p95_at"] <= revision["deadline"]


STAGE = {"place": 1, "revision": 1, "label": "all", "arm": "", "bracket": 0, "target_epochs": 0, "n_trials": 2}
NOTED = {
    "note": {"trial_id": None, "kind": "retry", "message": "it failed"},
    "note_summary": {},
    "keep_profile": {
        "architecture": "mlp", "device_kind": "cpu", "alpha": 1.0, "beta": 1.0, "c": 1.0, "d": 1.0, "eps_seconds": 0.0,
        "n_packed": 1, "n_devices": 1, "is_bounded": True, "measurements": "{}",
    },
    "keep_revision": {"revision": 2, "reason": "behind", "is_within_limits": True, "cost_before": 0, "seconds_mean": 1,
        "seconds_p95": 1, "cost_mean": 0, "cost_p95": 0, "stages": []},
    "keep_stage": STAGE | {"n_slots": 1, "cost_before": 0, "began_seconds": 1000, "n_failures": 0},
    "keep_allocations": {"groups": [{"group_number": 1, "label": "all", "n_trials": 2}], "decisions": [], "ended": []},
    "keep_priors": {"prior": "none", "link": "identity", "mean": [0], "covariance": [1], "arm_ids": [1]},
}  # fmt: skip


@pytest.mark.parametrize("name", NOTED)
def test_what_the_coordinator_records_of_a_run_waits_for_no_transaction_that_drops_it(
    module_database: Session, lena: Session, planned: Any, name: str
) -> None:
    """Of an open run it first writes the row, and then removes it: a lock on the key alone would pass the first."""
    run_id = planned("")
    lease = module_database.value("SELECT lease_number FROM easeml.coordinator_lease")
    journal = {"lease_number": lease, "run_id": run_id} | NOTED[name]
    values = journal | {"journal": json.dumps(journal), "priors": json.dumps([journal])}
    with lena.again() as dropping, dropping.transaction(force_rollback=True):
        dropping.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
        with module_database.transaction():
            module_database.execute("SET LOCAL lock_timeout = '5ms'")
            module_database.execute(queries("coordinator")[name].encode(), values)


def test_trials_may_be_counted_where_the_procedure_has_its_options(lena: Session, planned: Any) -> None:
    """As papers ask for them: the same plan and the same run as with n_configs."""
    asked = "'{{mlp}}', procedure => 'successive_halving', max_epochs => 9, {}"
    options = asked.format("procedure_options => '{\"n_trials\": 9}'")
    rows = "SELECT * FROM easeml.plan('flowers', {})"
    assert lena.rows(rows.format(options)) == lena.rows(rows.format(asked.format("n_configs => 9")))
    run_id = lena.value(f"SELECT easeml.select_models('flowers', {options}, price_list => 'local')")
    assert lena.rows("SELECT n_configs, max_seconds FROM easeml.runs WHERE run_id = %s", run_id) == [
        {"n_configs": 9, "max_seconds": None}
    ]
    lena.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
    with pytest.raises(psycopg.Error, match=r"procedure_options\.n_trials: expected n_configs, which says the same"):
        lena.execute(f"SELECT * FROM easeml.plan('flowers', {options}, n_configs => 8)")  # type: ignore[arg-type]


def test_the_rest_of_a_planned_run_may_be_planned_with_several_slots_for_each_trial(
    lena: Session, planned: Any
) -> None:
    joint = "SELECT easeml.run_standing(r) -> 'knowledge' -> 'joint' FROM easeml.runs r WHERE run_id = %s"
    assert lena.value(joint, planned(PLANNED)) == ["mlp"]
    assert lena.value(joint, planned("")) == []


def test_a_plan_is_read_with_its_prices_also_when_the_slots_that_it_was_made_for_are_gone(
    anna: Session, planned: Any
) -> None:
    run_id = planned(PLANNED)
    with anna.transaction(force_rollback=True):
        anna.execute("SELECT easeml.remove_slot(slot_id, force => true) FROM easeml.slots")
        (read,) = anna.rows(queries("coordinator")["read_plan"], run_id=run_id)
    used = anna.values("SELECT DISTINCT instance_type FROM easeml.planned_stages WHERE run_id = %s", run_id)
    assert used == [each["instance_type"] for each in read["types"]]


def test_a_limit_alone_makes_a_run_planned_and_others_stay_as_they_are(lena: Session, planned: Any) -> None:
    def told(more: str) -> tuple[Any, ...]:
        statement = "SELECT allocation, price_list, max_seconds, deadline FROM easeml.runs WHERE run_id = %s"
        return tuple(lena.rows(statement, planned(more))[0].values())

    assert told(", price_list => 'local'") == ("planned", "local", None, None)
    assert told(", allocation => 'planned'") == ("planned", "local", None, None)
    assert told(", max_cost => 9")[:2] == ("planned", "local")
    assert told("") == ("hopping", None, None, None)


@pytest.mark.parametrize(
    ("arguments", "sqlstate", "said"),
    [
        (", deadline => interval '1 second'", "ML001", "deadline: expected at least .* s, the fastest plan, got 1 s"),
        (", deadline => interval '-5 minutes'", "ML001", "deadline: expected an interval above 0"),
        (", max_cost => 0.0001", "ML001", "max_cost: expected at least 0.1"),
        (", max_cost => 'NaN'", "ML001", "max_cost: expected a number above 0"),
        (", deadline => interval '400 s', max_cost => 0.1", "ML001", "max_cost: .*, the cheapest plan within 400 s"),
        (", price_list => 'gold'", "ML003", "there is no price list 'gold'"),
        (", deadline => interval '1 h', allocation => 'hopping'", "ML001", "deadline: only allocation planned keeps"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_is_written(
    lena: Session, planned: Any, arguments: str, sqlstate: str, said: str
) -> None:
    before = lena.values(COUNTS)
    with pytest.raises(psycopg.Error, match=said) as refused:
        planned(arguments)
    assert refused.value.sqlstate == sqlstate
    assert lena.values(COUNTS) == before
    if "fastest" in said:
        assert "The fastest plan costs" in str(refused.value.diag.message_hint)


def test_a_procedure_without_stages_is_planned_from_history_and_refused_without(
    lena: Session, planned: Any, module_database: Session
) -> None:
    race = "SELECT easeml.select_models('flowers', '{mlp}', procedure => 'asha', n_configs => 6, max_epochs => 4,"
    run_id = lena.value(race + " allocation => 'planned')")
    assert lena.value("SELECT count(*) FROM easeml.planned_stages WHERE run_id = %s", run_id) == 1
    with module_database.transaction(force_rollback=True):
        module_database.execute("DELETE FROM easeml.epoch_metrics")
        module_database.execute("SET LOCAL ROLE lena")
        with pytest.raises(psycopg.Error, match="there are no learning curves to play it on") as refused:
            module_database.execute(race + " allocation => 'planned')")
        assert refused.value.sqlstate == "ML010"


def test_all_planned_runs_of_a_tenant_share_its_slots_and_hours(
    lena: Session, planned: Any, module_database: Session
) -> None:
    module_database.execute("SELECT easeml.create_tenant('lena', max_slots => 2)")
    try:
        planned(", deadline => interval '400 seconds'")
        with pytest.raises(
            psycopg.Error, match=r"max_slots: lena may have 2 slot\(s\) at a time, and its planned runs"
        ):
            planned(PLANNED)
        for run_id in lena.values("SELECT run_id FROM easeml.runs WHERE allocation = 'planned' AND status = 'queued'"):
            lena.execute("SELECT easeml.cancel(%s)", [run_id])
        planned(PLANNED)
        module_database.execute("SELECT easeml.alter_tenant('lena', max_hours => 0.06, clear => '{max_slots}')")
        with pytest.raises(
            psycopg.Error, match=r"max_hours: lena may use 0.06 slot hour\(s\), has used .*, and the plan takes 0.1"
        ) as refused:
            planned(PLANNED)
        assert refused.value.sqlstate == "ML015"
    finally:
        module_database.execute("SELECT easeml.alter_tenant('lena', clear => '{max_slots,max_hours}')")


def test_a_price_list_in_use_by_a_run_is_not_dropped(lena: Session, anna: Session, planned: Any) -> None:
    types = [{"instance_type": "slot", "device_kind": "cpu", "n_slots": 1, "price_per_hour": 2}]
    anna.execute("SELECT easeml.create_price_list('dear', %s::jsonb, is_local => true)", [json.dumps(types)])
    run_id = planned(", price_list => 'dear'")
    with pytest.raises(psycopg.Error, match=rf"price list dear is in use by run\(s\) {run_id}"):
        anna.execute("SELECT easeml.drop_price_list('dear')")
    lena.execute("SELECT easeml.cancel(%s)", [run_id])
    anna.execute("SELECT easeml.drop_price_list('dear')")


def test_a_stage_under_way_is_shown_with_the_slots_that_it_has_now(lena: Session, anna: Session, planned: Any) -> None:
    run_id = planned(PLANNED)
    anna.execute(
        "INSERT INTO easeml.executed_stages (run_id, tenant, place, revision, label, arm, bracket, target_epochs,"
        " began_at, n_trials, n_slots, cost_before) SELECT %s, 'lena', 1, 1, 'rung', 'mlp', 0, 1, now(), 9, 0, 0",
        [run_id],
    )
    anna.execute(
        "INSERT INTO easeml.instances (run_id, tenant, provisioner, price_list, instance_type, device_kind, n_slots,"
        " price_per_hour, billed_by, billed_per, minimum_seconds, data_price, status) SELECT %s, 'lena', 'local',"
        " 'local', 'cpu slot', 'cpu', 1, 1, 'second', 'instance', 0, 0, 'ready' FROM generate_series(1, 2)",
        [run_id],
    )
    shown = "SELECT reason, n_slots FROM easeml.plan_accuracy WHERE run_id = %s"
    assert lena.rows(shown, run_id) == [{"reason": "under way", "n_slots": 2}]
    anna.execute("UPDATE easeml.instances SET status = 'released', ended_at = now() WHERE run_id = %s", [run_id])
    assert lena.rows(shown, run_id) == [{"reason": "under way", "n_slots": 0}]


def test_why_a_stage_differs_is_said_in_numbers(lena: Session, anna: Session, planned: Any) -> None:
    run_id = planned(PLANNED)
    anna.execute(
        "INSERT INTO easeml.executed_stages (run_id, tenant, place, revision, label, arm, bracket, target_epochs,"
        " began_at, ended_at, n_trials, n_slots, cost_before, n_failures) SELECT run_id, tenant, g, 1, 'rung', arm,"
        " bracket, target_epochs, now(), now() + make_interval(secs => seconds_mean), n_trials, n_slots, 0, g"
        " FROM easeml.planned_stages, generate_series(1, 2) g WHERE run_id = %s AND stage = 0",
        [run_id],
    )
    reasons = lena.values("SELECT reason FROM easeml.plan_accuracy WHERE run_id = %s ORDER BY stage", run_id)
    assert reasons == ["1 instance failed", "2 instances failed"]


def test_stages_that_trained_beside_others_say_so(lena: Session, module_database: Session, planned: Any) -> None:
    """Of three stages the first took long, since another arm trained beside it; the others had no time alone."""
    run_id = planned(PLANNED)
    with module_database.transaction(force_rollback=True):
        module_database.execute(
            "INSERT INTO easeml.executed_stages (run_id, tenant, place, revision, label, arm, bracket, target_epochs,"
            " began_at, ended_at, n_trials, n_slots, cost_before, n_beside) SELECT run_id, tenant, 1, 1, label, arm,"
            " bracket, target_epochs, now(), now() + interval '1 day', n_trials, n_slots, 0, 4"
            " FROM easeml.planned_stages WHERE run_id = %s AND revision = 1 AND stage = 0",
            [run_id],
        )
        shown = "SELECT stage, seconds, reason FROM easeml.plan_accuracy WHERE run_id = %s ORDER BY stage, reason"
        beside = {"stage": 1, "seconds": 86400.0, "reason": "trials of other arms trained beside it, 4 at once"}
        assert module_database.rows(shown, run_id) == [beside]
        module_database.execute("UPDATE easeml.runs SET status = 'cancelled' WHERE run_id = %s", [run_id])
        first, *others = module_database.rows(shown, run_id)
        assert first == beside
        n_others = module_database.value(
            "SELECT count(*) - 1 FROM easeml.planned_stages WHERE run_id = %s AND revision = 1", run_id
        )
        assert others == [{"stage": None, "seconds": None, "reason": "it was not reached"}] * n_others
        assert n_others > 0
        module_database.execute("UPDATE easeml.trials SET target_epochs = NULL WHERE run_id = %s", [run_id])
        reasons = module_database.values(
            "SELECT reason FROM easeml.plan_accuracy WHERE run_id = %s AND stage IS NULL", run_id
        )
        assert set(reasons) == {"its trials trained beside those of other stages"}


def test_a_run_that_its_max_seconds_will_end_before_its_plan_says_so(lena: Session, planned: Any) -> None:
    notices: list[str] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        notices.append(notice.message_primary or "")

    lena.add_notice_handler(note)
    try:
        planned(", deadline => interval '400 seconds', max_seconds => 3000")
        assert not any("cut short" in notice for notice in notices)
        planned(", deadline => interval '400 seconds', max_seconds => 30")
        assert any("it is cut short after 30 s" in notice for notice in notices)
    finally:
        lena.remove_notice_handler(note)


def test_a_resumed_run_has_its_deadline_anew(lena: Session, planned: Any) -> None:
    run_id = planned(", deadline => interval '400 seconds'")
    first = lena.value("SELECT deadline FROM easeml.runs WHERE run_id = %s", run_id)
    lena.execute("SELECT easeml.cancel(%s)", [run_id])
    lena.execute("SELECT easeml.resume(%s)", [run_id])
    assert lena.value("SELECT deadline FROM easeml.runs WHERE run_id = %s", run_id) > first


def test_the_shell_asks_for_a_planned_run(lena: Session, planned: Any) -> None:
    result = shell(
        lena, "select", *SHELL_PLAN[1:], "--deadline", "400 seconds", "--max-cost", "2", "--price-list", "local"
    )
    assert result.exit_code == 0, result.output
    run_id = int(result.output.split()[-1])
    assert lena.value("SELECT allocation FROM easeml.runs WHERE run_id = %s", run_id) == "planned"
    assert shell(lena, "select", *SHELL_PLAN[1:], "--deadline", "1 second").exception is not None
