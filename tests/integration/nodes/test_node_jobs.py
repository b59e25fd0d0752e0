"""Evaluations, predictions and replays on nodes: tenants side by side, ends of all kinds, and what a node may say."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from easeml_db.errors import NotFound, ServerUnavailable, SlotLost
from easeml_db.postgres.nodes import row_copies
from easeml_db.postgres.nodes.node_cache import NodeCache
from easeml_db.postgres.nodes.node_store import KnownState
from easeml_db.postgres.nodes.nodes import Node
from easeml_db.postgres.nodes.states_in_use import StatesInUse
from easeml_db.postgres.on_nodes.jobs import do_job
from easeml_db.postgres.on_nodes.worker import LOOK_SECONDS, WITHOUT_NODES_SECONDS, NodeWorker, Requests, node_jobs
from easeml_db.postgres.stores.store_session import StoreSession
from tests.nodes import NODE_ROLE, let_read, two_nodes

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from easeml_db.postgres.on_nodes.worker import Asked
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

N_SLOTS = 1
FIRST, SECOND, GUEST = "jobs_ann", "jobs_ben", "jobs_guest"
ROWS = "SELECT i AS id, i % 3 + sin(i) AS x, chr(97 + i % 3) AS y FROM generate_series({}, {}) i"
LISTED = '{"east": "public.own", "west": "public.own"}'
RUN = """
SELECT easeml.select_models('jobs', '{mlp}', procedure => 'grid', max_epochs => 2,
    search_space => '{"learning_rate": [0.1], "batch_size": 8, "hidden_units": [[4]]}')
"""
ASK = """
INSERT INTO easeml.node_jobs (tenant, caller, kind, dataset_id, trial_id, arguments, places)
SELECT t.tenant, %s, %s, r.dataset_id, t.trial_id, %s, %s FROM easeml.trials t JOIN easeml.runs r USING (run_id)
WHERE t.trial_id = %s RETURNING job_id
"""
ENDED = "SELECT ended_at IS NOT NULL FROM easeml.node_jobs WHERE job_id = %s"
STATUS = "SELECT status FROM easeml.node_job_status WHERE job_id = %s"
PROBLEM = "SELECT problem ->> 'message' FROM easeml.node_jobs WHERE job_id = %s"
PREDICT = "CALL easeml.predict_on_nodes('jobs', %s, 'public.told', key => '{id}')"
REQUEST = """
SELECT easeml.request('begin_node_job', jsonb_build_object('kind', 'predictions', 'dataset', %s::text, 'trial_id', NULL,
    'output', 'public.told', 'key', NULL, 'probabilities', false, 'places', easeml.places_of(%s, NULL)))
"""
BLOCKED = """
SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'easeml predictions' AND wait_event_type = 'Lock'
    AND datname = current_database()
