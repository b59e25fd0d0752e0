"""Replay: train a trial again along its stored visit order and compare the state after every unit.

The log holds all that a state depends on: which partition at which position, and the unit's seed. So it does not
matter who chose the order, nor on which slots, how often interrupted or hopped, the trial ran. Nothing is written, and
nothing that the session kept from before is used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from . import cache
from .cancellation import Pause
from .checkpoint import digest, load
from .devices import bind
from .errors import CorruptCheckpoint, InvalidArgument, NotAllowed, NotFound
from .packing import checksum
from .session import answering, entry_point, query
from .states import read_state
from .trainers import LiveTrial
from .units import blamed_on_trial, fresh_trial, resumed_trial

TRIAL = """
SELECT t.architecture, t.config, t.max_epochs, r.dataset_id,
    (SELECT array_agg(p.n_train_rows ORDER BY p.partition_number) FROM easeml.partitions p
        WHERE p.dataset_id = r.dataset_id) AS train_rows
FROM easeml.trials t JOIN easeml.runs r USING (run_id) WHERE t.trial_id = $1
"""
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
UNITS = (
    LINEAGE
    + """
SELECT trial_id, epoch, position, partition_number, seed, checkpoint_id, state_sha256 FROM log ORDER BY epoch, position
"""
)
PARTITIONS = (
    LINEAGE
    + """
SELECT DISTINCT u.partition_number, r.dataset_id, p.checksum
FROM log u JOIN easeml.runs r USING (run_id) LEFT JOIN easeml.partitions p USING (dataset_id, partition_number)
ORDER BY u.partition_number
"""
)
GANGS = (
    LINEAGE
    + """
