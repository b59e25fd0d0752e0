"""Milliseconds that the coordinator adds to a unit: seconds of a slot for each unit where units do nothing.

On PostgreSQL the benchmark replaces the procedures in its database by ones that open the unit, pass the fence and count
the step, and train nothing. So what remains is the coordinator, the round trip and one durable commit. With more slots
the real loop runs on the simulated world; that number is the loop's own seconds of processor time for each unit, since
one process serves all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median

from comparison.measuring import Row
from workload import N_SLOTS, Session, Workload, run_seconds, start_run

from easeml_db.coordinator.loop import Coordinator
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.topology import Slot

N_RUNS = 5
N_TRIALS = 8
SIMULATED = ((64, 128, 4), (256, 512, 2), (1_024, 10_000, 1))  # slots, trials, epochs
NO_OP = """
CREATE OR REPLACE PROCEDURE easeml.{name}(unit jsonb, INOUT result jsonb DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM easeml.open_unit(unit);
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM easeml.fence(unit);
    PERFORM easeml.advance(unit);
END
$$
"""


def measure(workload: Workload) -> Iterator[Row]:
    """Yield a row for the real server and one for each size of the simulated world."""
    yield _on_postgres(workload)
    for n_slots, n_trials, n_epochs in SIMULATED[: 1 if workload.is_quick else None]:
        yield _simulated(workload, n_slots, n_trials, 1 if workload.is_quick else n_epochs)


def _on_postgres(workload: Workload) -> Row:
    dataset = workload.dataset(n_rows=2_000)
    n_epochs = 5 if workload.is_quick else 40
    with workload.session("postgres") as owner, workload.session() as session:
        kept = [_definition(owner, name) for name in ("train_unit", "evaluate_unit")]
        for name in ("train_unit", "evaluate_unit"):
            owner.execute(NO_OP.format(name=name))
        try:
            with workload.coordinator():
                _no_op_run(session, dataset, 1)
                seconds = [_no_op_run(session, dataset, n_epochs) for _ in range(workload.repeats(N_RUNS))]
        finally:
            for definition in kept:
                owner.execute(definition)
    n_units = N_TRIALS * 4 * (2 * n_epochs + 1)
    setting = f"{N_SLOTS} slots on PostgreSQL, {n_units} units a run, median of {len(seconds)} runs"
    value = median(seconds) * N_SLOTS / n_units * 1e3
    return Row("coordinator, per unit that does nothing", setting, value, "ms", at_most=5)


def _definition(owner: Session, name: str) -> str:
    sql = "SELECT pg_get_functiondef(('easeml.' || %s)::regproc) AS sql"
    return str(owner.execute(sql, [name]).fetchall()[0]["sql"])


def _no_op_run(session: Session, dataset: str, n_epochs: int) -> float:
    rates = [1e-3 * (i + 1) for i in range(N_TRIALS)]
    return run_seconds(session, start_run(session, dataset, "mlp", 256, rates=rates, max_epochs=n_epochs))


def _simulated(workload: Workload, n_slots: int, n_trials: int, n_epochs: int) -> Row:
    def once() -> float:
        slots = [Slot(i, f"slot-{i}", 1) for i in range(1, n_slots + 1)]
        run = new_run(1, n_trials=n_trials, n_partitions=4, max_epochs=n_epochs)
        world = SimulatedWorld(slots, [run], seconds_of=lambda unit, slot_id: 1.0 + (unit.step * 7 + slot_id) % 5 / 10)
        process = SimulatedProcess(world)
        started = time.process_time()
        asyncio.run(Coordinator(process.ports).serve(until_idle=True))
        return time.process_time() - started

    n_units = n_trials * 4 * (2 * n_epochs + 1)
    seconds = [once() for _ in range(workload.repeats(3 if n_slots < 1_000 else 1))]
    setting = f"{n_slots} simulated slots, {n_trials} trials, {n_units} units, loop and simulation together"
    return Row("coordinator, per unit that does nothing", setting, median(seconds) / n_units * 1e3, "ms")
