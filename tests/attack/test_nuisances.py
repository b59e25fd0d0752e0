"""Whatever one role does, another tenant's training, predictions and readers go on, under the same coordinator.

In `make test` each nuisance lasts until the victim has recorded further steps, predicted and been read, which it must
do while the nuisance is under way: a lock that is held for good fails here whatever the speed of the machine.
`make attack` (`--attack-seconds 60`) also measures what share of its undisturbed speed the victim keeps.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.sessions import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.attack.conftest import Attack, Scene, Watch

    Act = Callable[[Attack], None]

LOCK_MODES = (
    "ACCESS SHARE",
    "ROW SHARE",
    "ROW EXCLUSIVE",
    "SHARE UPDATE EXCLUSIVE",
    "SHARE",
    "SHARE ROW EXCLUSIVE",
    "EXCLUSIVE",
    "ACCESS EXCLUSIVE",
)
ENDLESS_RUN = "SELECT easeml.select_models('work', '{linear}', n_configs => 2, max_epochs => 1000000)"
BUSY = "SELECT count(*) FROM pg_stat_activity WHERE usename IN ('mallory', 'outsider') AND state = 'active'"
OWN = "run_id = (SELECT max(run_id) FROM easeml.runs WHERE tenant = 'mallory')"
LAST_RUN = "(SELECT max(run_id) FROM easeml.runs WHERE tenant = 'mallory')"
DEEP_SPACE = '{"learning_rate": ' + "[" * 3000 + "0.1" + "]" * 3000 + "}"
WIDE_SPACE = json.dumps({"learning_rate": [0.1 + i / 1e6 for i in range(11_000)]})
LONG_NUMBER = '{"learning_rate": ' + "9" * 5001 + "}"


def held(*statements: str, actor: str = "mallory") -> Act:
    """A transaction with these statements that stays open."""
    return lambda attack: attack.hold(actor, *statements)


def repeated(*statements: str, actor: str = "mallory") -> Act:
    """These statements again and again."""
    return lambda attack: attack.repeat(actor, *statements)


def with_own_run(nuisance: Act) -> Act:
    """A nuisance about a run of the attacker's own that is being trained."""

    def act(attack: Attack) -> None:
        session = attack.session("mallory")
        session.execute(ENDLESS_RUN)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not session.execute(f"SELECT sum(n_steps_done) > 2 FROM easeml.trials WHERE {OWN}").fetchone()[0]:  # type: ignore[index]
            assert time.monotonic() < deadline, "the attacker's own run never begins"
            time.sleep(0.02)
        nuisance(attack)

    return act


def locks_of_every_mode(attack: Attack) -> None:
    """Lock every table as hard as it is let."""
    found = attack.session("outsider").execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind IN ('r', 'v')"
    )
    tables = [name for (name,) in found.fetchall()]
    attack.hold("mallory", *(f"LOCK TABLE easeml.{table} IN {mode} MODE" for table in tables for mode in LOCK_MODES))
    attack.hold("outsider", *(f"LOCK TABLE easeml.{table} IN ACCESS EXCLUSIVE MODE" for table in tables))


def advisory_locks(attack: Attack) -> None:
    """Take every advisory lock that is in use, and many that could be."""
    session = attack.session("outsider")
    seen = session.execute("SELECT classid::bigint, objid::bigint, objsubid FROM pg_locks WHERE locktype = 'advisory'")
    for high, low, kind in seen.fetchall():
        key = f"{high}::int, {low}::int" if kind == 2 else f"{(high << 32) | low}"
        attack.attempt(session, f"SET lock_timeout = '200ms'; SELECT pg_advisory_lock({key})")
    names = "'easeml', 'easeml.coordinator', 'easeml.add_slots', 'easeml.check_leaving', 'easeml_coordinator'"
    attack.attempt(session, f"SELECT pg_try_advisory_lock(hashtext(n)) FROM unnest(ARRAY[{names}]) n")
    attack.attempt(session, "SELECT count(pg_try_advisory_lock(i)) FROM generate_series(1, 2000) i")


def sequences(attack: Attack) -> None:
    """Use up numbers of every sequence that can be seen."""
    session = attack.session("mallory")
    names = session.execute(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'S' AND relnamespace = 'easeml'::regnamespace"
    ).fetchall()
    attack.repeat("mallory", *(f"SELECT nextval('{name}') FROM generate_series(1, 100)" for (name,) in names))


