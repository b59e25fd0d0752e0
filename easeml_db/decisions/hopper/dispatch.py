"""What runs next, as a value that is told what happened: the state of model hopper parallelism without any I/O.

It is a cache of the tables: rebuilt from them at any time, and wrong about nothing that matters, since the unit
itself refuses a step that is not due. Only trials of open arms run; which arm is opened next is the tenancy policy's to
say, when fewer trials are open than slots are in service. Runs are served by the age of their oldest open arm: a later
one fills the slots that older ones leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from easeml_db.decisions.hopper.contract import Placement
from easeml_db.decisions.hopper.estimates import UnitSeconds
from easeml_db.decisions.hopper.open_run import OpenRun
from easeml_db.decisions.hopper.open_runs import OpenRuns
from easeml_db.decisions.hopper.planning import SchedulerChoice
from easeml_db.decisions.hopper.water_filling import WaterFilling
from easeml_db.decisions.trial_groups.measuring import Sample
from easeml_db.words.run import Run
from easeml_db.words.topology import Device, Slot, devices_of
from easeml_db.words.training_unit import TrainingUnit

HOPPING = "hopping"  # the allocation under which a trial has one slot at a time


@dataclass(frozen=True)
class Dispatch:
    """Run this unit of this run on this slot now, for the `attempt`-th time, together with `members`: the further units
    of its gang, each with its slot."""

    unit: TrainingUnit
    run_seed: int
    slot_id: int
    attempt: int
    members: tuple[tuple[TrainingUnit, int], ...] = ()
    measured_seconds: float = 0.0


class Dispatcher:
    """Open runs, idle slots and units under way. A trial is in at most one unit or gang, a slot runs at most one unit.

    An order is told by the slot of its first unit; a gang keeps all its slots busy until it is answered.
    """

    def __init__(self) -> None:
        self._runs = OpenRuns()
        self._busy: dict[int, TrainingUnit] = {}  # by slot
        self._gangs: dict[int, tuple[int, ...]] = {}  # their slots, by the first of them
        self._segments: dict[int, int] = {}  # segment by slot that may get units
        self._slots: dict[int, Slot] = {}  # these slots
        self._cached: dict[int, dict[int, set[int]]] = {}  # partitions by run, by slot with a session
        self._idle: set[int] = set()
        self._absent: set[int] = set()  # slots whose session cannot be opened: no gang waits for them
        self._placements: dict[int, Placement] = {}  # by run; forgotten when slots or runs change
        self._seconds = UnitSeconds()
        self._limits: dict[str, int] = {}  # slots at once, by tenant
        self._limited: set[int] = set()  # runs with a time limit
        self._fillings: dict[int, WaterFilling] = {}  # of the runs that are water-filled

    # Slots

    def keep_slots(self, slots: Iterable[Slot]) -> list[Slot]:
        """Return the slots that need a session: active ones, and draining ones until their unit is answered. Only
        active ones get units, once their session is ready."""
        kept = [s for s in slots if s.state == "active" or (s.state == "draining" and s.slot_id in self._busy)]
        self._slots = {slot.slot_id: slot for slot in kept if slot.state == "active"}
        self._segments = {slot_id: slot.segment_id for slot_id, slot in self._slots.items()}
        for slot_id in set(self._cached) - {slot.slot_id for slot in kept}:
            self.slot_gone(slot_id)
        self._placements.clear()
        return kept

    def slot_ready(self, slot_id: int) -> None:
        """Take in that a slot's session is open; it has nothing cached."""
        self._cached[slot_id] = {}
        self._absent.discard(slot_id)
        self._placements.clear()
        if slot_id not in self._busy:
            self._idle.add(slot_id)

    def slot_gone(self, slot_id: int) -> None:
        """Take in that a slot's session is gone; its unit, if any, is under way until it is answered."""
        self._idle.discard(slot_id)
        self._cached.pop(slot_id, None)
        self._placements.clear()

    def slot_waiting(self, slot_id: int) -> None:
        """Take in that a slot's session cannot be opened for now."""
        self._absent.add(slot_id)

    def is_active(self, slot_id: int) -> bool:
        """Say whether a slot may get units."""
        return slot_id in self._segments

    def limit_slots(self, limits: Mapping[str, int]) -> None:
        """Let no more slots than this work for a tenant at once, from the next unit on."""
        self._limits = dict(limits)
        self._placements.clear()

    def n_in_service(self) -> int:
        """Count the slots that have a session and may get units."""
        return len(self._segments.keys() & self._cached.keys())

    def n_active(self) -> int:
        """Count the slots that may get units, those among them that have no session at this moment."""
        return len(self._segments)

    def n_unclaimed(self) -> int:
        """Count the slots in service for which no open trial is left: with one, an arm is worth opening."""
        claims = self._claims().items()
        return self.n_in_service() - sum(min(n, self._limits.get(owner, n)) for owner, n in claims)

    def is_newcomer_timed(self) -> bool:
        """Say whether a run that was never served is being timed: its turn is next, and not far away."""
        return any(open_run.is_timed_for_its_first_arm() for open_run in self._runs.active())

    def runs_without_claim(self) -> list[int]:
        """Return the runs of which no arm may be opened now: their arms are being timed, their open trials take all the
        slots that hold their partitions, or their tenant's take all that it may have."""
        claims = self._claims()
        timing = [each.run_id for each in self._runs.active() if each.is_timing() or self._is_saturated(each)]
        full = {owner for owner, limit in self._limits.items() if claims.get(owner, 0) >= limit}
        return timing + [open_run.run_id for open_run in self._runs if open_run.run.owner in full] if full else timing

    def _is_saturated(self, open_run: OpenRun) -> bool:
        return open_run.is_saturated(self._placement_of(open_run.run))

    def _claims(self) -> dict[str, int]:
        """Trials of each tenant that run or could run."""
        claims: dict[str, int] = {}
        for open_run in self._runs.active():
            owner = open_run.run.owner
            n_claims = open_run.n_claims(self._placement_of(open_run.run), len(self._crew_candidates()))
            claims[owner] = claims.get(owner, 0) + n_claims
        return claims

    def slots_of(self, run_id: int) -> list[int]:
        """Return the slots that are busy with a run."""
        return [slot_id for slot_id, unit in self._busy.items() if unit.run_id == run_id]

    # Runs

    def put_run(self, run: Run) -> None:
        """Add a run, or renew what is known of it."""
        self._placements.pop(run.run_id, None)
        if run.max_seconds is not None:
            self._limited.add(run.run_id)
        if run.run_id in self._runs:
            self._runs[run.run_id].renew(run)
            self._runs.touch(run.run_id)
        else:
            busy = {unit.trial_id: slot_id for slot_id, unit in self._busy.items() if unit.run_id == run.run_id}
            open_run = OpenRun(run, self._seconds, busy)
            self._runs.put(open_run)
            if open_run.filling is not None:
                self._fillings[run.run_id] = open_run.filling

    def begin_run(self, run_id: int, now_seconds: float) -> bool:
        """Say whether this is the first unit of a queued run; from now on the run counts as running."""
        return self._runs[run_id].begin(now_seconds)

    def open_arm(self, run_id: int, arm_id: int, opening: int) -> None:
        """Let an arm's trials run from now on."""
        self._runs[run_id].open_arm(arm_id, opening)
        self._runs.touch(run_id)

    def time_arms(self, run_id: int, arm_ids: Collection[int]) -> None:
        """Have a trial of each of these arms piloted, before any arm of the run is opened."""
        self._runs[run_id].time_arms(arm_ids)
        self._runs.touch(run_id)

    def arm_seconds(self, run_id: int) -> dict[int, float]:
        """Return what the arms of a run take on one slot, as far as they are timed."""
        return self._runs[run_id].arm_seconds() if run_id in self._runs else {}

    def arms_to_close(self) -> list[tuple[int, int]]:
        """Return (run, arm) of open arms whose trials are all over, each once."""
        return [(each.run_id, arm_id) for each in self._runs.changed() for arm_id in each.arms_to_close()]

    def end_search(self, run_id: int, arm_id: int) -> None:
        """Take in that the procedure inside an arm will start and continue nothing any more."""
        self._runs[run_id].end_search(arm_id)
        self._runs.touch(run_id)

    def not_closed(self, run_id: int, arm_id: int) -> None:
        """Take in that an arm could not be closed yet."""
        if run_id in self._runs:
            self._runs[run_id].not_closed(arm_id)
            self._runs.touch(run_id)

    def done_runs(self) -> list[int]:
        """Return the runs of which nothing is under way or left to do, each once for a change."""
        done = [open_run.run_id for open_run in self._runs.changed() if open_run.is_done()]
        self._runs.settle()
        return done

    def spent_runs(self, now_seconds: float) -> list[int]:
        """Return the runs whose time is up, and that still start units."""
        return [run_id for run_id in self._limited if self._runs[run_id].is_spent(now_seconds)]

    def drop_run(self, run_id: int) -> None:
        """Forget a run: nothing of it starts any more."""
        self._runs.drop(run_id)
        self._placements.pop(run_id, None)
        self._limited.discard(run_id)
        self._fillings.pop(run_id, None)

    def open_runs(self) -> list[Run]:
        """Return the runs that are known to be open."""
        return [open_run.run for open_run in self._runs]

    def is_known(self, run_id: int) -> bool:
        """Say whether a run is open here."""
        return run_id in self._runs

    def end_budget(self, run_id: int) -> None:
        """Start nothing of this run any more; what is under way goes on to its end."""
        self._runs[run_id].end_budget()
        self._runs.touch(run_id)

    def is_over(self, run_id: int) -> bool:
        """Say whether nothing of a run is started any more."""
        return self._runs[run_id].is_over

    def new_plans(self) -> list[SchedulerChoice]:
        """Return the plans made since the last call."""
        return [plan for open_run in self._runs.active() if (plan := open_run.take_choice()) is not None]

    # Water-filling

    def fillings(self) -> dict[int, WaterFilling]:
        """Return, by run, how the devices of those are shared out that are water-filled."""
        return dict(self._fillings)

    def n_open(self, run_id: int) -> int:
        """Count the trials of a run that run or may run."""
        return self._runs[run_id].n_open()

    # Units

    def next_units(self) -> list[Dispatch]:
        """Fill the idle slots, oldest arm first. Slots that a gang waits for stay idle."""
        chosen: list[Dispatch] = []
        taken: set[int] = set()  # slots that older runs work on or wait for
        n_held: Counter[str] = Counter()  # slots that wait for gangs, by tenant
        for open_run in sorted(self._runs.active(), key=lambda each: (each.age(), each.run_id)):
            if not self._idle_but(taken):
                break
            owner = open_run.run.owner
            if open_run.filling is not None:
                chosen += self._next_filled_of(open_run, open_run.filling, taken, n_held)
                continue
            if open_run.run.allocation != HOPPING:
                chosen += self._next_gangs_of(open_run, taken, n_held)
            chosen += self._next_units_of(open_run, self._idle_but(taken)[: self._n_allowed(owner, n_held[owner])])
            taken |= set(self.slots_of(open_run.run_id))
        return chosen

    def _idle_but(self, taken: Collection[int]) -> list[int]:
        return sorted((self._idle & self._segments.keys()).difference(taken))

    def _n_allowed(self, owner: str, n_held: int = 0) -> int | None:
        """Count the slots that may begin to work for a tenant, besides those held for its gangs; None: no limit."""
        if owner not in self._limits:
            return None
        return max(0, self._limits[owner] - len(self._busy_for(owner)) - n_held)

    def _busy_for(self, owner: str) -> set[int]:
        """Return the slots that work for a tenant."""
        runs = self._runs
        return {slot for slot, u in self._busy.items() if u.run_id in runs and runs[u.run_id].run.owner == owner}

    def _next_gangs_of(self, open_run: OpenRun, taken: set[int], n_held: Counter[str]) -> list[Dispatch]:
        """Start gangs whose slots are all idle; take the slots of the others."""
        owner = open_run.run.owner
        slots, allowed = self._crew_slots(open_run, taken), self._n_allowed(owner)
        is_within_limit = allowed is None or len(self._idle.intersection(slots)) <= allowed
        idle = self._idle_but(taken) if is_within_limit else []
        gangs, crews = open_run.choose_gangs(idle, slots, len(self._crew_candidates()))
        begun = [self._begin(open_run, gang.units, gang.slots) for gang in gangs]
        taken |= crews
        n_held[owner] += len(self._idle & crews)
        return begun

    def _next_filled_of(
        self, open_run: OpenRun, filling: WaterFilling, taken: set[int], n_held: Counter[str]
    ) -> list[Dispatch]:
        """Start what a water-filled run has to start; take the slots of devices that a trial has to itself."""
        owner = open_run.run.owner
        own = self._own_slots(open_run.run, taken)
        idle = [slot for slot in self._idle_but(taken) if slot in own][: self._n_allowed(owner, n_held[owner])]
        gangs = open_run.choose_filled(idle, self._placement_of(open_run.run))
        begun = [self._begin(open_run, gang.units, gang.slots) for gang in gangs]
        held = filling.held_slots()
        taken |= held | set(self.slots_of(open_run.run_id))
        n_held[owner] += len(self._idle & held)
        return begun

    def _crew_slots(self, open_run: OpenRun, taken: Collection[int]) -> list[int]:
        """Return the slots that a run's gangs may have, idle or not, as many as its tenant may have. They are first
        those that work for the tenant, on younger runs perhaps: then they are waited for."""
        free = self._crew_candidates().difference(taken)
        owner = open_run.run.owner
        if owner not in self._limits:
            return sorted(free)
        busy = self._busy_for(owner)
        n_left = max(0, self._limits[owner] - len(busy.intersection(taken)))
        return sorted(sorted(free, key=lambda slot: (slot not in busy, slot))[:n_left])

    def _crew_candidates(self) -> set[int]:
        """Return the slots that work, and those whose session is just being opened: gangs wait for them, so that a slot
        that was lost for a moment does not change who trains what."""
        return self._segments.keys() - self._absent

    def _next_units_of(self, open_run: OpenRun, idle: list[int]) -> list[Dispatch]:
        run = open_run.run
        if not idle:
            return []
        cached = {slot: self._cached[slot].get(run.run_id, ()) for slot in idle}
        units = open_run.choose(idle, self._placement_of(run), cached)
        return [self._begin(open_run, (unit,), (slot_id,)) for unit, slot_id in units]

    def _begin(self, open_run: OpenRun, units: Sequence[TrainingUnit], slots: Sequence[int]) -> Dispatch:
        """Take in that a unit or a gang begins."""
        for unit, slot_id in zip(units, slots, strict=True):
            self._idle.discard(slot_id)
            self._busy[slot_id] = unit
            self._cached[slot_id].setdefault(unit.run_id, set()).add(unit.partition_number)
        if len(slots) > 1:
            self._gangs[slots[0]] = tuple(slots)
        members = tuple(zip(units, slots, strict=True))[1:]
        trial_id = units[0].trial_id
        attempt, measured_seconds = open_run.attempt(trial_id), open_run.measured_seconds(trial_id)
        return Dispatch(units[0], open_run.run.seed, slots[0], attempt, members, measured_seconds)

    def _placement_of(self, run: Run) -> Placement:
        if run.run_id not in self._placements:
            self._placements[run.run_id] = self._placed(run)
        return self._placements[run.run_id]

    def _placed(self, run: Run, taken: Collection[int] = ()) -> Placement:
        in_service = {slot: segment for slot, segment in self._segments.items() if slot in self._cached}
        devices = self._devices_for(run, taken) if run.is_water_filled else ()
        return Placement(run.trials[0].n_partitions, in_service, run.holders, devices)

    def _devices_for(self, run: Run, taken: Collection[int]) -> tuple[Device, ...]:
        """Devices of the slots in service; of a tenant with a limit, those of as many slots as it may have: where it
        works already, then what is idle."""
        slots = sorted(self._slots.keys() & self._cached.keys())
        if run.owner in self._limits:
            working, idle = self._busy_for(run.owner), self._idle.difference(taken)
            slots.sort(key=lambda slot: (slot not in working, slot not in idle, slot))
            slots = slots[: self._limits[run.owner]]
        return tuple(devices_of(self._slots[slot_id] for slot_id in slots))

    def _own_slots(self, run: Run, taken: Collection[int]) -> set[int]:
        """Return the slots of a run's devices; others are chosen where older runs have come to take all of these."""
        slots = {slot for device in self._placement_of(run).devices for slot in device.slot_ids}
        if slots.issubset(taken) and run.owner in self._limits:
            self._placements[run.run_id] = self._placed(run, taken)
            slots = {slot for device in self._placements[run.run_id].devices for slot in device.slot_ids}
        return slots

    def recorded(self, slot_id: int, seconds: float) -> None:
        """Take in that the slot's unit is recorded, and all its gang."""
        others = [self._busy[other] for other in self._gangs.get(slot_id, ())[1:]]
        unit, open_run = self._answered(slot_id)
        if open_run is not None:
            open_run.recorded(unit, seconds, others)
            self._runs.touch(unit.run_id)

    def piloted(
        self, slot_id: int, train_seconds: float, evaluate_seconds: float, sample: Sample | None = None
    ) -> None:
        """Take in what the slot's pilot has found out."""
        unit, open_run = self._answered(slot_id)
        if open_run is not None:
            open_run.piloted(unit.trial_id, train_seconds, evaluate_seconds, sample)
            self._runs.touch(unit.run_id)

    def lost(self, slot_id: int) -> None:
        """Take in that the slot's unit came to nothing with a session; its trial is offered again. Its slots get no
        unit until they are ready again."""
        slots = self._gangs.get(slot_id, (slot_id,))
        self.refused(slot_id)
        for each in slots:
            self.slot_gone(each)

    def refused(self, slot_id: int, *, is_counted: bool = True) -> None:
        """Take in that the slot's unit came to nothing; its trial is offered again."""
        unit, open_run = self._answered(slot_id)
        if open_run is not None:
            open_run.came_to_nothing(unit.trial_id, slot_id, is_counted=is_counted)
            self._runs.touch(unit.run_id)

    def n_attempts(self, run_id: int, trial_id: int) -> int:
        """Return how often the trial's next unit came to nothing; 0 for a trial that is not open."""
        return self._runs[run_id].n_attempts(trial_id) if run_id in self._runs else 0

    def failed(self, slot_id: int) -> None:
        """Take in that the slot's unit ended its trial."""
        unit, _ = self._answered(slot_id)
        self.drop_trial(unit.run_id, unit.trial_id)

    def drop_trial(self, run_id: int, trial_id: int) -> None:
        """Start nothing of a trial any more."""
        if run_id in self._runs:
            self._runs[run_id].drop(trial_id)
            self._runs.touch(run_id)

    def _answered(self, slot_id: int) -> tuple[TrainingUnit, OpenRun | None]:
        """Free a slot, and those of its gang; return its unit, and the unit's run if that is still open."""
        unit = self._busy[slot_id]
        for each in self._gangs.pop(slot_id, (slot_id,)):
            del self._busy[each]
            if each in self._cached:
                self._idle.add(each)
        open_run = self._runs.get(unit.run_id)
        if open_run is not None:
            open_run.answered(unit.trial_id)
        return unit, open_run
