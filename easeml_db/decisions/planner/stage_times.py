"""The duration of a stage on a number of slots of a device, and the slot seconds during which something trains there.

With at least as many slots as trials, all train at once, and the last one ends the stage. With fewer slots and hopping,
the scheduler keeps all slots at work until the units run out, as long as no trial is left alone (tests compare with the
real scheduler); so the stage takes its work divided by its slots, rounded up to whole units, or its longest trial if
that is longer. With fewer slots and no hopping, trial j follows trial j - slots on the same slot. Where trials follow
from others (`Stage.turns`), each turn takes its work over the slots, or an epoch if that is longer. Where the next
bracket begins meanwhile, no slot is idle: such a stage takes its work over its slots, and the plan no less than its
trials one after another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from easeml_db.decisions.planner.draws import Draws
from easeml_db.decisions.planner.job import Job, Load, TrialProfile, Vector, noise
from easeml_db.decisions.planner.prices import InstanceType


class StageTime(NamedTuple):
    """Seconds until what follows has all the slots, slot seconds of work, and seconds until the last trial ends, all of
    shape (samples,). The first and the last differ where the stages that follow begin meanwhile."""

    seconds: Vector
    busy_seconds: Vector
    longest_seconds: Vector


class _Trials(NamedTuple):
    """Of each trial of a stage, in each of its alternatives: architecture (-1: no trial), epochs to do, epochs done
    before, and tests."""

    kinds: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    epochs: Vector
    before: Vector
    tests: Vector


class _TrialTimes(NamedTuple):
    """Times of trials with a number of slots each: seconds of shape (samples, trials); and of shape (samples,) the
    longest trial, the slot seconds of work without and with the waits between units, and the mean of a unit.
    """

    seconds: Vector
    longest: Vector
    busy: Vector
    taken: Vector
    unit: Vector


class StageTimes:
    """Stage times of one job, each found once."""

    def __init__(self, job: Job, draws: Draws) -> None:
        self._job, self._draws = job, draws
        self._architectures = job.architectures
        self._trials = [self._trials_of(number) for number in range(len(job.stages))]
        self._found: dict[tuple[int, str, float, int], StageTime] = {}
        self._by_width: dict[tuple[int, str, float, int], _TrialTimes] = {}
        self._factors: dict[tuple[int, str], Vector] = {}
        self._kinds = [[int(kind) for kind in np.unique(trials.kinds) if kind >= 0] for trials in self._trials]

    def of(self, stage: int, instance: InstanceType, n_slots: int) -> StageTime:
        """Return the times of a stage on a number of slots."""
        key = stage, instance.device_kind, instance.speed, n_slots
        if key not in self._found:
            self._found[key] = self._time(stage, instance, n_slots)
        return self._found[key]

    def max_width(self, stage: int, instance: InstanceType) -> int:
        """Return the slots beyond which no trial of a stage gets faster."""
        return max(profile.max_width for _, profile in self._profiles(stage, instance.device_kind))

    def session_seconds(self, stage: int, instance: InstanceType) -> float:
        """Return the seconds until a slot that starts for a stage can train whichever of its trials."""
        return max(profile.session_seconds for _, profile in self._profiles(stage, instance.device_kind))

    def _trials_of(self, number: int) -> _Trials:
        stage = self._job.stages[number]
        listed = [self._listed(loads) for loads in stage.alternatives or (stage.loads,)]
        shape = len(listed), stage.n_trials
        kinds, (epochs, before, tests) = np.full(shape, -1), np.zeros((3, *shape))
        for place, loads in enumerate(listed):
            kinds[place, : len(loads)] = [self._architectures.index(load.architecture) for load in loads]
            epochs[place, : len(loads)] = [load.n_epochs for load in loads]
            before[place, : len(loads)] = [load.n_before for load in loads]
            tests[place, : len(loads)] = [load.is_tested for load in loads]
        # Alternatives are dealt to the samples in turn, not drawn: each counts equally often.
        rows = np.arange(self._draws.n_samples) % len(listed) if len(listed) > 1 else np.zeros(1, int)
        return _Trials(kinds[rows], epochs[rows], before[rows], tests[rows])

    def _listed(self, loads: tuple[Load, ...]) -> list[Load]:
        """Return the load of each trial; those of different loads alternate, as they are started."""
        listed = [load for load in loads for _ in range(load.n_trials)]
        places = [(k + 0.5) / load.n_trials for load in loads for k in range(load.n_trials)]
        return [listed[k] for k in np.argsort(places, kind="stable")]

    def _time(self, stage: int, instance: InstanceType, n_slots: int) -> StageTime:
        n_trials = self._job.stages[stage].n_trials
        if self._job.stages[stage].turns:
            return self._in_turns(stage, instance, n_slots)
        is_overlapped = self._job.stages[stage].is_overlapped and self._job.is_hopping
        # As in the paper, a_i >= n trials get floor(a_i / n) slots each, and the rest is idle.
        trials = self._at_width(stage, instance, 1 if is_overlapped else max(1, n_slots // n_trials))
        work = trials.taken / n_slots
        if is_overlapped:
            return StageTime(work, trials.busy, np.maximum(trials.longest, work))
        if n_slots >= n_trials:
            return StageTime(trials.longest, trials.busy, trials.longest)
        if not self._job.is_hopping:
            seconds = _chained(trials.seconds, n_slots)
            return StageTime(seconds, trials.busy, seconds)
        n_units = work / trials.unit
        # 1e-9: rounding must not turn a whole number of units into one unit more.
        seconds = np.maximum(trials.longest, work + (np.ceil(n_units - 1e-9) - n_units) * trials.unit)
        return StageTime(seconds, trials.busy, seconds)

    def _in_turns(self, stage: int, instance: InstanceType, n_slots: int) -> StageTime:
        """Return the times of trials that follow from others, each on one slot."""
        trials, epochs = self._at_width(stage, instance, 1), self._trials[stage].epochs.sum(axis=1)
        alternatives = self._job.stages[stage].turns
        spans = [sum(n * max(1.0, k / n_slots) for k, n in turns.items()) for turns in alternatives]
        span = np.array(spans)[np.arange(self._draws.n_samples) % len(spans)]
        seconds = np.maximum(trials.longest, trials.taken / epochs * span)
        return StageTime(seconds, trials.busy, seconds)

    def _at_width(self, stage: int, instance: InstanceType, n_slots: int) -> _TrialTimes:
        key = stage, instance.device_kind, instance.speed, n_slots
        if key not in self._by_width:
            self._by_width[key] = self._trial_times(stage, instance, n_slots)
        return self._by_width[key]

    def _trial_times(self, stage: int, instance: InstanceType, n_slots: int) -> _TrialTimes:
        kinds, epochs, before, tests = self._trials[stage]
        means, widths, restore, n_units, waits = np.zeros((5, *epochs.shape))
        for kind, profile in self._profiles(stage, instance.device_kind):
            mine = kinds == kind
            first_epochs = profile.first_epochs(epochs[mine], before[mine], tests[mine])
            means[mine] = profile.seconds(n_slots) / instance.speed * first_epochs
            widths[mine] = profile.width(n_slots)
            n_units[mine] = profile.units_per_epoch * (epochs[mine] + profile.test_epochs * tests[mine])
            restore[mine] = profile.restore_seconds if self._job.stages[stage].is_continued else 0.0
            waits[mine] = profile.waits(n_slots) * (2 * epochs[mine] + tests[mine])  # an epoch trains and validates
        seconds = means * self._speed_factors(stage, instance.device_kind)
        unit = (seconds + waits).sum(axis=1) / np.maximum(n_units.sum(axis=1), 1e-12)
        working = seconds + restore
        seconds = working + waits
        busy, taken = (working * widths).sum(axis=1), (seconds * widths).sum(axis=1)
        return _TrialTimes(seconds, seconds.max(axis=1), busy, taken, unit)

    def _speed_factors(self, stage: int, device_kind: str) -> Vector:
        """Return by which factor each trial's epochs differ from their mean, shape (samples, trials)."""
        key = stage, device_kind
        if key not in self._factors:
            kinds, epochs = self._trials[stage][:2]
            one, all_, common = np.zeros(epochs.shape), np.zeros(epochs.shape), np.zeros(epochs.shape)
            for kind, profile in self._profiles(stage, device_kind):
                mine = kinds == kind
                one[mine], all_[mine], common[mine] = profile.spread, profile.trial_spread, profile.uncertainty
            # Over a trial's epochs their own noise averages out; what sets the trial apart does not.
            spread = np.sqrt(one**2 / np.maximum(epochs, 1.0) + all_**2)
            factors = noise(spread, self._draws.trials(stage))
            # The error of the mean is one draw for all trials of a sample: it does not average out over a stage.
            self._factors[key] = factors * noise(common, self._draws.common[:, None])
        return self._factors[key]

    def _profiles(self, stage: int, device_kind: str) -> list[tuple[int, TrialProfile]]:
        return [(kind, self._job.profile(self._architectures[kind], device_kind)) for kind in self._kinds[stage]]


def _chained(seconds: Vector, n_slots: int) -> Vector:
    """Return when the last slot ends, each with every n_slots-th trial, shape (samples,)."""
    n_samples, n_trials = seconds.shape
    n_rounds = -(-n_trials // n_slots)
    padded = np.zeros((n_samples, n_rounds * n_slots))
    padded[:, :n_trials] = seconds
    ends: Vector = padded.reshape(n_samples, n_rounds, n_slots).sum(axis=1).max(axis=1)
    return ends
