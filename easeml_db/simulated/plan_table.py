"""Plans and instances in memory: what the coordinator records of them, as the SQL functions do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from easeml_db.decisions.planner.run_plan import RunPlan, StageRecord
from easeml_db.simulated.rows import Rows
from easeml_db.words.instance import Bill, Instance
from easeml_db.words.run import Run
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import PILOT
from easeml_db.words.trial import Trial

Row = Mapping[str, Any]


class PlanTable:
    """Each method is one transaction. `known` are rows of earlier trials, as easeml.known_times returns them, `joint`
    the architectures that train on several slots at once."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.plans: dict[int, RunPlan] = {}
        self.revisions: list[tuple[int, Row]] = []
        self.stages: dict[tuple[int, int], StageRecord] = {}
        self.known: list[Row] = []
        self.joint: list[str] = []
        self.instances: dict[int, Instance] = {}  # alive ones
        self.ended: dict[int, tuple[Instance, str, float]] = {}  # with status and cost
        self._numbers = count(1)

    # Plans

    def read(self, run_id: int) -> RunPlan | None:
        """Return the plan that holds for a run."""
        plan = self.plans.get(run_id)
        if plan is None:
            return None
        mine = [stage for (run, _), stage in self.stages.items() if run == run_id]
        cost = sum(cost for instance, _, cost in self.ended.values() if instance.run_id == run_id)
        unfinished = [stage for stage in mine if stage.ended_seconds is None]
        return replace(
            plan, n_stages_done=len(mine), ended_cost=cost, open_stage=unfinished[-1] if unfinished else None
        )

    def keep(self, run_id: int, row: Row, plan: RunPlan, lease_number: int) -> None:
        """Record a new plan."""
        self._rows.fence(lease_number)
        if self._rows.may_write(run_id, lease_number):
            self.revisions.append((run_id, row))
            self.plans[run_id] = plan

    def keep_stage(self, run_id: int, stage: StageRecord, lease_number: int) -> None:
        """Record a stage as it begins or ends."""
        self._rows.fence(lease_number)
        if self._rows.may_write(run_id, lease_number):
            self.stages[run_id, stage.place] = stage

    def standing(self, run_id: int) -> Row | None:
        """Return the progress of a run, as easeml.run_standing does."""
        if not self._rows.is_open(run_id):
            return None
        run = self._rows.run(run_id)
        arms = [arm for arm in run.arms if not arm.is_closed]
        search = None if run.search is None or run_id in self._rows.ending else vars(run.search)
        trials = {arm.arm_id: [t for t in run.trials if run.arm_of.get(t.trial_id) == arm.arm_id] for arm in arms}
        return {
            "dataset": "d", "seed": run.seed, "search": search,
            "arms": [
                {"name": arm.name, "trials": [self._trial(run, trial) for trial in trials[arm.arm_id]]} for arm in arms
            ],
            "knowledge": {
                "trials": [*self.known, *self._observed(run)], "speedups": None, "curves": None, "max_slots": None,
                "data_gb": 0.0, "n_partitions": run.trials[0].n_partitions, "whole": sorted(run.whole_architectures),
                "joint": self.joint,
            },
        }  # fmt: skip

    def _trial(self, run: Run, trial: Trial) -> Row:
        return {
            "architecture": run.architectures[trial.trial_id], "trial_number": trial.trial_number,
            "bracket": trial.bracket, "n_epochs": min(trial.n_steps_done / (2 * trial.n_partitions), trial.max_epochs),
            "target_epochs": trial.due_epochs, "is_open": trial.status in ("waiting", "running", "paused"),
            "config": None, "scores": None,
        }  # fmt: skip

    def _observed(self, run: Run) -> list[Row]:
        """Return the mean epoch of each trial of a run that has trained, by how many slots it had."""
        seconds: dict[tuple[int, int], dict[str, list[float]]] = {}
        for unit in self._rows.units:
            if unit.order.unit.run_id == run.run_id and unit.order.unit.kind != PILOT:
                key = unit.order.unit.trial_id, unit.n_slots
                mine = seconds.setdefault(key, {"train": [], "validate": []})
                mine.setdefault(unit.order.unit.kind, []).append(unit.finished_seconds - unit.started_seconds)
        p = run.trials[0].n_partitions
        return [
            {
                "architecture": run.architectures[trial_id], "device_kind": "cpu", "n_slots": width, "is_same": True,
                "scale": 1,
                "epoch_seconds": math.ceil(p / width) * sum(_mean(kinds[kind]) for kind in ("train", "validate")),
                "sd_seconds": 0.0, "n_epochs": max(1, len(kinds["train"]) // p),
                "test_seconds": math.ceil(p / width) * _mean(kinds["validate"]),
            }
            for (trial_id, width), kinds in seconds.items()
            if kinds["train"]
        ]  # fmt: skip

    # Instances

    def request(self, plan: RunPlan, run_id: int, provisioner: str, instance_type: str, n: int) -> Sequence[int]:
        """Insert instances of an open run; return their numbers."""
        if not self._rows.is_open(run_id):
            return ()
        kind = next(candidate for candidate in plan.prices.types if candidate.name == instance_type)
        bill = Bill(kind.price_per_hour, kind.billed_by, kind.is_per_function, kind.minimum_seconds)
        numbers = [next(self._numbers) for _ in range(n)]
        for number in numbers:
            self.instances[number] = Instance(
                number, run_id, provisioner, instance_type, kind.n_slots, "requested", f"request-{number}", bill,
                kind.device_kind,
            )  # fmt: skip
        return numbers

    def billed(self, instance_id: int, now_seconds: float) -> None:
        """Note since when an instance is paid; the first word counts."""
        instance = self.instances.get(instance_id)
        if instance is not None and instance.billed_seconds is None:
            self.instances[instance_id] = replace(instance, billed_seconds=now_seconds)

    def attach(
        self, instance_id: int, slots: Sequence[Slot], n_local: int, now_seconds: float
    ) -> Sequence[Slot] | None:
        """Give a requested instance its slots, added ones or free ones of this server, and return all slots; None if
        there are too few.
        """
        instance = self.instances.get(instance_id)
        if instance is None or instance.status != "requested":
            return None
        n_added = instance.n_slots if instance.provisioner != "local" else min(instance.n_slots, n_local - len(slots))
        free = [slot for slot in slots if slot.status == "active" and slot.instance_id is None]
        n_taken = instance.n_slots - max(0, n_added)
        if n_taken > len(free):
            return None
        taken = [slot.slot_id for slot in free[len(free) - n_taken :]] if n_taken else []
        first = 1000 * instance_id  # no number is given twice, as by the server's sequence
        added = [
            Slot(number, f"slot-{number}", 1, run_id=instance.run_id, instance_id=instance_id)
            for number in range(first, first + max(0, n_added))
        ]
        ids = (*taken, *(slot.slot_id for slot in added))
        since = now_seconds if instance.billed_seconds is None else instance.billed_seconds
        self.instances[instance_id] = replace(instance, status="ready", slot_ids=ids, billed_seconds=since)

        def attached(slot: Slot) -> Slot:
            return replace(slot, run_id=instance.run_id, instance_id=instance_id)

        return [*(attached(slot) if slot.slot_id in taken else slot for slot in slots), *added]

    def release(self, instance_id: int, slots: Sequence[Slot], n_base: int) -> Sequence[Slot]:
        """Release the slots of an instance, or drain them, and return all slots."""
        if instance_id not in self.instances:
            return slots
        mine = tuple(slot for slot in self.instances[instance_id].slot_ids if slot > n_base)
        self.instances[instance_id] = replace(self.instances[instance_id], status="releasing", slot_ids=mine)
        return [self._released(slot, n_base) if slot.instance_id == instance_id else slot for slot in slots]

    def _released(self, slot: Slot, n_base: int) -> Slot:
        if slot.slot_id <= n_base:
            return replace(slot, run_id=None, instance_id=None)
        return replace(slot, status="draining")

    def end(self, instance_id: int, status: str, cost: float, slots: Sequence[Slot], n_base: int) -> Sequence[Slot]:
        """Return all slots without those that were added for an instance."""
        gone = self.instances.pop(instance_id, None)
        if gone is not None:
            self.ended[instance_id] = gone, status, cost
        given_back = [self._released(s, n_base) if s.instance_id == instance_id else s for s in slots]
        return [slot for slot in given_back if slot.instance_id != instance_id]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))
