"""The live view of a run, as a rich renderable."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from easeml_db.cli.search.run_snapshot import Row, RunSnapshot, duration, telling_configs
from easeml_db.cli.terminal.output import text_of
from easeml_db.cli.terminal.plain_table import PlainTable
from easeml_db.report.wording import metric_text

N_TRIALS = 10
N_EVENTS = 3
OTHER_LINES = 12  # headings, bar, blank lines, a warning
STATUS_STYLES = {
    "running": "cyan", "finished": "green", "failed": "red", "cancelled": "yellow", "interrupted": "red",
    "offline": "red",
}  # fmt: skip
VERBS = {"train": "training", "validate": "validating", "test": "testing"}


def screen(snapshot: RunSnapshot, height: int) -> RenderableType:
    """Return everything worth seeing of a run, in at most `height` lines where that is possible."""
    n_trials = min(N_TRIALS, len(snapshot.trials))
    n_slots = max(1, height - OTHER_LINES - n_trials - min(N_EVENTS, len(snapshot.events)))
    parts: list[RenderableType] = [_title(snapshot), _bar(snapshot)]
    warning = snapshot.run["failure_reason"] or snapshot.advice
    if warning:
        parts.append(Text(warning, style="bold red"))
    if not snapshot.has_ended:
        parts += [Text(), _slots(snapshot, n_slots)]
    parts += [Text(), leaderboard_table(snapshot.trials, N_TRIALS)]
    if snapshot.events:
        parts += [Text(), *map(_event, snapshot.events[-N_EVENTS:])]
    return Group(*parts)


def _title(snapshot: RunSnapshot) -> RenderableType:
    run = snapshot.run
    title = Text.assemble(
        (f"run {run['run_id']}", "bold"), " on ", (run["dataset_name"], "bold"), "  ",
        (run["status"], STATUS_STYLES.get(run["status"], "")),
    )  # fmt: skip
    title.append(f"  {_count(run['n_trials'], 'trial')} of {_count(run['max_epochs'], 'epoch')}, {run['procedure']}")
    if run["n_failed"]:
        title.append(f", {run['n_failed']} failed", style="red")
    return title


def _count(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def _bar(snapshot: RunSnapshot) -> RenderableType:
    run = snapshot.run
    line = Table.grid(padding=(0, 2), expand=True)
    line.add_column(ratio=1)
    line.add_column(no_wrap=True, justify="right")
    line.add_column(no_wrap=True)
    facts = f"{100 * snapshot.share_done:.0f} %  {run['n_units_done']} of {run['n_units']} units"
    line.add_row(ProgressBar(total=1.0, completed=snapshot.share_done, finished_style="green"), facts, _times(snapshot))
    return line


def _times(snapshot: RunSnapshot) -> str:
    elapsed = snapshot.run["elapsed_seconds"]
    if elapsed is None:
        return "not started"
    if snapshot.has_ended:
        return f"took {duration(elapsed)}"
    return duration(elapsed) if snapshot.left is None else f"{duration(elapsed)}, {snapshot.left}"


def _slots(snapshot: RunSnapshot, n_shown: int) -> RenderableType:
    table = PlainTable(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column("slot", no_wrap=True)
    table.add_column("device", no_wrap=True)
    table.add_column("doing", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("for", justify="right", no_wrap=True, min_width=7)
    for slot in snapshot.slots[:n_shown]:
        seconds = slot["unit_seconds"] if slot["status"] == "busy" else None
        table.add_row(
            slot["slot_name"], slot["device"], _doing(snapshot, slot), "" if seconds is None else f"{seconds:.1f} s"
        )
    if len(snapshot.slots) > n_shown:
        table.add_row(f"+ {len(snapshot.slots) - n_shown} more", "", "", "")
    return table


def _doing(snapshot: RunSnapshot, slot: Row) -> Text:
    if slot["status"] != "busy":
        return Text(slot["status"], style=STATUS_STYLES.get(slot["status"], "dim"))
    if slot["trial_id"] is None:
        return Text("working for another role", style="dim")
    doing = Text.assemble(
        f"{VERBS.get(slot['kind'], slot['kind'])} trial {slot['trial_id']} ", (slot["architecture"], "cyan"),
        f"  epoch {slot['epoch']}/{snapshot.run['max_epochs']}  partition {slot['partition_number']}",
    )  # fmt: skip
    if slot["run_id"] != snapshot.run["run_id"]:
        doing.append(f"  of run {slot['run_id']}", style="dim")
    return doing


def leaderboard_table(trials: Sequence[Row], n_shown: int | None = None) -> Table:
    """Return the best trials, one line each; all of them, with their whole configs, where no number is given."""
    table = PlainTable(box=None, pad_edge=False, header_style="bold", expand=n_shown is not None)
    for name in ("rank", "trial"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("architecture", no_wrap=True)
    for name in (trials[0]["metric"] if trials else "metric", "test"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    table.add_column("epochs", justify="right", no_wrap=True)
    table.add_column("config", ratio=1, no_wrap=n_shown is not None, overflow="ellipsis" if n_shown else "fold")
    for trial, config in list(zip(trials, telling_configs(trials), strict=True))[:n_shown]:
        table.add_row(
            str(trial["rank"]) if trial["validation_metric"] is not None else "", str(trial["trial_id"]),
            trial["architecture"], metric_text(trial["validation_metric"]), metric_text(trial["test_metric"]),
            _epochs(trial), _config(trial, config),
        )  # fmt: skip
    if n_shown is not None and len(trials) > n_shown:
        table.add_row("", "", f"+ {len(trials) - n_shown} more")
    return table


def _epochs(trial: Row) -> Text:
    style = {"running": "cyan", "waiting": "dim", "failed": "red"}.get(trial["status"], "")
    return Text(f"{trial['n_epochs_done']}/{trial['max_epochs']}", style=style)


def _config(trial: Row, config: Row) -> Text:
    if trial["failure_reason"]:
        return Text(trial["failure_reason"], style="red")
    deployed = ("deployed  ", "bold green") if trial["is_deployed"] else ""
    return Text.assemble(deployed, (text_of(config), "dim"))


def _event(event: Row) -> Text:
    return Text.assemble((f"{event['happened_at'].astimezone():%H:%M:%S}  ", "dim"), event["message"])
