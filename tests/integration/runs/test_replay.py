"""Replay: a trial trained again along its stored visit order gives the same bytes, or says where it does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner

from easeml_db.cli import commands
from easeml_loaders import bundled_source, load_table

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_PARTITIONS, N_EPOCHS = 2, 2
RUN = """
SELECT easeml.select_models('digits', '{mlp,lenet,sgd}', procedure => 'grid', max_epochs => %s, seed => 3,
    search_space => '{"batch_size": 64, "mlp": {"hidden_units": [[64]], "dropout": 0.2, "schedule": "cosine"}}')
"""
ONE_ARM = """
SELECT easeml.select_models('digits', '{mlp}', procedure => 'grid', max_epochs => %s, seed => 3,
    search_space => '{"batch_size": 64, "hidden_units": [[64], [32], [16]], "dropout": 0.2, "schedule": "cosine"}')
"""


def prepare(root: Session, tenant: Session) -> None:
    load_table(root.dsn, bundled_source("digits"), "digits")
    root.execute("GRANT SELECT ON digits TO PUBLIC")
    tenant.execute(
        "SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label', n_partitions => %s)", [N_PARTITIONS]
    )


def replay(session: Session, trial_id: int | None, **named: Any) -> dict[str, Any]:
    """What a replay returns."""
    arguments = "".join(f", {name} => %({name})s" for name in named)
    (row,) = session.rows(f"CALL easeml.replay(%(trial_id)s{arguments})", trial_id=trial_id, **named)
    result: dict[str, Any] = row["result"]
    return result


@pytest.fixture(scope="module")
def erin(module_coordinated: Session) -> Session:
    """A tenant with a finished run of three architectures."""
    session = module_coordinated.as_role("erin", "easeml_tenant")
    prepare(module_coordinated, session)
    session.execute(RUN, [N_EPOCHS])
    module_coordinated.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    return session


@pytest.fixture(scope="module")
def trials(erin: Session) -> dict[str, int]:
    """Trials by architecture."""
    return {row["architecture"]: row["trial_id"] for row in erin.rows("SELECT * FROM easeml.trials")}


def log(session: Session, trial_id: int) -> list[dict[str, Any]]:
    return session.rows("SELECT * FROM easeml.training_units WHERE trial_id = %s ORDER BY epoch, position", trial_id)


@pytest.mark.parametrize("architecture", ["mlp", "lenet", "sgd"])
def test_the_owner_gets_the_same_bytes_again(erin: Session, trials: dict[str, int], architecture: str) -> None:
    notices: list[str | None] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        notices.append(notice.message_primary)

    erin.add_notice_handler(hear)
    units = log(erin, trials[architecture])
    assert replay(erin, trials[architecture]) == {
        "trial_id": trials[architecture], "n_units": 4, "n_matching": 4, "is_identical": True, "first_difference": None,
        "final_sha256": units[-1]["state_sha256"], "device": "cpu", "n_threads": 1,
    }  # fmt: skip
    erin.remove_notice_handler(hear)
    assert notices == [f"epoch {epoch}: {2 * epoch} of {2 * epoch} states identical" for epoch in (1, 2)]
    first = replay(erin, trials[architecture], until_epoch=1)
    assert (first["n_units"], first["final_sha256"]) == (2, units[1]["state_sha256"])


def test_a_replay_writes_nothing(erin: Session, module_coordinated: Session, trials: dict[str, int]) -> None:
    measured = ("training_units", "evaluations", "epoch_metrics", "metric_values")
    tables = ("trials", *measured, "checkpoints", "events", "runs")
    sums = "SELECT " + ", ".join(f"(SELECT md5(string_agg(t::text, '')) FROM easeml.{name} t)" for name in tables)
    before = module_coordinated.rows(sums)
    replay(erin, trials["mlp"])
    assert module_coordinated.rows(sums) == before


def test_administrators_may_replay_and_others_may_not(
    erin: Session, module_coordinated: Session, trials: dict[str, int]
) -> None:
    groups = {"anna": "easeml_admin", "bob": "easeml_tenant", "rita": "easeml_reader"}
    for role, group in groups.items():
        module_coordinated.as_role(role, group).close()
    with module_coordinated.again() as session:  # one process, which keeps what it has seen for each of them
        assert replay(session, trials["mlp"])["is_identical"]
        session.execute("SET SESSION AUTHORIZATION anna")
        assert replay(session, trials["mlp"])["is_identical"]
        for role, code in (("bob", "ML003"), ("rita", "42501")):
            session.execute(f"SET SESSION AUTHORIZATION {role}")
            with pytest.raises(psycopg.Error) as refused:
                replay(session, trials["mlp"])
            assert refused.value.sqlstate == code


def test_another_number_of_threads_is_told_where_it_first_differs(erin: Session, trials: dict[str, int]) -> None:
    result = replay(erin, trials["lenet"], n_threads=2)
    assert (result["n_threads"], result["n_units"]) == (2, 4)
    assert result["is_identical"] == (result["first_difference"] is None) == (result["n_matching"] == 4)
    assert replay(erin, trials["lenet"])["is_identical"]


def only(unit: dict[str, Any]) -> str:
    """The condition that holds for a unit alone."""
    return " AND ".join(f"{name} = {unit[name]}" for name in ("trial_id", "epoch", "partition_number"))


@contextmanager
def changed(database: Session, forth: str, back: str) -> Iterator[None]:
    """A change that is undone at the end: a replay commits, so it cannot be rolled back."""
    database.execute(forth)
    try:
        yield
    finally:
        database.execute(back)


@pytest.mark.parametrize("k", range(N_EPOCHS * N_PARTITIONS))
def test_another_seed_is_noticed_at_its_unit(
    erin: Session, module_coordinated: Session, trials: dict[str, int], k: int
) -> None:
    unit = log(erin, trials["mlp"])[k]
    update = f"UPDATE easeml.training_units SET seed = {{}} WHERE {only(unit)}"
    with changed(module_coordinated, update.format(unit["seed"] + 1), update.format(unit["seed"])):
        result = replay(erin, trials["mlp"])
    first = result["first_difference"]
    assert (result["n_matching"], result["is_identical"]) == (k, False)
    assert {key: first[key] for key in ("epoch", "position", "partition_number")} == {
        key: unit[key] for key in ("epoch", "position", "partition_number")
    }
    assert first["stored_sha256"] == unit["state_sha256"] != first["replayed_sha256"]
    is_kept = unit["checkpoint_id"] in erin.values("SELECT checkpoint_id FROM easeml.checkpoints")
    assert (first["tensors"] is not None) == is_kept
    if is_kept:
        assert {"module", "optimizer"} <= {name.partition("/")[0] for name in first["tensors"]}
        assert all(difference > 0 for difference in first["tensors"].values())


def test_a_changed_hash_in_the_log_is_one_difference(
    erin: Session, module_coordinated: Session, trials: dict[str, int]
) -> None:
    unit = log(erin, trials["sgd"])[1]
    update = f"UPDATE easeml.training_units SET state_sha256 = '{{}}' WHERE {only(unit)}"
    with changed(module_coordinated, update.format("0" * 64), update.format(unit["state_sha256"])):
        result = replay(erin, trials["sgd"])
    assert (result["n_matching"], result["first_difference"]["position"]) == (3, 1)
    assert not result["first_difference"]["tensors"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE easeml.blocks SET targets = set_byte(targets, 0, 9 - get_byte(targets, 0)) WHERE",
        "UPDATE easeml.blocks SET inputs = set_byte(inputs, 0, 255 - get_byte(inputs, 0)) WHERE",
        "DELETE FROM easeml.blocks WHERE",
    ],
)
def test_changed_or_missing_blocks_are_refused(
    erin: Session, module_coordinated: Session, trials: dict[str, int], damage: str
) -> None:
    root, block = module_coordinated, "split = 'train' AND partition_number = 1 AND block_number = 0"
    assert replay(erin, trials["mlp"])["is_identical"]  # the session has seen the blocks
    root.execute(f"CREATE TABLE kept AS SELECT * FROM easeml.blocks WHERE {block}")
    back = f"DELETE FROM easeml.blocks WHERE {block}; INSERT INTO easeml.blocks SELECT * FROM kept; DROP TABLE kept"
    with changed(root, f"{damage} {block}", back), pytest.raises(psycopg.Error, match="partition 1") as refused:
        replay(erin, trials["mlp"])
    assert refused.value.sqlstate == "ML004"
    assert replay(erin, trials["mlp"])["is_identical"]


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"trial_id": 10**9}, "ML003"),
        ({"trial_id": None}, "ML003"),
        ({"device": "gpu"}, "ML001"),
        ({"device": None}, "ML001"),
        ({"device": "cuda:99"}, "ML001"),
        ({"n_threads": 0}, "ML001"),
        ({"n_threads": None}, "ML001"),
        ({"until_epoch": 0}, "ML001"),
    ],
)
def test_what_cannot_be_replayed_is_said(
    erin: Session, trials: dict[str, int], named: dict[str, Any], code: str
) -> None:
    with pytest.raises(psycopg.Error) as refused:
        replay(erin, **{"trial_id": trials["mlp"], **named})
    assert refused.value.sqlstate == code
    assert not str(refused.value).startswith("plpy")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("'cuda:99', 1, NULL", "ML001"),  # the session would lose its memory limit before it misses the device
        ("'cpu', 2147483647, NULL", "ML001"),
        ("NULL, 1, NULL", "ML001"),
        ("'cpu', 1, 0", "ML001"),
    ],
)
def test_the_routine_below_it_refuses_the_same(
    erin: Session, trials: dict[str, int], arguments: str, code: str
) -> None:
    with pytest.raises(psycopg.Error) as refused:
        erin.execute(f"CALL easeml.replay_units({trials['mlp']}, {arguments})".encode())
    assert refused.value.sqlstate == code


def test_a_replay_within_a_transaction_is_refused(erin: Session, trials: dict[str, int]) -> None:
    with erin.transaction(force_rollback=True):
        erin.execute("SELECT pg_sleep(0.02)")
        with pytest.raises(psycopg.Error, match="open transaction") as refused:
            replay(erin, trials["mlp"])
    assert refused.value.sqlstate == "ML004"


def test_the_command_says_it_in_one_line(erin: Session, module_coordinated: Session, trials: dict[str, int]) -> None:
    def shell(*arguments: object) -> Any:
        return CliRunner().invoke(commands, ["run", "replay", *map(str, arguments), "--dsn", erin.dsn])

    unit = log(erin, trials["mlp"])[-1]
    same = shell(trials["mlp"])
    assert (same.exit_code, same.stdout) == (0, f"identical: 4 units, state {unit['state_sha256'][:12]}\n")
    assert "epoch 2: 4 of 4" in same.stderr
    update = f"UPDATE easeml.training_units SET seed = {{}} WHERE {only(unit)}"
    with changed(module_coordinated, update.format(unit["seed"] + 1), update.format(unit["seed"])):
        other, document = shell(trials["mlp"]), shell(trials["mlp"], "--json")
    assert (other.exit_code, document.exit_code) == (1, 1)
    place = f"epoch 2, position 1, partition {unit['partition_number']}"
    assert other.stdout.startswith(f"different: 3 of 4 units identical; first at {place}: ")
    assert json.loads(document.stdout)["n_matching"] == 3


# However the trial came to be


def test_a_trial_that_was_cancelled_and_resumed_elsewhere_replays(
    erin: Session, another_coordinator: Callable[[], None]
) -> None:
    with erin.transaction():  # nothing trains before it has ended
        unseen = erin.value(ONE_ARM, 1)
        erin.execute("SELECT easeml.cancel(%s)", [unseen])
    with pytest.raises(psycopg.Error, match="no recorded training unit") as refused:
        replay(erin, erin.value("SELECT min(trial_id) FROM easeml.trials WHERE run_id = %s", unseen))
    assert refused.value.sqlstate == "ML010"
    run_id = erin.value(ONE_ARM, 200)  # more trials than slots, all of them under way
    n_units = "(SELECT count(*) FROM easeml.training_units u WHERE u.trial_id = t.trial_id)"
    erin.wait_until(f"SELECT min(n) > 2 FROM (SELECT {n_units} AS n FROM easeml.trials t WHERE run_id = %s) c", run_id)
    erin.execute("SELECT easeml.cancel(%s)", [run_id])
    another_coordinator()
    done = erin.value("SELECT max(n_steps_done) FROM easeml.trials WHERE run_id = %s", run_id)
    erin.execute("SELECT easeml.resume(%s)", [run_id])
    erin.wait_until("SELECT min(n_steps_done) > %s FROM easeml.trials WHERE run_id = %s", done + 8, run_id)
    erin.execute("SELECT easeml.cancel(%s)", [run_id])
    assert erin.value("SELECT n_hops FROM easeml.run_traffic WHERE run_id = %s", run_id) >= 3
    # The one that got furthest before the cancel may have hundreds of epochs; it need not be this one.
    shortest = "SELECT trial_id FROM easeml.trials WHERE run_id = %s ORDER BY n_steps_done LIMIT 1"
    result = replay(erin, erin.value(shortest, run_id))
    assert result["is_identical"], result
    for each in (unseen, run_id):
        erin.execute("SELECT easeml.drop_run(%s, force => true)", [each])


def test_a_free_visit_order_replays_as_it_was(database: Session) -> None:
    prepare(database, database)
    database.execute(RUN, [2])
    slots = (database, database.again())  # they take turns: every unit is a hop
    for architecture in ("mlp", "sgd"):
        trial_id = database.value("SELECT trial_id FROM easeml.trials WHERE architecture = %s", architecture)
        train_in_free_order(slots, trial_id)
        visited = "SELECT partition_number FROM easeml.training_units WHERE trial_id = %s ORDER BY epoch, position"
        assert database.values(visited, trial_id) == [1, 0, 0, 1]
        assert replay(database, trial_id)["is_identical"]


def train_in_free_order(slots: tuple[Session, Session], trial_id: int) -> None:
    """Train two epochs, each in an order of its own, every unit in the other session."""
    lease = slots[0].value("SELECT lease_number FROM easeml.coordinator_lease")
    kinds = [(epoch, kind, order) for epoch, order in ((1, (1, 0)), (2, (0, 1))) for kind in ("train", "evaluate")]
    places = [(epoch, kind, k, part) for epoch, kind, order in kinds for k, part in enumerate(order)]
    for step, (epoch, kind, position, partition_number) in enumerate(places):
        unit = {"trial_id": trial_id, "step": step, "kind": "validate" if kind == "evaluate" else kind, "epoch": epoch,
                "position": position, "partition_number": partition_number, "seed": 100 + step, "slot_id": 1,
                "lease_number": lease, "attempt": 1}  # fmt: skip
        slots[step % 2].execute(f"CALL easeml.{kind}_unit(%s)", [json.dumps(unit)])
