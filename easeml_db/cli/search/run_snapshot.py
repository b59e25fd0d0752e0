"""A run at one instant: its progress, what changed since the last reading, and the time that it still needs.

Values in, values out; the screen and the plain lines are made from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from easeml_db.cli.terminal.output import text_of
from easeml_db.report.wording import cost_text

Row = dict[str, Any]
ENDED = ("finished", "failed", "cancelled")
WINDOW_SECONDS = 30.0
WARM_UP_SECONDS = 2.0
STEADY_SECONDS = 1.0


@dataclass(frozen=True)
class RunSnapshot:
    """A run, its trials (best first), its events and the status of the slots, read at one instant."""

    run: Row
    trials: Sequence[Row]
    slots: Sequence[Row]
    events: Sequence[Row]
    seconds_left: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to the run by itself."""
        return self.run["status"] in ENDED

    @property
    def left(self) -> str | None:
        """The time that it still needs, in words, and its cost if that is forecast; None while both are unknown."""
        run = self.run
        if run["eta_seconds"] is None:
            return None if self.seconds_left is None else f"about {duration(self.seconds_left)} left"
        expected = "" if run["cost_expected"] is None else f" of about {cost_text(run['cost_expected'])}"
        cost = f"cost {cost_text(run['cost_so_far'])}{expected}"
        risk = ", deadline at risk" if run["is_at_risk"] else ""
        most = duration(run["eta_p95_seconds"])
        return f"about {duration(run['eta_seconds'])} left, 95 % within {most}, {cost}{risk}"

    @property
    def share_done(self) -> float:
        """Between 0 and 1; work that failed trials leave undone counts as done, because it will never be done."""
        if self.run["status"] == "finished":
            return 1.0
        n_done = self.run["n_units_done"]
        n_all = self.run["n_units"] if self.has_ended else n_done + self.run["n_units_left"]
        return n_done / n_all if n_all else 0.0

    @property
    def advice(self) -> str | None:
        """What to do when nothing moves, None when all is well."""
        if self.has_ended:
            return None
        if not self.slots:
            return "There are no slots to train on. Make some: SELECT easeml.set_slots(2);"
        if all(slot["status"] == "offline" for slot in self.slots):
            return (
                "No coordinator is running. Start one: easeml up (private server), or easeml coordinator --dsn ..."
                " The run goes on by itself."
            )
        kept_out = [slot for slot in self.slots if slot["lost_reason"] and slot["status"] != "busy"]
        return None if not kept_out else f"{kept_out[0]['slot_name']} cannot work: {kept_out[0]['lost_reason']}"


@dataclass
class SlotSmoothing:
    """Keeps showing the last unit of a slot between two short units, so that the eye can follow."""

    last: dict[int, tuple[float, Row]] = field(default_factory=dict)

    def steady(self, slots: Sequence[Row], now_seconds: float) -> list[Row]:
        """Return the slots, an idle one with its unit of less than a second ago, unless its trial has moved on."""
        shown, elsewhere = [], {slot["trial_id"] for slot in slots if slot["status"] == "busy"}
        for slot in slots:
            if slot["status"] == "busy":
                self.last[slot["slot_id"]] = (now_seconds, slot)
            seen_seconds, unit = self.last.get(slot["slot_id"], (-STEADY_SECONDS, slot))
            is_fresh = now_seconds - seen_seconds < STEADY_SECONDS and unit["trial_id"] not in elsewhere
            shown.append({**unit, "unit_seconds": None} if is_fresh and slot["status"] == "idle" else slot)
        return shown


@dataclass
class ProgressRate:
    """Estimates the time that is left from how fast units were recorded lately."""

    readings: deque[tuple[float, int]] = field(default_factory=deque)

    def seconds_left(self, run: Row, now_seconds: float) -> float | None:
        """Estimate from the last half minute, at most what max_seconds leaves; None while too little is known."""
        if run["status"] != "running":
            self.readings.clear()
            return None
        self.readings.append((now_seconds, run["n_units_done"]))
        while now_seconds - self.readings[0][0] > WINDOW_SECONDS:
            self.readings.popleft()
        seconds, n_units = now_seconds - self.readings[0][0], run["n_units_done"] - self.readings[0][1]
        if seconds < WARM_UP_SECONDS or n_units <= 0:
            return None
        estimate = run["n_units_left"] * seconds / n_units
        limit = run["seconds_to_limit"]
        return float(estimate if limit is None else max(0.0, min(estimate, limit)))


def changes(before: RunSnapshot | None, after: RunSnapshot) -> list[str]:
    """Return the events between two readings, one line for each."""
    old_trials = {} if before is None else {trial["trial_id"]: trial for trial in before.trials}
    seen = 0 if before is None or not before.events else before.events[-1]["event_id"]
    lines = [event["message"] for event in after.events if event["event_id"] > seen]
    for trial in sorted(after.trials, key=lambda trial: int(trial["trial_id"])):
        lines += _trial_changes(old_trials.get(trial["trial_id"]), trial)
    if after.advice and (before is None or before.advice != after.advice):
        lines.append(after.advice)
    if before is None or _standing(before) != _standing(after):
        lines.append(progress_line(after))
    return lines


def progress_line(snapshot: RunSnapshot) -> str:
    """Return the whole run in one line."""
    run = snapshot.run
    parts = [f"run {run['run_id']} {run['status']}: {run['n_units_done']} of {run['n_units']} units"]
    if snapshot.left is not None and not snapshot.has_ended:
        parts.append(snapshot.left)
    if run["best_metric_value"] is not None:
        best = text_of(run["best_metric_value"])
        parts.append(f"best {run['metric']} {best} by trial {run['best_trial_id']}")
    if run["failure_reason"]:
        parts.append(run["failure_reason"])
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return seconds as people read them: 7 s, 3 min 05 s, 2 h 10 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def telling_configs(trials: Sequence[Row]) -> list[Row]:
    """Return the config of each trial without the hyperparameters in which no two trials of an architecture differ."""
    first: dict[str, Row] = {}
    telling = set()
    for trial in trials:
        twin = first.setdefault(trial["architecture"], trial["config"])
        telling |= {name for name, value in trial["config"].items() if twin.get(name) != value}
    configs = [{name: value for name, value in trial["config"].items() if name in telling} for trial in trials]
    return configs if telling else [trial["config"] for trial in trials]


def _standing(snapshot: RunSnapshot) -> tuple[str, int]:
    """Return what deserves a line of its own: a change of status, or another tenth of the run."""
    return snapshot.run["status"], int(10 * snapshot.share_done)


def _trial_changes(old: Row | None, new: Row) -> list[str]:
    name = f"trial {new['trial_id']} ({new['architecture']})"
    lines = []
    if new["n_epochs_done"] > (old["n_epochs_done"] if old else 0):
        metric = f"best {new['metric']} {text_of(new['validation_metric'])}"
        lines.append(f"{name}: {new['n_epochs_done']} of {new['max_epochs']} epochs, {metric}")
    if new["status"] == "finished" and (old is None or old["status"] != "finished"):
        lines.append(f"{name} finished: {text_of(new['test_metric'])} on the test rows")
    return lines
