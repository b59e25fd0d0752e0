"""Cerebro, figure 8(A): strong scaling over slots, real on this machine's cores, simulated beyond.

The work stays the same while slots are added. Beyond the cores the coordinator's own loop serves a simulated world
whose unit times are those that the real run has shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any

from easeml_db.decisions.hopper.schedulers.bounds import shared_bound
from easeml_db.simulated import SimulatedWorld, new_run
from easeml_db.words.topology import Slot
from easeml_experiments.contract import Measure, Options, Result
from easeml_experiments.coordinator_simulation import jittered, serve
from easeml_experiments.experiment_server import (
    Row,
    load_dataset,
    private_server,
    start_run,
    training_units,
    wait_for_run,
)
from easeml_loaders import bundled_source, fashion_mnist_source

WHY = (
    "The paper reports linear speed-up up to 8 workers, slightly better than linear where the data no longer had to be"
    " read from disk. Here the slots share {n_cores} cores with the server's other processes and whatever else the"
    " machine does, so real speed-up stays below the number of slots; simulated slots share nothing, and what is"
    " missing there is the end of the run, when fewer trials are left than slots, and what the scheduler gives away."
)
SPACE = {"hidden_units": [[1000, 500]], "batch_size": 32, "learning_rate": [1e-4, 3e-4, 1e-3, 3e-3],
         "weight_decay": [1e-4, 1e-6], "optimizer": "adam", "averaging": 0.0}  # fmt: skip
SPACE_QUICK = {**SPACE, "hidden_units": [[64]]}
N_PARTITIONS, SPREAD = 4, 0.05
SIMULATED_SLOTS = (1, 2, 4, 8, 16, 64, 250, 1000)
TRIALS_PER_SLOT = 4
TARGET_EFFICIENCY, TARGET_COORDINATOR_SECONDS = 0.95, 1e-3


def run(options: Options) -> Result:
    """Train with one slot and with more, then simulate many."""
    real = list(_real(options))
    train_seconds = fmean(row["unit_seconds"] for row in real if row["n_slots"] == 1)
    simulated = list(_simulated(options, train_seconds))
    measures = [*_real_measures(real), *_simulated_measures(simulated)]
    rows = [*_medians(real), *simulated]
    why = WHY.format(n_cores=_n_cores())
    return Result(tuple(measures), why, {"speedup": rows, "repeats": real}, {"speedup": _plot(rows)})


def _n_cores() -> int:
    return len(os.sched_getaffinity(0))


# Real


def _real(options: Options) -> Iterator[Row]:
    """Time runs of the same eight trials, the numbers of slots taking turns."""
    numbers = [1, *(n for n in (2, 4, 8, 16) if n <= _n_cores())]
    with private_server(1) as server:
        _load(server, options)
        for repeat in range(1 if options.is_quick else 2):
            for n_slots in numbers:
                options.say(f"{n_slots} slot(s), repeat {repeat + 1}")
                yield {"repeat": repeat, **_timed_run(server, n_slots, options)}


def _load(server: Any, options: Options) -> None:
    named = {"n_partitions": N_PARTITIONS, "validation_fraction": 0.15, "test_fraction": 0.01}
    if options.is_quick:
        load_dataset(server, "digits", bundled_source("digits"), inputs="pixels", n_rows=1_797, **named)
    else:
        source = fashion_mnist_source()
        load_dataset(server, "images", source, inputs="image", n_rows=20_000, input_shape=[28, 28], **named)


def _timed_run(server: Any, n_slots: int, options: Options) -> Row:
    """Train a run on fresh, warm sessions; return the seconds from its first unit to its last."""
    with server.session(user="postgres") as session:
        session.execute("SELECT easeml.set_slots(%s, 1)", [n_slots])
    dataset, space = ("digits", SPACE_QUICK) if options.is_quick else ("images", SPACE)
    with server.session() as session, server.coordinator():
        warm = start_run(session, dataset, "mlp", {**space, "learning_rate": 1e-3}, max_epochs=1, seed=1)
        wait_for_run(session, warm)
        epochs = 1 if options.is_quick else 2
        run_id = start_run(session, dataset, "mlp", space, max_epochs=epochs, seed=options.seed)
        ended = wait_for_run(session, run_id)
        units = training_units(session, run_id)
    return {
        "setting": "real",
        "n_slots": n_slots,
        "seconds": ended["finished"] - ended["started"],
        "unit_seconds": fmean(unit["seconds"] for unit in units),
    }


def _medians(real: Sequence[Row]) -> list[Row]:
    """Return a row for each number of slots, with its speed-up over one slot."""
    seconds = {n: median(row["seconds"] for row in real if row["n_slots"] == n) for n in {r["n_slots"] for r in real}}
    return [
        {"setting": "real", "n_slots": n, "seconds": seconds[n], "speedup": seconds[1] / seconds[n]}
        for n in sorted(seconds)
    ]


def _real_measures(real: Sequence[Row]) -> Iterator[Measure]:
    for row in _medians(real)[1:]:
        n = row["n_slots"]
        yield Measure(f"speed-up, {n} slots", f"real, 8 trials, {N_PARTITIONS} partitions", float(n), row["speedup"])


# Simulated


def _simulated(options: Options, train_seconds: float) -> Iterator[Row]:
    """Simulate the same work on more and more slots: four trials for each of the most slots."""
    numbers = [n for n in SIMULATED_SLOTS if not options.is_quick or n <= 64]
    n_trials = TRIALS_PER_SLOT * numbers[-1]
    one_slot = None
    for n_slots in numbers:
        options.say(f"{n_slots} simulated slots, {n_trials} trials")
        row = _simulated_run(n_slots, n_trials, train_seconds, options.seed)
        one_slot = one_slot or row["seconds"]
        yield {**row, "speedup": one_slot / row["seconds"]}


def _simulated_run(n_slots: int, n_trials: int, train_seconds: float, seed: int) -> Row:
    job = new_run(1, n_trials=n_trials, n_partitions=N_PARTITIONS, max_epochs=1, seed=seed)
    drawn = jittered(lambda kind: train_seconds * (1.0 if kind == "train" else 0.2), SPREAD, seed)
    world = SimulatedWorld(
        [Slot(i, f"slot-{i}", 1) for i in range(1, n_slots + 1)],
        [job],
        seconds_of=lambda unit, slot_id: drawn(unit.trial_number, unit.step, slot_id, unit.kind),
        horizon_seconds=1e9,
    )
    real_seconds = serve(world)
    by_trial: dict[int, float] = {}
    for unit in world.units:
        trial_id = unit.order.unit.trial_id
        by_trial[trial_id] = by_trial.get(trial_id, 0.0) + unit.finished_seconds - unit.started_seconds
    seconds = max(unit.finished_seconds for unit in world.units)
    return {
        "setting": "simulated", "n_slots": n_slots, "n_trials": n_trials, "seconds": seconds,
        "relative_to_bound": seconds / shared_bound(list(by_trial.values()), n_slots),
        "coordinator_seconds_per_unit": real_seconds / len(world.units),
    }  # fmt: skip


def _simulated_measures(rows: Sequence[Row]) -> Iterator[Measure]:
    setting = f"simulated, {rows[0]['n_trials']} trials"
    for row in rows[1:]:
        n = row["n_slots"]
        efficiency = row["speedup"] / n
        yield Measure(
            f"speed-up / slots, {n} slots", setting, 1.0 if n <= 8 else None, efficiency,
            f">= {TARGET_EFFICIENCY}", efficiency >= TARGET_EFFICIENCY,
        )  # fmt: skip
    last = rows[-1]
    yield Measure("makespan / bound", f"{setting}, {last['n_slots']} slots", None, last["relative_to_bound"])
    seconds = last["coordinator_seconds_per_unit"]
    yield Measure(
        "coordinator, milliseconds a unit", f"{setting}, {last['n_slots']} slots", None, 1000 * seconds,
        "<= 1", seconds <= TARGET_COORDINATOR_SECONDS,
    )  # fmt: skip


def _plot(rows: Sequence[Row]) -> Any:
    """Draw the speed-up over slots on logarithmic axes, beside the ideal."""
    import altair as alt

    most = max(row["n_slots"] for row in rows)
    ideal = alt.Chart(alt.InlineData([{"n": 1, "s": 1}, {"n": most, "s": most}])).mark_line(
        color="grey", strokeDash=[4, 4]
    )
    x = alt.X("n_slots:Q", scale=alt.Scale(type="log"), title="slots")
    y = alt.Y("speedup:Q", scale=alt.Scale(type="log"), title="speed-up over one slot")
    lines = (
        alt.Chart(alt.InlineData(rows)).mark_line(point=True).encode(x=x, y=y, color=alt.Color("setting:N", title=None))
    )
    return (ideal.encode(x="n:Q", y="s:Q") + lines).properties(width=420, height=320)
