"""easeml experiments: repeat the papers' experiments here, beside the papers' numbers and our targets."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from easeml_db.cli.terminal.output import json_option, print_json, print_rows
from easeml_db.cli.terminal.plain_table import print_table
from easeml_experiments import Experiment, Options, Parameter, Result
from easeml_experiments.registry import EXPERIMENTS
from easeml_experiments.writing import COLUMNS, number_text, write

Command = Callable[..., None]
VERDICTS = {True: Text("yes", "green"), False: Text("no", "red"), None: Text("")}


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def experiments(context: click.Context, as_json: bool) -> None:
    """List the papers' experiments (without a command), or repeat one on this machine."""
    if context.invoked_subcommand is None:
        found = [{"name": each.name, "source": each.source, "summary": each.summary} for each in EXPERIMENTS.values()]
        print_rows(found, as_json=as_json, empty="")
    elif as_json:
        raise click.UsageError(f"--json comes after the name: easeml experiments {context.invoked_subcommand} --json")


out_option = click.option(
    "--out", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Also write a page, tables (CSV) and plots (PNG, HTML) into this folder.",
)  # fmt: skip
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything drawn.")
quick_option = click.option("--quick", "is_quick", is_flag=True, help="Try the code on little data.")
slots_option = click.option(
    "--slots", "n_slots", type=click.IntRange(1, 1000),
    help="Workers that train side by side (default: one for each core).",
)  # fmt: skip


def _option(parameter: Parameter) -> Callable[[Command], Command]:
    """Make the option of an experiment's own parameter."""
    if parameter.type is bool:
        return click.option(f"--{parameter.name}", is_flag=True, help=parameter.help)
    is_path = parameter.type is Path
    return click.option(
        f"--{parameter.name}", type=click.Path(path_type=Path, exists=True) if is_path else parameter.type,
        default=parameter.default, show_default=parameter.default is not None, envvar=parameter.environment,
        show_envvar=True, help=parameter.help,
    )  # fmt: skip


def _command(experiment: Experiment) -> click.Command:
    """Make the sub-command of an experiment."""

    def run(
        as_json: bool, folder: Path | None, seed: int, is_quick: bool, n_slots: int | None = None, **values: Any
    ) -> None:
        options = Options(seed, is_quick, lambda line: click.echo(line, err=True), n_slots, values)
        result = experiment.run(options)
        if folder is not None:
            for path in write(folder, experiment, result, options, shlex.join(["easeml", *sys.argv[1:]])):
                options.say(f"wrote {path}")
        if as_json:
            print_json(_document(experiment, result, options))
        else:
            _print(experiment, result, options)

    common = (*((slots_option,) if experiment.trains else ()), quick_option, seed_option, out_option, json_option)
    for option in (*map(_option, reversed(experiment.parameters)), *common):
        run = option(run)
    text = f"{experiment.summary}.\n\nRepeats {experiment.source}."
    return click.command(experiment.name, help=text)(run)


for each in EXPERIMENTS.values():
    experiments.add_command(_command(each))


def _document(experiment: Experiment, result: Result, options: Options) -> dict[str, object]:
    return {
        "experiment": experiment.name,
        "seed": options.seed,
        "is_quick": options.is_quick,
        "measures": [asdict(measure) for measure in result.measures],
        "why": result.why,
    }


def _print(experiment: Experiment, result: Result, options: Options) -> None:
    """Print the measures as a table, then why they differ."""
    click.echo(f"{experiment.name}: {experiment.source}; seed {options.seed}{', quick' * options.is_quick}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        is_number = name in ("paper", "here")
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for one in result.measures:
        cells = (one.name, one.setting, number_text(one.paper), number_text(one.value), one.target or "")
        table.add_row(*map(Text, cells), VERDICTS[one.holds])
    print_table(table)
    click.echo(f"\n{result.why.strip()}")