"""
GONE = BLOCKED.replace("> 0", "= 0").replace(" AND wait_event_type = 'Lock'", "")


@pytest.fixture(scope="module")
def nodes(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """Two nodes with rows."""
    with two_nodes(private_server, tmp_path_factory.mktemp("services")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def control(module_database: Session, nodes: dict[str, Session], coordinator: Coordinator) -> Session:
    """A control server; two tenants have a dataset of rows on the nodes and a finished run each. Nobody coordinates."""
    tenants = [module_database.as_role(name, "easeml_tenant") for name in (FIRST, SECOND)]
    for number, (name, node) in enumerate(nodes.items()):
        node.execute(f"CREATE TABLE own AS {ROWS.format(number * 100 + 1, number * 100 + 100)}")
        node.execute(f"GRANT SELECT ON own TO {FIRST}, {SECOND}")
        let_read(node, "own", node.value("SELECT current_user::text"), FIRST, SECOND)
        node.execute(f"GRANT CREATE ON SCHEMA public TO {NODE_ROLE}, {FIRST}, {SECOND}")
        module_database.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
        module_database.execute("SELECT easeml.add_slots(1, %s)", [name])
    with coordinator(module_database):
        for tenant in tenants:
            create = "SELECT easeml.create_dataset('jobs', %s, '{x}', 'y', n_partitions => 4)"
            dataset_id = tenant.value(create, LISTED)
            tenant.execute("CALL easeml.wait_dataset(%s, 100)", [dataset_id])
            tenant.execute("CALL easeml.wait(%s)", [tenant.value(RUN)])
    return module_database


@pytest.fixture
def trials(control: Session) -> Iterator[dict[str, int]]:
    """The trial of each tenant; jobs and tables of a test go with it."""
    found = control.rows("SELECT tenant::text AS tenant, trial_id FROM easeml.trials")
    yield {row["tenant"]: row["trial_id"] for row in found}
    control.execute("DELETE FROM easeml.node_jobs")


@pytest.fixture
def told(nodes: dict[str, Session]) -> Iterator[None]:
    """The output of predictions is there no more after a test."""
    yield
    for node in nodes.values():
        node.execute("DROP TABLE IF EXISTS told")


def ask(control: Session, kind: str, trial_id: int, caller: str = FIRST, **arguments: object) -> int:
    """Note a job down for which no session waits."""
    wanted = {"trial_id": trial_id, "device": "cpu", "n_threads": 1, "until_epoch": None, **arguments}
    places = {name: ["public.own"] for name in ("east", "west")} if kind == "predictions" else None
    if kind == "predictions":
        wanted |= {"dataset": "jobs", "output": "public.told", "key": ["id"], "probabilities": False}
    return int(control.value(ASK, caller, kind, Jsonb(wanted), places and Jsonb(places), trial_id))


def lease_number(control: Session) -> int:
    """That of the coordinator that was the last."""
    return int(control.value("SELECT lease_number FROM easeml.coordinator_lease"))


def opened(control: Session, job_id: int) -> dict[str, Any]:
    """What the service is told of a job."""
    told: dict[str, Any] = control.value("SELECT easeml.open_node_job(%s)", job_id)
    return told


def work_once(control: Session, asked: Asked | None = None) -> None:
    """Do what is asked, in this process, until nothing is under way."""

    async def work() -> None:
        leading = StoreSession(control.dsn)
        leading.lease_number = lease_number(control)
        requests = Requests(leading)
        worker = NodeWorker(requests, asked or node_jobs(StatesInUse()))
        try:
            while await worker.take_turn():
                await asyncio.wait([each.task for each in worker._at_work.values()])
        finally:
            await worker.close()
            await requests.close()

    asyncio.run(work())


class Asking:
    """A statement of a session in a thread of its own."""

    def __init__(self, session: Session, statement: str, *values: object) -> None:
        self.session, self.error = session, None
        self._call = (statement, list(values))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.session.execute(*self._call)
        except psycopg.Error as error:
            self.error: psycopg.Error | None = error

    def wait(self) -> psycopg.Error | None:
        """Wait for its end; return its error."""
        self._thread.join()
        return self.error


@contextmanager
def held(node: Session, table: str = "public.own") -> Iterator[None]:
    """Nobody reads a table of a node meanwhile."""
    with node.again() as other, other.transaction():
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


def test_jobs_of_several_tenants_are_done_side_by_side(
    control: Session, nodes: dict[str, Session], trials: dict[str, int], told: None, coordinator: Coordinator
) -> None:
    with held(nodes["west"]), coordinator(control):
        long = ask(control, "predictions", trials[FIRST])
        nodes["west"].wait_until(BLOCKED)
        second = control.as_role(SECOND)
        assert second.value("CALL easeml.evaluate_on_nodes('jobs')") > 0
        assert second.value("CALL easeml.replay(%s)", trials[SECOND])["is_identical"]
        assert not control.value(ENDED, long)


COUNTED = """
CREATE TABLE recorded (job_id bigint, result jsonb);
CREATE FUNCTION count_ends() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS
$$BEGIN INSERT INTO public.recorded SELECT NEW.job_id, NEW.result; RETURN NULL; END$$;
GRANT ALL ON recorded TO PUBLIC;
CREATE TRIGGER count_ends AFTER UPDATE ON easeml.node_jobs FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION count_ends()
"""


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("predictions", "public.own"),
        ("answers", "easeml_segment.version_blocks"),
        ("replay", "easeml_segment.checkpoints"),
    ],
)
def test_a_job_in_whose_midst_the_coordinator_is_killed_is_done_and_recorded_once(
    control: Session,
    nodes: dict[str, Session],
    trials: dict[str, int],
    told: None,
    coordinator: Coordinator,
    kind: str,
    table: str,
) -> None:
    control.execute("DELETE FROM easeml.node_answers")
    control.execute(COUNTED)
    try:
        with held(nodes["west"], table):
            job_id = ask(control, kind, trials[FIRST])
            with coordinator(control):
                nodes["west"].wait_until(BLOCKED.replace("predictions", kind))
            first = lease_number(control)
            with pytest.raises(psycopg.Error, match="lease"), control.transaction():
                control.execute("SELECT easeml.finish_node_job(%s, '{}', %s)", [job_id, first - 1])
            nodes["west"].wait_until(GONE.replace("predictions", kind))
        with coordinator(control):
            control.wait_until(ENDED, job_id)
        assert lease_number(control) > first
        (recorded,) = control.rows("SELECT job_id, result FROM recorded")
    finally:
        control.execute("DROP TABLE recorded; DROP FUNCTION count_ends CASCADE")
    assert control.value(STATUS, job_id) == "done"
    assert recorded["job_id"] == job_id
    if kind == "predictions":
        assert [node.value("SELECT count(*) FROM told") for node in nodes.values()] == [100, 100]
        assert recorded["result"] == {"n_rows": 200}
    elif kind == "answers":
        kept = "SELECT sum(n_rows) FROM easeml.node_answers WHERE trial_id = %s"
        assert control.value(kept, trials[FIRST]) == recorded["result"]["n_rows"] > 0
    else:
        assert recorded["result"]["is_identical"]
        assert recorded["result"]["n_units"] == 8


def test_predictions_that_one_node_has_written_already_are_not_written_twice(
    control: Session, nodes: dict[str, Session], trials: dict[str, int], told: None
) -> None:
    """As where the coordinator is killed after the first of two nodes has committed."""
    job_id = ask(control, "predictions", trials[FIRST])
    work_once(control)
    written = "SELECT to_regclass('told')::oid::bigint"
    before = nodes["east"].value(written)
    nodes["west"].execute("DROP TABLE told")
    control.execute("UPDATE easeml.node_jobs SET ended_at = NULL, result = NULL WHERE job_id = %s", [job_id])
    work_once(control)
    assert control.value("SELECT result FROM easeml.node_jobs WHERE job_id = %s", job_id) == {"n_rows": 200}
    assert nodes["east"].value(written) == before
    assert [node.value("SELECT count(*) FROM told") for node in nodes.values()] == [100, 100]


@pytest.mark.parametrize("end", ["cancel", "terminate"])
def test_a_job_ends_with_the_statement_that_asked_for_it(
    control: Session, nodes: dict[str, Session], trials: dict[str, int], told: None, coordinator: Coordinator, end: str
) -> None:
    asker = control.as_role(FIRST).again()
    with held(nodes["west"]), coordinator(control):
        asking = Asking(asker, PREDICT, LISTED)
        nodes["west"].wait_until(BLOCKED)
        (job_id,) = control.values("SELECT job_id FROM easeml.node_jobs")
        control.execute(f"SELECT pg_{end}_backend(%s)", [asker.info.backend_pid])
        control.wait_until(ENDED, job_id)
        nodes["west"].wait_until(GONE)
        assert asking.wait() is not None
    assert control.value(STATUS, job_id) == "cancelled"
    assert nodes["east"].value("SELECT to_regclass('told')") is None


def test_a_job_whose_row_is_gone_ends_on_the_node(
    control: Session, nodes: dict[str, Session], trials: dict[str, int], told: None, coordinator: Coordinator
) -> None:
    with held(nodes["west"]), coordinator(control):
        ask(control, "predictions", trials[FIRST])
        nodes["west"].wait_until(BLOCKED)
        control.execute("DELETE FROM easeml.node_jobs")  # as where its dataset or trial is dropped
        nodes["west"].wait_until(GONE)


def test_a_job_that_takes_too_long_ends_in_words(
    control: Session, nodes: dict[str, Session], trials: dict[str, int], told: None
) -> None:
    control.execute("SELECT easeml.set_node_job_limit(0.5)")
    try:
        with held(nodes["west"]):
            job_id = ask(control, "predictions", trials[FIRST])
            work_once(control)
            nodes["west"].wait_until(GONE)
    finally:
        control.execute("SELECT easeml.set_node_job_limit(14400)")
    assert control.value(PROBLEM, job_id) == "it took longer than 0.5 seconds"
    assert control.value(STATUS, job_id) == "failed"
    for bad in (0, -1, "NaN", None):
        with pytest.raises(psycopg.Error, match="seconds: expected a positive number"):
            control.execute("SELECT easeml.set_node_job_limit(%s)", [bad])


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ({"trial_id": "x"}, None),
        ({"trial_id": [1]}, {"east": ["public.own"]}),
        ({"dataset": "jobs"}, {"east": ["public.own"]}),
        ({"dataset": "jobs", "key": 3, "output": {}, "probabilities": []}, {"east": 7}),
        ({"dataset": "jobs", "key": None, "output": "public.told", "probabilities": False}, {"nowhere": ["a.b"]}),
    ],
)
def test_a_job_of_nonsense_ends_alone(
    control: Session, trials: dict[str, int], arguments: dict[str, Any], places: dict[str, Any] | None
) -> None:
    bad = control.value(ASK, FIRST, "predictions", Jsonb(arguments), places and Jsonb(places), trials[FIRST])
    good = ask(control, "answers", trials[SECOND], SECOND)
    work_once(control)
    assert control.value(STATUS, bad) == "failed"
    assert control.value(PROBLEM, bad)
    assert control.value(STATUS, good) == "done"


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (NotFound("checkpoint 5 is not there"), "checkpoint 5 is not there"),
        (KeyError("tables\0"), "it could not be done: KeyError: 'tables\\x00'"),
    ],
)
def test_whatever_a_job_raises_is_told_and_ends_that_job(
    control: Session, trials: dict[str, int], raised: Exception, words: str
) -> None:
    async def fail(dsn: str, told: dict[str, Any], lease: int) -> None:
        raise raised

    jobs = node_jobs(StatesInUse())
    job_id = ask(control, "answers", trials[FIRST])
    work_once(control, type(jobs)(jobs.next_one, jobs.opened, jobs.wanted, jobs.note, fail))
    assert control.value(PROBLEM, job_id) == words
    assert control.value(STATUS, job_id) == "failed"


def test_an_open_transaction_that_holds_a_job_holds_up_no_job_of_others(
    control: Session, trials: dict[str, int]
) -> None:
    held_job, other_job = ask(control, "replay", trials[FIRST]), ask(control, "replay", trials[SECOND])
    control.execute("UPDATE easeml.node_jobs SET asker_pid = 0 WHERE job_id = %s", [held_job])
    with control.again() as holder, holder.transaction():
        holder.execute("DELETE FROM easeml.node_jobs WHERE job_id = %s", [held_job])
        with control.transaction():
            control.execute("SET LOCAL lock_timeout = '250ms'")
            assert set(control.value("SELECT easeml.wanted_node_jobs()")) == {held_job, other_job}
            assert control.value("SELECT easeml.next_node_job() -> 'number'") == other_job
    assert control.value("SELECT easeml.wanted_node_jobs()") == [other_job]


def test_a_transfer_from_a_server_that_has_stopped_answering_is_given_up(
    control: Session, nodes: dict[str, Session], trials: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stays, so nothing but the time says that nobody answers there."""
    monkeypatch.setattr(row_copies, "SILENCE_SECONDS", 0.5)
    told = opened(control, ask(control, "replay", trials[FIRST]))
    east, west = (NodeCache(control.dsn, Node(**told["nodes"][name]), StatesInUse()) for name in ("east", "west"))
    state = KnownState(1_000_000, trials[FIRST], 10, "0" * 64)

    async def send() -> None:
        async with east._sending.taken() as source:
            pid = source.connection.info.backend_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            async with west._receiving.taken() as target:
                with pytest.raises(ServerUnavailable, match="has not answered"):
                    await east.send(target, state, lease_number(control))
            assert east.silent_seconds() > 0
        finally:
            os.kill(pid, signal.SIGCONT)
        async with west._receiving.taken() as target:  # both are of use again
            with pytest.raises(NotFound):
                await east.send(target, state, lease_number(control))
        for cache in (east, west):
            await cache.close()

    asyncio.run(asyncio.wait_for(send(), 120))


