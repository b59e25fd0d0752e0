"""Execution of plans: at each stage it requests and releases instances, and plans the rest of the run again.

A run is planned again when a stage has ended, when its forecast leaves the plan, when instances do not come up, and
when other tenants want slots. It ends with its results so far once continuing would exceed its max_cost.
"""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from easeml_db.coordinator.arm_opening import ArmOpening
from easeml_db.coordinator.effects import CutTraining, Effect, OpenSlots
from easeml_db.coordinator.faults import faults_of
from easeml_db.coordinator.instance_keeping import InstanceKeeping
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.ports.answering import Answering
from easeml_db.coordinator.ports.clock import Clock
from easeml_db.coordinator.ports.plans import PlanStore
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.sizing import Sizing
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.decisions.hopper.dispatch.open_run import OpenRun
from easeml_db.decisions.planner.job import StageKey
from easeml_db.decisions.planner.replanning import Replanned, Replanning
from easeml_db.decisions.planner.run_plan import PlannedStage, RunPlan, StageRecord, stages_under_way
from easeml_db.decisions.retry import INSTANCE_PAUSE
from easeml_db.errors import EasemlError, InvalidArgument, InvalidData

LEAST_CHECK_SECONDS, CHECK_SHARE = 2.0, 0.02  # of the time that the plan takes: how often a run is forecast
RESTS = 4  # times as long as that took, so that planning one run takes a fifth of a processor at most
PLANNING_SECONDS = 10.0  # of processor time: a rest that takes longer to plan keeps the plan that it has
LOOK_SECONDS = 0.05  # between two looks whether a rest is planned
MOST_FAILURES = 12  # of instances in a row while none is up: then the run fails
FAILURES_BEFORE_REPLAN = 3
CUT_SECONDS = 2.0  # how long it takes to cut units short and stop instances, at most, where that goes well


@dataclass(frozen=True)
class Asked:
    """The rest of a run is being planned; `reason` None: only if it has left its plan."""

    reason: str | None
    seconds: float  # when
    pending: Future[Replanned | None]


@dataclass
class Followed:
    """A planned run under way. `stage` is None before its first trial, and while none of its trials may run."""

    plan: RunPlan
    planned: PlannedStage
    record: StageRecord | None = None
    keys: dict[StageKey, int] = field(default_factory=dict)  # open trials by stage
    signature: tuple[int, int] = (-1, -1)
    n_seen: int = 0  # trials that the stage had at once, at most
    next_check: float = 0.0
    retry_at: float = 0.0
    cap: int | None = None  # available instances of the stage's type, after too many failures
    asked: Asked | None = None


