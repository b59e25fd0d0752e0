"""The tables of the page as lines of HTML: leaderboard, facts, failed trials, events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from easeml_db.report.datasets import HUES, ChartData
from easeml_db.report.held_out import CHART_ORDER, score_lines
from easeml_db.report.rows import Row
from easeml_db.report.sections import Lines, chart, note, text
from easeml_db.report.wording import (
    billing_text,
    bytes_text,
    cost_text,
    duration_text,
    metric_text,
    split_configs,
    time_text,
)

MAX_EVENTS = 500
TIMES = "\N{MULTIPLICATION SIGN}"
TABLE_END = "</tbody></table></div>"
RANKING = "the validation metric of their best epoch; the test metric is that epoch on rows that no choice sees."


def section_leaderboard(data: ChartData) -> Lines:
    """Return the leaderboard; failed trials show their reason."""
    trials, n_all = data.rows.trials[: data.n_top], len(data.rows.trials)
    configs, shared = split_configs([trial["config"] for trial in data.rows.trials])
    shown = f"The {len(trials)} best of {n_all} trials, by" if len(trials) < n_all else "All trials, by"
    lines = ["<section><h2>Leaderboard</h2>", note(f"{shown} {RANKING}"), *_leaderboard_head(data.rows.run["metric"])]
    lines += [_trial_row(data, trial, config) for trial, config in zip(trials, configs, strict=False)]
    lines.append(TABLE_END)
    if shared:
        lines.append(f'<p class="note">The same in all trials that have it: {_settings(shared)}</p>')
    return [*lines, "</section>"]


def _leaderboard_head(metric: str) -> Lines:
    numbers = (metric, "test", "best epoch", "epochs", "training")
    cells = "".join(f'<th class="number">{text(number)}</th>' for number in numbers)
    return [
        '<div class="scroll"><table class="leaderboard"><thead><tr><th class="number">rank</th><th>trial</th>',
        f"{cells}<th>config</th></tr></thead><tbody>",
    ]


def _trial_row(data: ChartData, trial: Row, config: Mapping[str, str]) -> str:
    is_ranked = trial["validation_metric"] is not None
    best = ' class="best"' if is_ranked and trial["rank"] == 1 else ""
    hue = f'<span class="hue" style="background:{HUES[data.hues[trial["trial_id"]]]}"></span>'
    tags = "".join(f'<span class="tag">{text(tag)}</span>' for tag in _tags(trial))
    reason = f'<div class="reason">{text(trial["failure_reason"])}</div>' if _has_failed(trial) else ""
    epochs = f"{trial['n_epochs_done']}/{trial['max_epochs']}"
    metrics = metric_text(trial["validation_metric"]), metric_text(trial["test_metric"])
    numbers = (*metrics, trial["best_epoch"], epochs, duration_text(trial["training_seconds"]))
    cells = [
        f'<td class="number">{text(trial["rank"]) if is_ranked else ""}</td>',
        f'<td class="name">{hue}{text(trial["trial_id"])} {text(trial["architecture"])}{tags}</td>',
        *(f'<td class="number">{text(number)}</td>' for number in numbers),
        f'<td class="config">{_settings(config)}{reason}</td>',
    ]
    return f'<tr data-trial="{text(trial["trial_id"])}"{best}>{"".join(cells)}</tr>'


def _has_failed(trial: Row) -> bool:
    """Return whether a trial failed. A trial stopped at the end of its run also has a reason, but did not fail."""
    return bool(trial["failure_reason"]) and trial["status"] != "stopped"


def _tags(trial: Row) -> list[str]:
    tags = [] if trial["status"] == "finished" else [trial["status"]]
    return [*tags, "deployed"] if trial["is_deployed"] else tags


def _settings(settings: Mapping[str, str]) -> str:
    return " ".join(
        f'<span class="setting"><i>{text(name)}</i> {text(value)}</span>' for name, value in settings.items()
    )


def section_held_out(data: ChartData) -> Lines:
    """Return the metrics and charts of the best trial on held-out rows."""
    rows, head = data.rows, "<section><h2>Evaluation</h2>"
    if rows.unmeasured is not None:
        return [head, note(f"Held-out rows are not evaluated here: {rows.unmeasured}."), "</section>"]
    scores = score_lines(rows)
    charts = [chart(name) for name in CHART_ORDER if name in data.datasets]
    if not scores and not charts:
        return []
    told = note(f"The best trial, {rows.run['best_trial_id']}, in the state of its best epoch. Charts show test rows.")
    return [head, told, *_scores_table(scores), '<div class="pair">', *charts, "</div></section>"]


def _scores_table(scores: Sequence[tuple[str, str, str, str]]) -> Lines:
    if not scores:
        return []
    return [
        '<div class="scroll"><table><thead><tr><th>metric</th><th class="number">validation</th>'
        '<th class="number">test</th><th>what it is</th></tr></thead><tbody>',
        *(f'<tr><td class="name">{text(name)}</td><td class="number">{text(validation)}</td>'
          f'<td class="number">{text(test)}</td><td>{text(summary)}</td></tr>'
          for name, validation, test, summary in scores),
        TABLE_END,
    ]  # fmt: skip


def section_facts(data: ChartData) -> Lines:
    """Return the section of facts: the request and its time, trials that failed, events."""
    run = data.rows.run
    facts = [*_data_facts(run), *_run_facts(run)]
    lines = ["<section><h2>Facts</h2>", '<dl class="facts">']
    lines += [f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts]
    lines.append("</dl>")
    lines += _table("Failed trials", [_failed_row(trial) for trial in data.rows.trials if _has_failed(trial)])
    events = data.rows.events[-MAX_EVENTS:]
    title = "Events" if len(events) == len(data.rows.events) else f"The last {MAX_EVENTS} events"
    return [*lines, *_table(title, [_event_row(event) for event in events]), "</section>"]


def _table(title: str, rows: Lines) -> Lines:
    return [f"<h3>{title}</h3>", '<div class="scroll"><table><tbody>', *rows, TABLE_END] if rows else []


def _data_facts(run: Row) -> list[tuple[str, str]]:
    name = ("dataset", f"{run['dataset_name']}, version {run['dataset_version']}")
    if run["task"] is None:  # the dataset is not the reader's to see
        return [name]
    shape = TIMES.join(map(str, run["input_shape"]))
    outputs = f", {run['n_outputs']:,} classes" if run["task"] == "classification" else ""
    return [
        name,
        ("source", run["source"]),
        ("inputs", f"{', '.join(run['input_columns'])} (shape {shape})"),
        ("target", f"{run['target_column']}: {run['task']}{outputs}"),
        ("rows", _split(run)),
        ("partitions", f"{run['n_partitions']:,}, {bytes_text(run['n_bytes'])} packed"),
        *_packing_on_nodes(run),
    ]


def _packing_on_nodes(run: Row) -> list[tuple[str, str]]:
    """Return facts on how rows on nodes were packed."""
    if run.get("shuffle") is None:
        return []
    moved = f"{bytes_text(run['n_moved_bytes'])} went from node to node"
    took = duration_text(run["packing_seconds"])
    return [("packed on nodes", f"shuffled {run['shuffle']} them in {took}; {moved}")]


def _split(run: Row) -> str:
    if run["n_folds"]:
        folds = f"{run['n_train_rows']:,} to train and validate in {run['n_folds']} folds"
        return f"{folds}, {run['n_test_rows']:,} to test"
    return f"{run['n_train_rows']:,} to train, {run['n_validation_rows']:,} to validate, {run['n_test_rows']:,} to test"


def _run_facts(run: Row) -> list[tuple[str, str]]:
    names = {
        "tenant": "tenant", "epochs": "max_epochs", "procedure": "procedure", "metric": "metric", "seed": "seed",
        "status": "status",
    }  # fmt: skip
    times = {"asked for": "created_at", "last start": "started_at", "end": "finished_at", "read": "read_at"}
    return [
        ("trials", f"{run['n_trials']:,} ({run['n_finished']:,} finished, {run['n_failed']:,} failed)"),
        *((label, str(run[column])) for label, column in names.items()),
        *((label, time_text(run[column])) for label, column in times.items()),
        ("cost", f"{cost_text(run['cost_so_far'])}, {billing_text(run['price_list'])}"),
    ]


def _failed_row(trial: Row) -> str:
    name = text(f"{trial['trial_id']} {trial['architecture']}")
    return f'<tr><td class="name">{name}</td><td class="reason">{text(trial["failure_reason"])}</td></tr>'


def _event_row(event: Row) -> str:
    when, kind, message = text(time_text(event["happened_at"])), text(event["kind"]), text(event["message"])
    return f'<tr><td class="when">{when}</td><td class="name">{kind}</td><td class="message">{message}</td></tr>'
