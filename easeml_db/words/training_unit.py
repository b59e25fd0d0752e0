"""The atom of scheduling, one trial over one partition once, and the fixed sequence that is a trial's life.

With p partitions a trial takes per epoch p train units, then p validate units; after its last epoch it takes p test
units. These 2 E + 1 rounds of p units are its life. There are two visit orders within a round:

    cyclic   trial i meets partition (i + k) mod p at position k: the order, and with it every byte, never depends
             on the clock, on failures or on slots
    free     any partition that the trial has not met in this round; the scheduler chooses, the log remembers
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from hashlib import blake2b

from easeml_db.errors import InvalidArgument
from easeml_db.words.trial import Trial

KINDS = ("train", "validate", "test")
PILOT = "pilot"  # a few mini-batches that are timed and thrown away: not a step of any life


@dataclass(frozen=True)
class TrainingUnit:
    """Step `step` (0-based) of a trial: `kind` train, validate or test; `epoch` 1-based, `position` 0-based
    within the epoch, `partition_number` 0-based."""

    run_id: int
    trial_id: int
    trial_number: int
    step: int
    kind: str
    epoch: int
    position: int
    partition_number: int


def n_steps_total(n_partitions: int, max_epochs: int) -> int:
    """Count the steps of a whole life: 2 p per epoch and p tests."""
    return n_partitions * (2 * max_epochs + 1)


def partition_at(trial_number: int, position: int, n_partitions: int) -> int:
    """Return the partition that trial i meets at position k of each epoch: (i + k) mod p."""
    return (trial_number + position) % n_partitions


def n_rounds_total(max_epochs: int) -> int:
    """Count the rounds of a whole life: a train and a validate round per epoch, and the test round."""
    return 2 * max_epochs + 1


def n_rounds_due(trial: Trial) -> int:
    """Count the rounds up to the trial's target: of its whole life, or two for each epoch until it pauses."""
    due = trial.due_epochs
    return n_rounds_total(due) if due == trial.max_epochs else 2 * due


def is_at_target(trial: Trial) -> bool:
    """Return whether a trial has nothing left to do before its target."""
    return trial.n_steps_done >= n_rounds_due(trial) * trial.n_partitions


def round_number(trial: Trial) -> int:
    """Return the round that a trial is in, from 0; `n_rounds_total` when its life is over."""
    return trial.n_steps_done // trial.n_partitions


def open_partitions(trial: Trial) -> tuple[int, ...]:
    """Return the partitions that a trial may meet next, in cyclic order from its turn; none at its target."""
    p = trial.n_partitions
    if is_at_target(trial):
        return ()
    turn = partition_at(trial.trial_number, trial.n_steps_done % p, p)
    if trial.visit_order == "cyclic":
        return (turn,)
    return tuple(q for q in ((turn + k) % p for k in range(p)) if q not in trial.met)


def unit_at(trial: Trial, step: int, partition_number: int | None = None) -> TrainingUnit:
    """Return the unit at step `step` (0-based) of a trial, over the partition of the cyclic order unless another is
    given; InvalidArgument when there is no such step."""
    kind, epoch, position = _place_of(step, trial.n_partitions, trial.max_epochs)
    if partition_number is None:
        partition_number = partition_at(trial.trial_number, position, trial.n_partitions)
    return TrainingUnit(
        run_id=trial.run_id,
        trial_id=trial.trial_id,
        trial_number=trial.trial_number,
        step=step,
        kind=kind,
        epoch=epoch,
        position=position,
        partition_number=partition_number,
    )


def next_unit(trial: Trial, partition_number: int | None = None) -> TrainingUnit | None:
    """Return the unit that follows what is done, or None when nothing is left before its target."""
    if is_at_target(trial):
        return None
    return unit_at(trial, trial.n_steps_done, partition_number)


def pilot_of(trial: Trial, partition_number: int) -> TrainingUnit | None:
    """Return the pilot of a trial over any partition: a unit that is timed and not recorded."""
    unit = next_unit(trial, partition_number)
    return None if unit is None else replace(unit, kind=PILOT)


def after(trial: Trial, unit: TrainingUnit) -> Trial:
    """Return the trial's progress once its unit is recorded."""
    n_steps_done = unit.step + 1
    is_round_over = n_steps_done % trial.n_partitions == 0
    met = frozenset() if is_round_over or trial.visit_order == "cyclic" else trial.met | {unit.partition_number}
    moved = object.__new__(Trial)  # every unit pays for this, and `replace` takes five times as long
    moved.__dict__.update(trial.__dict__, n_steps_done=n_steps_done, status="running", met=met)
    return moved


def n_units_left(trial: Trial) -> dict[str, int]:
    """Count the units that a trial still has to do before its target, by kind, without walking through them."""
    if is_at_target(trial):
        return {"train": 0, "validate": 0, "test": 0}
    n_partitions, due = trial.n_partitions, trial.due_epochs
    n_half_epochs, n_in_half = divmod(trial.n_steps_done, n_partitions)
    n_epochs_over, n_halves_over = divmod(n_half_epochs, 2)
    left = {
        "train": (due - n_epochs_over - n_halves_over) * n_partitions,
        "validate": (due - n_epochs_over) * n_partitions,
        "test": n_partitions if due == trial.max_epochs else 0,
    }
    left[_kind_of_half(n_half_epochs, trial.max_epochs)] -= n_in_half
    return left


def unit_seed(run_seed: int, trial_number: int, epoch: int, partition_number: int) -> int:
    """Derive the seed of a unit, in [0, 2**63): the same on every platform and Python.

    BLAKE2b of four little-endian 64-bit integers; the run's seed may be negative, as a bigint may be.
    """
    try:
        packed = struct.pack("<4q", run_seed, trial_number, epoch, partition_number)
    except struct.error as error:
        raise InvalidArgument(
            f"a seed is made of whole numbers of 64 bits, got {(run_seed, trial_number, epoch, partition_number)}"
        ) from error
    digest = blake2b(packed, digest_size=8, person=b"easeml unit").digest()
    return int.from_bytes(digest, "little") >> 1


def _place_of(step: int, n_partitions: int, max_epochs: int) -> tuple[str, int, int]:
    """Return (kind, epoch, position) of a step."""
    n_steps = n_steps_total(n_partitions, max_epochs)
    if not 0 <= step < n_steps:
        raise InvalidArgument(f"no step {step}: the trial has steps 0 to {n_steps - 1}")
    half_epoch, position = divmod(step, n_partitions)
    epoch = min(half_epoch // 2 + 1, max_epochs)
    return _kind_of_half(half_epoch, max_epochs), epoch, position


def _kind_of_half(half_epoch: int, max_epochs: int) -> str:
    """Return what a half is for: a life is 2 E + 1 halves of p units: train, validate, train, validate, ..., test."""
    return "test" if half_epoch == 2 * max_epochs else KINDS[half_epoch % 2]
