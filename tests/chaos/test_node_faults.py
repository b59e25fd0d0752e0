"""Nodes that are killed, stopped, or whose disks are full, and a coordinator that is killed, while runs are under way.

The long form of it: pytest tests/chaos/test_node_faults.py -s --node-faults 100 --node-faults-seed 7
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.postgres.versions import FIRST_WITH_MAINTAIN
from tests.disks import FULL_DISK_BYTES, fill, small_disk_for
from tests.fixtures.sessions import Session
from tests.nodes import node_servers

if TYPE_CHECKING:
    from tests.nodes import NodeServer as Node

    Coordinator = Callable[..., AbstractContextManager[Any]]

N_SLOTS = 1
N_EPOCHS, N_PARTITIONS, N_TRIALS = 3, 4, 2
POINTS = """
CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 1600) i
"""
BOUND = """
SELECT easeml.create_dataset('points', 'points', '{x}', 'y', n_partitions => 4, placement => 'bound'),
    easeml.create_dataset('here', 'points', '{x}', 'y', n_partitions => 2)
"""
RUN = """
SELECT easeml.select_models('points', '{mlp}', procedure => 'grid', max_epochs => 3, seed => 5,
    search_space => '{"learning_rate": [0.1, 0.03], "batch_size": 4, "hidden_units": [[256, 256]]}')
"""
RUN_HERE = "SELECT easeml.select_models('here', '{linear}', n_configs => 1, max_epochs => 1)"
STATES = """
SELECT t.trial_number, u.epoch, u.position, u.state_sha256 FROM easeml.training_units u JOIN easeml.trials t
USING (trial_id) WHERE t.run_id = %s ORDER BY 1, 2, 3
"""
N_DONE = "SELECT count(*) FROM easeml.training_units WHERE run_id = %s"
IS_OPEN = "SELECT is_open FROM easeml.runs WHERE run_id = %s"
KINDS = ("kill", "stop", "fill", "coordinator")
STATE_TABLES = ("easeml_segment.checkpoints", "easeml_segment.checkpoint_chunks")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Two servers that are nodes."""
    with node_servers(tmp_path_factory.mktemp("services")) as found:
        yield found


@pytest.fixture(scope="module")
def control(module_database: Session, nodes: list[Node]) -> Session:
    """A control server with a slot of its own and one on each node, and datasets of both kinds."""
    module_database.execute(POINTS)
    for node in nodes:
        module_database.execute("SELECT easeml.add_segment(%s, service => %s)", [node.name, f"pg_{node.name}"])
        module_database.execute("SELECT easeml.add_slots(1, %s)", [node.name])
    module_database.execute("SELECT easeml.remove_slot(slot_id) FROM easeml.slots WHERE segment_id = 1")
    module_database.execute(BOUND)
    module_database.execute("SELECT easeml.add_slots(1)")
    return module_database


class Faults:
    """What befalls nodes and coordinators; each fault ends with everything there again."""

    def __init__(self, control: Session, disks: dict[str, Path], coordinator: Coordinator) -> None:
        self._control, self._disks, self._coordinator = control, disks, coordinator
        self._running = ExitStack()
        self.start()

    def start(self) -> None:
        """Start a coordinator; the one before is killed."""
        self._running.close()
        self._running.enter_context(self._coordinator(self._control, "--unit-lease-seconds", "8"))

    def end(self) -> None:
        """Kill the coordinator."""
        self._running.close()

    def happen(self, kind: str, node: Node) -> None:
        """Have a fault happen, to a node or to the coordinator."""
        if kind == "kill":
            node.kill()
        elif kind == "stop":
            self._stop(node)
        elif kind == "fill":
            self._fill(node)
        else:
            self.start()

    def _stop(self, node: Node) -> None:
        """A node is stopped for as long as a run on the control server takes, and as its slot is not lost."""
        with node.stopped():
            run_id = self._control.value(RUN_HERE)
            self._control.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)

    def _fill(self, node: Node) -> None:
        """A disk is full until somebody has noticed, or until all runs are over."""
        told = "EXISTS (SELECT FROM easeml.run_events WHERE kind = 'disk full' AND happened_at > %s)"
        began = self._control.value("SELECT clock_timestamp()")
        filler = fill(self._disks[node.name])
        try:
            self._control.wait_until(f"SELECT NOT EXISTS (SELECT FROM easeml.runs WHERE is_open) OR {told}", began)
        finally:
            filler.unlink()