class PlannedRuns:
    """Asked by the coordinator's loop before units are given out."""

    def __init__(
        self,
        plans: PlanStore,
        runs: RunStore,
        lease: Lease,
        dispatcher: Dispatcher,
        arms: ArmOpening,
        instances: InstanceKeeping,
        *,
        answering: Answering,
        clock: Clock,
        is_replanning: bool = True,
    ) -> None:
        self._answering, self._clock, self._is_replanning = answering, clock, is_replanning
        self._plans, self._run_store, self._lease = plans, runs, lease
        self._dispatcher, self._arms, self._instances = dispatcher, arms, instances
        self._sizing = Sizing(dispatcher, arms, instances)
        self._followed: dict[int, Followed] = {}
        self._unlimited: set[int] = set()  # runs that may cost whatever they cost

    async def look(self, now_seconds: float) -> list[Effect]:
        """Request and release instances until all planned runs have what their stages need."""
        planned = self._dispatcher.planned_runs()
        effects: list[Effect] = []
        if not (planned or self._followed or self._instances):
            return effects
        for run_id in self._followed.keys() - planned:
            followed = self._followed.pop(run_id)
            self._drop_question(followed)
            await self._end_stage(followed, now_seconds)
        for run_id in self._instances.runs() - planned:
            effects += await self._instances.release(self._left_over(run_id))
        for run_id in list(planned):  # a run that cannot be served leaves them
            try:
                with faults_of(run_id):
                    effects += await self._follow(self._dispatcher.runs[run_id], now_seconds)
            except (InvalidArgument, InvalidData) as error:  # of this run's plan, its price list or its times
                await self._arms.fail(run_id, str(error))
                effects.append(OpenSlots())  # it may have released instances before
        return effects

    def _left_over(self, run_id: int) -> list[int]:
        """Return the instances to release of a run that is over. If only its last test is due, it keeps an instance
        unless that costs something.
        """
        mine = self._instances.of(run_id)
        is_kept = run_id in self._dispatcher.runs and run_id in self._unlimited
        return [instance.instance_id for instance in mine[1 if is_kept else 0 :]]

    def next_seconds(self, now_seconds: float) -> float:
        """Return when the next step is due that needs no message. A step already due waits for a message."""
        moments = [moment for run in self._followed.values() for moment in (run.next_check, run.retry_at)]
        moments += [now_seconds + LOOK_SECONDS for run in self._followed.values() if run.asked is not None]
        moments += self._instances.moments()
        return min((moment for moment in moments if moment > now_seconds), default=math.inf)

    async def _follow(self, open_run: OpenRun, now: float) -> list[Effect]:
        followed = self._followed.get(open_run.run_id)
        if followed is None:
            followed = await self._begin(open_run, now)
        if followed is None:
            return []
        if open_run.is_over:
            return await self._release_all(open_run.run_id)
        if followed.asked is not None and followed.asked.pending.done():
            await self._take_plan(followed, followed.asked, now)
            await self._begin_stage(followed, now)
        await self._count_failures(followed, now)
        if open_run.run_id not in self._dispatcher.runs:
            return []
        await self._find_stage(followed, open_run, now)
        if self._cost(followed, now + CUT_SECONDS) >= (followed.plan.max_cost or math.inf):
            await self._run_store.note(
                open_run.run_id, None, "max_cost", "max_cost is reached: it ends with what it has"
            )
            self._arms.end_budget(open_run.run_id)
            return [CutTraining(open_run.run_id), *await self._release_all(open_run.run_id)]
        if now >= followed.next_check:
            await self._check(followed, now)
        return await self._resize(followed, open_run, now)

    async def _release_all(self, run_id: int) -> list[Effect]:
        return await self._instances.release([instance.instance_id for instance in self._instances.of(run_id)])

    async def _begin(self, open_run: OpenRun, now: float) -> Followed | None:
        plan = await self._plans.read(open_run.run_id)
        if plan is None or not plan.stages:
            await self._arms.fail(open_run.run_id, "it has no plan, or its price list is gone")
            return None
        self._instances.forget_cost(open_run.run_id)
        followed = Followed(plan, plan.stages[0])
        if plan.open_stage is not None:
            followed.record = plan.open_stage
            followed.planned = plan.stage_of([plan.open_stage.key]) or plan.stages[0]
            followed.n_seen = followed.planned.n_trials
        elif not plan.n_stages_done:
            await self._begin_stage(followed, now)
        followed.next_check = now + self._check_seconds(plan)
        self._followed[open_run.run_id] = followed
        if plan.max_cost is None:
            self._unlimited.add(open_run.run_id)
        if plan.deadline_seconds is not None:
            open_run.deadline_seconds = plan.deadline_seconds
        self._tell_costs(open_run, plan)
        return followed

    def _tell_costs(self, open_run: OpenRun, plan: RunPlan) -> None:
        """Tell the tenancy policy what the plan expects of each arm, in slot seconds."""
        arms = open_run.run.arms
        seconds = dict.fromkeys([arm.arm_id for arm in arms], 0.0)
        for stage in plan.stages:
            mine = [arm.arm_id for arm in arms if stage.key.arm in ("", arm.name)]
            for arm_id in mine:
                seconds[arm_id] += stage.seconds_mean * stage.n_slots / len(mine)
        self._arms.planned(open_run.run_id, {arm_id: value for arm_id, value in seconds.items() if value > 0})

    async def _find_stage(self, followed: Followed, open_run: OpenRun, now: float) -> None:
        """Find out which stage the run is in: the same until its last trial has left it. Plan the rest again where one
        has ended."""
        trials = open_run.work.trials
        signature = id(open_run.run), len(trials)
        if signature == followed.signature or not trials:
            return
        followed.signature, followed.keys = signature, dict(stages_under_way(open_run.run, trials))
        planned = followed.plan.stage_of(followed.keys, followed.record)
        if planned is None or (followed.n_seen and followed.record and planned.key != followed.record.key):
            await self._end_stage(followed, now)
            reason = "trials train that were not planned" if planned is None else "a stage has ended"
            await self._replan(followed, now, reason)
            planned = followed.plan.stage_of(followed.keys, followed.record) or followed.planned
            followed.n_seen = 0
        followed.planned, followed.n_seen = planned, max(followed.n_seen, len(trials))
        await self._begin_stage(followed, now)
        if followed.record is not None:
            n_beside = sum(n for key, n in followed.keys.items() if planned.key.arm not in ("", key.arm))
            followed.record = replace(followed.record, n_beside=max(followed.record.n_beside, n_beside))

    async def _begin_stage(self, followed: Followed, now: float) -> None:
        """Record that a stage begins. The first begins when its slots are requested, whichever it then is."""
        plan, planned, record = followed.plan, followed.planned, followed.record
        if record is not None and record.key == planned.key:
            return
        if record is None:
            followed.plan = replace(plan, n_stages_done=plan.n_stages_done + 1)
            place, cost = followed.plan.n_stages_done, self._cost(followed, now)
            record = StageRecord(place, plan.revision, planned.key, planned.label, now, planned.n_trials, 0, cost)
        followed.record = replace(record, key=planned.key, label=planned.label, n_trials=planned.n_trials)
        await self._lease.write(self._plans.keep_stage(plan.run_id, followed.record))

    async def _end_stage(self, followed: Followed, now: float) -> None:
        if followed.record is not None:
            cost = self._cost(followed, now) - followed.record.cost_before
            ended = replace(followed.record, ended_seconds=now, cost=max(0.0, cost))
            followed.record = None
            await self._lease.write(self._plans.keep_stage(followed.plan.run_id, ended))

    def _cost(self, followed: Followed, now: float) -> float:
        """Return what the run would have cost if all its instances ended now."""
        run_id = followed.plan.run_id
        return followed.plan.ended_cost + self._instances.cost(run_id, now) + self._sizing.work_cost(run_id)

    # Planning again

    def _check_seconds(self, plan: RunPlan) -> float:
        return max(LEAST_CHECK_SECONDS, CHECK_SHARE * plan.seconds_p95)

    async def _check(self, followed: Followed, now: float) -> None:
        """Forecast a run that has limits; plan the rest again if it has left its plan."""
        followed.next_check = now + self._check_seconds(followed.plan)
        await self._sizing.read_work(followed.plan, self._plans)
        has_limits = followed.plan.deadline_seconds is not None or followed.plan.max_cost is not None
        if has_limits and followed.record is not None and followed.asked is None:
            await self._replan(followed, now, None)

    async def _replan(self, followed: Followed, now: float, reason: str | None) -> None:
        """Have the rest planned beside the loop, and keep the present plan until it is. Without a reason it is planned
        only if the run has left its plan.
        """
        if not self._is_replanning:
            return
        run_id, cost = followed.plan.run_id, self._cost(followed, now)
        now_with = self._sizing.circumstances(followed.plan, followed.planned, cost, now, followed.cap)
        try:
            standing = await self._plans.standing(run_id)
        except EasemlError as error:
            await self._not_planned(followed, reason, error)
            return
        if standing is None:
            return
        self._drop_question(followed)  # the newer one knows more
        question, tenant = (
            Replanning(followed.plan, standing, now_with, reason),
            self._dispatcher.runs[run_id].run.tenant,
        )
        asked = Asked(reason, now, self._answering.ask(tenant, question.answer, PLANNING_SECONDS))
        if asked.pending.done():
            await self._take_plan(followed, asked, now)
        else:
            followed.asked = asked

    @staticmethod
    def _drop_question(followed: Followed) -> None:
        if followed.asked is not None:
            followed.asked.pending.cancel()
            followed.asked = None

    async def _take_plan(self, followed: Followed, asked: Asked, now: float) -> None:
        """Follow and record the new plan; if there is none, keep the present one."""
        followed.asked = None
        try:
            replanned = asked.pending.result()
        except EasemlError as error:
            await self._not_planned(followed, asked.reason, error)
            replanned = None
        if replanned is not None:
            await self._follow_plan(followed, replanned, now)
        spent = self._clock.now_seconds() - asked.seconds
        followed.next_check = max(followed.next_check, now + RESTS * spent)

    async def _not_planned(self, followed: Followed, reason: str | None, error: EasemlError) -> None:
        if reason is not None:
            await self._run_store.note(followed.plan.run_id, None, "planned", f"not planned again: {error}")

    async def _follow_plan(self, followed: Followed, replanned: Replanned, now: float) -> None:
        plan, row = replanned.plan, replanned.row
        followed.plan = plan
        followed.planned = plan.stage_of(followed.keys) or plan.stages[0]
        followed.next_check = now + self._check_seconds(plan)
        await self._lease.write(self._plans.keep(plan.run_id, row))
        slots = ", ".join(str(stage.n_slots) for stage in plan.stages)
        limits = "" if row["is_within_limits"] else "; its limits cannot be kept"
        message = f"{replanned.reason}: {slots} slots for what is left{limits}"
        await self._run_store.note(plan.run_id, None, "planned", message)
        open_run = self._dispatcher.runs.get(plan.run_id)
        if open_run is not None:
            self._tell_costs(open_run, plan)

    async def _count_failures(self, followed: Followed, now: float) -> None:
        """Wait longer after each instance that did not come up; after some, plan around it; after many, give up."""
        run_id = followed.plan.run_id
        failures = self._instances.take_failures(run_id)
        n_up = self._sizing.n_up(run_id)
        if not failures:
            return
        n_failures = self._instances.n_failures(run_id)
        if followed.record is not None:
            followed.record = replace(followed.record, n_failures=followed.record.n_failures + len(failures))
        followed.next_check = now  # replan: the deadline may be at risk
        followed.retry_at = now + INSTANCE_PAUSE.seconds(max(0, n_failures - 1))
        await self._run_store.note(run_id, None, "instance", f"an instance failed: {failures[-1]}")
        if n_failures >= MOST_FAILURES and not n_up:
            await self._arms.fail(run_id, f"no instance comes up: {failures[-1]}")
        elif n_failures >= FAILURES_BEFORE_REPLAN and n_up:
            followed.cap = n_up
            await self._replan(followed, now, f"{n_up} instances are to be had: {failures[-1]}")

    async def _resize(self, followed: Followed, open_run: OpenRun, now: float) -> list[Effect]:
        """Request the instances that the stage lacks, and release those that it does not need."""
        run_id = open_run.run_id
        size = self._sizing.size(followed.plan, followed.planned, followed.keys, followed.n_seen, followed.cap)
        if size.is_short and followed.record is not None and size.n_instances != followed.cap:
            followed.cap = size.n_instances
            await self._replan(followed, now, f"instances to be had now: {size.n_instances}")
        has_stages = followed.planned.key.target_epochs > 0
        self._dispatcher.follow_plan(
            run_id, followed.planned.width, has_reserved_slots=not size.is_shared, has_stages=has_stages
        )
        effects = await self._instances.release(self._sizing.surplus(run_id, size))
        n_missing = self._sizing.n_missing(run_id, size)
        money = (followed.plan.max_cost or math.inf) - self._cost(followed, now)
        n_missing = self._sizing.n_affordable(followed.plan, size.instance_type, n_missing, money)
        if n_missing > 0 and now >= followed.retry_at:
            await self._instances.request(run_id, followed.plan.provisioner, size.instance_type, n_missing)
        if followed.record is not None:
            most = max(followed.record.n_slots, self._sizing.n_slots_up(run_id))
            followed.record = replace(followed.record, n_slots=most)
        return effects
