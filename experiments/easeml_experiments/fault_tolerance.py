"""Cerebro, figure 8(B): with three replicas of each partition, two slots fail and come back.

Simulated at the paper's size (8 slots, 8 trials) on the coordinator's own loop, and real on a private server whose
slots are killed again and again, as long as they are meant to be away.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from easeml_db.simulated import SimulatedWorld, new_run
from easeml_db.words.topology import Slot
from easeml_experiments.contract import Measure, Options, Result
from easeml_experiments.coordinator_simulation import jittered, serve
from easeml_experiments.experiment_server import (
    ExperimentServer,
    Row,
    load_dataset,
    private_server,
    start_run,
    wait_for_run,
)
from easeml_loaders import bundled_source

WHY = (
    "The paper shows figure 8(B) without numbers: epochs take longer while workers are away and as long as before once"
    " they are back. Simulated epochs follow the slots that are left. The real ones run on {n_cores} cores with"
    " {n_slots} slots, so two slots fewer take little away: what is shown is that nothing is lost or done twice."
)
N_REPLICAS = 3
TRAIN_SECONDS, VALIDATE_SECONDS, SPREAD = 1.0, 0.1, 0.05
SPACE = {"hidden_units": [[256, 256]], "batch_size": 8, "learning_rate": [1e-3, 3e-3], "weight_decay": [1e-4, 1e-6],
         "optimizer": "adam", "averaging": 0.0}  # fmt: skip
SPACE_QUICK = {**SPACE, "batch_size": 16}
KILL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = ANY (%s)
"""
N_SLOTS = 4
FAILING = (3, 4)


def run(options: Options) -> Result:
    """Simulate the paper's size, then break a real run."""
    options.say("simulated: 8 slots, 8 trials")
    simulated = _simulated(options)
    options.say(f"real: {N_SLOTS} slots, of which slots 3 and 4 fail")
    real, checks = _real(options)
    measures = [*_simulated_measures(simulated), *_real_measures(real, checks)]
    why = WHY.format(n_cores=_n_cores(), n_slots=N_SLOTS)
    tables = {"epochs": [*simulated, *real]}
    return Result(tuple(measures), why, tables, {"epochs": _plot(tables["epochs"])})


# Simulated


def _simulated(options: Options) -> list[Row]:
    """Simulate twenty epochs: slot 1 fails within the 3rd, slot 2 a few epochs later, and both come back together."""
    n, n_epochs = 8, 20
    holders = [[(q + k) % n + 1 for k in range(N_REPLICAS)] for q in range(n)]
    job = new_run(
        1, n_trials=n, n_partitions=n, max_epochs=n_epochs, seed=options.seed,
        visit_order="free", holders=holders,
    )  # fmt: skip
    seconds = jittered({"train": TRAIN_SECONDS}.get, SPREAD, options.seed)  # type: ignore[arg-type]

    def seconds_of(unit: Any, slot_id: int) -> float:
        if unit.kind != "train":
            return VALIDATE_SECONDS
        return seconds(unit.trial_number, unit.step, slot_id, unit.kind)

    slots = [Slot(i, f"slot-{i}", i) for i in range(1, n + 1)]
    world = SimulatedWorld(slots, [job], seconds_of=seconds_of, horizon_seconds=1e4)
    epoch = n * (TRAIN_SECONDS + VALIDATE_SECONDS)
    # With one and two of eight slots away an epoch takes 8/7 and 8/6 of its time at best.
    first, second, back = 2.5 * epoch, 7.0 * epoch, 16.0 * epoch
    world.at(first, lambda: world.lose_slot(1, back - first))
    world.at(second, lambda: world.lose_slot(2, back - second))
    serve(world)
    ends = _epoch_ends(
        (u.order.unit.epoch, u.finished_seconds) for u in world.units if u.order.unit.kind == "validate"
    )  # fmt: skip
    rows = _epoch_rows("simulated", 0.0, ends, [(first, back), (second, back)])
    repeated = Counter((u.order.unit.trial_id, u.order.unit.step) for u in world.units)
    assert len(repeated) == len(world.units) == n * n * (2 * n_epochs + 1)
    return rows


def _simulated_measures(rows: Sequence[Row]) -> Iterator[Measure]:
    before, after = _mean(rows, "before"), _mean(rows, "after")
    for n_away in (1, 2):
        setting = f"simulated, {n_away} of 8 slots away, at best {8 / (8 - n_away):.2f}"
        yield Measure("epoch time during / before", setting, "rises", _mean(rows, f"{n_away} away") / before)
    yield Measure(
        "epoch time after / before", "simulated, all slots back", "as before", after / before,
        "<= 1.1", after / before <= 1.1,
    )  # fmt: skip


# Real


def _real(options: Options) -> tuple[list[Row], Row]:
    """Train a run on four segments of one slot each; from a quarter to half of its units two slots are down at once."""
    n_epochs, space = (4, SPACE_QUICK) if options.is_quick else (30, SPACE)
    with private_server(1) as server:
        _add_segments(server)
        options_of_data = {"n_partitions": N_SLOTS, "validation_fraction": 0.15, "test_fraction": 0.05}
        source = bundled_source("digits")
        load_dataset(server, "digits", source, inputs="pixels", n_rows=1_797, placement="bound", **options_of_data)
        with server.session() as session:
            session.execute("SELECT easeml.replicate_dataset('digits', %s)", [N_REPLICAS])
            run_id = start_run(
                session, "digits", "mlp", space, max_epochs=n_epochs, seed=options.seed, visit_order="free"
            )
            with server.coordinator():
                away = _break(server, run_id)
                wait_for_run(session, run_id)
            return _measured(server, run_id, away)


