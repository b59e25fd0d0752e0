"""The command `easeml`, the one place that wires all parts together. Exit codes: 0 done, 1 failed, 2 wrong usage."""

from __future__ import annotations

import io
import sys
from typing import Any, ClassVar

import click

from easeml_db import __version__
from easeml_db.cli.terminal.failures import told_in_a_line
from easeml_db.cli.terminal.interrupts import kept_interrupts
from easeml_db.cli.terminal.output import print_error
from easeml_db.cli.terminal.subjects import Subjects, homes_of

# By subject the modules, each with its commands in their order: a name that is not here is not found.
SUBJECTS = {
    "Server": {
        "server.server": "up down destroy status psql logs", "server.coordinator": "coordinator health install",
        "server.doctor": "doctor", "server.slots": "slot", "server.segments": "segment",
        "server.retention": "retention prune", "server.backup": "backup restore",
    },
    "Data": {
        "data.load": "load", "data.datasets": "dataset", "data.tasks": "task", "data.architectures": "architecture",
    },
    "Search": {
        "search.runs": "select run", "search.procedures": "procedure schedulers", "search.allocations": "profiles",
        "search.console": "console",
    },
    "Cost and time": {"cost.plan": "plan", "cost.prices": "price"},
    "Answers": {
        "answers.predict": "predict serving deploy undeploy rollback",
        "answers.evaluation": "evaluate confusion-matrix class-metrics roc-curve calibration residuals explain",
        "answers.drift": "drift", "answers.exports": "export import",
    },
    "Tenants": {"tenancy.tenants": "tenant", "tenancy.policy": "policy regret"},
    "Trying it": {"demo.demo": "demo"},
}  # fmt: skip


# What earlier versions called otherwise, with what it is called now.
OF_A_RUN = (
    "leaderboard watch report cancel resume drop replay decisions arms allocations forecast hyperparameter-importance"
)
RENAMED = {
    **{name: f"run {name}" for name in OF_A_RUN.split()},
    **{name: name[:-1] for name in ("runs", "datasets", "slots", "segments", "tenants", "prices", "procedures")},
    "refresh": "dataset refresh", "preview": "procedure preview",
}  # fmt: skip


class Commands(Subjects):
    """Our commands by subject."""

    subjects: ClassVar[dict[str, dict[str, str]]] = {title: homes_of(modules) for title, modules in SUBJECTS.items()}
    takes_further: ClassVar[bool] = True

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; refuse a name of an earlier version with its present one."""
        if args[0] in RENAMED:
            context.fail(f"the command {args[0]} is now: easeml {RENAMED[args[0]]}")
        return super().resolve_command(context, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="easeml")
@click.option("--debug", is_flag=True, help="Show a traceback instead of a one-line error.")
@click.pass_context
def commands(context: click.Context, debug: bool) -> None:
    """Select, train and serve models where the data lives: inside PostgreSQL."""
    context.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; turn errors of ours, the machine and the driver into one line each, on standard
    error."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may know fewer letters than names have
        sys.stdout.reconfigure(errors="backslashreplace")
    is_debug = "--debug" in (arguments if arguments is not None else sys.argv)
    try:
        with kept_interrupts():
            commands.main(args=arguments, prog_name="easeml")
    except Exception as error:
        message = None if is_debug else told_in_a_line(error)
        if message is None:
            raise
        print_error(message)
        sys.exit(1)
