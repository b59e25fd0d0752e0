"""Milliseconds of a unit that are not training: opening it, finding or restoring the state, storing, recording.

The whole CALL as the client sees it, less its training_seconds, for a state of 1.2 MB (a perceptron of 784-128-10 with
Adam). In one session the state of the last unit is still there; in a hop two sessions take turns, so that each unit
reads and checks the state that the other has stored. Between units the benchmark vacuums pruned states as often as
the coordinator does: new states take their place, and the table does not grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from comparison.measuring import Row
from workload import N_PARTITIONS, Life, Session, Workload, start_run

from easeml_db.coordinator.settings import Settings
from easeml_db.postgres.chores.vacuum import VACUUM

N_ROWS = 2_000
N_UNITS = 100
# PostgreSQL plans a statement anew the first five times; those of a whole split come once an epoch.
N_WARM_UNITS = 8 * N_PARTITIONS


def measure(workload: Workload) -> Iterator[Row]:
    """Yield medians with the state at hand, after a hop, and of evaluation units."""
    dataset = workload.dataset(n_rows=N_ROWS)
    workload.settle()
    n_epochs = -(-(N_WARM_UNITS + workload.repeats(N_UNITS)) // N_PARTITIONS)
    for is_hop in (False, True):
        yield from _measure(workload, dataset, n_epochs, is_hop)


def _measure(workload: Workload, dataset: str, n_epochs: int, is_hop: bool) -> Iterator[Row]:
    rests: list[float] = []
    evaluations: list[float] = []
    pruned_bytes = 0
    with (
        workload.session() as session, workload.session("postgres") as vacuuming,
        workload.slot(1) as first, workload.slot(2) as second,
    ):  # fmt: skip
        run_id = start_run(session, dataset, "mlp", 256, rates=[1e-3], max_epochs=n_epochs)
        for order in Life(session, run_id).orders():
            slot = second if is_hop and order.unit.step % 2 else first
            seconds, result = slot.call(order)
            pruned_bytes = _vacuumed(vacuuming, pruned_bytes + result.get("pruned_bytes", 0))
            if order.unit.epoch * N_PARTITIONS <= N_WARM_UNITS:
                continue
            if order.unit.kind == "train":
                rests.append(seconds - result["training_seconds"])
                state_bytes = result["state_bytes"]
            else:
                evaluations.append(seconds)
    where = "after a hop" if is_hop else "state in the session"
    setting = f"{where}, {state_bytes / 1e6:.1f} MB, median of {len(rests)} units"
    at_most = 8 if is_hop else 10
    yield Row("fixed cost of a training unit", setting, median(rests) * 1e3, "ms", at_most=at_most)
    rows = f"{where}, {result['n_rows']} rows of validation or test, median of {len(evaluations)} units"
    yield Row("whole evaluation unit", rows, median(evaluations) * 1e3, "ms")


def _vacuumed(session: Session, pruned_bytes: int) -> int:
    """Vacuum where so much was pruned that the coordinator would; return what is left to be vacuumed."""
    if pruned_bytes < Settings().reclaim_bytes:
        return pruned_bytes
    session.execute(VACUUM.encode())
    return 0
