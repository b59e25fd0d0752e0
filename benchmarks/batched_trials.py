"""Sixteen small networks as one computation: a batch on one slot, and whole runs of them in batches.

The networks differ in their learning rates only. In the first rows both sides are CALLs on one slot with all that
belongs to a unit: sixteen units one after another, and one batch of sixteen. In the others a run with allocation
`batched` on two slots of one thread is compared with two plain PyTorch processes that share the same trials, as in
*whole run*. Small networks take every twelfth pixel of an image and are 64 wide; the larger ones spend their time on
numbers, which a batch cannot make less of.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import plain_torch
from comparison.measuring import Pairs, Row, in_turn, seconds_of, take_turns
from whole_run import saved
from workload import N_PARTITIONS, N_SLOTS, Session, Slot, Workload, call_of, run_seconds, start_run

from easeml_db.coordinator.ports.messages import Member, Order
from easeml_db.postgres.sessions.gang_call import BATCH_CALLS, order_json
from easeml_db.words.training_unit import unit_at, unit_seed
from easeml_db.words.trial import Trial

RATES = [round(1e-3 * 1.15**k, 6) for k in range(-8, 8)]
N_ROWS, N_PIXELS, WIDTH, BATCH_SIZE, MAX_EPOCHS = 32_000, 66, 64, 32, 3
N_TURNS, N_RUNS = 12, 5
UNITS = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds)::float8 AS s, max(t.n_rows) AS n,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY n_stacked) AS n_stacked
FROM easeml.training_timeline t WHERE t.run_id = ANY (%s) AND kind = 'train'
"""
SMALL = f"""
CREATE TABLE IF NOT EXISTS few_pixels AS
SELECT id, label, ARRAY(SELECT p FROM unnest(image) WITH ORDINALITY u(p, k) WHERE k % 12 = 1 ORDER BY k) AS image
FROM {{source}} WHERE id <= {N_ROWS}
"""


def measure(workload: Workload) -> Iterator[Row]:
    """Yield the gain of a batch, and the times of whole runs."""
    dataset = _few_pixels(workload)
    yield from _one_slot(workload, dataset)
    yield from _whole_runs(workload, dataset, "small", BATCH_SIZE, bound=0.5)
    yield from _whole_runs(workload, workload.dataset(), "mlp", 256, bound=None)


def _few_pixels(workload: Workload) -> str:
    """Pack small images, and return the name of their dataset."""
    source = workload.images("smallint")
    with workload.session("postgres") as session:
        session.execute(SMALL.format(source=source))  # type: ignore[arg-type]
        session.execute("GRANT SELECT ON few_pixels TO PUBLIC")
    with workload.session() as session:
        if not session.execute("SELECT FROM easeml.datasets WHERE dataset_name = 'few_pixels'").fetchall():
            session.execute(
                "SELECT easeml.create_dataset('few_pixels', 'few_pixels', '{image}', 'label', n_partitions => 4,"
                " input_shape => '{6,11}')"
            )
    return "few_pixels"


