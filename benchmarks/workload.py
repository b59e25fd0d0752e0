"""A private server with Fashion-MNIST in it, as the product ships it, and the sessions that benchmarks speak to."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import plain_torch
import psycopg
import torch
from psycopg.rows import dict_row

from easeml_db.coordinator.ports.messages import Order
from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import running_coordinator
from easeml_db.postgres.connection import PATH_SETTING
from easeml_db.postgres.sessions.gang_call import CALLS, order_json
from easeml_db.postgres.sessions.slot_session import SETTINGS
from easeml_db.words.training_unit import next_unit, unit_seed
from easeml_db.words.trial import Trial
from easeml_loaders import fashion_mnist_source, load_table
from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.columns.encoding import encode, fields_from_bytes

N_SLOTS = 2
N_PARTITIONS = 4
ANALYST = "analyst"
Session = psycopg.Connection[dict[str, Any]]
Tensors = tuple[torch.Tensor, torch.Tensor]
# Fixed, so that both sides of a comparison train the same.
PLAIN_CONFIG: Mapping[str, Any] = {
    "optimizer": "adam", "weight_decay": 0.0, "dropout": 0.0, "schedule": "constant", "averaging": 0.0,
    "hidden_units": [[128]],
}  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """The server and how much of the data to use (`n_rows`: of 70,000 images)."""

    server: Embedded
    is_quick: bool

    @property
    def n_rows(self) -> int:
        """Images in the source tables."""
        return 2_000 if self.is_quick else 70_000

    def repeats(self, n: int) -> int:
        """Return how often to measure: n times, or twice where only the code is tried."""
        return min(n, 2) if self.is_quick else n

    @contextmanager
    def session(self, user: str = ANALYST, **settings: str) -> Iterator[Session]:
        """An autocommit session of a tenant, or of another role."""
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        with psycopg.connect(self.server.dsn(user), autocommit=True, row_factory=dict_row, options=options) as session:
            yield session

    @contextmanager
    def slot(self, slot_id: int) -> Iterator[Slot]:
        """A warm session of a slot, with the settings that the coordinator gives it."""
        with self.session(SERVICE_ROLE, **SETTINGS | PATH_SETTING) as session:
            session.execute("SELECT easeml.warm_up()")
            yield Slot(session, slot_id)

    def settle(self) -> None:
        """Have all that was loaded and trained written to its files now, so that no checkpoint falls into a measure."""
        with self.session("postgres") as owner:
            owner.execute("CHECKPOINT")

    def coordinator(self) -> AbstractContextManager[None]:
        """Return a running coordinator, as a context."""
        return running_coordinator(self.server)

    def images(self, kind: str) -> str:
        """Name of the source table with images as `bytea` or `smallint` arrays; loaded at its first use."""
        table = f"images_{kind}"
        with self.session("postgres") as session:
            if session.execute("SELECT to_regclass(%s) AS found", [table]).fetchall()[0]["found"] is None:
                load_table(self.server.dsn(), fashion_mnist_source(bytes_as=kind), table)  # type: ignore[arg-type]
                session.execute(f"DELETE FROM {table} WHERE id > {self.n_rows}")
                session.execute(f"VACUUM FULL {table}")
                session.execute(f"ANALYZE {table}")
                session.execute(f"GRANT SELECT ON {table} TO {ANALYST}")
        return table

    def dataset(self, kind: str = "bytea", n_rows: int | None = None) -> str:
        """Name of a dataset of the first n_rows images (None: all); packed at its first use."""
        name = f"fashion_{kind}_{n_rows or self.n_rows}"
        source = self.images(kind)
        with self.session("postgres") as session:
            if n_rows is not None:
                session.execute(
                    f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {source} WHERE id <= {n_rows};"
                    f"GRANT SELECT ON {name} TO {ANALYST}"
                )
                source = name
        with self.session() as session:
            if not has_dataset(session, name):
                create_dataset(session, name, source)
        return name


def has_dataset(session: Session, name: str) -> bool:
    """Return whether an earlier round of a comparison has made a dataset."""
    return bool(session.execute("SELECT FROM easeml.datasets WHERE dataset_name = %s", [name]).fetchall())


def create_dataset(session: Session, name: str, source: str) -> None:
    """Pack a table of images."""
    shape = "{28,28}" if "bytea" in source else None
    session.execute(
        "SELECT easeml.create_dataset(%s, source => %s, inputs => '{image}', target => 'label',"
        " n_partitions => %s, input_shape => %s)",
        [name, source, N_PARTITIONS, shape],
    )


@contextmanager
def private_server() -> Iterator[Embedded]:
    """A server in a temporary folder, with two slots; removed at the end."""
    folder = tempfile.mkdtemp(prefix="easeml-benchmark-", dir="/var/tmp")
    os.chmod(folder, 0o755)  # root's server runs as another user, who must be able to enter it
    server = Embedded(Path(folder))
    try:
        server.start()
        server.prepare(n_slots=N_SLOTS)
        yield server
    finally:
        server.remove()


@contextmanager
def opened(*, is_quick: bool) -> Iterator[Workload]:
    """A server with two slots of one thread each and a tenant; removed at the end."""
    plain_torch.be_as_a_slot()
    with private_server() as server:
        workload = Workload(server, is_quick)
        with workload.session("postgres") as session:
            session.execute("SELECT easeml.set_slots(%s, 1)", [N_SLOTS])
            session.execute(f"CREATE ROLE {ANALYST} LOGIN IN ROLE easeml_tenant")
            session.execute(f"GRANT CREATE ON SCHEMA public TO {ANALYST}")
        yield workload


# Runs and units


def start_run(
    session: Session, dataset: str, architecture: str, batch_size: int, *, rates: list[float], max_epochs: int,
    allocation: str = "hopping", **fixed: Any,
) -> int:  # fmt: skip
    """Queue a run with a trial for each learning rate, else alike; return its number. fixed: more hyperparameters."""
    space = {**_plain_config(session, architecture), "batch_size": batch_size, "learning_rate": rates, **fixed}
    row = session.execute(
        "SELECT easeml.select_models(%s, architectures => %s, search_space => %s, procedure => 'grid',"
        " n_configs => %s, max_epochs => %s, allocation => %s) AS run_id",
        [dataset, [architecture], json.dumps(space), len(rates), max_epochs, allocation],
    ).fetchall()[0]
    return int(row["run_id"])


def _plain_config(session: Session, architecture: str) -> dict[str, Any]:
    """Return of the plain config what the architecture has: an earlier version has less, lenet its own layers."""
    sql = "SELECT h ->> 'name' AS name FROM easeml.architectures a, jsonb_array_elements(a.hyperparameters) h"
    names = {row["name"] for row in session.execute(f"{sql} WHERE a.architecture = %s", [architecture]).fetchall()}
    has_own = {"hidden_units"} if architecture == "lenet" else set()
    return {name: value for name, value in PLAIN_CONFIG.items() if name in names - has_own}


def run_seconds(session: Session, run_id: int) -> float:
    """Wait for a run; seconds from the call of select_models to its end, as the tables have them."""
    sql = (
        "SELECT status, extract(epoch FROM finished_at - created_at)::float8 AS seconds"
        " FROM easeml.runs WHERE run_id = %s"
    )
    while (row := session.execute(sql, [run_id]).fetchall()[0])["status"] in ("queued", "running"):
        time.sleep(0.1)
    if row["status"] != "finished":
        raise RuntimeError(f"run {run_id} {row['status']}")
    return float(row["seconds"])


def call_of(procedure: str) -> bytes:
    """Return the statement that calls a procedure of units, with its order as parameter."""
    return f"CALL easeml.{procedure}(%s::jsonb, NULL)".encode()


@dataclass(frozen=True)
class Slot:
    """A session that runs units as the coordinator's do."""

    session: Session
    slot_id: int

    def call(self, order: Order) -> tuple[float, dict[str, Any]]:
        """Run a unit; return the seconds of the whole CALL as the client sees them, and its result."""
        started = time.perf_counter()
        row = self.session.execute(call_of(CALLS[order.unit.kind]), [order_json(order)]).fetchone()
        return time.perf_counter() - started, row["result"]


