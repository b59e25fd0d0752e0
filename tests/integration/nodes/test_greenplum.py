"""Segments of a Greenplum cluster: what is refused; where EASEML_TEST_GREENPLUM names the coordinator of a real one,
runs there that end in the bytes of those on one server.

What looks like a cluster is known to this process alone: tests/conformance/test_greenplum.py has the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from easeml_db.cli import commands
from tests.greenplum import DSN, N_SEGMENTS, real
from tests.integration.nodes.test_nodes import BOUND, FLOWERS, SCORES, SELECT_MODELS, STATES
from tests.nodes import NODE_ROLE, service_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

SEGMENTS = tuple(f"gp{content}" for content in range(N_SEGMENTS))
TREES = """
SELECT easeml.select_models(%s, '{lightgbm}', procedure => 'grid', max_epochs => 2, search_space =>
    '{"trees_per_epoch": 2, "num_leaves": [3]}')
"""
TABLES = """
CREATE TABLE plain (i int, k text) DISTRIBUTED BY (k, i);
CREATE TABLE anyhow (i int) DISTRIBUTED RANDOMLY;
CREATE TABLE columnar (i int) WITH (appendonly = true, orientation = column) DISTRIBUTED BY (i);
CREATE TABLE parts (i int, k int) DISTRIBUTED BY (i) PARTITION BY RANGE (k) (START (0) END (20) EVERY (10));
CREATE TABLE mixed (i int, k int) DISTRIBUTED BY (i) PARTITION BY RANGE (k) (START (0) END (20) EVERY (10));
CREATE EXTERNAL WEB TABLE outside (i int, k int) EXECUTE 'true' ON ALL FORMAT 'text';
ALTER TABLE mixed EXCHANGE PARTITION FOR (1) WITH TABLE outside WITHOUT VALIDATION;
CREATE TABLE parent (i int) DISTRIBUTED BY (i);
CREATE TABLE child () INHERITS (parent) DISTRIBUTED BY (i);
CREATE TABLE everywhere (i int) DISTRIBUTED REPLICATED;
CREATE VIEW seen AS SELECT * FROM plain
"""
DISTRIBUTIONS = """
SELECT c.relname::text AS name, d.is_plain, d.clause, d.columns
FROM pg_class c CROSS JOIN LATERAL easeml_segment.distribution_of(c.oid) d
WHERE c.relname = ANY (%s)
"""
LONG = SELECT_MODELS.replace("max_epochs => 2", "max_epochs => 6")
N_UNITS_OF_LONG = 2 * 6 * 4
N_UNITS = "SELECT count(*) FROM easeml.training_units WHERE run_id = %s"
STRIKE = """
CREATE FUNCTION public.strike(pid integer) RETURNS integer LANGUAGE plpython3u VOLATILE AS
$$import os, signal; os.kill(pid, signal.SIGKILL)$$
"""
# On the segment itself, as a unit.
STRUCK = """
SELECT z.struck FROM (SELECT k.segment_key, min(k.segment_key), public.strike(%s) AS struck FROM easeml_segment.keys k
    WHERE k.gp_segment_id = %s AND k.segment_key = (SELECT min(l.segment_key) FROM easeml_segment.keys l
        WHERE l.gp_segment_id = %s) GROUP BY k.segment_key OFFSET 0) z
"""
SESSIONS = "SELECT sess_id FROM pg_stat_activity WHERE application_name LIKE 'easeml slot%'"
PROCESSES = """
SELECT q.pid FROM (SELECT gp_execution_segment() AS content, a.pid, a.sess_id
    FROM gp_dist_random('pg_stat_activity') a) q WHERE q.content = %s AND q.sess_id = ANY (%s) ORDER BY q.pid LIMIT 1
"""
HELD = "SELECT DISTINCT partition_number FROM easeml_segment.partitions WHERE gp_segment_id = %s"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A real cluster, by the service pg_cluster."""
    with real(os.environ[DSN]) as cluster:
        dsn = make_conninfo(cluster.dsn, user=NODE_ROLE)
        with service_file(tmp_path_factory.mktemp("services"), {"pg_cluster": dsn}):
            yield cluster


@pytest.fixture(scope="module")
def runs_here(module_database: Session, coordinator: Coordinator) -> tuple[int, int]:
    """A run of networks and one of trees on two segments of this server."""
    module_database.execute(FLOWERS)
    module_database.execute("SELECT easeml.add_segment('other'), easeml.add_slots(1, 'other')")
    module_database.execute(BOUND, ["here"])
    return trained(module_database, coordinator, "here")


@pytest.fixture(scope="module")
def there(module_database: Session, cluster: Session, runs_here: tuple[int, int]) -> Iterator[Session]:
    """The control server, whose slots are all on segments of the cluster; a dataset is placed there."""
    module_database.execute("SELECT easeml.remove_slot(slot_id, force => true) FROM easeml.slots ORDER BY slot_id")
    for content, name in enumerate(SEGMENTS):
        module_database.execute(
            "SELECT easeml.add_segment(%s, service => 'pg_cluster', engine => 'greenplum', content => %s)",
            [name, content],
        )
        module_database.execute("SELECT easeml.add_slots(1, %s)", [name])
    module_database.execute(BOUND, ["there"])
    yield module_database
    module_database.execute("SELECT easeml.drop_dataset('there', cascade => true)")
    module_database.execute("SELECT easeml.remove_slot(slot_id, force => true) FROM easeml.slots ORDER BY slot_id")
    for name in SEGMENTS:
        module_database.execute("SELECT easeml.remove_segment(%s, force => true)", [name])


