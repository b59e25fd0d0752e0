"""Gang units: one trial over several partitions at once, a slot for each, recorded together by the first slot.

A gang stands for consecutive steps of one round of the trial's life. Its members are the units of those steps; the
session of each calls the same procedure with an order that names its rank. A failure on one rank ends all. A rank goes
through the steps of a unit (training.py); it meets the others after its commit, and only the first rank records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from easeml_plpy.metrics.metrics import measure
from easeml_plpy.row_forms import datasets
from easeml_plpy.row_forms.datasets import PartitionRows, partition_rows
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.session import Command, Session
from easeml_plpy.trainers import trainer_of
from easeml_plpy.trainers.contract import LiveTrial, Training
from easeml_plpy.trainers.networks.joint_training import averaging, train_jointly
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from easeml_plpy.units.gang_group import peers_lost
from easeml_plpy.units.gang_rank import Rank, first_seed, joined
from easeml_plpy.units.live_trials import keep_live, live_trial
from easeml_plpy.units.outputs import outputs_of
from easeml_plpy.units.pilot import MEAN_ROWS, PilotTimes, pilot_times, seconds_per_row, stopwatch
from easeml_plpy.units.recording import (
    EvaluationFacts,
    RecordedEvaluation,
    TrainingFacts,
    evaluated_state,
    record_evaluation,
    record_training,
)
from easeml_plpy.units.training import training_facts
from easeml_plpy.units.units import Unit, UnitContext, open_unit, trial_to_blame

LEAVE_SLOT = Command("SELECT easeml.leave_slot($1)", ("jsonb",))


class GangTrained(TypedDict):
    """The result of a gang's training, known to every rank; `n_rows` of all ranks, the loss of the first."""

    loss: float | None
    training_seconds: float
    n_rows: int
    checkpoint_id: int
    state_bytes: int
    pruned_bytes: int


@entry_point(is_pinned=True)
def train_gang(session: Session, unit: str, result: str | None) -> tuple[str]:
    """Train with the other ranks, then record the state and all members in one fenced transaction, on rank 0.

    Returns what `train_unit` returns, with "n_rows" of all ranks and "checkpoint_id"; of a pilot {"train_seconds",
    "evaluate_seconds"} for a whole gang over partitions of mean size. Raises TrialFailed, StaleLease,
    CorruptCheckpoint, SlotLost when another rank is gone; a cancel passes through and records nothing.
    """
    order = Unit.from_text(unit)
    context = open_unit(session, order)
    is_pilot = order.kind == "pilot"
    rows = partition_rows(session, context.trial.dataset_id, "train", order.partition_number, context.trial.view)
    checkpoint_id = None if is_pilot else context.checkpoint_id
    live, read_bytes = live_trial(session, order, context, checkpoint_id, first_seed(order))
    network = _joint(live, context)
    with joined(session, order, context) as rank:
        part = _Part(rank, network, rows)
        if is_pilot:
            return (json.dumps(vars(part.pilot())),)
        recorded = part.train_and_record(read_bytes)
    keep_live(session, order, context, recorded["checkpoint_id"], live)
    return (json.dumps(recorded),)


@entry_point(is_pinned=True)
def evaluate_gang(session: Session, unit: str, result: str | None) -> tuple[str]:
    """Measure each rank's partition, and record the sums of all on rank 0. Returns what `evaluate_unit` returns."""
    order = Unit.from_text(unit)
    context = open_unit(session, order)
    measured = evaluated_state(order, context)
    data = datasets.dataset(session, context.trial.dataset_id)
    rows = partition_rows(session, context.trial.dataset_id, measured.split, order.partition_number, context.trial.view)
    live, read_bytes = live_trial(session, order, context, measured.checkpoint_id, first_seed(order))
    with joined(session, order, context) as rank:
        with trial_to_blame(session):
            outputs = outputs_of(live, rows.inputs, rank.pause)
        statistics = measure(data.task(), data.raw(outputs), rows.raw_targets)

        def record(text: str, facts: Sequence[EvaluationFacts]) -> RecordedEvaluation:
            return record_evaluation(session, text, context, measured, facts[0])

        rank_facts: EvaluationFacts = {"statistics": statistics, "read_bytes": read_bytes}
        recorded = rank.record_once(rank_facts, record)
    keep_live(session, order, context, measured.checkpoint_id, live)
    return (json.dumps({"n_rows": statistics["n_rows"], **recorded}),)


def _joint(live: LiveTrial, context: UnitContext) -> TorchTrial:
    """Return the trial as one that several slots can train. Raises NotAllowed."""
    name = context.trial.architecture
    if not (isinstance(live, TorchTrial) and trainer_of(name).is_joint):
        raise NotAllowed(f"{name} cannot be trained on several slots at once")
    return live


@dataclass(frozen=True)
class _Part:
    """A rank with its trial and its rows."""

    rank: Rank
    live: TorchTrial
    rows: PartitionRows

    def train_and_record(self, read_bytes: int) -> GangTrained:
        """Train on all rows, and return on every rank what rank 0 has recorded."""
        started = time.perf_counter()
        with trial_to_blame(self.rank.session):
            training = self._train(self.rank.n_rows)
        with peers_lost():
            self.rank.group.take_from_first(list(self.live.module.buffers()), self.rank.pause)
        facts = training_facts(training, time.perf_counter() - started, read_bytes)
        return self.rank.record_once(facts, self._record)

    def _record(self, text: str, all_facts: Sequence[TrainingFacts]) -> GangTrained:
        first, rank = all_facts[0], self.rank
        recorded = record_training(rank.session, text, rank.context, first, self.live.dump())
        n_rows = sum(facts["n_rows"] for facts in all_facts)
        return {"loss": first["loss"], "training_seconds": first["training_seconds"], "n_rows": n_rows, **recorded}

    def _train(self, n_rows: Sequence[int]) -> Training:
        """Train on the first `n_rows` of each rank's partition."""
        rank = self.rank
        n_rank_rows = n_rows[rank.order.rank]
        rank.gather(None)  # ranks take different times to read rows; after this the steps wait little for each other
        with peers_lost():
            return train_jointly(
                self.live,
                self.rows.inputs[:n_rank_rows],
                self.rows.targets[:n_rank_rows],
                rank=rank.order.rank,
                n_rows=n_rows,
                network=averaging(self.live, rank.group.exchange.gradients),
                seed=rank.unit.seed,
                pause=rank.pause,
            )

    def pilot(self) -> PilotTimes:
        """Time a few joint steps of a fresh trial and throw them away; all ranks go by the times of the first."""
        rank, session = self.rank, self.rank.session
        mean_rows = session.row(MEAN_ROWS, rank.context.trial.dataset_id)
        with trial_to_blame(session):
            train_rate = seconds_per_row(self._train_some, max(rank.n_rows), self._time_of_first)
            evaluate_rate = seconds_per_row(self._evaluate_some, len(self.rows.inputs), stopwatch)
        session.run(LEAVE_SLOT, rank.unit.text)
        session.commit()
        return pilot_times(train_rate, max(rank.gather(evaluate_rate)), mean_rows)

    def _train_some(self, n: int) -> object:
        return self._train([min(n, of_rank) for of_rank in self.rank.n_rows])

    def _evaluate_some(self, n: int) -> object:
        return self.live.outputs(self.rows.inputs[:n])

    def _time_of_first(self, work: Callable[[int], object], n: int) -> float:
        return self.rank.gather(stopwatch(work, n))[0]
