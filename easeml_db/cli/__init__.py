"""The command `easeml`, the one place that wires all parts together. Exit codes: 0 done, 1 failed, 2 wrong usage."""

from __future__ import annotations

import io
import sys
from typing import Any, ClassVar

import click

from easeml_db import __version__
from easeml_db.cli.failures import told_in_a_line
from easeml_db.cli.interrupts import kept_interrupts
from easeml_db.cli.output import print_error
from easeml_db.cli.subjects import Subjects

# By subject the modules, each with its COMMANDS in their order: a name that is not here is not found.
SUBJECTS = {
    "Server": {
        "server": "up down destroy status psql logs", "coordinator": "coordinator health install", "doctor": "doctor",
        "slots": "slots", "segments": "segments", "retention": "retention prune", "backup": "backup restore",
    },
    "Data": {
        "load": "load", "datasets": "datasets", "refreshes": "refresh refreshes", "tasks": "task",
        "architectures": "architecture",
    },
    "Search": {
        "runs": "select schedulers runs leaderboard cancel resume drop", "watch": "watch", "report": "report",
        "console": "console", "procedures": "procedures preview", "allocations": "allocations profiles",
        "replay": "replay",
    },
    "Cost and time": {"plan": "plan", "forecast": "forecast", "prices": "prices"},
    "Answers": {
        "predict": "predict serving deploy undeploy rollback",
        "evaluation": "evaluate confusion-matrix class-metrics roc-curve calibration residuals explain"
                      " hyperparameter-importance",
        "drift": "drift", "exports": "export import",
    },
    "Tenants": {"tenants": "tenants", "policy": "policy decisions arms regret"},
    "Trying it": {"demo": "demo"},
}  # fmt: skip


class Commands(Subjects):
    """Our commands by subject."""

    subjects: ClassVar[dict[str, dict[str, str]]] = {
        title: {name: f"{__name__}.{module}" for module, names in modules.items() for name in names.split()}
        for title, modules in SUBJECTS.items()
    }


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
        told = None if is_debug else told_in_a_line(error)
        if told is None:
            raise
        print_error(told)
        sys.exit(1)