class Life:
    """The units of a run's only trial, one after another, as the coordinator would give them out."""

    def __init__(self, session: Session, run_id: int) -> None:
        self.lease = session.execute("SELECT lease_number AS n FROM easeml.coordinator_lease").fetchall()[0]["n"]
        sql = (
            "SELECT trial_id, trial_number, t.max_epochs, n_steps_done, t.status, n_partitions FROM easeml.trials t"
            " JOIN easeml.runs USING (run_id) JOIN easeml.datasets USING (dataset_id) WHERE run_id = %s"
        )
        self._trial = Trial(run_id=run_id, **session.execute(sql, [run_id]).fetchall()[0])

    def orders(self, slot_id: int = 1) -> Iterator[Order]:
        """Return every unit that is left."""
        while (unit := next_unit(self._trial)) is not None:
            seed = unit_seed(0, unit.trial_number, unit.epoch, unit.partition_number)
            yield Order(unit, seed, slot_id, self.lease, 1)
            self._trial = Trial(**{**vars(self._trial), "n_steps_done": unit.step + 1})


def tensors(session: Session, dataset: str, split: str, partition_number: int) -> Tensors:
    """Return inputs float32 and labels int64 of a partition, the very tensors that units train on."""
    sql = (
        "SELECT d.encoder, b.n_rows, b.inputs, b.targets FROM easeml.blocks b JOIN easeml.datasets d USING (dataset_id)"
        " WHERE d.dataset_name = %s AND b.split = %s AND b.partition_number = %s ORDER BY b.block_number"
    )
    rows = session.execute(sql, [dataset, split, partition_number], binary=True).fetchall()
    encoder = Encoder.from_json(rows[0]["encoder"])
    inputs = [encode(encoder, fields_from_bytes(encoder, row["inputs"], row["n_rows"])) for row in rows]
    targets = [np.frombuffer(row["targets"], "<i4").astype(np.int64) for row in rows]
    return torch.from_numpy(np.concatenate(inputs)), torch.from_numpy(np.concatenate(targets))