def _one_slot(workload: Workload, dataset: str) -> Iterator[Row]:
    """Compare sixteen units with a batch of them, step by step, on one slot."""
    n_epochs = 1 + -(-workload.repeats(N_TURNS) // N_PARTITIONS)
    pairs = {"train": Pairs([], []), "validate": Pairs([], [])}
    with workload.session() as session, workload.slot(1) as slot:
        asked = {"rates": RATES, "max_epochs": n_epochs, "hidden_units": [[WIDTH]]}
        first, second = (_trials(session, start_run(session, dataset, "mlp", BATCH_SIZE, **asked)) for _ in range(2))
        for step in range(2 * N_PARTITIONS * n_epochs):
            kind = unit_at(first[0], step).kind
            orders, batch = _orders(session, first, step), _orders(session, second, step)
            ours, theirs = in_turn(step, partial(_batch_seconds, slot, batch), partial(_each_seconds, slot, orders))
            if step >= 2 * N_PARTITIONS:  # the first epoch decodes rows and loads what is needed
                pairs[kind].ours.append(ours)
                pairs[kind].theirs.append(theirs)
    for kind, bound in (("train", 3.0), ("validate", None)):
        timed = pairs[kind]
        setting = (
            f"{len(RATES)} x mlp {N_PIXELS}-{WIDTH}-10, batch {BATCH_SIZE}, {kind} units,"
            f" {median(timed.theirs):.2f} s one after another, {median(timed.ours):.2f} s as a batch,"
            f" {len(timed.ours)} pairs"
        )
        yield Row("batch of 16 / one after another, one slot", setting, timed.inverse, "x speed", at_least=bound)


def _trials(session: Session, run_id: int) -> list[Trial]:
    sql = (
        "SELECT trial_id, trial_number, t.max_epochs, n_steps_done, t.status, n_partitions FROM easeml.trials t"
        " JOIN easeml.runs USING (run_id) JOIN easeml.datasets USING (dataset_id) WHERE run_id = %s ORDER BY 2"
    )
    return [Trial(run_id=run_id, **row) for row in session.execute(sql, [run_id]).fetchall()]


def _orders(session: Session, trials: list[Trial], step: int) -> list[Order]:
    """Return an order of each trial's unit at a step."""
    lease = session.execute("SELECT lease_number AS n FROM easeml.coordinator_lease").fetchall()[0]["n"]
    units = [unit_at(trial, step) for trial in trials]
    return [
        Order(unit, unit_seed(0, unit.trial_number, unit.epoch, unit.partition_number), 1, lease, 1) for unit in units
    ]


def _each_seconds(slot: Slot, orders: list[Order]) -> float:
    """Do all orders one after another; return the seconds of the CALLs."""
    return sum(slot.call(order)[0] for order in orders)


def _batch_seconds(slot: Slot, orders: list[Order]) -> float:
    """Do all orders as one batch; return the seconds of the CALL."""
    members = tuple(Member(each.unit, each.seed, each.slot_id) for each in orders[1:])
    text, call = order_json(replace(orders[0], members=members)), BATCH_CALLS[orders[0].unit.kind]
    return seconds_of(lambda: slot.session.execute(call_of(call), [text]))


def _whole_runs(
    workload: Workload, dataset: str, network: str, batch_size: int, *, bound: float | None
) -> Iterator[Row]:
    """Compare whole runs of sixteen networks with two processes."""
    n_inputs, width = (N_PIXELS, WIDTH) if network == "small" else (784, 128)
    trials = [plain_torch.PlainTrial(network, rate, batch_size, MAX_EPOCHS) for rate in RATES]
    runs = []
    with (
        workload.session() as session,
        tempfile.TemporaryDirectory() as folder,
        workload.coordinator(),
        get_context("spawn").Pool(
            N_SLOTS, plain_torch.load, (saved(session, dataset, Path(folder)), [network])
        ) as pool,
    ):
        pool.map(plain_torch.is_ready, range(N_SLOTS), chunksize=1)
        asked = {"rates": RATES, "hidden_units": [[width]], "allocation": "batched"}

        def ours(max_epochs: int = MAX_EPOCHS) -> float:
            runs.append(start_run(session, dataset, "mlp", batch_size, max_epochs=max_epochs, **asked))
            return run_seconds(session, runs[-1])

        def theirs() -> float:
            return seconds_of(lambda: pool.map(plain_torch.run_trial, trials, chunksize=1))

        ours(1)  # warm: every slot has met every partition and the network
        n_pairs = workload.repeats(N_RUNS)
        pairs = take_turns(n_pairs, ours, theirs)
        unit = session.execute(UNITS, [runs[1:]]).fetchall()[0]
    alone = median(pairs.theirs) * N_SLOTS / (len(RATES) * MAX_EPOCHS * N_PARTITIONS)
    setting = (
        f"16 x mlp {n_inputs}-{width}-10, batch {batch_size}, {N_PARTITIONS} x {unit['n']} rows, {alone:.2f} s a unit"
        f" of plain PyTorch, {unit['s']:.3f} s of ours, {unit['n_stacked']} trained together,"
        f" {median(pairs.ours):.1f} s against {median(pairs.theirs):.1f} s, {n_pairs} pairs"
    )
    yield Row("whole run / two plain PyTorch processes", setting, pairs.ratio, "x time", at_most=bound)