def _add_segments(server: ExperimentServer) -> None:
    with server.session(user="postgres") as session:
        for i in range(2, N_SLOTS + 1):
            session.execute("SELECT easeml.add_segment(%s), easeml.add_slots(1, %s)", [f"segment-{i}", f"segment-{i}"])


def _break(server: ExperimentServer, run_id: int) -> tuple[float, float]:
    """Kill the sessions of two slots, over and over, for a quarter of the run; return from when to when."""
    with server.session(user="postgres") as session:
        _wait_for_share(session, run_id, 0.25)
        started = time.time()
        with _killing(server):
            _wait_for_share(session, run_id, 0.5)
        return started, time.time()


@contextmanager
def _killing(server: ExperimentServer) -> Iterator[None]:
    names, is_over = [f"easeml slot {slot}" for slot in FAILING], threading.Event()

    def kill() -> None:
        with server.session(user="postgres") as session:
            while not is_over.wait(0.05):
                session.execute(KILL, [names])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        is_over.set()
        killer.join()


def _wait_for_share(session: Any, run_id: int, share: float) -> None:
    sql = (
        "SELECT percent_done >= %s OR status NOT IN ('queued', 'running') AS is_there"
        " FROM easeml.run_status WHERE run_id = %s"
    )
    while not session.execute(sql, [100 * share, run_id]).fetchall()[0]["is_there"]:
        time.sleep(0.05)


def _measured(server: ExperimentServer, run_id: int, away: tuple[float, float]) -> tuple[list[Row], Row]:
    with server.session(user="postgres") as session:
        units = session.execute(
            "SELECT trial_id, kind, epoch, partition_number, attempt,"
            " extract(epoch FROM started_at)::float8 AS started,"
            " extract(epoch FROM finished_at)::float8 AS finished"
            " FROM easeml.training_timeline WHERE run_id = %s",
            [run_id],
        ).fetchall()
        (status,) = session.execute("SELECT * FROM easeml.run_status WHERE run_id = %s", [run_id]).fetchall()
    began = min(unit["started"] for unit in units)
    ends = _epoch_ends((u["epoch"], u["finished"]) for u in units if u["kind"] == "validate")
    visits = Counter((u["trial_id"], u["kind"], u["epoch"], u["partition_number"]) for u in units)
    checks = {
        "n_lost": status["n_units"] - len(visits),
        "n_repeated": len(units) - len(visits),
        "n_failed": status["n_failed"],
        "n_retried": sum(unit["attempt"] > 1 for unit in units),
    }
    return _epoch_rows("real", began, ends, [away, away]), checks


def _real_measures(rows: Sequence[Row], checks: Row) -> Iterator[Measure]:
    setting = f"real, 2 of {N_SLOTS} slots killed for a quarter of the run"
    for name, key in (
        ("units lost", "n_lost"), ("units recorded twice", "n_repeated"), ("trials failed", "n_failed"),
    ):  # fmt: skip
        yield Measure(name, setting, 0.0, float(checks[key]), "0", checks[key] == 0)
    yield Measure("units run again elsewhere", setting, None, float(checks["n_retried"]))
    yield Measure("epoch time after / before", setting, "as before", _mean(rows, "after") / _mean(rows, "before"))


# Epochs


def _epoch_ends(ends: Iterator[tuple[int, float]]) -> list[float]:
    """Return when the last trial ended each epoch."""
    last: dict[int, float] = {}
    for epoch, seconds in ends:
        last[epoch] = max(last.get(epoch, 0.0), seconds)
    return [last[epoch] for epoch in sorted(last)]


def _epoch_rows(name: str, began: float, ends: Sequence[float], away: Sequence[tuple[float, float]]) -> list[Row]:
    """Return each epoch with its seconds, and how many slots were away in the whole of it (mixed: in a part of it)."""
    rows = []
    for epoch, (start, end) in enumerate(zip([began, *ends[:-1]], ends, strict=True), start=1):
        rows.append({
            "setting": name, "epoch": epoch, "seconds": end - start,
            "phase": _phase(start, end, away), "ended_seconds": end - began,
        })  # fmt: skip
    return rows


def _phase(start: float, end: float, away: Sequence[tuple[float, float]]) -> str:
    if all(end <= lost for lost, _ in away):
        return "before"
    if all(start >= back for _, back in away):
        return "after"
    whole = [lost <= start and end <= back for lost, back in away]
    touched = [lost < end and start < back for lost, back in away]
    return f"{sum(whole)} away" if whole == touched else "mixed"


def _mean(rows: Sequence[Row], phase: str) -> float:
    seconds = [row["seconds"] for row in rows if row["phase"] == phase]
    return sum(seconds) / len(seconds) if seconds else float("nan")


def _n_cores() -> int:
    import os

    return len(os.sched_getaffinity(0))


def _plot(rows: Sequence[Row]) -> Any:
    """Draw the seconds of each epoch, coloured by what was away."""
    import altair as alt

    panels = [
        alt.Chart(alt.InlineData([row for row in rows if row["setting"] == name]), title=name)
        .mark_bar()
        .encode(
            x=alt.X("epoch:O", title="epoch", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("seconds:Q", title="seconds"),
            color=alt.Color("phase:N", title="slots", sort=["before", "mixed", "1 away", "2 away", "after"]),
        )
        .properties(width=360, height=200)
        for name in ("simulated", "real")
    ]
    return alt.hconcat(*panels)