def test_the_state_of_a_replay_is_no_garbage(
    control: Session, nodes: dict[str, Session], trials: dict[str, int]
) -> None:
    job_id, lease, in_use = ask(control, "replay", trials[FIRST]), lease_number(control), StatesInUse()
    told = opened(control, job_id)
    caches = [NodeCache(control.dsn, Node(**told["nodes"][name]), in_use) for name in nodes]

    async def work() -> int:
        job = asyncio.create_task(do_job(control.dsn, told, lease, in_use))
        n_sweeps = 0
        while not job.done():
            for cache in caches:
                await cache.sweep(lease)
            n_sweeps += 1
        await job
        for cache in caches:
            await cache.close()
        return n_sweeps

    assert asyncio.run(work()) > 1
    result = control.value("SELECT result FROM easeml.node_jobs WHERE job_id = %s", job_id)
    assert result["is_identical"], result
    assert result["n_units"] == 8
    for node in nodes.values():
        assert node.values("SELECT checkpoint_id FROM easeml_segment.checkpoints WHERE lease_number = 0") == []


def test_a_job_whose_state_is_replaced_begins_anew_with_the_best_one(control: Session, trials: dict[str, int]) -> None:
    job_id = ask(control, "answers", trials[FIRST])
    told, best = opened(control, job_id), "SELECT best_checkpoint_id FROM easeml.trials WHERE trial_id = %s"
    told["checkpoint_id"] = 1_000_000  # as a state that has been replaced since
    with pytest.raises(SlotLost, match="has been replaced: it begins anew"):
        asyncio.run(do_job(control.dsn, told, lease_number(control), StatesInUse()))
    work_once(control)
    assert control.value(STATUS, job_id) == "done"
    answered = control.values(
        "SELECT DISTINCT checkpoint_id FROM easeml.node_answers WHERE trial_id = %s", told["trial_id"]
    )
    assert answered == control.values(best, trials[FIRST])


