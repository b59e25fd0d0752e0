"""Nodes that are killed while rows are brought to one, and in the middle of a whole round, and a coordinator, too.

Whatever happens, every unit is recorded once, and each state is that of the same run on one server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures.sessions import Session
from tests.nodes import NodeServer, let_read, node_servers

if TYPE_CHECKING:
    Coordinator = Callable[..., AbstractContextManager[Any]]

N_SLOTS, N_EPOCHS, N_PARTITIONS, N_TRIALS = 1, 2, 4, 2
POINTS = """
SELECT i AS id, i % 3 + sin(i) / 9 AS x, cos(i * 7.0) AS noise, chr(97 + i % 3) AS y FROM generate_series(1, 600) i
"""
LISTED = '{"east": "public.own", "west": "public.own"}'
HERE = "SELECT easeml.create_dataset('here', 'points', '{x,noise}', 'y', n_partitions => 4, seed => 3)"
THERE = "SELECT easeml.create_dataset('there', %s, '{x,noise}', 'y', n_partitions => 4, seed => 3)"
RUN = """
SELECT easeml.select_models(%s, '{lightgbm}', procedure => 'grid', max_epochs => 2, seed => 5,
    search_space => '{"trees_per_epoch": 5, "num_leaves": [7, 15]}')
"""
STATES = """
SELECT t.config ->> 'num_leaves' AS leaves, u.epoch, u.position, u.state_sha256 FROM easeml.training_units u
JOIN easeml.trials t USING (trial_id) WHERE u.run_id = %s ORDER BY 1, 2, 3
"""
WAITING = """
SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
    AND query LIKE %s
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NodeServer]]:
    """Two servers that are nodes, each with half of the rows."""
    with node_servers(tmp_path_factory.mktemp("services")) as found:
        for number, node in enumerate(found):
            with Session.open(node.dsn) as session:
                session.execute(f"CREATE TABLE own AS {POINTS} WHERE i % 2 = {number}")
                let_read(session, "own")
        yield {node.name: node for node in found}


@pytest.fixture(scope="module")
def control(module_database: Session, nodes: dict[str, NodeServer], coordinator: Coordinator) -> Session:
    """A control server with the same rows, and a dataset of each kind."""
    control = module_database
    control.execute(f"CREATE TABLE points AS {POINTS}")
    for name in nodes:
        control.execute("SELECT easeml.add_segment(%s, service => %s)", [name, f"pg_{name}"])
        control.execute("SELECT easeml.add_slots(1, %s)", [name])
    control.execute(HERE)
    with coordinator(control):
        control.execute("CALL easeml.wait_dataset(%s, 100)", [control.value(THERE, LISTED)])
    return control


@contextmanager
def held(node: NodeServer, lock: str, what: str) -> Iterator[Callable[[], None]]:
    """Nobody gets by a lock of a node; calling what is given waits until a statement of that kind waits for it."""
    with Session.open(node.dsn) as session, Session.open(node.dsn) as other:
        session.execute("BEGIN")
        session.execute(f"LOCK TABLE {lock} IN EXCLUSIVE MODE")
        yield lambda: other.wait_until(WAITING, what)
        with contextlib.suppress(psycopg.OperationalError):  # it was killed
            session.execute("ROLLBACK")


def test_a_round_is_recorded_once_and_makes_the_same_bytes_whatever_becomes_of_its_nodes(
    control: Session, nodes: dict[str, NodeServer], coordinator: Coordinator
) -> None:
    rows, states = "easeml_segment.version_blocks", "easeml_segment.checkpoints"
    with coordinator(control):
        with (
            held(nodes["east"], rows, f"COPY%{rows}%") as is_bringing,
            held(nodes["west"], states, "CALL easeml_segment.train_round_on_node%") as is_training,
        ):
            run_id = control.value(RUN, "there")
            is_bringing()  # from west
            is_training()
            nodes["west"].kill()
        done = "SELECT count(*) >= %s FROM easeml.training_units WHERE run_id = %s"
        control.wait_until(done, N_PARTITIONS * N_TRIALS, run_id)
    with coordinator(control):  # the one before was killed
        control.execute("CALL easeml.wait(%s)", [run_id])
        here = control.value(RUN, "here")
        control.execute("CALL easeml.wait(%s)", [here])
    told = control.rows("SELECT kind, message FROM easeml.events WHERE run_id = %s ORDER BY event_id", run_id)
    assert control.values("SELECT status FROM easeml.runs ORDER BY run_id") == ["finished"] * 2, told
    found = control.rows(STATES, run_id)
    assert len(found) == N_EPOCHS * N_PARTITIONS * N_TRIALS, told
    assert found == control.rows(STATES, here)
    assert control.values("SELECT checkpoint_id FROM easeml.checkpoints WHERE is_elsewhere") == []
