"""Water-filling on this machine: the same uneven trials with hopping and with water-filling, on shares of the CPU.

Two shares of a core with two slots each: hopping trains as many trials at once as there are slots, water-filling as
many as measurements say. Hopping also runs on one slot for each share, where no two trials meet on a core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from easeml_experiments.contract import Measure, Options
from easeml_experiments.experiment_server import (
    ExperimentServer,
    Row,
    Session,
    load_dataset,
    private_server,
    start_run,
    wait_for_run,
)
from easeml_loaders import bundled_source

N_DEVICES, N_SLOTS = 2, 2  # slots of each
N_PARTITIONS, N_REPEATS = 4, 3
SPACE = {"hidden_units": [[64], [256], [1024], [512, 512], [1024, 512]], "batch_size": 32, "learning_rate": 0.001,
         "optimizer": "adam", "weight_decay": 0.0, "averaging": 0.0}  # fmt: skip
EPOCHS = 6
FIGURES = ("alpha", "beta", "c", "d", "eps_seconds")
SETTINGS = (
    ("hopping, a slot on each share", "hopping", 1),
    ("hopping, two slots on each share", "hopping", N_SLOTS),
    ("water_filling, two slots on each share", "water_filling", N_SLOTS),
)


def runs(options: Options) -> list[Row]:
    """Run the settings by turns, each on warm sessions; return the seconds and the profile of each run."""
    with private_server(N_DEVICES) as server:
        named = {"n_partitions": N_PARTITIONS, "validation_fraction": 0.15, "test_fraction": 0.01}
        load_dataset(server, "digits", bundled_source("digits"), inputs="pixels", n_rows=1_797, **named)
        return list(_runs(server, options))


def _runs(server: ExperimentServer, options: Options) -> Iterator[Row]:
    for repeat in range(N_REPEATS):
        for setting, allocation, n_slots in SETTINGS:
            options.say(f"{setting}, repeat {repeat + 1}")
            _set_slots(server, n_slots)
            with server.session() as session, server.coordinator():
                warm = start_run(session, "digits", "mlp", SPACE, max_epochs=1, seed=1, allocation=allocation)
                wait_for_run(session, warm)
                run_id = start_run(session, "digits", "mlp", SPACE, max_epochs=EPOCHS, seed=2, allocation=allocation)
                ended = wait_for_run(session, run_id)
                yield {
                    "setting": setting, "allocation": allocation, "repeat": repeat,
                    "seconds": ended["finished"] - ended["started"], **_profile(session, allocation),
                    **_widths(session, run_id),
                }  # fmt: skip


def _set_slots(server: ExperimentServer, n_slots: int) -> None:
    with server.session(user="postgres") as session:
        session.execute("SELECT easeml.set_slots(%s, 1, 'cpu:0')", [n_slots])
        for share in range(1, N_DEVICES):
            session.execute("SELECT easeml.add_slots(%s, device => %s)", [n_slots, f"cpu:{share}"])


def _profile(session: Session, allocation: str) -> Row:
    """Return what was measured; nothing for runs that need no measurement."""
    found = session.execute("SELECT * FROM easeml.device_profiles").fetchall()
    return {name: found[0][name] if found and allocation != "hopping" else None for name in FIGURES}


def _widths(session: Session, run_id: int) -> Row:
    """Return the widths of the run's trials, as they were decided."""
    widths = session.execute(
        "SELECT width FROM easeml.trial_allocations WHERE run_id = %s ORDER BY decided_at", [run_id]
    ).fetchall()
    return {"widths": " ".join(f"{row['width']:g}" for row in widths)}


def measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """Return what was measured of the devices, the median seconds of each setting, and ratios to water-filling."""
    where = f"real, {N_DEVICES} shares of the CPU"
    last: dict[str, Any] = [row for row in rows if row["c"] is not None][-1]
    for name in FIGURES:
        yield Measure(name, f"{where}, mlp on digits", None, last[name])
    seconds = {name: median(row["seconds"] for row in rows if row["setting"] == name) for name, _, _ in SETTINGS}
    for name, value in seconds.items():
        yield Measure("makespan, seconds", f"{where}, {name}", None, value)
    (*others, filled) = seconds
    for name in others:
        yield Measure("makespan without / with", f"{where}, {name}", None, seconds[name] / seconds[filled])
