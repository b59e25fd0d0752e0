"""easeml run allocations and profiles: which devices the trials of a run had, and what was measured for that."""

from __future__ import annotations

import click

from easeml_db.cli.terminal.arguments import run_argument
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import listing
from easeml_db.cli.terminal.output import json_option, print_json, print_rows, say
from easeml_db.cli.terminal.statements import rows, run_or_newest

ALLOCATION_COLUMNS = {
    "elapsed_seconds": "at second", "trial_number": "trial", "architecture": "architecture", "width": "width",
    "reason": "why", "group_id": "group", "devices": "devices",
}  # fmt: skip
GROUP_COLUMNS = {
    "group_id": "group", "label": "trials", "n_trials": "how many", "n_resizes": "resizes",
    "makespan_seconds": "seconds",
}  # fmt: skip
PROFILE_COLUMNS = {
    "dataset_name": "dataset", "architecture": "architecture", "device_kind": "device", "c": "trials a device",
    "alpha": "alpha", "d": "devices a trial", "beta": "beta", "eps_seconds": "resize s", "measured_at": "measured",
}  # fmt: skip


@click.command()
@run_argument
@dsn_option
@json_option
def allocations(run_id: int | None, dsn: str | None, as_json: bool) -> None:
    """Show the trial groups of RUN (default: the newest), and which devices each trial had when."""
    with database(dsn) as connection:
        chosen = run_or_newest(connection, run_id)
        groups = rows(connection, "trial_groups", run_id=chosen)
        changes = rows(connection, "allocations", run_id=chosen)
    if as_json:
        print_json({"trial_groups": groups, "allocations": changes})
        return
    empty = f"run {chosen} has no trial groups: it is not water-filled, or has not begun"
    print_rows(groups, as_json=False, empty=empty, columns=GROUP_COLUMNS)
    if changes:
        say()
        print_rows(changes, as_json=False, empty="", columns=ALLOCATION_COLUMNS)


profiles = listing(
    "profiles",
    "List the measured costs of sharing devices.",
    query="device_profiles",
    columns=PROFILE_COLUMNS,
    empty="nothing is measured yet; a run with --allocation water_filling does so first",
)


COMMANDS = (allocations, profiles)
