"""Gang units: one trial over several partitions at once, a slot for each, recorded together by the first slot.

A gang stands for consecutive steps of one round of the trial's life. Its members are the units of those steps; the
session of each calls the same procedure with an order that tells its rank. Whatever goes wrong on one rank ends all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from . import cache, units
from .architectures import architecture
from .cancellation import Pause
from .errors import NotAllowed
from .evaluation import complete_split, evaluated_state, outputs_of, record_evaluation
from .gang_group import Group, join, peers_lost
from .metrics import measure
from .pilot import ENOUGH_SECONDS, FIRST_ROWS, MEAN_ROWS, UNIT_OVERHEAD_SECONDS, seconds_per_row
from .session import entry_point, query
from .trainers import LiveTrial, Training, trainer_for
from .trainers.joint_training import averaging, train_jointly
from .trainers.torch_trainer import TorchTrial
from .training import record_training

T = TypeVar("T")
Json = dict[str, Any]


@dataclass(frozen=True)
class Rank:
    """This session's part in a gang: its own unit, all members' orders by rank, and the group once it is joined."""

    unit: units.Unit
    context: Json
    members: tuple[Json, ...]
    number: int
    group: Group
    pause: Pause

    @property
    def is_first(self) -> bool:
        """Whether it records what the gang has done."""
        return self.number == 0

    def gather(self, value: Any) -> list[Any]:
        """Exchange JSON values with the other ranks."""
        with peers_lost():
            return self.group.gather(value, self.pause)

    def order_of_all(self, facts: Sequence[Json]) -> str:
        """The order as it is recorded: with what the other ranks have done."""
        gang = {"n_ranks": len(self.members), "others": [m | f for m, f in zip(self.members, facts, strict=True)][1:]}
        return json.dumps(json.loads(self.unit.text) | {"gang": gang})


@entry_point
def train_gang(plpy: Any, GD: Json, unit: str, result: str | None) -> tuple[str]:
    """Train with the other ranks, then record the state and all members in one fenced transaction, on rank 0.

    Returns what `train_unit` returns, with "n_rows" of all ranks and "checkpoint_id"; of a pilot {"train_seconds",
    "evaluate_seconds"} for a whole gang over partitions of mean size. Raises TrialFailed, StaleLease,
    CorruptCheckpoint, SlotLost when another rank is gone; a cancel passes through and records nothing.
    """
    order, context = units.open_unit(plpy, GD, unit)
    is_pilot = order.kind == "pilot"
    rows = cache.rows_of(plpy, GD, context["dataset_id"], "train", order.partition_number)
    live, read_bytes = _live(plpy, GD, order, context, None if is_pilot else context["checkpoint_id"])
    if not (isinstance(live, TorchTrial) and trainer_for(architecture(context["architecture"]).trainer).is_joint):
        raise NotAllowed(f"{context['architecture']} cannot be trained on several slots at once")
    with _joined(plpy, GD, order, context) as rank:
        if is_pilot:
            return (json.dumps(_pilot(plpy, GD, rank, live, rows)),)
        started = time.perf_counter()
        n_rows = [context["train_rows"][member["partition_number"]] for member in rank.members]
        training = units.blamed_on_trial(plpy, lambda: _train(plpy, GD, rank, live, rows, n_rows))
        with peers_lost():
            rank.group.take_from_first(list(live.module.buffers()), rank.pause)
        facts = {
            "training_seconds": time.perf_counter() - started,
            "n_rows": training.n_rows,
            "loss": training.loss_mean if training.n_rows else None,
            "read_bytes": read_bytes,
        }
        recorded = _record_once(plpy, rank, facts, lambda all_facts: _record_training(plpy, GD, rank, live, all_facts))
    units.keep_live(GD, order, context, recorded["checkpoint_id"], live)
    return (json.dumps(recorded),)


@entry_point
def evaluate_gang(plpy: Any, GD: Json, unit: str, result: str | None) -> tuple[str]:
    """Measure each rank's partition, and record the sums of all on rank 0. Returns what `evaluate_unit` returns."""
    order, context = units.open_unit(plpy, GD, unit)
    split, epoch, checkpoint_id = evaluated_state(order, context)
    data = cache.dataset(plpy, GD, context["dataset_id"])
    rows = cache.rows_of(plpy, GD, context["dataset_id"], split, order.partition_number)
    live, read_bytes = _live(plpy, GD, order, context, checkpoint_id)
    with _joined(plpy, GD, order, context) as rank:
        outputs = units.blamed_on_trial(plpy, lambda: outputs_of(live, rows.inputs, rank.pause))
        facts: Json = {"statistics": measure(data.task, data.raw(outputs), rows.raw_targets), "read_bytes": read_bytes}

        def record(all_facts: Sequence[Json]) -> Json:
            text = rank.order_of_all(all_facts)
            parts = record_evaluation(plpy, GD, text, context, epoch, split, facts["statistics"], read_bytes)
            return complete_split(plpy, GD, replace(order, text=text), context, epoch, split, checkpoint_id, parts)

        recorded = _record_once(plpy, rank, facts, record)
    units.keep_live(GD, order, context, checkpoint_id, live)
    return (json.dumps({"n_rows": facts["statistics"]["n_rows"], **recorded}),)


