"""Procedures that decide on the way, on a real server: what they train, what is refused, and what nothing can break."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner

from easeml_db.cli import commands

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

PREPARE = """
CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 2 AS x, cos(i * i) AS noise, chr(97 + i % 3) AS y
FROM generate_series(1, 240) i;
SELECT easeml.create_dataset('points', 'points', '{x,noise}', 'y', n_partitions => 2);
"""
STAGED = ["successive_halving", "hyperband", "asha", "pbt", "tpe", "bohb", "sync_bohb", "race"]
STATES = """
SELECT t.trial_number, t.architecture, t.config, t.status, t.n_steps_done, t.inherited_epochs, p.trial_number AS parent,
    (SELECT array_agg(u.state_sha256 ORDER BY u.epoch, u.position) FROM easeml.training_units u
     WHERE u.trial_id = t.trial_id) AS states
FROM easeml.trials t LEFT JOIN easeml.trials p ON p.trial_id = t.parent_trial_id WHERE t.run_id = %(r)s ORDER BY 1
"""


def start(session: Session, procedure: str, *, max_epochs: int = 4, **named: Any) -> int:
    arguments = "".join(f", {name} => %({name})s" for name in named)
    values = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in named.items()}
    call = f"easeml.select_models('points', procedure => %(procedure)s, max_epochs => {max_epochs}{arguments})"
    return int(session.rows(f"SELECT {call} AS run", procedure=procedure, **values)[0]["run"])


def finish(session: Session, run_id: int) -> dict[str, Any]:
    session.execute("CALL easeml.wait(%s, 300)", [run_id])
    return session.rows("SELECT * FROM easeml.run_status WHERE run_id = %(run_id)s", run_id=run_id)[0]


@pytest.fixture(scope="module")
def points(module_coordinated: Session) -> Session:
    """A session with a dataset and a coordinator."""
    module_coordinated.execute(PREPARE)
    return module_coordinated


@pytest.mark.parametrize("procedure", STAGED)
def test_every_procedure_trains_within_its_plan_inside_every_arm(points: Session, procedure: str) -> None:
    options = {"n_startup": 2} if procedure == "tpe" else {}
    n_configs = {"tpe": 5, "pbt": 5, "asha": 8, "race": 8}.get(procedure)
    run = finish(
        points,
        start(points, procedure, architectures=["linear", "mlp"], n_configs=n_configs, procedure_options=options),
    )
    assert (run["status"], run["n_failed"], run["n_paused"]) == ("finished", 0, 0)
    assert run["n_finished"] >= 2
    assert run["percent_done"] == 100
    plan = points.rows(
        "SELECT arm, sum(total_epochs) AS n_epochs"
        " FROM easeml.preview_procedure(%(procedure)s, 4, %(n)s, %(options)s::jsonb,"
        " architectures => '{linear,mlp}') GROUP BY arm",
        procedure=procedure, n=n_configs, options=json.dumps(options),
    )  # fmt: skip
    for row in plan:
        trained = points.value(
            "SELECT sum(least(n_steps_done / 4, 4) - inherited_epochs) FROM easeml.trials"
            " WHERE run_id = %s AND architecture = ANY (string_to_array(%s, '|'))",
            run["run_id"], row["arm"],
        )  # fmt: skip
        assert 0 < trained <= row["n_epochs"]
    states = "SELECT status FROM easeml.arm_beliefs WHERE run_id = %s"
    assert points.values(states, run["run_id"]) == ["closed", "closed"]
    tested = points.values(
        "SELECT status FROM easeml.leaderboard WHERE run_id = %s AND test_metric IS NOT NULL", run["run_id"]
    )
    assert set(tested) == {"finished"}


def test_a_joint_search_goes_over_all_architectures_as_one_arm(points: Session) -> None:
    run_id = start(
        points, "successive_halving", architectures=["linear", "mlp"], n_configs=8,
        procedure_options={"joint": True, "eta": 2},
    )  # fmt: skip
    assert finish(points, run_id)["n_finished"] == 2
    assert points.values("SELECT architecture FROM easeml.arm_beliefs WHERE run_id = %s", run_id) == ["linear|mlp"]
    by_epochs = points.rows(
        "SELECT target_epochs, count(*) AS n FROM easeml.leaderboard WHERE run_id = %(r)s GROUP BY 1 ORDER BY 1",
        r=run_id,
    )
    assert [(row["target_epochs"], row["n"]) for row in by_epochs] == [(1, 4), (2, 2), (4, 2)]


def test_a_copy_goes_on_from_its_parents_state_and_replays_to_the_same_bytes(points: Session) -> None:
    run_id = start(points, "pbt", architectures=["mlp"], n_configs=5)
    assert finish(points, run_id)["n_trials"] == 8
    copies = points.rows(
        "SELECT t.trial_id, t.inherited_epochs, t.config->'learning_rate' AS rate,"
        " p.config->'learning_rate' AS parents_rate"
        " FROM easeml.trials t JOIN easeml.trials p ON p.trial_id = t.parent_trial_id"
        " WHERE t.run_id = %(r)s ORDER BY 1",
        r=run_id,
    )
    assert [copy["inherited_epochs"] for copy in copies] == [1, 2, 3]
    assert all(copy["rate"] != copy["parents_rate"] for copy in copies)
    (row,) = points.rows("CALL easeml.replay(%(t)s)", t=copies[-1]["trial_id"])
    assert (row["result"]["n_units"], row["result"]["is_identical"]) == (8, True)
    epochs = points.values(
        "SELECT epoch FROM easeml.learning_curves WHERE trial_id = %s ORDER BY 1", copies[-1]["trial_id"]
    )
    assert epochs == [4]


RATE = "search_space.learning_rate"
BAD = [
    ("hyperband", {"procedure_options": {"eta": 1}}, "procedure_options.eta: expected a whole number from 2"),
    ("hyperband", {"max_epochs": 0}, "max_epochs: expected 1 to 1000000, got 0"),
    ("asha", {"procedure_options": {"min_epochs": 9}}, "procedure_options.min_epochs: expected a whole number from 1"),
    ("pbt", {"n_configs": 1}, "n_configs: expected a population of at least 2, got 1"),
    ("pbt", {"procedure_options": {"population": 1}}, "procedure_options.population: expected a whole number from 2"),
    ("tpe", {"procedure_options": {"joint": 3}}, "procedure_options.joint: expected true or false, got 3"),
    ("bohb", {"procedure_options": {"warmth": 3}}, "procedure_options.warmth: expected one of the options"),
    ("random", {"procedure_options": {"eta": 3}}, "procedure_options: expected no options"),
    ("asha", {"search_space": {"learning_rate": {"type": "float", "low": 1, "high": 0.1}}}, RATE),
    ("asha", {"search_space": {"learning_rate": {"type": "float", "low": 0, "high": 0.1, "log": True}}}, RATE),
    ("asha", {"search_space": {"learning_rate": []}}, RATE),
    ("asha", {"search_space": {"learning_rat": 0.1}}, "search_space.learning_rat"),
    ("ahsa", {}, 'procedure: expected a procedure, got "ahsa"'),
]


@pytest.mark.parametrize(("procedure", "named", "message"), BAD)
def test_bad_input_is_refused_with_its_path_and_nothing_is_written(
    points: Session, procedure: str, named: dict[str, Any], message: str
) -> None:
    before = points.value("SELECT count(*) FROM easeml.runs")
    with pytest.raises(psycopg.Error, match=message.replace(".", r"\.")) as refused:
        start(points, procedure, **{"architectures": ["mlp"], "max_epochs": 4, **named})
    assert refused.value.sqlstate == "ML001"
    assert points.value("SELECT count(*) FROM easeml.runs") == before


def test_a_preview_shows_brackets_before_anything_runs(points: Session) -> None:
    rows = points.rows("SELECT * FROM easeml.preview_procedure('hyperband', max_epochs => 9)")
    assert [(row["bracket"], row["n_trials"], row["n_epochs"], row["total_epochs"]) for row in rows] == [
        (0, 9, 1, 9), (0, 3, 3, 6), (0, 1, 9, 6), (1, 5, 3, 15), (1, 1, 9, 6), (2, 3, 9, 27),
    ]  # fmt: skip
    assert {row["arm"] for row in rows} == {None}
    arms = points.values("SELECT DISTINCT arm FROM easeml.preview_procedure('asha', dataset => 'points') ORDER BY 1")
    assert arms == ["extra_trees", "lightgbm", "linear", "mlp"]
    with pytest.raises(psycopg.Error, match="there is no architecture 'mpl'") as caught:
        points.rows("SELECT * FROM easeml.preview_procedure('asha', architectures => '{mpl}')")
    assert str(caught.value.diag.message_hint).startswith("Did you mean 'mlp'?")


def test_the_shell_lists_previews_and_starts(points: Session) -> None:
    def say(*arguments: str) -> str:
        done = CliRunner().invoke(commands, [*arguments, "--dsn", points.dsn])
        assert done.exit_code == 0, done.output
        return done.output

    assert {row["procedure"] for row in json.loads(say("procedure", "--json"))} == {*STAGED, "random", "grid"}
    assert "17 trial(s), 69 epoch(s) in all" in say("procedure", "preview", "hyperband", "--max-epochs", "9")
    run_id = int(
        say("select", "points", "--architectures", "linear", "--procedure", "asha", "--max-epochs", "2",
            "--procedure-options", '{"eta": 2}').split()[-1]
    )  # fmt: skip
    run = finish(points, run_id)
    assert (run["procedure"], run["procedure_options"]["eta"]) == ("asha", 2)


# What goes wrong


def test_a_killed_coordinator_and_a_cancel_change_no_byte(
    points: Session, another_coordinator: Callable[[], None]
) -> None:
    arguments = {"architectures": ["linear", "mlp"], "max_epochs": 2, "procedure_options": {"eta": 2}}
    n_units = "SELECT count(*) >= %s FROM easeml.training_units WHERE run_id = %s"
    runs = [start(points, "hyperband", **arguments)]
    finish(points, runs[0])
    runs.append(start(points, "hyperband", **arguments))
    for n_before in (5, 14):
        points.wait_until(n_units, n_before, runs[1])
        another_coordinator()
    finish(points, runs[1])
    runs.append(start(points, "hyperband", **arguments))
    points.wait_until(n_units, 4, runs[2])
    points.execute("SELECT easeml.cancel(%s)", [runs[2]])
    points.execute("SELECT easeml.resume(%s)", [runs[2]])
    finish(points, runs[2])
    undisturbed = points.rows(STATES, r=runs[0])
    assert len(undisturbed) == 8
    assert points.rows(STATES, r=runs[1]) == undisturbed
    assert points.rows(STATES, r=runs[2]) == undisturbed


@pytest.mark.parametrize(
    ("search", "config"),
    [('{"architectures": 3}', None), (None, '{"learning_rate": "fast"}'), ('{}', None)],
)  # fmt: skip
def test_rows_that_a_tenant_wrote_into_the_tables_end_that_run_alone(
    points: Session, search: str | None, config: str | None
) -> None:
    with points.again() as other:
        options = {"n_startup": 1, "n_parallel": 1}
        run_id = start(other, "tpe", architectures=["mlp"], n_configs=5, procedure_options=options)
        other.execute("SELECT easeml.cancel(%s)", [run_id])
        other.execute("UPDATE easeml.runs SET search = coalesce(%s::jsonb, search) WHERE run_id = %s", [search, run_id])
        if config is not None:
            other.execute("UPDATE easeml.trials SET config = %s WHERE run_id = %s", [config, run_id])
        other.execute("SELECT easeml.resume(%s)", [run_id])
    assert finish(points, run_id)["status"] in ("finished", "failed")
    assert finish(points, start(points, "tpe", architectures=["linear"], n_configs=2))["status"] == "finished"


SHORT_TRIAL = """
INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, target_epochs)
SELECT run_id, arm_id, tenant, 99, architecture, config, 2, 1 FROM easeml.trials WHERE run_id = %s LIMIT 1
"""


def test_a_decision_that_the_tables_refuse_ends_the_run_alone(points: Session) -> None:
    with points.again() as other, other.transaction():
        run_id = start(other, "asha", max_epochs=9, architectures=["linear"], n_configs=3)
        other.execute(SHORT_TRIAL, [run_id])  # asha wants it to go on for longer than it may
        other.execute("UPDATE easeml.trials SET status = 'failed' WHERE run_id = %s AND trial_number < 99", [run_id])
    assert finish(points, run_id)["status"] == "failed"
    assert "trial_values" in points.value(
        "SELECT message FROM easeml.events WHERE run_id = %s AND kind = 'refused'", run_id
    )
    assert finish(points, start(points, "tpe", architectures=["linear"], n_configs=2))["status"] == "finished"


MANY_PARTITIONS = """
INSERT INTO easeml.datasets (dataset_id, tenant, dataset_name, version, source, input_columns, target_column, task,
    input_shape, n_outputs, n_partitions, validation_fraction, test_fraction, seed, block_rows, encoder)
    OVERRIDING SYSTEM VALUE
