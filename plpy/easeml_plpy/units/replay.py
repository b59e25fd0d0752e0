"""Replay: train a trial again along its stored visit order and compare the state after every unit.

The log holds all that a state depends on: which partition at which position, and the unit's seed. So it does not matter
who chose the order, on which slots the trial ran, or how often it was interrupted or hopped. A unit that trained as one
computation with others is repeated beside copies of itself, because the numbers of the others do not affect its own. A
replay writes nothing, and uses nothing that the session kept from before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, TypedDict

from easeml_plpy.packing.packing_statistics import checksum
from easeml_plpy.row_forms import datasets
from easeml_plpy.row_forms.datasets import PartitionRows
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.devices import bind, check_device
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import CorruptCheckpoint, NotAllowed, NotFound
from easeml_plpy.server.session import Command, NodeSession, Session, Statement, only_column
from easeml_plpy.states.checkpoint import digest
from easeml_plpy.states.state_difference import differing_tensors
from easeml_plpy.states.states import read_state
from easeml_plpy.trainers import trainer_of
from easeml_plpy.trainers.contract import LiveTrial
from easeml_plpy.trainers.networks.stack import Pass, repeat_stacked
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from easeml_plpy.units.folds import train_on
from easeml_plpy.units.live_trials import begun_trial, check_fits, resumed_trial
from easeml_plpy.units.round_rows import round_rows
from easeml_plpy.units.units import TrialSpec, trial_to_blame


class LoggedUnit(NamedTuple):
    """A training unit of the visit log."""

    trial_id: int
    epoch: int
    position: int
    partition_number: int
    seed: int
    checkpoint_id: int
    state_sha256: str
    stack: Sequence[int] | None


class Difference(TypedDict):
    """A unit whose state was another one when it was trained again."""

    epoch: int
    position: int
    partition_number: int
    stored_sha256: str
    replayed_sha256: str
    tensors: dict[str, float | None] | None


class _Partition(NamedTuple):
    partition_number: int
    dataset_id: int
    checksum: int | None


class _Block(NamedTuple):
    inputs: bytes
    targets: bytes


def _trial(architecture: str, config: str, max_epochs: int, dataset_id: int, train_rows: Sequence[int]) -> TrialSpec:
    return TrialSpec(architecture, json.loads(config), max_epochs, dataset_id, tuple(train_rows))


TRIAL = Statement(
    """
SELECT t.architecture, t.config, r.max_epochs, r.dataset_id,
    (SELECT array_agg(p.n_train_rows ORDER BY p.partition_number) FROM easeml.partitions p
        WHERE p.dataset_id = r.dataset_id) AS train_rows
FROM easeml.trials t JOIN easeml.runs r USING (run_id) WHERE t.trial_id = $1
""",
    ("int8",),
    _trial,
)
# A copy goes on where its parent was: the first epochs of its life are those of its parents.
LINEAGE = """
WITH RECURSIVE lineage(trial_id, until_epoch) AS (
    SELECT $1, $2
    UNION ALL
    SELECT t.parent_trial_id, least(t.inherited_epochs, l.until_epoch)
    FROM lineage l JOIN easeml.trials t USING (trial_id) WHERE t.parent_trial_id IS NOT NULL
), log AS (
    SELECT u.* FROM lineage l JOIN easeml.training_units u USING (trial_id)
    WHERE l.until_epoch IS NULL OR u.epoch <= l.until_epoch
)
"""
UNITS = Statement(
    f"""{LINEAGE}
SELECT trial_id, epoch, position, partition_number, seed, checkpoint_id, state_sha256, stack
FROM log ORDER BY epoch, position
""",
    ("int8", "int4"),
    LoggedUnit,
)
PARTITIONS = Statement(
    f"""{LINEAGE}
SELECT DISTINCT u.partition_number, r.dataset_id, p.checksum
FROM log u JOIN easeml.runs r USING (run_id) LEFT JOIN easeml.partitions p USING (dataset_id, partition_number)
ORDER BY u.partition_number
""",
    ("int8", "int4"),
    _Partition,
)
WIDTH: Statement[int | None] = Statement(
    f"{LINEAGE} SELECT max(n_slots) AS width FROM log", ("int8", "int4"), only_column
)
OPTIONS = Command("SELECT easeml.check_replay_options($1, $2, $3, $4)", ("int8", "text", "int4", "int4"))
BLOCKS = Statement(
    "SELECT inputs, targets FROM {schema}.version_blocks"
    " WHERE dataset_id = $1 AND split = 'train' AND partition_number = $2 ORDER BY block_number",
    ("int8", "int4"),
    _Block,
)


@entry_point(returns_failure=True)
def check_replay(session: Session, trial_id: int, device: str, until_epoch: int | None) -> int:
    """Refuse what cannot be replayed: InvalidArgument without the device, NotAllowed when packed rows have changed, or
    several slots have trained the trial together. Return how many partitions were compared."""
    _check_options(session, trial_id, device, 1, until_epoch)
    if (session.row(WIDTH, trial_id, until_epoch) or 1) > 1:
        raise NotAllowed(
            f"trial {trial_id} cannot be replayed: it was trained by several slots at once",
            detail="One session cannot repeat the steps of a gang, whose slots average their gradients.",
            hint="Ask for a run with allocation hopping where replay matters.",
        )
    partitions = session.rows(PARTITIONS, trial_id, until_epoch)
    for partition in partitions:
        _check_blocks(session, trial_id, partition)
    return len(partitions)


def _check_options(session: Session, trial_id: int, device: str, n_threads: int, until_epoch: int | None) -> None:
    """Refuse what easeml.replay refuses: tenants may call the routines below it themselves."""
    session.run(OPTIONS, trial_id, device, n_threads, until_epoch)
    check_device(device)


def _check_blocks(session: Session, trial_id: int | None, partition: _Partition) -> None:
    """Raise NotAllowed unless the partition's packed training rows have the recorded checksum."""
    current = 0
    for block in session.each(BLOCKS, partition.dataset_id, partition.partition_number):
        current = checksum([block.inputs, block.targets], current)
    if current != partition.checksum:
        raise NotAllowed(
            f"{'it' if trial_id is None else f'trial {trial_id}'} cannot be replayed: the packed rows of partition"
            f" {partition.partition_number}"
            " are not those it was trained on",
            detail=f"Their checksum is {current}; when they were packed it was {partition.checksum}.",
            hint="Blocks of this version of the dataset were changed or lost; restore them from a dump.",
        )


