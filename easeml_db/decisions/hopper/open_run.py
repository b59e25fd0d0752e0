"""One open run as the hopper sees it: its idle trials, what is known of their times, and the scheduler that serves it.

A run whose scheduler compares or plans begins with pilots: each trial trains a few mini-batches, timed and thrown
away. Then the scheduler is made, on the times known and the slots in service; it is made again when either changes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from easeml_db.decisions.hopper.attempts import Attempts
from easeml_db.decisions.hopper.contract import Assignment, Cached, Candidate, Placement, Scheduler
from easeml_db.decisions.hopper.crewing import Crewing, able
from easeml_db.decisions.hopper.device_profiler import Start
from easeml_db.decisions.hopper.estimates import ObservedUnit, UnitSeconds
from easeml_db.decisions.hopper.gangs import Gang, gang_of, gangs_to_start
from easeml_db.decisions.hopper.open_arms import OpenArms
from easeml_db.decisions.hopper.pilots import pilots_on, slots_for
from easeml_db.decisions.hopper.planning import PILOTED, Planning, SchedulerChoice, asked_scheduler
from easeml_db.decisions.hopper.schedulers import MAX_SIMULATED_UNITS
from easeml_db.decisions.hopper.water_filling import WaterFilling
from easeml_db.decisions.trial_groups.measuring import Sample
from easeml_db.errors import InvalidArgument
from easeml_db.words.run import Run
from easeml_db.words.training_unit import PILOT, TrainingUnit, after, next_unit, open_partitions, round_number
from easeml_db.words.trial import Trial


class OpenRun:
    """The open trials of one run. A trial is idle or in one unit; `choose` turns idle trials into units."""

    def __init__(self, run: Run, seconds: UnitSeconds, busy: Mapping[int, int] | None = None) -> None:
        self.run = run
        self.is_over = False
        self._seconds = seconds
        self._arms = OpenArms(run)
        self._ended_searches: set[int] = set()  # arms
        self._trials = self._arms.trials()
        self._busy = dict(busy or {})  # slot by trial
        self._attempts = Attempts()
        self._placement: Placement | None = None
        self._scheduler: Scheduler | None = None
        self._planning = Planning()
        self.filling = WaterFilling(run, seconds) if run.is_water_filled else None
        self._measured_seconds: dict[int, float] = {}  # by trial, of pilots that measure
        self._to_pilot = self._unpiloted()
        self._timing: dict[int, Trial] = {}  # trials of arms that are not open, whose pilots are wanted
        self._n_to_come = self._arms.n_to_come()  # trials of arms that are not open
        self._crewing = Crewing(seconds)
        for trial in run.trials:
            if trial.pilot_train_seconds is not None and trial.pilot_evaluate_seconds is not None:
                seconds.pilot(trial.trial_id, trial.pilot_train_seconds, trial.pilot_evaluate_seconds)

    # What is known of it

    @property
    def run_id(self) -> int:
        """The run's number."""
        return self.run.run_id

    def is_done(self) -> bool:
        """Say whether nothing is under way or left to do; an arm that is not open yet is left to do."""
        return not self._busy and (self.is_over or (not self._trials and self._arms.is_complete()))

    def n_open(self) -> int:
        """Count the trials that run or may run."""
        return len(self._trials)

    def has_work(self) -> bool:
        """Say whether trials run, may run, or want a pilot."""
        return bool(self._trials or self._timing or self._busy)

    def n_claims(self, placement: Placement, n_crew_slots: int = 0) -> int:
        """Count the slots in service that the trials of open arms could have at once; of `n_crew_slots` gangs could
        have any."""
        if self.is_over:
            return 0
        if self._is_parallel(n_crew_slots):
            return min(len(placement.slots), len(self._trials) * placement.n_partitions)
        if placement.holders is None:
            return len(self._trials)
        met = {q for trial in self._trials.values() for q in open_partitions(trial)}
        return min(len(self._trials), len(slots_for(met, placement)))

    def is_saturated(self, placement: Placement) -> bool:
        """Say whether another arm would find no slot: bound partitions have fewer slots than trials are open."""
        if placement.holders is None:
            return False
        return len(self._trials) >= len(slots_for(range(placement.n_partitions), placement))

    def age(self) -> int:
        """Return the number of the oldest opening that still has trials; runs are served in this order."""
        return self._arms.age(self._trials)

    def slots(self) -> list[int]:
        """Return the slots that are busy with this run."""
        return sorted(self._busy.values())

    def n_attempts(self, trial_id: int) -> int:
        """Return how often the trial's next unit came to nothing; 0 for a trial that is not open."""
        return self._attempts.count(trial_id)

    # What happens to it

    def renew(self, run: Run) -> None:
        """Take over what the tables say. Failed attempts at a unit that is still due stay counted."""
        before, self.run = self._trials | self._timing, run
        if self.filling is not None:
            self.filling.set_architectures(run.architectures)
        self._arms = OpenArms(run)
        self._arms.end_searches(self._ended_searches)
        self._trials = self._arms.trials()
        for trial_id in self._attempts:
            known, now = before.get(trial_id), (self._trials | self._timing).get(trial_id)
            if known is None or now is None or known.n_steps_done != now.n_steps_done:
                self._attempts.forget(trial_id)
        self._scheduler = None
        self._to_pilot = self._unpiloted()
        self._n_to_come = self._arms.n_to_come()

    def open_arm(self, arm_id: int, opening: int) -> None:
        """Let an arm's trials run from now on."""
        self._trials |= self._arms.open(arm_id, opening)
        self._forget_plan()
        self._to_pilot = self._unpiloted()
        self._n_to_come = self._arms.n_to_come()

    def time_arms(self, arm_ids: Collection[int]) -> None:
        """Have a trial of each of these arms piloted before any arm is opened, to know what the arm costs."""
        firsts = self._arms.first_trials(arm_ids)
        self._timing = {trial.trial_id: trial for trial in firsts if self._is_untimed(trial)}

    def is_timing(self) -> bool:
        """Say whether arms are being timed."""
        return bool(self._timing)

    def is_timed_for_its_first_arm(self) -> bool:
        """Say whether a pilot is under way after which the run is to be served for the first time."""
        return self._arms.is_fresh() and any(trial_id in self._busy for trial_id in self._timing)

    def arm_seconds(self) -> dict[int, float]:
        """Return what each arm takes on one slot, for its whole life, where one of its trials has been timed."""
        timed = [trial for trial in self.run.trials if self._seconds.is_timed(trial.trial_id)]
        return self._arms.totals(
            {
                trial.trial_id: self._seconds.remaining(
                    replace(trial, n_steps_done=0, target_epochs=None), self.run.architectures[trial.trial_id]
                )
                for trial in timed
            }
        )

    def end_search(self, arm_id: int) -> None:
        """Take in that the procedure inside an arm will start and continue nothing any more."""
        self._ended_searches.add(arm_id)
        self._arms.end_searches([arm_id])

    def not_closed(self, arm_id: int) -> None:
        """Take in that an arm could not be closed yet: it is offered for that again."""
        self._arms.not_closed(arm_id)

    def arms_to_close(self) -> list[int]:
        """Return the open arms whose trials are all over, and count them as closed."""
        return self._arms.close_all_but((*self._trials, *self._busy))

    def begin(self, now_seconds: float) -> bool:
        """Say whether this is the first unit of a queued run; from now on the run counts as running."""
        if self.run.state != "queued":
            return False
        started = now_seconds if self.run.started_seconds is None else self.run.started_seconds
        self.run = replace(self.run, state="running", started_seconds=started)
        return True

    def is_spent(self, now_seconds: float) -> bool:
        """Say whether the time of the run is up, and units are still started."""
        limit, started = self.run.max_seconds, self.run.started_seconds
        return not self.is_over and limit is not None and started is not None and now_seconds >= started + limit

    def take_choice(self) -> SchedulerChoice | None:
        """Return the plan made since the last call, if any."""
        return self._planning.take_choice()

    def recorded(self, unit: TrainingUnit, seconds: float, others: Sequence[TrainingUnit] = ()) -> None:
        """Take in that a unit is recorded, and with it the others of its gang."""
        self._attempts.forget(unit.trial_id)
        architecture = self.run.architectures[unit.trial_id]
        if self.filling is not None:
            seconds = self.filling.alone_seconds(unit.trial_id, seconds, n_units=1 + len(others))
            self.filling.recorded(unit.trial_id)
        if self.filling is not None or not others:
            self._seconds.observe(ObservedUnit(unit.trial_id, architecture, unit.kind, seconds))
        elif unit.kind == "train":
            self._crewing.scaling.observe(architecture, 1 + len(others), seconds)
        trial = self._trials.get(unit.trial_id)
        if trial is None:
            return
        moved = after(trial, unit)
        for other in others:
            moved = after(moved, other)
        if next_unit(moved) is None:
            self.drop(unit.trial_id)
        else:
            self._trials[unit.trial_id] = moved
            self._offer(moved)

    def piloted(
        self, trial_id: int, train_seconds: float, evaluate_seconds: float, sample: Sample | None = None
    ) -> None:
        """Take in how long a trial's units are going to take; `sample`: and what the pilot measured."""
        if self._measured_seconds.get(trial_id):
            measured = sample or Sample(trial_id, (), 0)
            self._pilot_over(trial_id, replace(measured, unit_seconds=train_seconds))
            if sample is None:  # of a gang, not of a unit
                return
        self._attempts.forget(trial_id)
        self._timing.pop(trial_id, None)
        self._seconds.pilot(trial_id, train_seconds, evaluate_seconds)

    def came_to_nothing(self, trial_id: int, slot_id: int, *, is_counted: bool) -> None:
        """Take in that a trial's unit was lost or refused: it is offered again, on another slot first."""
        self._pilot_over(trial_id, None)
        trial = self._trials.get(trial_id) or self._timing.get(trial_id)
        if trial is None:
            return
        if is_counted:
            self._attempts.failed(trial_id, slot_id)
        if trial_id in self._trials:
            self._offer(trial)

    def _pilot_over(self, trial_id: int, sample: Sample | None) -> None:
        if self._measured_seconds.pop(trial_id, 0.0) and self.filling is not None:
            self.filling.pilot_over(trial_id, sample)

    def drop(self, trial_id: int) -> None:
        """Start nothing of a trial any more."""
        self._pilot_over(trial_id, None)
        self._trials.pop(trial_id, None)
        self._timing.pop(trial_id, None)
        self._attempts.forget(trial_id)
        if self._scheduler is not None:
            self._scheduler.take(trial_id)

    def answered(self, trial_id: int) -> None:
        """Take in that a trial's unit is over; the caller then says what came of it."""
        self._busy.pop(trial_id, None)

    def end_budget(self) -> None:
        """Start nothing any more; what is under way goes on to its end."""
        self.is_over = True

    # What runs next

    def choose(self, idle_slots: Sequence[int], placement: Placement, cached: Cached) -> list[tuple[TrainingUnit, int]]:
        """Return units to start now, each with its slot."""
        if self.is_over or not (self._trials or self._timing):
            return []
        if self._crewing.has_crews and all(self._in_gangs(trial_id) for trial_id in self._trials):
            return []
        if self._placement is not placement:
            self._placement = placement
            self._forget_plan()
        if self._timing or (self._scheduler is None and self._is_piloted()):
            chosen = self._pilots(idle_slots, placement)
        else:
            chosen = self._units(idle_slots, cached)
        for unit, slot in chosen:
            self._busy[unit.trial_id] = slot
        return chosen

    def choose_gangs(
        self, idle_slots: Collection[int], crew_slots: Sequence[int], n_crew_slots: int
    ) -> tuple[list[Gang], frozenset[int]]:
        """Return gangs to start now, and the slots of all crews: those that are idle are held back for gangs to come.

        `crew_slots` are those that the run may have, whether they are idle by now or not, of the `n_crew_slots` that
        work. What is not trained in gangs is left to `choose`.
        """
        is_timing = self._timing or (self.run.allocation == "auto" and self._is_piloted())
        has_crews = not self.is_over and not is_timing and self._is_parallel(n_crew_slots)
        if has_crews != self._crewing.has_crews:
            self._crewing.has_crews, self._scheduler = has_crews, None
        if not has_crews:
            return [], frozenset()
        crews = self._crewing.crews_on(self.run, self._trials.values(), crew_slots, self._attempts)
        idle_trials = [self._trials[trial_id] for trial_id in crews if trial_id not in self._busy]
        gangs = gangs_to_start(idle_trials, crews, idle_slots)
        for gang in gangs:
            self._busy[gang.units[0].trial_id] = gang.slots[0]
        return gangs, frozenset(slot for crew in crews.values() for slot in crew)

    def choose_filled(self, idle_slots: Sequence[int], placement: Placement) -> list[Gang]:
        """Return what to start now where devices follow the work that trials have left; the first unit tells the
        trial."""
        if self.filling is None or self.is_over or not (self._trials or self._timing):
            return []
        if self._timing or self._is_piloted():
            gangs = [Gang((unit,), (slot,)) for unit, slot in self._pilots(idle_slots, placement)]
        else:
            starts = self.filling.choose(self._trials, self._busy, idle_slots, placement.devices, self._attempts)
            gangs = [gang for start in starts if (gang := self._gang_of(start)) is not None]
        for gang in gangs:
            self._busy[gang.units[0].trial_id] = gang.slots[0]
        return gangs

    def _gang_of(self, start: Start) -> Gang | None:
        """The units of a start. A trial whose gangs came to nothing too often goes on with one slot."""
        trial_id, slots = start.trial_id, start.slot_ids
        gang = gang_of(self._trials[trial_id], able(trial_id, slots, self._attempts))
        if not start.measured_seconds or self.filling is None:
            return gang
        if gang is None or len(gang.units) < len(slots):  # too few partitions are left in its round
            self.filling.pilot_over(trial_id, None)
            return None
        self._measured_seconds[trial_id] = start.measured_seconds
        return Gang(tuple(replace(unit, kind=PILOT) for unit in gang.units), gang.slots)

    def measured_seconds(self, trial_id: int) -> float:
        """Return how long the pilot of a trial that is under way measures; 0 for one that does not."""
        return self._measured_seconds.get(trial_id, 0.0)

    def attempt(self, trial_id: int) -> int:
        """Return which attempt at its unit a trial's next one is, from 1."""
        return self.n_attempts(trial_id) + 1

    def _is_parallel(self, n_slots: int) -> bool:
        """Say whether trials of the run have several slots at once, as far as their architecture can."""
        n_trials = len(self._trials) + self._n_to_come
        return self._crewing.is_parallel(self.run, self._trials, n_trials, n_slots)

    def _in_gangs(self, trial_id: int) -> bool:
        """Say whether a trial is started in gangs only."""
        return self._crewing.is_in_gangs(self.run, trial_id)

    def _unpiloted(self) -> deque[int]:
        """Return the trials that may want a pilot; none where no times are needed, or too many would be planned."""
        is_wanted = asked_scheduler(self.run) in PILOTED or (self.filling is not None and self.run.search is None)
        if not is_wanted or _n_units(self._trials.values()) > MAX_SIMULATED_UNITS:
            return deque()
        return deque(self._trials)

    def _is_piloted(self) -> bool:
        """Say whether pilots are wanted and not all are answered. Whoever has run a unit needs none."""
        while self._to_pilot and not self._wants_pilot(self._to_pilot[0]):
            self._to_pilot.popleft()
        return bool(self._to_pilot)

    def _wants_pilot(self, trial_id: int) -> bool:
        trial = self._trials.get(trial_id) or self._timing.get(trial_id)
        return trial is not None and not self._in_gangs(trial_id) and self._is_untimed(trial)

    def _is_untimed(self, trial: Trial) -> bool:
        return trial.n_steps_done == 0 and not self._seconds.is_timed(trial.trial_id)

    def _pilots(self, idle_slots: Sequence[int], placement: Placement) -> list[tuple[TrainingUnit, int]]:
        """Give slots trials that want a pilot, of arms that are timed first."""
        wanted = (t for t in self._timing or self._to_pilot if t not in self._busy and self._wants_pilot(t))
        trials = (self._trials.get(trial_id) or self._timing[trial_id] for trial_id in wanted)
        return list(pilots_on(trials, idle_slots, placement, self._attempts))

    def _units(self, idle_slots: Sequence[int], cached: Cached) -> list[tuple[TrainingUnit, int]]:
        """Ask the scheduler."""
        if self._attempts:
            assignments = self._apart(idle_slots, cached)
        else:
            assignments = self._scheduler_in_service().choose(idle_slots, cached)
        return [(self._unit_of(assignment), assignment.slot_id) for assignment in assignments]

    def _apart(self, idle_slots: Sequence[int], cached: Cached) -> list[Assignment]:
        """Ask slot by slot, and keep from each the trials that came to nothing there and could go elsewhere."""
        scheduler = self._scheduler_in_service()
        chosen: dict[int, Assignment] = {}
        for slot in idle_slots:
            withheld = [
                t for t in self._attempts if t not in chosen and t not in self._busy and self._is_avoided(t, slot)
            ]
            for trial_id in withheld:
                scheduler.take(trial_id)
            chosen |= {assignment.trial_id: assignment for assignment in scheduler.choose([slot], cached)}
            for trial_id in withheld:
                self._offer(self._trials[trial_id])
        return list(chosen.values())

    def _is_avoided(self, trial_id: int, slot: int) -> bool:
        """Say whether a trial came to nothing on this slot and another one could run its next unit."""
        if self._attempts.avoided(trial_id) != slot or self._placement is None:
            return False
        others = [other for other in self._placement.slots if other != slot]
        partitions = open_partitions(self._trials[trial_id])
        return any(self._placement.can_run(other, q) for other in others for q in partitions)

    def _unit_of(self, assignment: Assignment) -> TrainingUnit:
        unit = next_unit(self._trials[assignment.trial_id], assignment.partition_number)
        if unit is None:
            raise InvalidArgument(f"trial {assignment.trial_id} has no unit left")
        return unit

    def _offer(self, trial: Trial) -> None:
        """Tell the scheduler that a trial is idle."""
        if self._scheduler is None or trial.trial_id in self._busy or self._in_gangs(trial.trial_id):
            return
        # A trial that was not timed yet goes first: the longest one should not be found out last.
        architecture = self.run.architectures[trial.trial_id]
        is_timed = self._seconds.is_timed(trial.trial_id)
        is_estimated = is_timed or self.run.search is not None  # trials that come on the way must not go before others
        remaining = self._seconds.remaining(trial, architecture) if is_estimated else math.inf
        partitions, rounds = open_partitions(trial), round_number(trial)
        number, rank = trial.trial_number, trial.bracket
        self._scheduler.put(Candidate(trial.trial_id, number, rounds, partitions, remaining, rank))

    # Planning

    def _forget_plan(self) -> None:
        """Choose a scheduler anew the next time."""
        self._scheduler = None
        self._planning.forget()

    def _scheduler_in_service(self) -> Scheduler:
        if self._placement is None:
            raise InvalidArgument("a run is planned for slots in service")
        if self._scheduler is None:
            self._scheduler = self._planning.scheduler(self.run, self._trials, self._seconds, self._placement)
            for trial in self._trials.values():
                self._offer(trial)
        return self._scheduler


def _n_units(trials: Iterable[Trial]) -> int:
    return sum(trial.n_partitions * trial.max_epochs for trial in trials)
