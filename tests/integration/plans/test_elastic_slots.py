"""Planned runs on a real server: slots come and go as the plan says, and programs start instances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner

from easeml_db.cli import commands

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

SEARCH = "procedure => 'successive_halving', n_configs => 2, max_epochs => 2, procedure_options => '{\"eta\": 2}'"
# The fastest plan that money can buy: a slot for each trial, whatever the machine does beside.
SELECT = f"SELECT easeml.select_models('points', '{{sgd}}', {SEARCH}, max_cost => 100000, price_list => %s)"
COST = "SELECT cost_so_far FROM easeml.run_status WHERE run_id = %s"
BILL = "SELECT sum(cost) FROM easeml.instance_status WHERE run_id = %s"
WAIT = "CALL easeml.wait(%s, 300)"
TYPES = [{"instance_type": "small", "device_kind": "cpu", "n_slots": 1, "price_per_hour": 36, "max_instances": 3}]
# A provider in a folder: a file for each request, which says how often its instance was started.
PROGRAM = """#!/bin/sh
folder={folder}
instance=$folder/$EASEML_REQUEST_ID
echo "$1 $EASEML_INSTANCE_TYPE $EASEML_N_SLOTS" >> $folder/calls
case $1 in
start) echo started >> $instance; echo '{{"status": "starting"}}' ;;
probe)
    if [ -e $instance ]; then echo '{{"status": "ready", "n_slots": 1, "device": "cpu"}}'
    else echo '{{"status": "gone"}}'; fi ;;
