"""A private PostgreSQL for an experiment: n slots of one thread, a tenant, a coordinator; removed at the end, whatever
the end is."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
from psycopg import sql

from easeml_db.errors import TrialFailed
from easeml_db.local.cluster import SUPERUSER
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import running_coordinator
from easeml_db.postgres.connection import connect_now
from easeml_db.words.run import Search
from easeml_loaders import Source, load_table

ANALYST = "analyst"
Session = psycopg.Connection[dict[str, Any]]
Row = dict[str, Any]


@dataclass(frozen=True)
class ExperimentServer:
    """A server that runs, its coordinator not yet."""

    embedded: Embedded
    n_slots: int

    @contextmanager
    def session(self, user: str = ANALYST) -> Iterator[Session]:
        """Open an autocommit session of the tenant, or of another role."""
        with connect_now(self.embedded.dsn(user), "easeml experiment", search_path=None) as session:
            session.execute("SET client_min_messages = warning")
            yield session

    def coordinator(self) -> AbstractContextManager[None]:
        """Return a running coordinator with fresh, warm sessions, as a context."""
        return running_coordinator(self.embedded)

    def roots(self) -> list[int]:
        """Return process numbers of PostgreSQL's first process and of the coordinator, those that run."""
        path = self.embedded.cluster / "postmaster.pid"
        first = [int(path.read_text(encoding="utf-8").split()[0])] if path.exists() else []
        coordinator = self.embedded.coordinator_pid()
        return first if coordinator is None else [*first, coordinator]


