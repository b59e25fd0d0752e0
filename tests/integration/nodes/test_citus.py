"""Tables that Citus distributes as sources: packed, trained, predicted and packed again on the workers with the shards.

Each test runs on nodes that look like workers, by rows of the catalog that were recorded, and on a real cluster where
EASEML_TEST_CITUS names its coordinator and PGSERVICEFILE a file with the services of two workers, pg_NAME each.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.citus import FORMS, Cluster, Lookalike, add_segments, cluster_of, coordinator_of, make_lookalike
from tests.nodes import NODE_ROLE, let_read, service_file

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

N_SLOTS = 1
ROWS = """
SELECT i AS id, (i % 3) * 2 + sin(i * 12.9898) AS petal, (ARRAY['clay', 'sand', 'peat', NULL])[1 + i % 4] AS soil,
    CASE WHEN i % 50 > 0 THEN (ARRAY['rose', 'tulip', 'lily'])[1 + i % 3] END AS kind FROM generate_series(1, 400) g(i)
"""
CREATE = """
SELECT easeml.create_dataset(%s, %s, '{petal,soil}', 'kind', n_partitions => 4, block_rows => 40, seed => 3,
    shuffle => %s)
"""
HERE = """
SELECT easeml.create_dataset('here', 'tulips', '{petal,soil}', 'kind', n_partitions => 4, block_rows => 40, seed => 3,
    placement => 'bound')
"""
BLOCKS = """
SELECT split, partition_number, block_number, n_rows, md5(inputs) AS inputs, md5(targets) AS targets
FROM {}.version_blocks WHERE dataset_id = %s ORDER BY 1, 2, 3
"""
SELECT_MODELS = """
SELECT easeml.select_models(%s, '{mlp}', procedure => 'grid', max_epochs => 2,
    search_space => '{"learning_rate": [0.1, 0.03], "batch_size": 16, "hidden_units": [[8]]}')
"""
STATES = """
SELECT t.trial_number, u.epoch, u.position, u.state_sha256 FROM easeml.training_units u JOIN easeml.trials t
USING (trial_id) WHERE t.run_id = %s ORDER BY 1, 2, 3
"""
RECORDED = "SELECT count(*) >= %s FROM easeml.training_units WHERE run_id = %s"
CANCEL = """
SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'easeml slot %' AND state = 'active'
    AND datname = current_database()
"""
PROBLEM = "SELECT problem ->> 'message' LIKE %s FROM easeml.packings WHERE dataset_id = %s"
# A session that waits for a lock on a table of the worker.
WAITS = """
SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%pack_on_node%' AND wait_event_type = 'Lock'
    AND datname = current_database()
