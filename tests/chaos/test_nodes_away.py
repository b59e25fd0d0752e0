"""Nodes that die or come back empty in the middle of a run, and a coordinator that is killed meanwhile.

Whatever happens, every unit is recorded once, and each state is the one that a replay on one server makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.servers import temporary_server
from tests.fixtures.sessions import Session
from tests.nodes import prepare_node, service_file

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

    Coordinator = Callable[..., AbstractContextManager[Any]]

POINTS = """
CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 400) i
"""
BOUND = "SELECT easeml.create_dataset('points', 'points', '{x}', 'y', n_partitions => 4, placement => 'bound')"
N_EPOCHS = 10
SELECT_MODELS = """
SELECT easeml.select_models('points', '{mlp}', procedure => 'grid', max_epochs => 10,
    search_space => '{"learning_rate": [0.1, 0.03], "batch_size": 4, "hidden_units": [[8]]}')
"""
MID_EPOCH = """
SELECT EXISTS (SELECT FROM easeml.checkpoints c JOIN easeml.trials t USING (checkpoint_id)
    WHERE c.is_elsewhere AND t.run_id = %s AND c.epoch >= %s)
"""
WAITED_FOR = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid)))"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, dict[str, str]]]:
    """A server of its own with two nodes, and their connection strings for superusers."""
    with temporary_server() as server, ExitStack() as stack:
        with Session.open(server.dsn(database="postgres")) as root:
            root.execute("CREATE DATABASE east")
            root.execute("CREATE DATABASE west")
        dsns = {name: server.dsn(database=name) for name in ("east", "west")}
        services = {}
        for name, dsn in dsns.items():
            with Session.open(dsn) as session:
                services[f"pg_{name}"] = prepare_node(session)
        stack.enter_context(service_file(tmp_path_factory.mktemp("services"), services))
        yield server, dsns


def set_up_anew(dsn: str) -> None:
    """Have a node lose all that it holds, while a session is in the middle of using it."""
    with Session.open(dsn) as watcher, Session.open(dsn) as node, node.transaction():
        node.execute("DROP EXTENSION easeml_segment")
        watcher.wait_until(WAITED_FOR, node.value("SELECT pg_backend_pid()"))
        node.execute("CREATE EXTENSION easeml_segment")


def test_every_unit_is_recorded_once_and_makes_the_same_bytes_whatever_becomes_of_the_nodes(
    module_database: Session, nodes: tuple[Embedded, dict[str, str]], coordinator: Coordinator
) -> None:
    database, (server, dsns) = module_database, nodes
    database.execute(POINTS)
    database.execute("SELECT easeml.remove_slot(slot_id, force => true) FROM easeml.slots ORDER BY slot_id")
    for name in dsns:
        database.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
        database.execute("SELECT easeml.add_slots(1, %s)", [name])
    database.execute(BOUND)
    run_id = database.value(SELECT_MODELS)
    with coordinator(database):
        database.wait_until(MID_EPOCH, run_id, 2)
    with coordinator(database):  # the one before was killed
        database.wait_until(MID_EPOCH, run_id, 4)
        server.restart()
        database.wait_until(MID_EPOCH, run_id, 6)
        set_up_anew(dsns["east"])
        database.execute("CALL easeml.wait(%s)", [run_id])
    assert database.values("SELECT status FROM easeml.runs") == ["finished"]
    counted = database.values("SELECT count(*) FROM easeml.training_units GROUP BY trial_id")
    assert counted == [N_EPOCHS * 4] * 2
    assert database.values("SELECT checkpoint_id FROM easeml.checkpoints WHERE is_elsewhere") == []
    for trial_id in database.values("SELECT trial_id FROM easeml.trials ORDER BY 1"):
        replayed = database.value("CALL easeml.replay(%s)", trial_id)
        assert replayed["is_identical"], replayed