def trained(database: Session, coordinator: Coordinator, dataset: str) -> tuple[int, int]:
    """Train networks, which hop, then trees, which want all partitions; return the runs."""
    runs = []
    with coordinator(database):
        for asked in (SELECT_MODELS, TREES):
            runs.append(int(database.value(asked, dataset)))
            database.execute("CALL easeml.wait(%s)", [runs[-1]])
            database.execute("SELECT easeml.replicate_dataset(%s, 2)", [dataset])
    first, second = runs
    return first, second


@pytest.mark.skipif(DSN not in os.environ, reason=f"{DSN} names no cluster")
def test_runs_on_a_cluster_end_in_the_bytes_of_those_on_one_server(
    there: Session, cluster: Session, runs_here: tuple[int, int], coordinator: Coordinator
) -> None:
    for here, run_id in zip(runs_here, trained(there, coordinator, "there"), strict=True):
        assert there.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
        assert there.values(STATES, run_id)
        assert there.rows(STATES, run_id) == there.rows(STATES, here)
        assert there.rows(SCORES, run_id) == there.rows(SCORES, here)
        slots = there.values("SELECT DISTINCT slot_id FROM easeml.training_units WHERE run_id = %s", run_id)
        assert set(slots) <= {*there.values("SELECT slot_id FROM easeml.slots")}
    # What answers is here, and nothing points to a state that is elsewhere.
    answered = there.value("SELECT count(easeml.predict('there', jsonb_build_object('petal', petal))) FROM flowers")
    assert answered == 300
    assert there.values("SELECT checkpoint_id FROM easeml.checkpoints WHERE is_elsewhere") == []
    assert {*cluster.values(HELD, 0)} | {*cluster.values(HELD, 1)} == {0, 1, 2, 3}


@pytest.mark.skipif(DSN not in os.environ, reason=f"{DSN} names no cluster")
def test_a_process_of_a_segment_that_is_killed_costs_what_was_under_way_and_nothing_else(
    there: Session, cluster: Session, coordinator: Coordinator
) -> None:
    cluster.execute(STRIKE)
    with coordinator(there):
        run_id = there.value(LONG, "there")
        there.wait_until(f"SELECT ({N_UNITS}) >= 6", run_id)
        pid = cluster.value(PROCESSES, 1, cluster.values(SESSIONS))
        assert pid is not None, "no process of the segment works for a slot"
        for statement, values in ((STRUCK, (pid, 1, 1)), (HELD, (1,))):
            with suppress(psycopg.Error):  # the segment ends all of its sessions, and those here find out one by one
                cluster.rows(statement, *values)
        there.execute("CALL easeml.wait(%s)", [run_id])
    assert there.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
    assert there.value(N_UNITS, run_id) == N_UNITS_OF_LONG
    for trial_id in there.values("SELECT trial_id FROM easeml.trials WHERE run_id = %s", run_id):
        replayed = there.value("CALL easeml.replay(%s)", trial_id)
        assert replayed["is_identical"], replayed


@pytest.mark.skipif(DSN not in os.environ, reason=f"{DSN} names no cluster")
def test_only_tables_whose_segments_have_rows_of_their_own_are_distributed(cluster: Session) -> None:
    """Versions of Greenplum tell partitions, access methods and external tables each in a catalog of its own."""
    for statement in TABLES.split(";"):
        cluster.execute(statement)
    names = ["plain", "anyhow", "columnar", "parts", "mixed", "parent", "child", "everywhere", "seen", "outside"]
    found = {row["name"]: row for row in cluster.rows(DISTRIBUTIONS, names)}
    assert sorted(found) == sorted(names)
    plain = {"plain", "anyhow", "columnar", "parts", "child", "outside"}  # outside changed places with a part of mixed
    assert {name for name, row in found.items() if row["is_plain"]} == plain
    assert (found["plain"]["clause"], found["plain"]["columns"]) == ("DISTRIBUTED BY (k, i)", ["k", "i"])
    assert (found["anyhow"]["clause"], found["anyhow"]["columns"]) == ("DISTRIBUTED RANDOMLY", [])
    assert found["everywhere"]["clause"] is None


def test_nothing_is_installed_on_a_server_of_another_line(module_database: Session, tmp_path: Path) -> None:
    with service_file(tmp_path, {"pg_plain": module_database.dsn}):
        done = CliRunner().invoke(commands, ["segment", "install", "pg_plain", "--engine", "greenplum"])
    assert "expected Greenplum 6 or newer, or Cloudberry" in f"{done.output} {done.exception}"
    assert module_database.values("SELECT 1 FROM pg_tables WHERE schemaname = 'easeml_segment'") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("'n', service => 'pg_n', engine => 'greenplum'", "content: expected which segment of the Greenplum cluster"),
        ("'n', engine => 'greenplum', content => 0", "service: expected that of a Greenplum cluster"),
        ("'n', service => 'pg_n', content => 0", "content: expected NULL for engine postgres, got 0"),
        ("'n', service => 'pg_n', engine => 'greenplum', content => -1", "content: expected which segment"),
    ],
)
def test_a_segment_of_a_cluster_is_named_by_service_and_content(
    module_database: Session, arguments: str, words: str
) -> None:
    with pytest.raises(psycopg.Error, match=words):
        module_database.execute(f"SELECT easeml.add_segment({arguments})")


def test_each_segment_of_a_cluster_is_added_once(module_database: Session) -> None:
    add = "SELECT easeml.add_segment(%s, service => 'pg_n', engine => %s, content => %s)"
    with module_database.transaction(force_rollback=True):
        for content in (0, 1):
            module_database.execute(add, [f"n{content}", "greenplum", content])
        for engine, content in (("greenplum", 1), ("postgres", None)):
            with pytest.raises(psycopg.Error, match=r"is segment 'n[01]' already"), module_database.transaction():
                module_database.execute(add, ["n2", engine, content])