"""


@pytest.fixture(scope="module", params=FORMS, ids="-".join)
def cluster(
    request: pytest.FixtureRequest,
    private_server: Embedded,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """Two workers."""
    folder = tmp_path_factory.mktemp("services")
    with cluster_of(request.param, private_server, folder) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spread(module_database: Session, cluster: Cluster, coordinator: Coordinator) -> Iterator[Session]:
    """A control server with all rows, beside the cluster with the same; a coordinator runs."""
    control = module_database
    control.execute(f"CREATE TABLE IF NOT EXISTS tulips AS {ROWS}")
    add_segments(control, cluster)
    with coordinator(control):
        yield control
    control.execute("SELECT easeml.remove_slot(slot_id) FROM easeml.slots WHERE segment_id > 1")
    control.execute(
        "SELECT easeml.remove_segment(segment_name, force => true) FROM easeml.segments WHERE segment_id > 1"
    )


@pytest.fixture
def tulips(cluster: Cluster) -> Iterator[str]:
    """The table, and a source that names it on the first worker."""
    cluster.distribute("tulips", ROWS)
    yield '{"%s": "public.tulips"}' % next(iter(cluster.workers))  # noqa: UP031 - braces of JSON
    cluster.drop("tulips")


@pytest.fixture
def dropped(spread: Session) -> Iterator[Session]:
    """`spread`, whose datasets go at the end of the test."""
    yield spread
    spread.execute(
        "SELECT easeml.drop_dataset(d, cascade => true) FROM (SELECT DISTINCT dataset_name AS d FROM easeml.datasets) d"
    )


def packed(control: Session, name: str, source: str, shuffle: str) -> int:
    """Create a dataset and wait until the workers have packed it."""
    dataset_id = control.value(CREATE, name, source, shuffle)
    control.execute("CALL easeml.wait_dataset(%s, 120)", [dataset_id])
    return int(dataset_id)


def blocks_on(cluster: Cluster, dataset_id: int) -> list[dict[str, Any]]:
    """The blocks of all workers in one order."""
    found = [row for node in cluster.workers.values() for row in node.rows(BLOCKS.format("easeml_segment"), dataset_id)]
    return sorted(found, key=lambda row: (row["split"], row["partition_number"], row["block_number"]))


def test_shards_are_packed_trained_and_predicted_to_the_bytes_of_one_server(
    dropped: Session, cluster: Cluster, tulips: str
) -> None:
    here, there = dropped.value(HERE), packed(dropped, "there", tulips, "across")
    assert blocks_on(cluster, there) == dropped.rows(BLOCKS.format("easeml"), here)
    states = []
    for name in ("here", "there"):
        run_id = dropped.value(SELECT_MODELS, name)
        dropped.execute("CALL easeml.wait(%s)", [run_id])
        assert dropped.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
        states.append(dropped.rows(STATES, run_id))
    assert states[0]
    assert states[0] == states[1]
    assert dropped.value("CALL easeml.evaluate_on_nodes('there')") > 100
    compared = [
        dropped.rows(f"SELECT metric, validation, test FROM easeml.evaluate('{name}')") for name in ("here", "there")
    ]
    assert compared[0] == compared[1]
    for worker in cluster.workers.values():
        worker.execute("DROP TABLE IF EXISTS told")
        worker.execute(f"GRANT CREATE ON SCHEMA public TO {NODE_ROLE}")
    assert dropped.value("CALL easeml.predict_on_nodes('there', %s, 'public.told', key => '{id}')", tulips) == 400
    wanted = "SELECT id, predicted_label, probability FROM told ORDER BY 1"
    dropped.value("SELECT easeml.predict_table('here', 'tulips', 'public.told', key => '{id}')")
    found = [row for worker in cluster.workers.values() for row in worker.rows(wanted)]
    found.sort(key=lambda row: row["id"])
    # How many rows are answered at once is another number on each worker, and with it the last digits.
    for told, answer in zip(dropped.rows(wanted), found, strict=True):
        assert answer == {**told, "probability": pytest.approx(told["probability"], abs=1e-6)}
    trial_id = dropped.value("SELECT max(trial_id) FROM easeml.trials")
    assert dropped.value("CALL easeml.replay(%s)", trial_id)["is_identical"]
    for session in (dropped, *cluster.workers.values()):
        session.execute("DROP TABLE told")


def test_a_refresh_finds_a_shard_where_it_has_moved(dropped: Session, cluster: Cluster, tulips: str) -> None:
    first = packed(dropped, "moves", tulips, "within")
    told = dropped.rows("SELECT shuffle, n_moved_bytes FROM easeml.dataset_info WHERE dataset_id = %s", first)
    assert told == [{"shuffle": "within", "n_moved_bytes": 0}]
    known = "SELECT sum(n_rows)::int FROM easeml_segment.version_blocks WHERE dataset_id = %s"
    before = [worker.value(known, first) for worker in cluster.workers.values()]
    cluster.move("tulips")
    again = dropped.value("SELECT easeml.refresh_dataset('moves')")
    dropped.execute("CALL easeml.wait_dataset(%s, 120)", [again])
    after = [worker.value(known, again) for worker in cluster.workers.values()]
    assert sum(before) == sum(after) == 392
    assert after[0] < before[0]


def test_a_shard_that_moves_while_it_is_packed_is_resolved_again(
    dropped: Session, cluster: Cluster, tulips: str
) -> None:
    """Somebody holds a shard that is to be read until it has moved; on a real cluster it moves once it is let go."""
    here = dropped.value(HERE)
    worker = next(iter(cluster.workers.values()))
    worker.execute("SET citus.override_table_visibility TO off")
    worker.execute("SET citus.enable_manual_changes_to_shards TO on")
    shard = worker.value("SELECT max(relname)::text FROM pg_class WHERE relname ~ '^tulips_[0-9]+$'")
    with worker.transaction():
        worker.execute(f"LOCK TABLE {shard} IN ACCESS EXCLUSIVE MODE")
        there = dropped.value(CREATE, "there", tulips, "across")
        # Asked by another session: within a transaction the server shows the same activity again and again.
        worker.again().wait_until(WAITS)
        if isinstance(cluster, Lookalike):
            cluster.move("tulips")
    if not isinstance(cluster, Lookalike):
        cluster.move("tulips")
    else:
        dropped.wait_until(PROBLEM, f"segment east: shard public.{shard} has moved%", there)
    dropped.execute("CALL easeml.wait_dataset(%s, 120)", [there])
    assert blocks_on(cluster, there) == dropped.rows(BLOCKS.format("easeml"), here)


def test_a_worker_that_is_no_segment_and_a_table_of_somebody_else_are_named(
    dropped: Session, cluster: Cluster, tulips: str
) -> None:
    second = list(cluster.workers)[1]
    stranger = dropped.as_role("citus_stranger", "easeml_tenant")
    with pytest.raises(psycopg.Error, match=r"role citus_stranger may not read public\.tulips") as refused:
        packed(stranger, "closed", tulips, "across")
    assert refused.value.sqlstate == "ML004"
    stranger.execute("SELECT easeml.drop_dataset('closed')")
    dropped.execute("UPDATE easeml.segments SET engine = 'postgres' WHERE segment_name = %s", [second])
    with pytest.raises(
        psycopg.Error, match=r"shard public\.tulips_\d+ of public\.tulips is on worker .*, which is no segment"
    ):
        packed(dropped, "half", tulips, "across")
    dropped.execute("UPDATE easeml.segments SET engine = 'citus' WHERE segment_name = %s", [second])
    dropped.execute("SELECT easeml.drop_dataset('half')")


def test_plain_tables_of_workers_are_sources_as_on_any_node(dropped: Session, cluster: Cluster) -> None:
    here = dropped.value(HERE)
    for number, worker in enumerate(cluster.workers.values()):
        worker.execute("DROP TABLE IF EXISTS own_tulips")
        worker.execute(f"CREATE TABLE own_tulips AS SELECT * FROM ({ROWS}) r WHERE id % 2 = {number}")
        let_read(worker, "own_tulips")
    source = json.dumps({name: ["public.own_tulips"] for name in cluster.workers})
    there = packed(dropped, "there", source, "across")
    assert blocks_on(cluster, there) == dropped.rows(BLOCKS.format("easeml"), here)
    for worker in cluster.workers.values():
        worker.execute("DROP TABLE own_tulips")


def test_a_control_server_that_is_the_coordinator_names_its_tables_as_sql_does(database: Session) -> None:
    """Which worker is asked follows from what the segments have said of themselves. Nothing is packed here."""
    make_lookalike(database, 0)
    database.execute(f"CREATE TABLE tulips AS {ROWS}")
    with pytest.raises(psycopg.Error, match="is not distributed: its rows are on this server"):
        database.execute(CREATE, ["d", "tulips", "across"])
    database.execute("INSERT INTO pg_dist_partition VALUES ('tulips', 'h', 's', 1)")
    with pytest.raises(psycopg.Error, match="no worker of that cluster is a segment"):
        database.execute(CREATE, ["d", "tulips", "across"])
    for number, name in enumerate(("else", "w1")):
        database.execute("SELECT easeml.add_segment(%s, service => %s, engine => 'citus')", [name, f"pg_{name}"])
        database.execute("SELECT easeml.add_slots(1, %s)", [name])
        citus = {"version": "12.1-1", "group": number, "name": "127.0.0.1", "port": 9700 + number}
        facts = {"database": database.info.dbname if number else "another", "citus": citus}
        database.execute("UPDATE easeml.segments SET facts = %s WHERE segment_name = %s", [Jsonb(facts), name])
    dataset_id = database.value(CREATE, "d", "tulips", "across")
    row = database.rows("SELECT places, arguments ->> 'source' AS source FROM easeml.packings")
    assert row == [{"places": {"w1": ["public.tulips"]}, "source": "public.tulips"}]
    opened = database.value("SELECT easeml.open_packing(%s)", dataset_id)
    assert sorted(opened["peers"]) == ["else", "w1"]
    assert opened["peers"]["w1"]["engine"] == "citus"
    database.execute("SELECT easeml.drop_dataset('d')")
    database.execute(CREATE, ["d", "tulips", None])
    assert database.value("SELECT shuffle FROM easeml.packings") == "across"
    database.execute("SELECT easeml.drop_dataset('d')")
    # A local table that Citus knows has its rows on the coordinator, which is this server.
    database.execute("UPDATE pg_dist_partition SET partmethod = 'n', colocationid = 0")
    database.execute(CREATE, ["d", "tulips", None])
    assert database.value("SELECT shuffle IS NULL FROM easeml.datasets WHERE dataset_name = 'd'")


def test_units_that_citus_delegates_are_recorded_once_whatever_is_cancelled_or_killed(
    database: Session, private_server: Embedded, coordinator: Coordinator, tmp_path: Path
) -> None:
    """Only the coordinator of the cluster is reached; its workers get the packed rows of the control server."""
    database.execute(f"CREATE TABLE tulips AS {ROWS}")
    database.execute(HERE)
    here = database.value(SELECT_MODELS, "here")
    with coordinator(database):
        database.execute("CALL easeml.wait(%s)", [here])
    with coordinator_of(private_server) as cluster:
        dsns = {f"pg_worker{group}": dsn for group, dsn in cluster.dsns.items()}
        for group in cluster.workers:
            values = [f"w{group}", f"pg_worker{group}", group]
            database.execute("SELECT easeml.add_segment(%s, service => %s, engine => 'citus', content => %s)", values)
            database.execute("SELECT easeml.add_slots(1, %s)", [f"w{group}"])
        database.execute("SELECT easeml.remove_slot(slot_id, force => true) FROM easeml.slots WHERE segment_id = 1")
        database.execute(HERE.replace("'here'", "'there'"))
        there = database.value(SELECT_MODELS, "there")
        with service_file(tmp_path, dsns):
            with coordinator(database) as process:
                database.wait_until(RECORDED, 3, there)
                for entrance in cluster.entrances:
                    entrance.execute(CANCEL)
                database.wait_until(RECORDED, 7, there)
                process.send_signal(signal.SIGKILL)
                process.wait()
            with coordinator(database):
                database.execute("CALL easeml.wait(%s)", [there])
    assert database.value("SELECT status FROM easeml.runs WHERE run_id = %s", there) == "finished"
    states = [database.rows(STATES, run_id) for run_id in (here, there)]
    assert states[0]
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("'n', service => 'pg_n', engine => 'oracle'", "engine: expected postgres, citus or greenplum, got 'oracle'"),
        ("'n', engine => 'citus'", "service: expected that of a Citus worker"),
        ("'n', service => 'pg_n', engine => 'citus', content => 0", "content: expected NULL, or the group of a worker"),
    ],
)
def test_a_segment_of_an_engine_that_is_not_there_is_refused(database: Session, arguments: str, words: str) -> None:
    with pytest.raises(psycopg.Error, match=words):
        database.execute(f"SELECT easeml.add_segment({arguments})")