@contextmanager
def _joined(plpy: Any, GD: Json, order: units.Unit, context: Json) -> Iterator[Rank]:
    """Commit, and join the group, or take the one that the session has joined under this token before.

    Whatever is raised in here breaks the group, so that the other ranks end at once.
    """
    plpy.commit()
    gang, pause, groups = order.gang or {}, Pause(plpy), GD.setdefault("easeml_gangs", {})
    token, number, members = gang["token"], gang["rank"], tuple(gang["members"])
    if token not in groups:
        device = context["device"] or "cpu"
        groups[token] = join(token, number, len(members), device, gang["timeout_seconds"], pause)
    try:
        yield Rank(order, context, members, number, groups[token], pause)
    except BaseException:  # also a cancel: whatever it is, the others are not to wait for this rank
        groups.pop(token).break_off()
        raise


def _live(plpy: Any, GD: Json, order: units.Unit, context: Json, checkpoint_id: int | None) -> tuple[LiveTrial, int]:
    """The trial as of that checkpoint; a fresh one is drawn on every rank from the seed of the first."""
    first = replace(order, seed=(order.gang or {})["members"][0]["seed"])
    return units.blamed_on_trial(plpy, lambda: units.live_trial(plpy, GD, first, context, checkpoint_id))


def _train(plpy: Any, GD: Json, rank: Rank, live: TorchTrial, rows: cache.Rows, n_rows: Sequence[int]) -> Training:
    """Train on the first `n_rows` of each rank's partition."""
    task = cache.dataset(plpy, GD, rank.context["dataset_id"]).task
    own = n_rows[rank.number]
    rank.gather(None)  # reading rows takes one longer than another; the steps wait for nobody long
    with peers_lost():
        return train_jointly(
            live,
            task,
            rows.inputs[:own],
            rows.targets[:own],
            rank=rank.number,
            n_rows=n_rows,
            network=averaging(live, rank.group.process_group),
            seed=rank.unit.seed,
            pause=rank.pause,
        )


def _record_once(plpy: Any, rank: Rank, facts: Json, record: Callable[[Sequence[Json]], Json]) -> Json:
    """Let rank 0 record and commit what all have done; return on every rank what came of it."""
    all_facts = rank.gather(facts | {"backend_pid": os.getpid()})
    recorded = None
    if rank.is_first:
        recorded = record(all_facts)
        plpy.commit()
    summary: Json = rank.gather(recorded)[0]
    return summary


def _record_training(plpy: Any, GD: Json, rank: Rank, live: TorchTrial, all_facts: Sequence[Json]) -> Json:
    facts, state = all_facts[0], live.dump()
    recorded = record_training(plpy, GD, rank.order_of_all(all_facts), rank.context, facts, state)
    summary = {key: facts[key] for key in ("loss", "training_seconds")}
    return summary | recorded | {"n_rows": sum(each["n_rows"] for each in all_facts)}


def _pilot(plpy: Any, GD: Json, rank: Rank, live: TorchTrial, rows: cache.Rows) -> Json:
    """Time a few joint steps of a fresh trial and throw them away; all ranks go by the times of the first."""
    mean_rows = query(plpy, GD, MEAN_ROWS, ["int8"], [rank.context["dataset_id"]])[0]
    train_rows = [rank.context["train_rows"][member["partition_number"]] for member in rank.members]

    def train(n: int) -> None:
        units.blamed_on_trial(plpy, lambda: _train(plpy, GD, rank, live, rows, [min(n, m) for m in train_rows]))

    train_rate = _joint_seconds_per_row(rank, train, max(train_rows))
    evaluate_rate = units.blamed_on_trial(
        plpy, lambda: seconds_per_row(lambda n: live.outputs(rows.inputs[:n]), len(rows.inputs))
    )
    query(plpy, GD, "SELECT easeml.leave_slot($1)", ["jsonb"], [rank.unit.text])
    plpy.commit()
    slowest = max(rank.gather(evaluate_rate))
    return {
        "train_seconds": UNIT_OVERHEAD_SECONDS + train_rate * mean_rows["train"],
        "evaluate_seconds": UNIT_OVERHEAD_SECONDS + slowest * mean_rows["evaluate"],
    }


def _joint_seconds_per_row(rank: Rank, train: Callable[[int], None], n_rows: int) -> float:
    """Seconds of the gang for a row of each rank, after one round that warms up; 0 where there are no rows."""
    n = min(n_rows, FIRST_ROWS)
    if n == 0:
        return 0.0
    train(n)
    while True:
        started = time.perf_counter()
        train(n)
        seconds: float = rank.gather(time.perf_counter() - started)[0]
        if seconds >= ENOUGH_SECONDS or n == n_rows:
            return seconds / n
        n = min(n_rows, 4 * n)
