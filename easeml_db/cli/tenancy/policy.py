"""easeml policy, decisions, arms and regret: which run opens its next arm, why, and what each arm promises."""

from __future__ import annotations

from collections.abc import Sequence

import click

from easeml_db.cli.terminal.arguments import run_argument
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import read_rows
from easeml_db.cli.terminal.output import json_option, print_json, print_rows, say
from easeml_db.cli.terminal.statements import Row, call, read_run, rows, run_or_newest

POLICY_COLUMNS = {
    "kind": "kind",
    "name": "name",
    "is_in_use": "in use",
    "is_default": "default",
    "summary": "what it is",
}
DECISION_COLUMNS = {
    "decided_at": "when", "run_id": "run", "phase": "phase", "architecture": "opened", "gap": "gap", "score": "score",
    "reason": "reason",
}  # fmt: skip
ARM_COLUMNS = {
    "architecture": "architecture", "augmentation": "augmentation", "status": "status", "n_trials": "trials",
    "mean": "mean", "deviation": "deviation", "bound": "bound", "expected_seconds": "expected s",
    "quality": "quality", "cost_seconds": "took s",
}  # fmt: skip
REGRET_COLUMNS = {
    "run_id": "run", "tenant": "tenant", "dataset_name": "dataset", "status": "status", "best_quality": "best",
    "largest_bound": "bound", "estimated_gap": "gap", "n_waiting": "waiting", "n_open": "open", "n_closed": "closed",
    "spent_seconds": "seconds",
}  # fmt: skip


@click.command()
@click.argument("name", required=False)
@click.option("--prior", help="Beliefs about arms at the start (default: unchanged); easeml policy lists the choices.")
@click.option("--seed", type=int, help="Seed of policies that draw at random (default: unchanged).")
@click.option("--max-wait-seconds", type=float, help="How long tenants wait for arms of others (default: unchanged).")
@dsn_option
@json_option
def policy(
    name: str | None,
    prior: str | None,
    seed: int | None,
    max_wait_seconds: float | None,
    dsn: str | None,
    as_json: bool,
) -> None:
    """List policies and priors, or let policy NAME choose, from the next decision on, which run opens its next arm."""
    settings = {"prior": prior, "seed": seed, "max_wait_seconds": max_wait_seconds}
    if name is None and any(value is not None for value in settings.values()):
        raise click.UsageError("--prior, --seed and --max-wait-seconds go with the NAME of a policy")
    with database(dsn) as connection:
        if name is not None:
            call(connection, "set_policy", name, **settings)
        policies = rows(connection, "policies")
    print_rows(policies, as_json=as_json, empty="no policies", columns=POLICY_COLUMNS)


@click.command()
@run_argument
@click.option("--limit", "-n", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@dsn_option
@json_option
def decisions(run_id: int | None, limit: int, dsn: str | None, as_json: bool) -> None:
    """Show the last decisions in which RUN (default: any run that you may see) was served or waited, newest last."""
    with database(dsn) as connection:
        if run_id is not None:
            read_run(connection, run_id)
        newest = rows(connection, "decisions", run_id=run_id, limit=limit)
    if not as_json:  # the time of day; the document has the date
        newest = [{**row, "decided_at": f"{row['decided_at'].astimezone():%H:%M:%S}"} for row in newest]
    print_rows(newest, as_json=as_json, empty="no decisions yet", columns=DECISION_COLUMNS)


@click.command()
@run_argument
@dsn_option
@json_option
def arms(run_id: int | None, dsn: str | None, as_json: bool) -> None:
    """Show the arms of RUN (default: the newest): expected and observed quality and cost of each."""
    with database(dsn) as connection:
        run = read_run(connection, run_or_newest(connection, run_id))
        beliefs = rows(connection, "arm_beliefs", run_id=run["run_id"])
    if as_json:
        print_json(beliefs)
        return
    scale = "; mean and deviation are of the logit" if beliefs and beliefs[0]["link"] == "logit" else ""
    say(f"run {run['run_id']} on {run['dataset_name']}: {run['status']}{scale}")
    print_rows(beliefs, as_json=False, empty="it has no arms", columns=_arm_columns(beliefs))


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Include runs that have ended.")
@dsn_option
@json_option
def regret(is_all: bool, dsn: str | None, as_json: bool) -> None:
    """Show how much better each open run may still get: its largest bound of a waiting arm minus its best quality."""
    runs = read_rows(dsn, "run_regret", is_all=is_all)
    print_rows(runs, as_json=as_json, empty="no open runs; all runs: easeml regret --all", columns=REGRET_COLUMNS)


COMMANDS = (policy, decisions, arms, regret)


def _arm_columns(beliefs: Sequence[Row]) -> dict[str, str]:
    """Hide the augmentation unless some arm has one."""
    hidden = set() if any(row["augmentation"] != "none" for row in beliefs) else {"augmentation"}
    return {name: heading for name, heading in ARM_COLUMNS.items() if name not in hidden}