@pytest.fixture
def faults(control: Session, nodes: list[Node], coordinator: Coordinator) -> Iterator[Faults]:
    """A coordinator that runs, and small disks of the nodes for states."""
    with ExitStack() as stack:
        disks = {}
        for node in nodes:
            session = stack.enter_context(Session.open(node.dsn))
            session.execute(f"TRUNCATE {', '.join(STATE_TABLES)}")  # what an earlier test left would fill it
            disks[node.name] = stack.enter_context(small_disk_for(session, STATE_TABLES))
        found = Faults(control, disks, coordinator)
        stack.callback(found.end)
        yield found


def test_faults_lose_no_unit_double_none_and_change_no_state(
    control: Session, nodes: list[Node], faults: Faults, request: pytest.FixtureRequest
) -> None:
    n_faults, seed = (request.config.getoption(f"--node-faults{each}") for each in ("", "-seed"))
    rng = random.Random(seed)
    kinds = [KINDS[k % len(KINDS)] for k in range(n_faults)]
    rng.shuffle(kinds)
    first = run_id = control.value(RUN)
    for number, kind in enumerate(kinds):
        node = rng.choice(nodes)
        n_done = control.value(N_DONE, run_id)
        control.wait_until(f"SELECT ({N_DONE}) >= %s OR NOT ({IS_OPEN})", run_id, n_done + 2, run_id)
        if not control.value(IS_OPEN, run_id):
            check(control, first, run_id)
            run_id = control.value(RUN)
        began = time.monotonic()
        faults.happen(kind, node)
        print(f"fault {number + 1} of {n_faults}: {kind} {node.name}, {time.monotonic() - began:.1f} s")
    control.wait_until(f"SELECT NOT ({IS_OPEN})", run_id)
    check(control, first, run_id)
    replayed = control.value("SELECT min(trial_id) FROM easeml.trials WHERE run_id = %s", first)
    assert control.value("CALL easeml.replay(%s)", replayed)["is_identical"]
    assert control.values("SELECT checkpoint_id FROM easeml.checkpoints WHERE is_elsewhere") == []


def check(control: Session, first: int, run_id: int) -> None:
    """A run has ended well, with each unit once, in the bytes of the first one. Drop it: small disks hold a few."""
    assert control.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
    states = control.rows(STATES, run_id)
    assert len(states) == N_EPOCHS * N_PARTITIONS * N_TRIALS
    assert states == control.rows(STATES, first)
    if run_id != first:
        control.execute("SELECT easeml.drop_run(%s)", [run_id])


def write_and_remove(there: Session, n_megabytes: int) -> None:
    """Write a state of so many megabytes, or until the disk is full, and remove it."""
    there.execute(
        "INSERT INTO easeml_segment.checkpoints (checkpoint_id, trial_id, lease_number, n_bytes, sha256)"
        " VALUES (-1, 0, 0, 0, repeat('0', 64))"
    )
    with contextlib.suppress(psycopg.errors.DiskFull):
        for number in range(n_megabytes):
            there.execute(
                "INSERT INTO easeml_segment.checkpoint_chunks VALUES (-1, %s, repeat('x', 1048576)::bytea)", [number]
            )
    there.execute("DELETE FROM easeml_segment.checkpoints WHERE checkpoint_id = -1")


def test_a_disk_that_is_full_of_what_was_removed_has_room(control: Session, nodes: list[Node], faults: Faults) -> None:
    with Session.open(nodes[0].dsn) as there:
        for kind in ("", "toast."):
            there.execute(f"ALTER TABLE easeml_segment.checkpoint_chunks SET ({kind}autovacuum_enabled = off)")
        # Table and index have maps of free room, as after some sweeps: a VACUUM on a full disk could not begin them.
        for n_megabytes in (40, 1, 1):
            write_and_remove(there, n_megabytes)
            there.execute("VACUUM (TRUNCATE false) easeml_segment.checkpoints, easeml_segment.checkpoint_chunks")
        write_and_remove(there, n_megabytes=FULL_DISK_BYTES >> 20)
        run_id = control.value(RUN)
        control.wait_until(
            "SELECT count(*) > 0 FROM easeml.run_events WHERE kind = 'disk full' AND run_id = %s", run_id
        )
        if there.info.server_version < FIRST_WITH_MAINTAIN:  # where it is the server's autovacuum that makes room
            there.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
            there.execute("SELECT pg_reload_conf()")
            for kind in ("", "toast."):
                there.execute(f"ALTER TABLE easeml_segment.checkpoint_chunks RESET ({kind}autovacuum_enabled)")
        control.wait_until(f"SELECT NOT ({IS_OPEN})", run_id)
        check(control, run_id, run_id)