@entry_point(of=NodeSession)
def check_part(session: Session, dataset_id: int, partition_number: int, checksum: int) -> None:
    """Refuse a replay on packed training rows that have changed."""
    _check_blocks(session, None, _Partition(partition_number, dataset_id, checksum))


@entry_point(for_tenants=True, is_pinned=True)
def replay_units(
    session: Session, trial_id: int, device: str, n_threads: int, until_epoch: int | None, result: str | None
) -> tuple[str]:
    """Train along the log, with a notice after each epoch; return what `easeml.replay` promises."""
    _check_options(session, trial_id, device, n_threads, until_epoch)
    bind(device, n_threads, None)
    fresh = session.without_kept()  # what is kept may be older than the check of the blocks
    log = fresh.rows(UNITS, trial_id, until_epoch)
    if not log:
        raise NotFound(f"trial {trial_id} has no unit that you can see")
    replayed = _Replay(fresh, device)
    for epoch, units in groupby(log, key=lambda unit: unit.epoch):
        replayed.repeat(list(units))
        session.notice(f"epoch {epoch}: {replayed.n_matching} of {replayed.n_units} states identical")
    facts = {
        "n_units": replayed.n_units,
        "n_matching": replayed.n_matching,
        "first_difference": replayed.first_difference,
        "final_sha256": replayed.final_sha256,
        "is_identical": replayed.n_matching == replayed.n_units,
    }
    return (json.dumps({"trial_id": trial_id, **facts, "device": device, "n_threads": n_threads}),)


class _Replay:
    """A trial that is trained again unit by unit, and what the comparison has found so far."""

    def __init__(self, session: Session, device: str) -> None:
        self._session, self._device = session, device
        self._current: tuple[int, TrialSpec, LiveTrial] | None = None  # by trial: a copy begins as its parent was
        self.n_units = 0
        self.n_matching = 0
        self.first_difference: Difference | None = None
        self.final_sha256 = ""

    def repeat(self, units: Sequence[LoggedUnit]) -> None:
        """Train the units of an epoch, one after the other or all at once, and compare with the recorded states."""
        is_whole = trainer_of(self._trial_of(units[0])[0].architecture).takes_all_partitions
        for together in [units] if is_whole else [[unit] for unit in units]:
            spec, live = self._trial_of(together[0])
            state = self._train(spec, live, together[0], is_whole=is_whole)
            self.final_sha256 = digest(state)
            for unit in together:
                self._compare(unit, state)

    def _compare(self, unit: LoggedUnit, state: bytes) -> None:
        self.n_units += 1
        if self.final_sha256 == unit.state_sha256:
            self.n_matching += 1
        elif self.first_difference is None:
            self.first_difference = self._difference(unit, state)

    def _trial_of(self, unit: LoggedUnit) -> tuple[TrialSpec, LiveTrial]:
        if self._current is None or self._current[0] != unit.trial_id:
            state = None if self._current is None else self._current[2].dump()
            spec = self._session.row(TRIAL, unit.trial_id)
            self._current = unit.trial_id, spec, self._begin(unit, spec, state)
        return self._current[1], self._current[2]

    def _begin(self, unit: LoggedUnit, spec: TrialSpec, state: bytes | None) -> LiveTrial:
        """Return a fresh trial, or a copy that goes on from the state that its parent had."""
        task = datasets.dataset(self._session, spec.dataset_id).task(spec.view)
        with trial_to_blame(self._session):
            check_fits(spec, task, self._device)
            if state is None:
                return begun_trial(self._session, unit.trial_id, spec, unit.seed, self._device)
            return resumed_trial(spec.architecture, spec.config, task, state, self._device)

    def _train(self, spec: TrialSpec, live: LiveTrial, unit: LoggedUnit, *, is_whole: bool) -> bytes:
        """Train one unit of the log, or the round that begins with it, without a transaction, and return the state."""
        if is_whole:
            rows: PartitionRows = round_rows(self._session, spec, spec.training_split)
        else:
            rows = datasets.partition_rows(
                self._session, spec.dataset_id, spec.training_split, unit.partition_number, spec.view
            )
        self._session.commit()
        pause = SessionPause(self._session)
        with trial_to_blame(self._session):
            if unit.stack is not None and isinstance(live, TorchTrial):
                repeat_stacked(live, Pass(rows.inputs, rows.targets, unit.seed), unit.stack, pause)
            else:
                train_on(live, rows, unit.seed, pause)
        return live.dump()

    def _difference(self, unit: LoggedUnit, state: bytes) -> Difference:
        """Describe a state that differs, with its tensors if the recorded state is still kept undamaged."""
        try:
            kept = read_state(self._session, unit.trial_id, unit.checkpoint_id)
        except CorruptCheckpoint:
            tensors = None
        else:
            tensors = differing_tensors(kept, state)
        return {
            "epoch": unit.epoch,
            "position": unit.position,
            "partition_number": unit.partition_number,
            "stored_sha256": unit.state_sha256,
            "replayed_sha256": self.final_sha256,
            "tensors": tensors,
        }