def test_a_trial_whose_state_was_removed_answers_in_words(control: Session, trials: dict[str, int]) -> None:
    kept = control.value("SELECT best_checkpoint_id FROM easeml.trials WHERE trial_id = %s", trials[FIRST])
    control.execute("UPDATE easeml.trials SET best_checkpoint_id = NULL WHERE trial_id = %s", [trials[FIRST]])
    try:
        job_id = ask(control, "answers", trials[FIRST])
        work_once(control)
        assert "has no state that answers" in control.value(PROBLEM, job_id)
    finally:
        control.execute("UPDATE easeml.trials SET best_checkpoint_id = %s WHERE trial_id = %s", [kept, trials[FIRST]])


def test_a_right_that_was_withdrawn_meanwhile_is_asked_for_again(
    control: Session, nodes: dict[str, Session], trials: dict[str, int], told: None
) -> None:
    owner, guest = control.as_role(FIRST), control.as_role(GUEST, "easeml_tenant")
    guest.execute("SELECT * FROM easeml.leaderboard")
    for node in nodes.values():
        node.execute(f"GRANT SELECT ON own TO {GUEST}")
        let_read(node, "own", GUEST)
        node.execute(f"GRANT CREATE ON SCHEMA public TO {GUEST}")
    owner.execute("SELECT easeml.grant_use('jobs', %s)", [GUEST])
    job_id = ask(control, "predictions", trials[FIRST], GUEST, dataset=f"{FIRST}.jobs")
    control.execute(
        "UPDATE easeml.node_jobs SET arguments = arguments || %s, tenant = %s",
        [Jsonb({"dataset": f"{FIRST}.jobs"}), GUEST],
    )
    owner.execute("SELECT easeml.revoke_use('jobs', %s)", [GUEST])
    work_once(control)
    assert control.value(STATUS, job_id) == "failed"
    assert nodes["east"].value("SELECT to_regclass('told')") is None
    owner.execute("SELECT easeml.grant_use('jobs', %s)", [GUEST])
    control.execute("UPDATE easeml.node_jobs SET ended_at = NULL, not_before = NULL, problem = NULL")
    work_once(control)
    assert control.value(STATUS, job_id) == "done", control.value(PROBLEM, job_id)
    control.execute("UPDATE easeml.node_jobs SET ended_at = NULL, not_before = NULL, problem = NULL")
    control.execute(f"REVOKE easeml_tenant FROM {GUEST}")
    work_once(control)
    assert control.value(PROBLEM, job_id) == f"role {GUEST} is no tenant any more"


