"""Rows of open runs, several at once, and the runs that they describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from easeml_db.decisions.hopper.allocation.registry import allocation_of_ending, uses_batches, uses_gangs
from easeml_db.errors import InvalidData
from easeml_db.postgres.stores.store_session import StoreSession
from easeml_db.words.run import Arm, Run, Search
from easeml_db.words.trial import Trial

Row = dict[str, Any]
NONE_MET: frozenset[int] = frozenset()  # one shared object, so that the garbage collector has fewer to scan


@dataclass(frozen=True)
class ArchitectureFacts:
    """Facts of trainers about architectures, by query architecture_facts; `varying` is a JSON object."""

    joint: frozenset[str]
    whole: frozenset[str]
    varying: str


@dataclass
class RunRows:
    """The rows of a run in the tables; `run` is None if it is over or gone."""

    run: Row | None = None
    trials: list[Row] = field(default_factory=list)
    arms: list[Row] = field(default_factory=list)


async def read_runs(
    session: StoreSession, run_ids: Sequence[int], varying: str, *, had_units: Sequence[int] | None = None
) -> dict[int, RunRows]:
    """Read any number of runs with their trials and arms, in three statements. varying: see ArchitectureFacts.
    had_units: read only these trials, and those that have a unit to run (None: all).
    """
    runs = {run_id: RunRows() for run_id in run_ids}
    for row in await session.rows("read_runs", run_ids=list(run_ids)):
        runs[row["run_id"]].run = row
    are_open = [run_id for run_id, rows in runs.items() if rows.run is not None and not rows.run["is_too_large"]]
    keyed = [run_id for run_id in are_open if uses_batches((runs[run_id].run or {})["allocation"])]
    if are_open:
        for row in await session.rows(
            "read_trials", run_ids=are_open, keyed=keyed, varying=varying, had_units=had_units
        ):
            runs[row["run_id"]].trials.append(row)
        for row in await session.rows("read_arms", run_ids=are_open):
            runs[row.pop("run_id")].arms.append(row)
    return runs


def run_of(rows: RunRows, facts: ArchitectureFacts) -> Run:
    """Return the run that rows describe. Raises InvalidData where it is too large."""
    row = dict(rows.run or {})
    if row.pop("is_too_large"):
        raise InvalidData(f"run {row['run_id']}: its search is longer than a million characters")
    n_partitions, holders, search = (row.pop(name) for name in ("n_partitions", "holders", "search"))
    is_ending = row.pop("is_ending")
    gathering = frozenset(row.pop("gathering_segments"))
    # A trial on a dataset with folds is a committee, which has no gradients to average.
    is_joint = not row.pop("has_folds") and uses_gangs(row["allocation"])
    trials = [dict(trial) for trial in rows.trials]
    architectures = {trial["trial_id"]: trial.pop("architecture") for trial in trials}
    batch_keys = {trial["trial_id"]: trial.pop("batch_key") for trial in trials}
    run = Run(
        **row, architectures=architectures,
        arms=tuple(Arm(**arm) for arm in rows.arms),
        arm_of={trial["trial_id"]: trial.pop("arm_id") for trial in trials},
        trials=tuple(_trial(n_partitions, trial) for trial in trials),
        holders=None if holders is None else tuple(frozenset(segments) for segments in holders),
        search=None if search is None else Search(**search),
        joint_architectures=facts.joint if is_joint else frozenset(),
        whole_architectures=facts.whole,
        gathering_segments=gathering,
        batch_keys={trial_id: key for trial_id, key in batch_keys.items() if key is not None},
    )  # fmt: skip
    return run.in_its_ending(allocation_of_ending(run.allocation)) if is_ending else run


def _trial(n_partitions: int, row: Row) -> Trial:
    return Trial(n_partitions=n_partitions, **(row | {"met": frozenset(row["met"]) if row["met"] else NONE_MET}))