SELECT 9999, tenant, 'many', 1, source, input_columns, target_column, task, input_shape,
    n_outputs, 10000, validation_fraction, test_fraction, seed, block_rows, encoder
FROM easeml.datasets WHERE dataset_name = 'points';
INSERT INTO easeml.partitions (dataset_id, tenant, partition_number,
    n_train_rows, n_validation_rows, n_test_rows, n_bytes, checksum)
SELECT 9999, tenant, n, 1, 1, 1, 1, 0 FROM easeml.datasets, generate_series(0, 9999) n WHERE dataset_id = 9999
"""  # fmt: skip


def test_more_units_than_32_bits_count_are_served_and_shown(points: Session) -> None:
    points.execute(MANY_PARTITIONS)
    run_id = points.value("SELECT easeml.select_models('many', '{linear}', n_configs => 1, max_epochs => 1000000)")
    assert points.value("SELECT n_units FROM easeml.run_status WHERE run_id = %s", run_id) == 2_000_001 * 10_000
    points.wait_until("SELECT count(*) > 0 FROM easeml.training_units WHERE run_id = %s", run_id)
    for table, column, value in (("trials", "max_epochs", 2**31 - 1), ("arms", "planned_epochs", 2**63 - 1)):
        with pytest.raises(psycopg.errors.CheckViolation):
            points.execute(f"UPDATE easeml.{table} SET {column} = {value}")  # type: ignore[arg-type]
    for table in ("runs", "trials"):  # views subtract them
        with pytest.raises(psycopg.errors.CheckViolation):
            points.execute(f"UPDATE easeml.{table} SET started_at = 'infinity'")  # type: ignore[arg-type]
    points.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])


# What the coordinator says in SQL


def apply(session: Session, arm_id: int, *decisions: dict[str, Any], lease_number: int | None = None) -> Any:
    lease = session.value("SELECT lease_number FROM easeml.coordinator_lease") if lease_number is None else lease_number
    return session.value("SELECT easeml.apply_decisions(%s, 0, %s, %s)", arm_id, json.dumps(decisions), lease)


def halving_arm(database: Session, *, n_paused: int) -> int:
    """Start a run of successive halving with four trials, the first of which have paused at its first rung."""
    database.execute(PREPARE)
    start(database, "successive_halving", architectures=["linear"], n_configs=4)
    database.execute("UPDATE easeml.trials SET status = 'running'")
    paused = "UPDATE easeml.trials SET status = 'paused', n_steps_done = 4 WHERE trial_number <= %s"
    database.execute(paused, [n_paused])
    return int(database.value("SELECT arm_id FROM easeml.arms"))


def test_decisions_are_carried_out_all_or_none_and_once(database: Session) -> None:
    arm_id = halving_arm(database, n_paused=3)
    go, give_up = {"kind": "continue", "trial_number": 1, "target_epochs": 3}, {"kind": "stop", "trial_number": 2}
    new = {"kind": "start", "trial_number": 9, "architecture": "linear", "config": {}, "target_epochs": 2}
    copy = {**new, "trial_number": 10, "parent": 3, "inherited_epochs": 1}
    for bad, sqlstate in [
        ({"kind": "stop", "trial_number": 4}, "ML006"),  # it runs
        ({"kind": "continue", "trial_number": 3, "target_epochs": 1}, "ML006"),  # it has been there
        ({**new, "trial_number": 3}, "ML006"),  # it is there
        ({**copy, "inherited_epochs": 2}, "ML006"),  # the parent is not where that takes it to be
    ]:
        with pytest.raises(psycopg.Error) as refused:
            apply(database, arm_id, go, give_up, new, bad)
        assert refused.value.sqlstate == sqlstate
    with pytest.raises(psycopg.Error, match="lease -1 is over"):
        apply(database, arm_id, go, lease_number=-1)
    states = "SELECT array_agg(status || coalesce(target_epochs, 0) ORDER BY trial_number) FROM easeml.trials"
    assert database.value(states) == ["paused1", "paused1", "paused1", "running1"]
    apply(database, arm_id, copy, go, give_up, new)
    assert database.value(states) == ["waiting3", "stopped1", "paused1", "running1", "waiting2", "waiting2"]
    begun = "SELECT n_steps_done FROM easeml.trials WHERE trial_number >= 9 ORDER BY trial_number"
    assert database.values(begun) == [0, 4]
    with pytest.raises(psycopg.Error, match="does not wait to go on"):
        apply(database, arm_id, go)


def test_the_coordinator_does_not_wait_for_a_tenant_that_holds_its_trials(database: Session) -> None:
    arm_id = halving_arm(database, n_paused=4)
    with database.again() as other, other.transaction():
        other.execute("SELECT FROM easeml.trials WHERE trial_number = 4 FOR UPDATE")
        apply(database, arm_id, {"kind": "stop", "trial_number": 1})  # nobody is at this one
        with pytest.raises(psycopg.Error, match=r"somebody is at 1 trial\(s\)") as refused:
            apply(database, arm_id, {"kind": "stop", "trial_number": 4})
        assert refused.value.sqlstate == "ML003"
    apply(database, arm_id, {"kind": "stop", "trial_number": 4})


def test_a_stopped_trial_keeps_the_state_of_its_best_epoch_alone(points: Session) -> None:
    run_id = start(points, "successive_halving", architectures=["mlp"], n_configs=6, procedure_options={"eta": 2})
    finish(points, run_id)
    kept = points.rows(
        "SELECT t.status, count(c.*) AS n, count(*) FILTER (WHERE c.checkpoint_id = t.best_checkpoint_id) AS n_best"
        " FROM easeml.trials t LEFT JOIN easeml.checkpoints c USING (trial_id) WHERE t.run_id = %(r)s"
        " GROUP BY t.trial_id, t.status",
        r=run_id,
    )
    assert {(row["n"], row["n_best"]) for row in kept if row["status"] == "stopped"} == {(1, 1)}