@pytest.mark.parametrize(
    "dropped", ["SELECT easeml.drop_dataset('jobs', cascade => true)", "SELECT easeml.drop_run({})"]
)
def test_an_open_transaction_of_a_guest_keeps_no_owner_from_dropping(
    control: Session, trials: dict[str, int], dropped: str
) -> None:
    owner, guest = control.as_role(FIRST), control.as_role(GUEST, "easeml_tenant")
    owner.execute("SELECT easeml.grant_use('jobs', %s)", [GUEST])
    run_id = control.value("SELECT run_id FROM easeml.trials WHERE trial_id = %s", trials[FIRST])
    earlier = guest.value(REQUEST, f"{FIRST}.jobs", LISTED)
    with guest.transaction():
        guest.execute(REQUEST, [f"{FIRST}.jobs", LISTED])
        with control.transaction(force_rollback=True):
            control.execute("SET LOCAL lock_timeout = '250ms'")
            control.execute(f"SET LOCAL ROLE {FIRST}")
            control.execute(dropped.format(f"{run_id}, true"))
            control.execute("RESET ROLE")
            assert control.values("SELECT job_id FROM easeml.node_jobs WHERE job_id = %s", int(earlier)) == []


def test_a_job_whose_dataset_was_dropped_before_it_was_seen_ends_in_words(
    control: Session, trials: dict[str, int]
) -> None:
    """As where its transaction ends after the one that dropped the dataset."""
    dropped = "INSERT INTO easeml.node_jobs (tenant, caller, kind, dataset_id, trial_id, arguments, places)"
    for kind, trial_id in (("predictions", -1), ("drift", None)):
        job_id = control.value(
            f"{dropped} VALUES (%s, %s, %s, -1, %s, '{{}}', '{{}}') RETURNING job_id", FIRST, FIRST, kind, trial_id
        )
        work_once(control)
        assert control.value(STATUS, job_id) == "failed"
        assert control.value(PROBLEM, job_id) == "the dataset was dropped meanwhile"