stop) rm -f $instance ;;
esac
"""


@pytest.fixture(scope="module")
def elastic(module_coordinated: Session) -> Session:
    """A server with one slot, on which it is known how long trials take."""
    session = module_coordinated
    session.execute("SELECT easeml.set_slots(1)")
    session.execute(
        "CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, i % 2 AS y FROM generate_series(1, 60) i"
    )
    session.execute("SELECT easeml.create_dataset('points', 'points', '{x}', 'y', n_partitions => 2)")
    run_id = session.value("SELECT easeml.select_models('points', '{sgd}', n_configs => 1, max_epochs => 1)")
    session.execute(WAIT, [run_id])
    return session


def stages_of(session: Session, run_id: int) -> list[dict[str, Any]]:
    return session.rows("SELECT * FROM easeml.plan_accuracy WHERE run_id = %s ORDER BY stage", run_id)


def check_given_back(session: Session, run_id: int) -> None:
    """The run is over, and nothing of what it had is left: no instance, no slot, no session."""
    (run,) = session.rows("SELECT status, failure_reason FROM easeml.run_status WHERE run_id = %s", run_id)
    assert run["status"] == "finished", run
    session.wait_until(
        "SELECT NOT EXISTS (SELECT FROM easeml.instances WHERE status NOT IN ('released', 'failed'))"
        " AND NOT EXISTS (SELECT FROM easeml.slots WHERE is_added OR instance_id IS NOT NULL)"
    )
    session.wait_until(
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name ~ '^easeml slot'"
        " AND datname = current_database()"
    )


def test_a_slot_that_is_added_pays_for_its_session_and_its_imports_and_no_unit_does(elastic: Session) -> None:
    starts = elastic.value("SELECT start_seconds FROM easeml.slots")
    assert set(starts) == {"session", "partial_fit"}
    began = (
        "SELECT extract(epoch FROM min(u.started_at) - min(t.started_at))::float8"
        " FROM easeml.training_units u JOIN easeml.trials t USING (trial_id)"
    )
    assert elastic.value(began) >= starts["partial_fit"]
    plan = (
        f"SELECT seconds_mean FROM easeml.plan('points', '{{sgd}}', {SEARCH}) WHERE plan = 'planned' AND stage IS NULL"
    )
    warm = elastic.value(plan)
    elastic.execute("SELECT easeml.limit_provisioner('local', 2)")
    added = elastic.value(plan)
    elastic.execute("SELECT easeml.limit_provisioner('local', NULL)")
    assert added >= warm + sum(starts.values()) - 1e-6


def test_slots_of_this_server_are_added_for_a_stage_and_removed_after_it(elastic: Session) -> None:
    elastic.execute("SELECT easeml.limit_provisioner('local', 2)")
    run_id = elastic.value(SELECT, "local")
    assert elastic.values("SELECT n_slots FROM easeml.plan_revisions WHERE run_id = %s AND revision = 1", run_id) == [
        [2, 1]
    ]
    elastic.execute(WAIT, [run_id])
    check_given_back(elastic, run_id)
    first, second = stages_of(elastic, run_id)
    # Beside other load the first stage may be planned anew before it begins, with one slot.
    plans = elastic.values("SELECT n_slots FROM easeml.plan_revisions WHERE run_id = %s ORDER BY revision", run_id)
    assert first["n_slots"] in {plan[0] for plan in plans if len(plan) == 2}
    assert second["n_slots"] in {plan[-1] for plan in plans}
    assert first["seconds"] > 0
    assert first["reason"]
    instances = elastic.rows("SELECT * FROM easeml.instance_status WHERE run_id = %s", run_id)
    assert first["n_slots"] <= len(instances) <= 2
    assert [first["label"], second["label"]] == ["sgd: rung 0, to epoch 1", "sgd: rung 1, to epoch 2"]
    notes = elastic.values("SELECT note FROM easeml.plan_revisions WHERE run_id = %s AND note IS NOT NULL", run_id)
    assert not [note for note in notes if "cuda" in note]  # it has no such slots: no plan may want one
    assert all(row["cost"] > 0 and row["status"] == "released" for row in instances)
    assert elastic.value(COST, run_id) == pytest.approx(sum(row["cost"] for row in instances))
    assert elastic.value("SELECT count(*) FROM easeml.plan_revisions WHERE run_id = %s", run_id) >= 2
    elastic.execute("SELECT easeml.limit_provisioner('local', NULL)")
    elastic.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])


def test_programs_start_and_stop_instances(elastic: Session, tmp_path: Path) -> None:
    program = tmp_path / "instance"
    program.write_text(PROGRAM.format(folder=tmp_path), encoding="utf-8")
    for path in (tmp_path, *tmp_path.parents):  # another user runs the coordinator
        if path.stat().st_uid == program.stat().st_uid and path != Path("/"):
            path.chmod(0o777 if path == tmp_path else 0o755)
    program.chmod(0o755)
    elastic.execute("SELECT easeml.create_price_list('shelf', %s::jsonb)", [json.dumps(TYPES)])
    with pytest.raises(psycopg.Error, match="price list shelf is there to plan with: nothing starts its instances"):
        elastic.execute(SELECT, ["shelf"])
    commands = [[str(program), verb] for verb in ("start", "probe", "stop")]
    elastic.execute("SELECT easeml.create_provisioner('shelf', 'shelf', %s, %s, %s, timeout_seconds => 60)", commands)
    run_id = elastic.value(SELECT, "shelf")
    elastic.execute(WAIT, [run_id])
    check_given_back(elastic, run_id)
    assert elastic.value(COST, run_id) == pytest.approx(elastic.value(BILL, run_id))
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert calls.count("start small 1") == 2
    assert calls.count("stop small 1") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calls", "instance"]
    said = elastic.rows("SELECT program, outcome FROM easeml.provisioner_calls ORDER BY call_id")
    assert {(row["program"], row["outcome"]) for row in said} >= {("start", "starting"), ("stop", "gone")}
    elastic.execute("SELECT easeml.drop_provisioner('shelf')")
    elastic.execute("SELECT easeml.drop_price_list('shelf')")
    elastic.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])


@pytest.mark.parametrize(
    ("arguments", "sqlstate", "said"),
    [
        ("'p', 'local', '{/a}', '{/a}', '{/a}'", "ML004", "price list local is of this server's own slots"),
        ("'p', 'gold', '{/a}', '{/a}', '{/a}'", "ML003", "there is no price list 'gold'"),
        ("'local', 'aws-p3', '{/a}', '{/a}', '{/a}'", "ML001", "provisioner: expected a name"),
        ("'p', 'aws-p3', '{start}', '{/a}', '{/a}'", "ML001", "start_program: expected the path of a program"),
        ("'p', 'aws-p3', '{/a}', '{}', '{/a}'", "ML001", "probe_program: expected the path of a program"),
        ("'p', 'aws-p3', '{/a}', '{/a}', '{/a,NULL}'", "ML001", "stop_program: expected the path of a program"),
        ("'p', 'aws-p3', '{/a}', '{/a}', '{/a}', timeout_seconds => 'NaN'", "ML001", "timeout_seconds, ready_seconds"),
        ("'p', 'aws-p3', '{/a}', '{/a}', '{/a}', max_slots => 0", "ML001", "max_slots: expected at least 1, got 0"),
    ],
)
def test_a_provisioner_that_cannot_work_is_refused(elastic: Session, arguments: str, sqlstate: str, said: str) -> None:
    with pytest.raises(psycopg.Error, match=said) as refused:
        elastic.execute(f"SELECT easeml.create_provisioner({arguments})")  # type: ignore[arg-type]
    assert refused.value.sqlstate == sqlstate


def test_only_who_may_run_programs_registers_them(elastic: Session) -> None:
    admin = elastic.as_role("adam", "easeml_admin")
    create = "SELECT easeml.create_provisioner('p', 'aws-p3', '{/a}', '{/a}', '{/a}')"
    with pytest.raises(psycopg.Error, match="role adam may not let programs run") as refused:
        admin.execute(create)
    assert refused.value.sqlstate == "ML004"
    values = "VALUES ('p', 'aws-p3', '{/a}', '{/a}', '{/a}')"
    columns = "(provisioner, price_list, start_program, probe_program, stop_program)"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        admin.execute(f"INSERT INTO easeml.provisioners {columns} {values}")  # type: ignore[arg-type]
    admin.execute("SELECT easeml.limit_provisioner('local', 3)")
    elastic.execute("GRANT pg_execute_server_program TO adam")
    admin.execute(create)
    admin.execute("SELECT easeml.drop_provisioner('p')")
    elastic.execute("SELECT easeml.limit_provisioner('local', NULL)")
    tenant = elastic.as_role("tessa", "easeml_tenant")
    for hidden in ("start_program FROM easeml.provisioners", "output FROM easeml.provisioner_calls"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            tenant.execute(f"SELECT {hidden}")  # type: ignore[arg-type]


def test_the_shell_times_an_architecture_that_was_never_trained_and_then_plans_it(elastic: Session) -> None:
    plan = ("plan", "points", "--architectures", "perceptron", "--procedure", "random", "--max-epochs", "4")
    refused = CliRunner().invoke(commands, [*plan, "--dsn", elastic.dsn])
    assert refused.exit_code == 1
    assert "nothing is known of how long perceptron takes" in str(refused.exception)
    found = CliRunner().invoke(commands, [*plan, "--profile", "--json", "--dsn", elastic.dsn])
    assert found.exit_code == 0, found.output
    assert "times some trials" in found.stderr
    rows = json.loads(found.stdout)
    assert {row["plan"] for row in rows} >= {"planned", "static"}
    assert elastic.value("SELECT max_epochs FROM easeml.runs ORDER BY run_id DESC LIMIT 1") == 2
