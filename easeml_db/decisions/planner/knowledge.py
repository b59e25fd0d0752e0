"""Known durations of trials, from recorded units and from measurements of devices.

The most specific knowledge counts: trials of the architecture on this dataset, else those on the tenant's other
datasets, scaled by the number of rows. For a width beyond 1, gangs that trained that wide count, else the speed-ups
that a run with water-filling measured: of the architecture, else of another one on the same kind of device. A note
names what was not measured.

    trials     for each trial and width {"architecture", "device_kind", "n_slots", "is_same", "scale", "epoch_seconds",
               "sd_seconds", "n_epochs", "test_seconds", "run_id", "mean_epoch", "growth_seconds", "is_batched",
               "tested_seconds", "tested_epoch", "reading_seconds"};
               `scale`: rows of this dataset by rows of the trial's; `is_same`: on this one; mean_epoch: of the epochs
               that were timed, each of which took growth_seconds longer than the one before it; is_batched: its epochs
               are its share of batches of trials, which take less than the same trials one by one; tested_seconds: of
               its test after tested_epoch epochs, null where it has none; reading_seconds: by which the
               first unit of a slot on a partition took longer than others do, which epoch_seconds leaves out; null
               where the trial had none of these
    speedups   [{"architecture", "device_kind", "is_same", "speedups", "restore_seconds"}]
    whole      architectures whose trials take all partitions in one unit
    joint      architectures that can train on several slots at once
    growing    architectures whose epochs take longer the more there were
    starts     {device_kind: {"session" or a trainer's name: seconds}}: to open the session of a slot, and to import
               in it what trials of that trainer need
    trainers   {architecture: its trainer}
    turn_seconds  {architecture: how long a slot waits before a unit of it}: for the commit of the one before, the
               coordinator and the call
    margin_seconds  from the call of a run to its first unit, and from its last unit to its end
    adds_slots  whether a planned run on this server gets slots whose sessions are opened for it
    n_partitions   units of an epoch
    max_slots, data_gb   slots that the tenant may have (null: any number), and what an instance brings in
    curves     {architecture: [[score after epoch 1, ...], ...]}, higher is better
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import hypot
from statistics import fmean, stdev
from typing import Any

from easeml_db.decisions.planner.job import MAX_WIDTH, TrialProfile
from easeml_db.errors import NotReady

UNKNOWN_SPREAD = 0.2  # between trials, where fewer than three were measured
MODEL_ERROR = 0.035  # of the simulator itself, beside the real scheduler: so 90 % intervals hold in 90 % of runs
UNTIMED = 1.0  # uncertainty of an architecture that was never timed, beside those that were
BETWEEN_RUNS = 0.08  # of what other runs took, or as seen: the machine does this and that beside them
BATCHED = 0.3  # further uncertainty of what was timed in batches only
MOST_GROWTH = 1.0  # of an epoch over the one before it, as a share of the first
LEAST_EPOCHS = 4  # of a trial from which growth is read
UNSEEN_GROWTH = 0.25  # uncertainty where epochs grow and later ones were never timed
ENOUGH = 3  # trials of a run from which the run itself is known best
ELSEWHERE = 0.3  # further uncertainty of what was measured on another dataset
Row = Mapping[str, Any]


class Knowledge:
    """Profiles by architecture and kind of device; `notes` say what had to be assumed."""

    def __init__(
        self,
        facts: Row,
        dataset: str,
        *,
        is_parallel: bool = False,
        is_on_own_slots: bool = False,
        run_id: int | None = None,
    ) -> None:
        """Begin with `facts` from SQL. `is_parallel`: use epochs on several slots at once, if there are any.
        `is_on_own_slots`: they get slots of this server, which may have their sessions already. `run_id`: the run whose
        rest is planned.
        """
        self._run_id = run_id
        self._is_parallel = is_parallel
        self._trials: Sequence[Row] = facts["trials"] or ()
        self._speedups: Sequence[Row] = facts["speedups"] or ()
        self._whole, self._joint = set(facts["whole"]), set(facts["joint"])
        self._growing = set(facts.get("growing") or ())
        are_open = is_on_own_slots and not facts.get("adds_slots")
        self._starts: Mapping[str, Mapping[str, float]] = {} if are_open else facts.get("starts") or {}
        self._trainers: Mapping[str, str] = facts.get("trainers") or {}
        self._n_partitions = facts["n_partitions"]
        self._turns: Mapping[str, float] = facts.get("turn_seconds") or {}
        self._dataset = dataset
        self.curves: Mapping[str, Sequence[Sequence[float]]] = facts["curves"] or {}
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        """Assumptions in place of measurements, each once."""
        return list(self._notes)

    @property
    def epoch_seconds(self) -> dict[str, float]:
        """Mean seconds of an epoch on one slot, by architecture, wherever it was measured."""
        seconds: dict[str, list[float]] = {}
        for row in self._trials:
            if row["n_slots"] == 1:
                seconds.setdefault(row["architecture"], []).append(row["epoch_seconds"] * row["scale"])
        return {name: fmean(some) for name, some in seconds.items()}

    def profiles(
        self, architectures: Sequence[str], device_kinds: Iterable[str], *, is_local: bool, has_guesses: bool = False
    ) -> dict[tuple[str, str], TrialProfile]:
        """Return a profile for each architecture on each kind of device. If nothing was measured on a kind, the profile
        of another kind is used, but not on this server's own slots (`is_local`). With `has_guesses` an architecture
        that was never timed is assumed to be like the others, if any was timed. Raises NotReady.
        """
        profiles: dict[tuple[str, str], TrialProfile] = {}
        kinds = list(dict.fromkeys(device_kinds))
        rows = {row["architecture"] for row in self._trials}
        timed = [name for name in architectures if name in rows] if has_guesses else []
        chosen = timed or architectures
        kinds_of = {name: self._kinds_of(name, kinds if is_local else None) for name in chosen}
        self._check_timed([name for name, usable in kinds_of.items() if not usable])
        for name in chosen:
            measured = self._kinds_of(name)
            usable = kinds_of[name]
            for kind in kinds:
                if kind in measured or not is_local:
                    source = kind if kind in measured else usable[0]
                    start = self._start_seconds(name, kind if kind in self._starts else source)
                    profiles[name, kind] = replace(self._profile(name, source), session_seconds=start)
                    if source != kind:
                        self._note(f"nothing was measured on {kind}: a slot is taken to be as fast as one of {source}")
        return profiles | self._guesses([name for name in architectures if timed and name not in timed], profiles)

    def _kinds_of(self, name: str, kinds: Iterable[str] | None = None) -> list[str]:
        """Return the kinds of devices, all or of some, on which an architecture was timed."""
        timed = dict.fromkeys(row["device_kind"] for row in self._trials if row["architecture"] == name)
        return [kind for kind in timed if kinds is None or kind in kinds]

    def _check_timed(self, unknown: Sequence[str]) -> None:
        if unknown:
            *some, last = unknown
            names, verb = (f"{', '.join(some)} and {last}", "take") if some else (last, "takes")
            raise NotReady(
                f"nothing is known of how long {names} {verb} on dataset {self._dataset!r}",
                hint=f"Time {'them' if some else 'it'}: SELECT easeml.profile_dataset('{self._dataset}',"
                f" '{{{','.join(unknown)}}}'), and plan again when that run has ended."
                " easeml plan --profile does both.",
            )

    def _start_seconds(self, name: str, kind: str) -> float:
        """Return seconds until a new slot can train an architecture: its session opens, then imports what is needed."""
        starts = self._starts.get(kind, {})
        return starts.get("session", 0.0) + starts.get(self._trainers.get(name, ""), 0.0)

    def _turn(self, name: str) -> float:
        """Return how long a slot waits before a unit of an architecture, or of any where that was not seen."""
        return self._turns.get(name, fmean(self._turns.values()) if self._turns else 0.0)

    def _guesses(
        self, names: Sequence[str], timed: Mapping[tuple[str, str], TrialProfile]
    ) -> dict[tuple[str, str], TrialProfile]:
        """Return profiles of architectures that were never timed: as long as the mean of the others, and uncertain."""
        guesses = {}
        for name in names:
            self._note(f"{name} was never timed: it is taken to be like the other architectures")
            for kind in {kind for _, kind in timed}:
                seconds = fmean([profile.seconds(1) for (_, of), profile in timed.items() if of == kind])
                units = 1 if name in self._whole else self._n_partitions
                guesses[name, kind] = TrialProfile(
                    {1: seconds}, UNKNOWN_SPREAD, UNKNOWN_SPREAD, UNTIMED, units, turn_seconds=self._turn(name)
                )
        return guesses

    def _profile(self, name: str, kind: str) -> TrialProfile:
        rows = [row for row in self._trials if (row["architecture"], row["device_kind"]) == (name, kind)]
        wide = [row for row in rows if row["n_slots"] > 1] if self._is_parallel else []
        alone = wide or [row for row in rows if row["n_slots"] == 1] or rows
        near = [row for row in alone if row["is_same"]] or alone
        nearest = [row for row in near if not row.get("is_batched")] or near
        of_run = [row for row in nearest if self._run_id is not None and row.get("run_id") == self._run_id]
        nearest = of_run if len(of_run) >= ENOUGH else nearest
        is_growing = name in self._growing
        growth = _growth_of(nearest) if is_growing else 0.0
        is_unseen = is_growing and all(row["n_epochs"] < LEAST_EPOCHS for row in nearest)
        if is_unseen:
            self._note(f"{name} was never timed for {LEAST_EPOCHS} epochs: by how much its epochs grow is not known")
        means = [
            # Slot seconds of a first epoch at this dataset's rows; a gang counts as if it scaled perfectly.
            row["epoch_seconds"] / (1 + growth * (row.get("mean_epoch", 1.0) - 1)) * row["scale"] * row["n_slots"]
            for row in nearest
        ]
        mean = max(fmean(means), 1e-6)
        if not nearest[0]["is_same"]:
            self._note(f"{name} was never timed on this dataset: reckoned from the rows of others")
        if nearest[0]["n_slots"] > 1 and not self._is_parallel:
            self._note(f"{name} was only timed on several slots at once: reckoned as if it scaled perfectly")
        is_batched = bool(nearest[0].get("is_batched"))
        if is_batched:
            self._note(f"{name} was only timed in batches of trials: alone it may take longer")
        spread = fmean([row["sd_seconds"] / max(row["epoch_seconds"], 1e-9) for row in nearest])
        trial_spread, error = _spread_of(means, spread, [max(row["n_epochs"], 1) for row in nearest])
        test_epochs, test_growth = _test_of(nearest, growth, is_growing=is_growing)
        units = 1 if name in self._whole else self._n_partitions
        reading = [row["reading_seconds"] * row["scale"] for row in nearest if row.get("reading_seconds") is not None]
        elsewhere = 0.0 if nearest[0]["is_same"] else ELSEWHERE
        is_other_run = any(row.get("run_id") not in (None, self._run_id) for row in nearest)
        between = max(BETWEEN_RUNS, _between_runs(nearest, means)) if is_other_run else 0.0
        unseen = hypot(BATCHED if is_batched else 0.0, UNSEEN_GROWTH if is_unseen else 0.0)
        # The sources are taken as independent: their variances add up.
        uncertainty = hypot(MODEL_ERROR, error, elsewhere, between, unseen)
        seconds, restore = self._by_width(name, kind, mean, rows)
        return TrialProfile(
            seconds, min(spread, 2.0), min(trial_spread, 2.0), min(uncertainty, 2.0),
            units, restore_seconds=restore, test_epochs=min(test_epochs, 1.0), turn_seconds=self._turn(name),
            growth=growth, test_growth=test_growth, reading_seconds=units * fmean(reading) if reading else 0.0,
        )  # fmt: skip

    def _by_width(self, name: str, kind: str, mean: float, rows: Sequence[Row]) -> tuple[dict[int, float], float]:
        """Return seconds of an epoch by width, and those to bring a state onto a slot."""
        seconds = {1: mean}
        measured = [row for row in self._speedups if row["device_kind"] == kind]
        same = [row for row in measured if row["architecture"] == name]
        restore = same[0]["restore_seconds"] if same else measured[0]["restore_seconds"] if measured else 0.0
        if name not in self._joint and not self._is_parallel:
            return seconds, restore
        wide: dict[int, list[float]] = {}
        for row in rows:
            if 1 < row["n_slots"] <= MAX_WIDTH and row["is_same"]:
                wide.setdefault(row["n_slots"], []).append(row["epoch_seconds"])
        if wide:
            return seconds | {width: fmean(some) for width, some in sorted(wide.items())}, restore
        source = same or [row for row in measured if row["architecture"] in self._joint]
        if not source:
            self._note(f"{name} was never trained on several slots of {kind} at once: each trial has one")
            return seconds, restore
        if not same:
            self._note(f"{name} is taken to scale over {kind} as {source[0]['architecture']} does")
        speedups = source[0]["speedups"][:MAX_WIDTH]
        return seconds | {w: mean / max(speedup, 1e-6) for w, speedup in enumerate(speedups, 1) if w > 1}, restore

    def _note(self, note: str) -> None:
        self._notes[note] = None


def _growth_of(rows: Sequence[Row]) -> float:
    """Return by how much each epoch takes longer than the one before it, as a share of the first."""
    # The more epochs, the better a slope is known: by the third power of their number. Of two or three the first, in
    # which a session reads the rows, says more than any slope.
    weights = [row["n_epochs"] ** 3 if row["n_epochs"] >= LEAST_EPOCHS else 0.0 for row in rows]
    slopes = [row.get("growth_seconds", 0.0) for row in rows]
    first = [
        # A steep slope, followed back to the first epoch, may leave nothing of it or less.
        max(row["epoch_seconds"] - slope * (row.get("mean_epoch", 1.0) - 1), 0.1 * row["epoch_seconds"])
        for row, slope in zip(rows, slopes, strict=True)
    ]
    total = sum(weight * seconds for weight, seconds in zip(weights, first, strict=True))
    grown = sum(weight * slope for weight, slope in zip(weights, slopes, strict=True))
    return min(max(0.0, grown / total), MOST_GROWTH) if total else 0.0


def _test_of(rows: Sequence[Row], growth: float, *, is_growing: bool) -> tuple[float, float]:
    """Return the duration of a test after one epoch as a share of the first epoch, and by how much of that each further
    epoch makes it longer: a test sums all trees, a validation only those since the one before.
    """
    tested = [row for row in rows if row.get("tested_seconds")] if is_growing else []
    if not tested:
        return fmean([row.get("test_seconds", 0.0) / max(row["epoch_seconds"], 1e-9) for row in rows]), growth
    first = [max(row["epoch_seconds"] / (1 + growth * (row.get("mean_epoch", 1.0) - 1)), 1e-9) for row in tested]
    shares = [row["tested_seconds"] / row["tested_epoch"] / one for row, one in zip(tested, first, strict=True)]
    # With growth 1 the time of a test is in proportion to the epochs, as it sums all trees.
    return fmean(shares), 1.0


def _between_runs(rows: Sequence[Row], means: Sequence[float]) -> float:
    """Return the relative deviation of a further run from the mean of past runs, estimated from how far their means
    deviate; 0 if there was only one run.
    """
    of_run: dict[object, list[float]] = {}
    for row, mean in zip(rows, means, strict=True):
        of_run.setdefault(row.get("run_id"), []).append(mean)
    run_means = [fmean(some) for some in of_run.values()]
    # A further run deviates by its own deviation, and by the error of the mean of r runs: variance s^2 (1 + 1/r).
    return stdev(run_means) / fmean(run_means) * (1 + 1 / len(run_means)) ** 0.5 if len(run_means) > 1 else 0.0


def _spread_of(means: Sequence[float], spread: float, n_epochs: Sequence[float]) -> tuple[float, float]:
    """Return the relative deviation between trials, beyond what single epochs explain, and the error of their mean."""
    if len(means) < 3:
        return UNKNOWN_SPREAD, hypot(UNKNOWN_SPREAD / len(means) ** 0.5, spread / sum(n_epochs) ** 0.5)
    seen = stdev(means) / fmean(means)
    # Means over n epochs differ by spread^2 / n even where all trials are alike.
    explained = fmean([spread**2 / n for n in n_epochs])
    return max(0.0, seen**2 - explained) ** 0.5, seen / len(means) ** 0.5