def test_a_tenant_without_room_has_nothing_answered(control: Session, trials: dict[str, int]) -> None:
    asker = control.as_role(SECOND)
    control.execute("SELECT easeml.create_tenant(%s)", [SECOND])
    control.execute("DELETE FROM easeml.node_answers")
    kept = control.value("SELECT easeml.kept_bytes(%s)", SECOND)
    control.execute("SELECT easeml.alter_tenant(%s, max_bytes => %s)", [SECOND, kept - 1])
    try:
        with pytest.raises(psycopg.Error, match="max_bytes: ") as refused:
            asker.execute("CALL easeml.evaluate_on_nodes('jobs')")
        assert refused.value.sqlstate == "ML015"
        control.execute("SELECT easeml.alter_tenant(%s, max_bytes => %s)", [SECOND, kept + 1])
        job_id = ask(control, "answers", trials[SECOND], SECOND)
        work_once(control)
        assert "max_bytes: " in control.value(PROBLEM, job_id)
        assert control.value("SELECT count(*) FROM easeml.node_answers") == 0
    finally:
        control.execute("SELECT easeml.alter_tenant(%s, max_bytes => 1000000000000)", [SECOND])


@pytest.mark.parametrize(
    "lie",
    [
        "INSERT INTO pg_temp.easeml_answers SELECT 'test', 99, 0, 1, '\\x0000000000000000', '\\x00000000'",
        "UPDATE pg_temp.easeml_answers SET partition_number = (partition_number + 1) % 4",
        "UPDATE pg_temp.easeml_answers SET outputs = outputs || '\\x00'",
        "DELETE FROM pg_temp.easeml_answers WHERE split = 'test'",
    ],
)
def test_a_node_answers_for_its_own_rows_alone(
    control: Session, nodes: dict[str, Session], trials: dict[str, int], lie: str
) -> None:
    body = "SELECT prosrc FROM pg_proc WHERE oid = 'easeml_segment.answer_on_node'::regproc"
    true = nodes["east"].value(body)
    lying = f"{true.replace('return', 'result =')}\nplpy.execute({lie!r})\nreturn result\n"
    replace = (
        "CREATE OR REPLACE FUNCTION easeml_segment.answer_on_node(told jsonb) RETURNS jsonb LANGUAGE plpython3u"
        " SET search_path = pg_catalog, pg_temp AS $${}$$"
    )
    control.execute("DELETE FROM easeml.node_answers")
    job_id = ask(control, "answers", trials[FIRST])
    nodes["east"].execute(replace.format(lying))
    try:
        work_once(control)
    finally:
        nodes["east"].execute(replace.format(true))
    assert "segment east has answered other rows than it was asked for" in control.value(PROBLEM, job_id)
    assert control.value("SELECT count(*) FROM easeml.node_answers") == 0