def indexed_expression(attack: Attack) -> None:
    """Have predictions made by an index's expression whenever the table is analysed."""
    session = attack.session("mallory")
    attack.attempt(session, "CREATE TABLE bait AS SELECT i::float8 AS x FROM generate_series(1, 50) i")
    attack.attempt(
        session,
        "CREATE FUNCTION bite(x float8) RETURNS text LANGUAGE sql IMMUTABLE"
        " AS $$ SELECT easeml.predict('work', ARRAY[x]) $$",
    )
    attack.attempt(session, "CREATE INDEX bait_index ON bait (bite(x))")
    attack.repeat("mallory", "ANALYZE bait")


def old_snapshot(attack: Attack) -> None:
    """Keep a snapshot: as long as it lasts, no version of any row that is newer can be removed."""
    session = attack.session("mallory")
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    session.execute("SELECT count(*) FROM easeml.trials")
    (xmin,) = session.execute("SELECT backend_xmin FROM pg_stat_activity WHERE pid = pg_backend_pid()").fetchone() or ()
    assert xmin is not None, "no snapshot is held"


def many_waiters(attack: Attack) -> None:
    """Wait for one's own run in twenty sessions."""
    (run_id,) = attack.session("mallory").execute("SELECT max(run_id) FROM easeml.runs").fetchone() or (0,)
    attack.repeat("mallory", f"CALL easeml.wait({run_id}, 0.3)", n_sessions=20)


NUISANCES: dict[str, Act] = {
    "nothing": lambda attack: None,  # what is measured varies by itself, too
    "notifies runs": repeated(
        "SELECT count(pg_notify('easeml_runs', i::text)) FROM generate_series(1, 100000) i", actor="outsider"
    ),
    "notifies slots": repeated(
        "SELECT count(pg_notify('easeml_slots', i::text)) FROM generate_series(1, 100000) i", actor="outsider"
    ),
    "notifies nonsense": repeated(
        "SELECT count(pg_notify('easeml_runs', repeat('9', 7000) || i)) FROM generate_series(1, 2000) i",
        actor="outsider",
    ),
    "listens and sleeps in a transaction": held("LISTEN easeml_runs", "SELECT 1", actor="outsider"),
    "advisory locks": advisory_locks,
    "table locks": locks_of_every_mode,
    "locks rows of its run": with_own_run(
        held(
            f"SELECT FROM easeml.runs WHERE {OWN} FOR UPDATE",
            f"SELECT FROM easeml.trials WHERE {OWN} FOR UPDATE",
            "SELECT FROM easeml.datasets FOR UPDATE",
        )
    ),
    "uncommitted cancel": with_own_run(held(f"SELECT easeml.cancel({LAST_RUN})")),
    "uncommitted drop of a run": with_own_run(held(f"SELECT easeml.drop_run({LAST_RUN}, force => true)")),
    "uncommitted drop of the dataset": with_own_run(held("SELECT easeml.drop_dataset('work', cascade => true)")),
    "uncommitted deletes": with_own_run(held("DELETE FROM easeml.runs", "DELETE FROM easeml.datasets")),
    "uncommitted updates": with_own_run(
        held("UPDATE easeml.runs SET status = status", "UPDATE easeml.trials SET status = status")
    ),
    "uncommitted deployment": with_own_run(
        held(f"SELECT easeml.deploy(min(trial_id)) FROM easeml.trials WHERE {OWN}", "SELECT easeml.undeploy('work')")
    ),
    "uncommitted grants": held("SELECT easeml.grant_use('work', 'victim')", "SELECT easeml.grant_use('work', 'rita')"),
    "uncommitted start": held(ENDLESS_RUN),
    "old snapshot": old_snapshot,
    "cancel and resume": with_own_run(
        repeated(f"SELECT easeml.cancel({LAST_RUN})", f"SELECT easeml.resume({LAST_RUN})")
    ),
    "endless trials": with_own_run(lambda attack: None),
    "starts without end": repeated("SELECT easeml.select_models('work', '{linear}', n_configs => 1, max_epochs => 1)"),
    "ten thousand trials": repeated(
        "SELECT easeml.select_models('work', '{linear}', n_configs => 10000, max_epochs => 1)"
    ),
    "previews": repeated("SELECT count(*) FROM easeml.preview_procedure('pbt', max_epochs => 2147483647)"),
    "search space of 11,000 choices": repeated(f"SELECT easeml.select_models('work', search_space => '{WIDE_SPACE}')"),
    "search space 3,000 deep": repeated(f"SELECT easeml.select_models('work', search_space => '{DEEP_SPACE}')"),
    "number of 5,001 digits": repeated(f"SELECT easeml.select_models('work', search_space => '{LONG_NUMBER}')"),
    "network beyond memory": repeated(
        "SELECT easeml.select_models('work', '{mlp}', '{\"hidden_units\": [[65536, 65536, 65536]]}', n_configs => 1)"
    ),
    "failing trials": repeated(
        "SELECT easeml.select_models('work', '{mlp}', '{\"learning_rate\": [1e9]}', n_configs => 1, max_epochs => 2)"
    ),
    "datasets made and dropped": repeated(
        "SELECT easeml.create_dataset('spare', 'rows', '{x}', 'y', n_partitions => 2)",
        "SELECT easeml.drop_dataset('spare', cascade => true)",
    ),
    "predictions": repeated("SELECT easeml.predict('work', ARRAY[1.0]) FROM generate_series(1, 50)"),
    "predictions without a grant": repeated("SELECT easeml.predict('work', ARRAY[1.0])", actor="outsider"),
    "predictions while analysing": indexed_expression,
    "sequences": sequences,
    "many waiters": with_own_run(many_waiters),
    "grants to the victim": repeated(
        "SELECT easeml.grant_use('work', 'victim')", "SELECT easeml.revoke_use('work', 'victim')"
    ),
}


