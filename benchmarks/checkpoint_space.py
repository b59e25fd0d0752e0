"""What stored states cost: space while they are written and pruned, the vacuum's share of the time, large states.

Four trials of a perceptron with Adam on 20,000 images, 304 training units on two slots. Of each trial the newest state
and that of its best epoch are live, up to eight in all, and each slot writes one more; a pruned one takes its place
until a vacuum has passed. The size is that of both tables of states with their TOAST tables and indexes, sampled every
20 ms, in states. The other side of the time never vacuums. A large state is written by a training unit and read by an
evaluation unit in another session, by turns in rows of 1 MB and in one value; seconds are without training and
evaluation themselves.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby, takewhile
from multiprocessing import get_context
from statistics import median

from comparison.measuring import Row, take_turns
from workload import N_PARTITIONS, Life, Session, Slot, Workload, run_seconds, start_run

from easeml_db.coordinator.ports.messages import Order
from easeml_db.coordinator.settings import Settings
from easeml_db.local.journal import Journal
from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.service import serve
from easeml_db.postgres.sessions.slot_session import SETTINGS

N_ROWS = 20_000
BATCH_SIZE = 64
N_EPOCHS = 19
N_PAIRS = 3
RATES = [3e-4, 1e-3, 2e-3, 4e-3]
WIDTHS = {"one value": [430], "chunks": [512]}  # states of 4.1 and of 4.9 MB
LARGE_WIDTHS = ([1700, 1700], [2700, 2700, 2700])  # states of 51 and of 201 MB
NEVER = 1 << 60
SIZE = (
    "SELECT pg_total_relation_size('easeml.checkpoints') + pg_total_relation_size('easeml.checkpoint_chunks') AS size"
)
INLINE_BYTES = {"1 MB chunks": 4 << 20, "one value": 1 << 40}
INLINE = "DO LANGUAGE plpython3u 'from easeml_plpy import states; states.INLINE_BYTES = {}'"  # of this session alone


def measure(workload: Workload) -> Iterator[Row]:
    """Yield space and time of a run, then seconds to store and to load large states."""
    dataset = workload.dataset(n_rows=N_ROWS)
    for form, width in WIDTHS.items():
        yield from _space(workload, dataset, form, width)
    for width in LARGE_WIDTHS[: workload.repeats(len(LARGE_WIDTHS))]:
        yield from _large(workload, dataset, width)


# Space, and the vacuum's share of the time


def _space(workload: Workload, dataset: str, form: str, width: list[int]) -> Iterator[Row]:
    sizes: list[tuple[float, float]] = []

    def ours() -> float:
        seconds, largest, last = _run(workload, dataset, width, Settings())
        sizes.append((largest, last))
        return seconds

    def theirs() -> float:
        return _run(workload, dataset, width, Settings(reclaim_bytes=NEVER))[0]

    theirs()  # the first one warms the server's caches
    pairs = take_turns(workload.repeats(N_PAIRS), ours, theirs)
    n_units = len(RATES) * N_PARTITIONS * _n_epochs(workload)
    setting = f"states in {form}, {n_units} training units of {len(RATES)} trials, {len(sizes)} runs"
    yield Row("largest size of the stored states", setting, max(size for size, _ in sizes), "states", at_most=10)
    yield Row("size after the run", setting, median(size for _, size in sizes), "states", at_most=10)
    times = f"{setting}, {median(pairs.ours):.1f} s against {median(pairs.theirs):.1f} s"
    yield Row("whole run with vacuum / without", times, pairs.ratio, "x time")


def _n_epochs(workload: Workload) -> int:
    return workload.repeats(N_EPOCHS)


def _run(workload: Workload, dataset: str, width: list[int], settings: Settings) -> tuple[float, float, float]:
    """Seconds of a run, and the largest and last size of the stored states, in states."""
    with workload.session("postgres") as owner, workload.session() as session:
        with _coordinator(workload, settings):
            # Warm slots: sessions import torch, and decode the rows.
            run_id = start_run(session, dataset, "mlp", BATCH_SIZE, rates=RATES, max_epochs=1)
            run_seconds(session, run_id)
            session.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
            owner.execute("VACUUM FULL easeml.checkpoints, easeml.checkpoint_chunks")
            owner.execute("CHECKPOINT")
            n_epochs = _n_epochs(workload)
            run_id = start_run(
                session, dataset, "mlp", BATCH_SIZE, rates=RATES, max_epochs=n_epochs, hidden_units=[width]
            )
            with _samples(owner) as samples:
                seconds = run_seconds(session, run_id)
        sql = "SELECT largest_state_bytes AS n FROM easeml.run_traffic WHERE run_id = %s"
        state_bytes = session.execute(sql, [run_id]).fetchall()[0]["n"]
        last = owner.execute(SIZE).fetchall()[0]["size"]
        session.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs")
    return seconds, max(samples) / state_bytes, last / state_bytes


@contextmanager
def _samples(owner: Session) -> Iterator[list[int]]:
    """Sizes of the stored states, taken for as long as the block lasts."""
    samples: list[int] = []
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(0.02):
            samples.append(owner.execute(SIZE).fetchall()[0]["size"])

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _coordinator(workload: Workload, settings: Settings) -> Iterator[None]:
    """A coordinator process with these settings."""
    process = get_context("spawn").Process(target=_coordinate, args=(workload.server.dsn(SERVICE_ROLE), settings))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _coordinate(dsn: str, settings: Settings) -> None:
    asyncio.run(serve(dsn, Journal(), settings))


# Large states


def _large(workload: Workload, dataset: str, width: list[int]) -> Iterator[Row]:
    stored: dict[str, list[float]] = {form: [] for form in INLINE_BYTES}
    loaded: dict[str, list[float]] = {form: [] for form in INLINE_BYTES}
    n_epochs = 1 + len(INLINE_BYTES) * workload.repeats(3)
    with (
        workload.session() as tenant,
        workload.session("postgres", **SETTINGS) as writer,
        workload.session("postgres", **SETTINGS) as reader,
        workload.session("postgres") as owner,  # waits for locks as long as it takes: autovacuum may have them
    ):
        run_id = start_run(tenant, dataset, "mlp", 256, rates=[1e-3], max_epochs=n_epochs, hidden_units=[width])
        orders = takewhile(lambda order: order.unit.kind != "test", Life(writer, run_id).orders())
        for epoch, units in groupby(orders, key=lambda order: order.unit.epoch):
            form = list(INLINE_BYTES)[epoch % len(INLINE_BYTES)]
            writer.execute(INLINE.format(INLINE_BYTES[form]).encode())
            store_seconds, load_seconds, state_bytes = _epoch(Slot(writer, 1), Slot(reader, 2), units)
            if epoch > 1:  # the first one imports torch
                stored[form].extend(store_seconds)
                loaded[form].append(load_seconds)
            owner.execute("VACUUM easeml.checkpoints, easeml.checkpoint_chunks")
            owner.execute("CHECKPOINT")
        tenant.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
    for form in INLINE_BYTES:
        setting = f"{state_bytes / 1e6:.0f} MB in {form}, median of"
        yield Row("store a large state", f"{setting} {len(stored[form])}", median(stored[form]), "s")
        yield Row("load a large state", f"{setting} {len(loaded[form])}", median(loaded[form]), "s")


def _epoch(writer: Slot, reader: Slot, units: Iterator[Order]) -> tuple[list[float], float, int]:
    """Seconds to store each state, seconds to load the last one, and its bytes."""
    stored, evaluated, state_bytes = [], [], 0
    for order in units:
        seconds, result = (writer if order.unit.kind == "train" else reader).call(order)
        if order.unit.kind == "train":
            stored.append(seconds - result["training_seconds"])
            state_bytes = result["state_bytes"]
        else:
            evaluated.append(seconds)
    # Only the first evaluation has to load the state.
    return stored, evaluated[0] - median(evaluated[1:]), state_bytes