ANSWERED = """
INSERT INTO easeml.node_answers (trial_id, tenant, checkpoint_id, split, partition_number, block_number, n_rows,
    outputs, targets)
SELECT trial_id, tenant, 0, 'test', 0, 0, 1, '', '' FROM easeml.trials WHERE trial_id = %s
"""
OTHER_TRIALS = """
INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs)
SELECT run_id, arm_id, tenant, trial_number + n, architecture, config, max_epochs
FROM easeml.trials, generate_series(1, 20) n WHERE trial_id = %s RETURNING trial_id
"""


@pytest.fixture
def answered(control: Session, trials: dict[str, int]) -> Iterator[int]:
    """The trial of the first tenant, which answered an hour ago."""
    with control.transaction(force_rollback=True):
        control.execute("DELETE FROM easeml.node_answers")
        control.execute(ANSWERED, [trials[FIRST]])
        ended = "UPDATE easeml.node_jobs SET ended_at = now() - interval '1 hour' WHERE job_id = %s"
        control.execute(ended, [ask(control, "answers", trials[FIRST])])
        yield trials[FIRST]


def test_answers_stay_however_much_else_was_asked_of_nodes(control: Session, answered: int) -> None:
    (other, *_) = control.values(OTHER_TRIALS, answered)
    for _ in range(21):
        job_id = ask(control, "predictions", answered)
        control.execute("UPDATE easeml.node_jobs SET ended_at = now() WHERE job_id = %s", [job_id])
    begin = "SELECT easeml.begin_node_job(%s, %s, jsonb_build_object('kind', 'answers', 'trial_id', %s::bigint))"
    job_id = control.value(begin, FIRST, FIRST, other)
    assert control.value("SELECT count(*) FROM easeml.node_jobs WHERE ended_at IS NOT NULL") == 21
    control.execute("SELECT easeml.finish_node_job(%s, '{}', %s)", [job_id, lease_number(control)])
    assert control.values("SELECT trial_id FROM easeml.node_answers") == [answered]