@pytest.fixture(scope="module")
def leadership(scene: Scene) -> int:
    """The lease of the coordinator, which no nuisance may cost."""
    return int(scene.root.value("SELECT lease_number FROM easeml.coordinator_lease"))


def wait_for_progress(scene: Scene, watch: Watch, n: int) -> None:
    """Wait until the victim has got on with everything, so many times."""
    before, deadline = watch.now(), time.monotonic() + PATIENCE_SECONDS
    while any(count < before[name] + n for name, count in watch.now().items()):
        if time.monotonic() > deadline:
            events = scene.root.rows("SELECT kind, message FROM easeml.events ORDER BY event_id DESC LIMIT 10")
            pytest.fail(f"no progress: {before} -> {watch.now()}; {events}")
        time.sleep(0.02)


@pytest.mark.parametrize("name", sorted(NUISANCES))
def test_a_nuisance_keeps_nobody_else_from_working(
    name: str, scene: Scene, attack: Attack, watch: Watch, leadership: int, pytestconfig: pytest.Config
) -> None:
    seconds = pytestconfig.getoption("--attack-seconds", None)
    calm = watch.usual_rates(seconds / 3) if seconds else {}
    wait_for_progress(scene, watch, 1)
    NUISANCES[name](attack)
    wait_for_progress(scene, watch, 3)
    disturbed = watch.rates(seconds) if seconds else {}
    attack.stop()
    assert scene.root.value("SELECT lease_number FROM easeml.coordinator_lease") == leadership, "another coordinator"
    if seconds:
        scene.end_runs("mallory")  # they are the nuisance, where it is no statement that lasts
        time.sleep(5)
        assert scene.root.value(BUSY) == 0, "the nuisance goes on"
        after = watch.usual_rates(seconds / 3)
        _report(name, calm, disturbed, after)


def _report(name: str, calm: dict[str, float], disturbed: dict[str, float], after: dict[str, float]) -> None:
    """Print the shares of the undisturbed speed during and after a nuisance, and hold them to what is promised.

    Steps after it are those of a processor as fast as before it. While it lasts its own work slows the processor, so
    these count as they are.
    """
    during = {kind: disturbed[kind] / calm[kind] for kind in calm}
    again = {kind: after[kind] / calm[kind] for kind in calm}
    again["steps"] /= again["processor"]
    print(f"\n| {name} | " + " | ".join(f"{during[kind]:.2f} / {again[kind]:.2f}" for kind in calm) + " |")
    assert min(share for kind, share in during.items() if kind != "processor") >= 0.5, f"{name}: {during}"
    assert min(share for kind, share in again.items() if kind != "processor") >= 0.9, f"{name}: {again}"