SELECT max(n_slots) AS width FROM log
"""
)
BLOCKS = """
SELECT inputs, targets FROM easeml.blocks
WHERE dataset_id = $1 AND split = 'train' AND partition_number = $2 ORDER BY block_number
"""

Json = dict[str, Any]


@dataclass
class _Tally:
    """What the comparison has found so far."""

    n_units: int = 0
    n_matching: int = 0
    first_difference: Json | None = None
    final_sha256: str = ""

    @property
    def is_identical(self) -> bool:
        """Whether every state so far was the recorded one."""
        return self.n_matching == self.n_units


@answering
def check_replay(plpy: Any, GD: Json, trial_id: int, device: str, until_epoch: int | None) -> int:
    """Refuse what cannot be replayed: InvalidArgument without the device, NotAllowed when packed rows have changed, or
    several slots have trained the trial together. Return how many partitions were compared."""
    if device.startswith("cuda:") and int(device[5:]) >= torch.cuda.device_count():
        raise InvalidArgument(f"device: {device} is not there: this server sees {torch.cuda.device_count()} GPUs")
    if (query(plpy, GD, GANGS, ["int8", "int4"], [trial_id, until_epoch])[0]["width"] or 1) > 1:
        raise NotAllowed(
            f"trial {trial_id} cannot be replayed: it was trained by several slots at once",
            detail="One session cannot repeat the steps of a gang, whose slots average their gradients.",
            hint="Ask for a run with allocation hopping where replay matters.",
        )
    partitions = query(plpy, GD, PARTITIONS, ["int8", "int4"], [trial_id, until_epoch])
    for row in partitions:
        blocks = plpy.cursor(plpy.prepare(BLOCKS, ["int8", "int4"]), [row["dataset_id"], row["partition_number"]])
        found = 0
        while fetched := blocks.fetch(1):
            found = checksum([fetched[0]["inputs"], fetched[0]["targets"]], found)
        if found != row["checksum"]:
            raise NotAllowed(
                f"trial {trial_id} cannot be replayed: the packed rows of partition {row['partition_number']}"
                " are not those it was trained on",
                detail=f"Their checksum is {found}; when they were packed it was {row['checksum']}.",
                hint="Blocks of this version of the data set were changed or lost; restore them from a dump.",
            )
    return len(partitions)


@entry_point
def replay_units(
    plpy: Any, GD: Json, trial_id: int, device: str, n_threads: int, until_epoch: int | None, result: str | None
) -> tuple[str]:
    """Train along the log, with a notice after each epoch; return what `easeml.replay` promises."""
    bind(device, n_threads, None)
    own: Json = {}  # in place of GD, whose tensors may be older than the check of the blocks
    log = query(plpy, own, UNITS, ["int8", "int4"], [trial_id, until_epoch])
    if not log:
        raise NotFound(f"trial {trial_id} has no unit that you can see")
    tally = _Tally()
    context: Json = {}
    live: LiveTrial | None = None
    for epoch, units in groupby(log, key=lambda unit: unit["epoch"]):
        for unit in units:
            if live is None or unit["trial_id"] != context["trial_id"]:
                state = None if live is None else live.dump()
                context = _context(plpy, own, unit["trial_id"])
                live = _begin(plpy, own, context, state, unit["seed"], device)
            state = _train(plpy, own, context["dataset_id"], live, unit)
            _compare(plpy, own, unit["trial_id"], unit, state, tally)
        plpy.notice(f"epoch {epoch}: {tally.n_matching} of {tally.n_units} states identical")
    facts = {**vars(tally), "is_identical": tally.is_identical, "device": device, "n_threads": n_threads}
    return (json.dumps({"trial_id": trial_id, **facts}),)


def _context(plpy: Any, own: Json, trial_id: int) -> Json:
    """What a trial is, as a unit reads it."""
    context = dict(query(plpy, own, TRIAL, ["int8"], [trial_id])[0])
    return {**context, "trial_id": trial_id, "config": json.loads(context["config"])}


def _begin(plpy: Any, own: Json, context: Json, state: bytes | None, seed: int, device: str) -> LiveTrial:
    """A fresh trial, or a copy that goes on from the state that its parent had."""
    task = cache.dataset(plpy, own, context["dataset_id"]).task
    if state is None:
        return blamed_on_trial(plpy, lambda: fresh_trial(context, task, seed, device))
    return blamed_on_trial(plpy, lambda: resumed_trial(context, task, state, device))


def _train(plpy: Any, own: Json, dataset_id: int, live: LiveTrial, unit: Json) -> bytes:
    """Train one unit of the log, without a transaction, and return the state."""
    rows = cache.rows_of(plpy, own, dataset_id, "train", unit["partition_number"])
    plpy.commit()
    blamed_on_trial(plpy, lambda: live.train(rows.inputs, rows.targets, seed=unit["seed"], pause=Pause(plpy)))
    return live.dump()


def _compare(plpy: Any, own: Json, trial_id: int, unit: Json, state: bytes, tally: _Tally) -> None:
    """Count a unit, and keep the first difference."""
    tally.final_sha256 = digest(state)
    tally.n_units += 1
    if tally.final_sha256 == unit["state_sha256"]:
        tally.n_matching += 1
    elif tally.first_difference is None:
        place = {key: unit[key] for key in ("epoch", "position", "partition_number")}
        hashes = {"stored_sha256": unit["state_sha256"], "replayed_sha256": tally.final_sha256}
        kept = _kept_state(plpy, own, trial_id, unit["checkpoint_id"])
        tensors = None if kept is None else differing_tensors(kept, state)
        tally.first_difference = {**place, **hashes, "tensors": tensors}


def _kept_state(plpy: Any, own: Json, trial_id: int, checkpoint_id: int) -> bytes | None:
    """The recorded state, where it has not been pruned or damaged."""
    try:
        return read_state(plpy, own, trial_id, checkpoint_id)
    except CorruptCheckpoint:
        return None


def differing_tensors(one: bytes, other: bytes) -> dict[str, float | None]:
    """Names of the tensors that differ between two payloads, with the largest absolute difference.

    None: only one of them has it, or their shapes or types differ.
    """
    mine, theirs = load(one).tensors, load(other).tensors
    return {
        name: _largest_difference(mine.get(name), theirs.get(name))
        for name in sorted(mine.keys() | theirs.keys())
        if name not in mine or name not in theirs or not _is_same(mine[name], theirs[name])
    }


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def _largest_difference(one: torch.Tensor | None, other: torch.Tensor | None) -> float | None:
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return None
    difference = float((one.double() - other.double()).abs().max())
    return difference if difference < float("inf") else None