def test_answers_stay_however_many_trials_could_not_answer(control: Session, answered: int) -> None:
    *failed, last = control.values(OTHER_TRIALS, answered)
    failed.append(control.value(OTHER_TRIALS.replace("(1, 20)", "(21, 21)"), answered))
    for trial_id in failed:
        job_id = ask(control, "answers", trial_id)
        problem = Jsonb({"message": "the trial cannot answer"})
        control.execute("SELECT easeml.note_node_job(%s, %s, true, %s)", [job_id, problem, lease_number(control)])
    finish = "SELECT easeml.finish_node_job(%s, '{}', %s)"
    control.execute(finish, [ask(control, "answers", last), lease_number(control)])
    assert control.values("SELECT trial_id FROM easeml.node_answers") == [answered]


def test_a_job_has_the_memory_of_a_slot_of_its_node(control: Session, trials: dict[str, int]) -> None:
    job_id = ask(control, "replay", trials[FIRST])
    assert opened(control, job_id)["limits"] == {
        name: {"memory_limit_bytes": None, "n_slots": 2} for name in ("east", "west")
    }
    with control.transaction(force_rollback=True):
        control.execute("UPDATE easeml.slots SET memory_limit_bytes = 2000000000 + slot_id")
        limits = opened(control, job_id)["limits"]
        least = control.value("SELECT min(memory_limit_bytes) FROM easeml.slots WHERE segment_id = 2")
        assert limits["east"] == {"memory_limit_bytes": least, "n_slots": 2}


def test_nothing_of_a_dropped_tenant_is_left(control: Session, trials: dict[str, int]) -> None:
    control.as_role("jobs_gone", "easeml_tenant").close()
    with control.transaction(force_rollback=True):
        long_ago = (
            "INSERT INTO easeml.tenant_roles (tenant, role, since) VALUES (%s, %s::regrole, now() - %s::interval)"
        )
        control.execute(long_ago, ["jobs_gone", "jobs_gone", "9 years"])
        job_id = ask(control, "predictions", trials[FIRST])
        control.execute(
            "UPDATE easeml.node_jobs SET tenant = 'jobs_gone', ended_at = now() WHERE job_id = %s", [job_id]
        )
        control.execute(
            "INSERT INTO easeml.packings (dataset_id, tenant, dataset_name, version, caller, shuffle, arguments,"
            " places) VALUES (-1, 'jobs_gone', 'never', 1, 'jobs_gone', 'across', '{}', '{}')"
        )
        control.execute("REVOKE easeml_tenant FROM jobs_gone")
        control.execute("SELECT easeml.set_retention('dropped_tenants', '1 day')")
        while control.value("SELECT (easeml.prune_batch('dropped_tenants', 0, false)).n_rows"):
            continue
        tables = control.values(
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND"
            " a.attname = 'tenant' WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'r'"
        )
        left = [table for table in tables if control.rows(f"SELECT FROM {table} WHERE tenant = 'jobs_gone'")]
        assert left == []


def test_work_of_nodes_is_looked_for_less_often_until_there_is_a_node(database: Session) -> None:
    async def pauses() -> list[float]:
        requests, found = Requests(StoreSession(database.dsn)), []
        worker = NodeWorker(requests, node_jobs(StatesInUse()))
        try:
            for statement in ("SELECT", "SELECT easeml.add_segment('east', service => 'pg_east')"):
                database.execute(statement)
                await worker.take_turn()
                found.append(worker.pause_seconds)
        finally:
            await worker.close()
            await requests.close()
        return found

    assert asyncio.run(pauses()) == [WITHOUT_NODES_SECONDS, LOOK_SECONDS]