@contextmanager
def private_server(n_slots: int) -> Iterator[ExperimentServer]:
    """Start one in a temporary folder; stop and remove it at the end, also after Ctrl-C or SIGTERM.

    The folder lies in TMPDIR where that is set, else in /var/tmp: /tmp is often memory.
    """
    folder = tempfile.mkdtemp(prefix="easeml-experiment-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    os.chmod(folder, 0o755)  # root's server runs as another user, who must be able to enter it
    embedded = Embedded(Path(folder))
    with _termination_as_interrupt():
        try:
            embedded.start()
            embedded.prepare(n_slots=n_slots)
            with connect_now(embedded.dsn(SUPERUSER)) as session:
                session.execute("SELECT easeml.set_slots(%s, 1)", [n_slots])
                session.execute(f"CREATE ROLE {ANALYST} LOGIN IN ROLE easeml_tenant")
                session.execute(f"GRANT CREATE ON SCHEMA public TO {ANALYST}")
            yield ExperimentServer(embedded, n_slots)
        finally:
            embedded.remove()


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that what it opened is closed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# Datasets and runs


def load_dataset(
    server: ExperimentServer, name: str, source: Source, *, inputs: str, n_rows: int, **options: Any
) -> None:
    """Load a source's first rows as the tenant, and make them dataset `name` to predict column `label`.

    options: further arguments of easeml.create_dataset.
    """
    load_table(server.embedded.dsn(ANALYST), source, f"{name}_all")
    with server.session() as session:
        view = sql.SQL("CREATE VIEW {} AS SELECT * FROM {} WHERE id <= {}")
        session.execute(view.format(sql.Identifier(name), sql.Identifier(f"{name}_all"), sql.Literal(n_rows)))
        named = sql.SQL("").join(sql.SQL(", {} => {}").format(sql.Identifier(k), v) for k, v in options.items())
        call = "SELECT easeml.create_dataset({n}, source => {n}, inputs => {i}, target => 'label'{o})"
        session.execute(sql.SQL(call).format(n=sql.Literal(name), i=sql.Literal([inputs]), o=named))


def start_run(
    session: Session,
    dataset: str,
    architecture: str,
    space: Mapping[str, Any],
    *,
    max_epochs: int,
    seed: int,
    visit_order: str = "cyclic",
    allocation: str = "hopping",
) -> int:
    """Queue a run over the whole grid of a space; return its number."""
    row = session.execute(
        "SELECT easeml.select_models(%s, architectures => %s, search_space => %s, procedure => 'grid',"
        " max_epochs => %s, seed => %s, visit_order => %s, allocation => %s) AS run_id",
        [dataset, [architecture], json.dumps(space), max_epochs, seed, visit_order, allocation],
    ).fetchall()[0]
    return int(row["run_id"])


def start_search(session: Session, dataset: str, search: Search, *, max_seconds: float | None = None) -> int:
    """Queue a run with the arguments of a search; return its number."""
    names = [each["architecture"] for each in json.loads(search.architectures_json)]
    row = session.execute(
        "SELECT easeml.select_models(%s, architectures => %s, search_space => %s, procedure => %s, n_configs => %s,"
        " max_epochs => %s, max_seconds => %s, seed => %s, procedure_options => %s) AS run_id",
        [dataset, names, search.search_space_json, search.procedure, search.n_configs, search.max_epochs, max_seconds,
         search.seed, search.options_json],
    ).fetchall()[0]  # fmt: skip
    return int(row["run_id"])


def specifications(session: Session, architectures: Sequence[str]) -> str:
    """Return what architectures declare of their hyperparameters, as a Search has it."""
    rows = session.execute(
        "SELECT architecture, hyperparameters FROM easeml.architectures WHERE architecture = ANY (%s)"
        " ORDER BY array_position(%s::text[], architecture)", [list(architectures), list(architectures)]
    ).fetchall()  # fmt: skip
    return json.dumps(rows)


def wait_for_run(session: Session, run_id: int) -> Row:
    """Wait until a run has ended; return its row of easeml.runs. Raises TrialFailed unless it finished whole."""
    row = wait_until_ended(session, run_id)
    failed = session.execute(
        "SELECT trial_number, failure_reason FROM easeml.trials WHERE run_id = %s AND status <> 'finished'", [run_id]
    ).fetchall()
    if failed:
        reasons = [f"trial {each['trial_number']}: {each['failure_reason']}" for each in failed]
        raise TrialFailed(f"trials of run {run_id} of the experiment failed", detail="\n".join(reasons))
    return row


def wait_until_ended(session: Session, run_id: int) -> Row:
    """Wait until a run has ended, whatever became of its trials; return its row. Raises TrialFailed when it failed."""
    query = (
        "SELECT status, failure_reason, extract(epoch FROM created_at)::float8 AS created,"
        " extract(epoch FROM started_at)::float8 AS started, extract(epoch FROM finished_at)::float8 AS finished"
        " FROM easeml.runs WHERE run_id = %s"
    )
    while (row := session.execute(query, [run_id]).fetchall()[0])["status"] in ("queued", "running"):
        time.sleep(0.1)
    if row["status"] != "finished":
        reason = str(row["failure_reason"])
        raise TrialFailed(f"run {run_id} of the experiment is {row['status']}", detail=reason)
    return row


def _rows_of_run(session: Session, run_id: int, query: str) -> list[Row]:
    return session.execute(query.encode(), [run_id]).fetchall()


def training_units(session: Session, run_id: int) -> list[Row]:
    """Return the recorded training units of a run, trial by trial in the order in which they happened."""
    return _rows_of_run(
        session,
        run_id,
        "SELECT t.trial_number, u.epoch, u.position, u.partition_number, u.slot_id, u.state_bytes, u.state_sha256,"
        " u.n_rows, u.training_seconds, extract(epoch FROM u.finished_at - u.started_at)::float8 AS seconds"
        " FROM easeml.training_units u JOIN easeml.trials t USING (trial_id) WHERE u.run_id = %s"
        " ORDER BY t.trial_number, u.epoch, u.position",
    )


def validation_errors(session: Session, run_id: int) -> dict[int, list[float]]:
    """Return the share of wrong labels on the validation rows after each epoch, by trial number."""
    errors: dict[int, list[float]] = {}
    for row in learning_curves(session, run_id):
        errors.setdefault(row["trial_number"], []).append(1.0 - row["accuracy"])
    return errors


def timeline(session: Session, run_id: int) -> list[Row]:
    """Return every recorded unit of a run with its slot and times, in seconds since 1970."""
    return _rows_of_run(
        session,
        run_id,
        "SELECT trial_number, kind, epoch, partition_number, slot_id,"
        " extract(epoch FROM started_at)::float8 AS started,"
        " extract(epoch FROM finished_at)::float8 AS finished, seconds, training_seconds, n_rows, state_bytes,"
        " state_sha256 FROM easeml.training_timeline WHERE run_id = %s ORDER BY started_at, slot_id",
    )


def learning_curves(session: Session, run_id: int) -> list[Row]:
    """Return what is known of each trial after each epoch, and since when, in seconds since 1970."""
    return _rows_of_run(
        session,
        run_id,
        "SELECT trial_number, epoch, accuracy, extract(epoch FROM measured_at)::float8 AS measured"
        " FROM easeml.learning_curves WHERE run_id = %s ORDER BY trial_number, epoch",
    )


def row_bytes(session: Session, run_id: int, n_features: int) -> int:
    """Return bytes of all training rows in the form in which workers hold them: the database has them once."""
    row = session.execute(
        "SELECT sum(p.n_train_rows)::bigint AS n FROM easeml.partitions p JOIN easeml.runs r USING (dataset_id)"
        " WHERE r.run_id = %s",
        [run_id],
    ).fetchall()[0]
    return int(row["n"]) * (4 * n_features + 8)
