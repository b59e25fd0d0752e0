"""easeml task: declare inputs and outputs, feed and review examples, and ask the best model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from easeml_db.cli.data.task_client import write_client
from easeml_db.cli.data.task_feeding import (
    STANDARD_INPUT,
    feed_lines,
    feed_pictures,
    given_inputs,
    pictures_of,
    program_of,
)
from easeml_db.cli.terminal.arguments import integer_list, json_value, name_list
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.listing import listing_group, read_rows
from easeml_db.cli.terminal.output import json_option, print_json, print_rows, say
from easeml_db.cli.terminal.statements import Connection, Row, call, call_rows, rows
from easeml_db.errors import InvalidArgument, InvalidData, NotFound, ShapeMismatch
from easeml_db.postgres.connection import server_error
from easeml_loaders.picture_labels import Skipped

FOLDER = click.Path(exists=True, path_type=Path)
FED = click.Path(exists=True, allow_dash=True, path_type=Path)
MOST_SHOWN = 300
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SHOWN = {
    "task_name": "task", "template": "template", "n_examples": "examples", "n_off": "off", "n_pending": "pending",
    "newest_version": "version", "problem": "problem",
}  # fmt: skip


def _show_tasks(dsn: str | None, as_json: bool) -> None:
    print_rows(
        read_rows(dsn, "tasks"), as_json=as_json, columns=SHOWN, empty="no task yet; make one: easeml task create"
    )


task = listing_group("task", "Tasks, declared by their inputs and outputs; without a command, list them.", _show_tasks)


@task.command()
@click.argument("name")
@click.argument("program", required=False)
@click.option("--pictures", type=FOLDER, help="Folder whose first picture defines the input, instead of PROGRAM.")
@click.option(
    "--labels", type=FILE, help="CSV with the columns file and label, whose labels are the classes, or file and output."
)
@click.option("--schema", default="public", show_default=True, help="Where the views of the task are made.")
@click.option("--classes", callback=name_list, help="Names of the classes: a,b,c (default: 0, 1, 2 and so on).")
@click.option("--storage", type=click.Choice(["bytes", "numbers"]), help="How tensors are kept (default: by shape).")
@click.option("--run-after-examples", type=int, help="Start a run after this many examples (default: 100).")
@click.option("--run-after-minutes", type=float, help="Or this many minutes after the first of them (default: 5).")
@click.option("--run-options", callback=json_value, help="Arguments of easeml.select_models as JSON (or @FILE).")
@dsn_option
@json_option
def create(
    name: str, program: str | None, pictures: Path | None, labels: Path | None, dsn: str | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Make task NAME from PROGRAM, such as 'Input = [64,64,3] Output = [3]', or from a folder of pictures."""
    if (program is None) == (pictures is None) or (pictures is None) != (labels is None):
        raise click.UsageError("give either PROGRAM, or --pictures and --labels")
    if pictures is not None and labels is not None:
        program, classes = program_of(pictures, labels, options["classes"])
        options["classes"] = classes
    options["run_options"] = None if options["run_options"] is None else Jsonb(options["run_options"])
    with database(dsn) as connection:
        task_id = call(connection, "create_task", name, program, **options)
    _say(as_json, f"task {name}: {program}", task=name, task_id=task_id, program=program)


@task.command()
@click.argument("name")
@click.argument("pictures", type=FED)
@click.option("--labels", type=FILE, help="CSV with the columns file and label, or output; beside .npy also .npy.")
@click.option("--resize", is_flag=True, help="Resize pictures of another size instead of refusing them.")
@click.option(
    "--on-error",
    type=click.Choice(["refuse", "skip"]),
    default="refuse",
    show_default=True,
    help="What to do with a picture that is broken, or of another size: feed nothing, or leave it out.",
)
@dsn_option
@json_option
def feed(
    name: str, pictures: Path, labels: Path | None, resize: bool, on_error: str, dsn: str | None, as_json: bool
) -> None:
    """Feed task NAME a folder of PICTURES, or a .npy file of them, with their labels; all or none, in one COPY.

    If the outputs are pictures, the CSV names them in a column output. A .jsonl file has examples of any task instead,
    {"input": ..., "output": ...} on each line, and needs no labels; - reads such lines from standard input.
    """
    skipped = Skipped(refuses=on_error == "refuse")
    with database(dsn) as connection:
        if labels is None and (pictures.suffix == ".jsonl" or pictures == STANDARD_INPUT):
            n_fed = feed_lines(connection, name, pictures, skipped)
        elif labels is None:
            raise click.UsageError("give --labels, or a .jsonl file")
        else:
            n_fed = feed_pictures(connection, _task(connection, name), pictures, labels, resize, skipped)
    facts = {"task": name, "n_fed": n_fed, "n_skipped": skipped.n_examples, "problems": skipped.problems}
    _say(
        as_json,
        "\n".join([f"fed {n_fed} example{'' if n_fed == 1 else 's'}, skipped {skipped.n_examples}", *skipped.problems]),
        **facts,
    )


@task.command()
@click.argument("name")
@click.option("--off", callback=integer_list, help="Numbers of examples to switch off: 17,18.")
@click.option("--on", callback=integer_list, help="Numbers of examples to switch on again.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1), help="How many examples to list.")
@dsn_option
@json_option
def refine(name: str, off: list[int] | None, on: list[int] | None, limit: int, dsn: str | None, as_json: bool) -> None:
    """List the examples of task NAME, newest first, or switch some of them off and on, and list these."""
    switched = [*(off or ()), *(on or ())]
    with database(dsn) as connection:
        table = sql.Identifier(*str(_task(connection, name)["examples"]).split("."))
        for numbers, is_on in ((off, False), (on, True)):
            if numbers:
                _switch(connection, table, numbers, is_on=is_on)
        these, newest = sql.SQL("WHERE example_id = ANY (%s) ORDER BY 1"), sql.SQL("ORDER BY 1 DESC LIMIT %s")
        query = sql.SQL("SELECT example_id, output, is_on, fed_at FROM {} {}")
        listed = connection.execute(query.format(table, these if switched else newest), [switched or limit]).fetchall()
    print_rows(listed, as_json=as_json, empty=f"nothing was fed to {name} yet")


@task.command()
@click.argument("name")
@click.argument("pictures", type=FILE, nargs=-1)
@click.option(
    "--input",
    "given",
    help="Inputs as JSON, one on each line, instead of pictures; @FILE reads them from a file, - from standard input.",
)
@click.option("--trial", "trial_id", type=int, help="The trial that answers (default: the best so far).")
@dsn_option
@json_option
def infer(
    name: str, pictures: tuple[Path, ...], given: str | None, trial_id: int | None, dsn: str | None, as_json: bool
) -> None:
    """Ask the best model of task NAME for its output, for PICTURES or for --input of any shape.

    A vector is [1, 2], a tensor has lists within lists, a series is a list of its objects, a tree has objects within
    objects: {"word": [...], "left": {...}, "right": null}.
    """
    if (given is None) == (not pictures):
        raise click.UsageError("give either PICTURES, or --input")
    asked: list[tuple[str, object]] = [] if given is None else [*given_inputs(given)]
    with database(dsn) as connection:
        if given is None:
            from easeml_loaders.pictures import read_picture  # numpy comes with it

            form = pictures_of(_task(connection, name), is_resized=True)
            asked = [(path.name, read_picture(path, form)) for path in pictures]
        answers = [{"input": what, **_answer(connection, name, what, value, trial_id)} for what, value in asked]
    if as_json:
        print_json(answers)
        return
    for answer in answers:
        say(f"{answer['input']}: {_said(answer)}")


def _answer(connection: Connection, task: str, what: str, value: object, trial_id: int | None) -> Row:
    try:
        answer: Row = call(connection, "infer", task, value, trial_id)
    except psycopg.Error as error:
        refusal = server_error(error)
        if isinstance(refusal, NotFound) and refusal.message.startswith("there is no task"):
            hint = "easeml task lists yours; one that somebody else lets you use is tenant.task."
            raise NotFound(refusal.message, hint=hint) from error
        if not isinstance(refusal, ShapeMismatch | InvalidArgument | InvalidData):
            raise
        raise type(refusal)(f"{what}: {refusal.message}", detail=refusal.detail, hint=refusal.hint) from error
    return answer


def _said(answer: Row) -> str:
    """Return an output as a line: a class, a number, or the beginning of a tensor or series."""
    if "label" in answer:
        return f"{answer['label']}  ({answer['probability']:.3f})"
    output = answer["output"]
    if len(output) == 1 and not isinstance(output[0], list):
        return str(output[0])
    text = json.dumps(output)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ... (--json has all)"


@task.command()
@click.argument("name")
@dsn_option
@json_option
def report(name: str, dsn: str | None, as_json: bool) -> None:
    """Show the history of task NAME by date: versions, runs, arms, and the result of each."""
    with database(dsn) as connection:
        lines = call_rows(connection, "task_report", name)
    columns = {"at": "at", "architecture": "architecture", "metric": "metric", "value": "value", "event": "event"}
    print_rows(lines, as_json=as_json, columns=columns, empty="nothing yet")


@task.command("run")
@click.argument("name")
@dsn_option
@json_option
def run_now(name: str, dsn: str | None, as_json: bool) -> None:
    """Start a run of task NAME now, whatever its rule says."""
    with database(dsn) as connection:
        call(connection, "run_task", name)
    _say(as_json, f"a run of {name} begins in the background; watch it: easeml task report {name}", task=name)


@task.command()
@click.argument("name")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write; it must not exist.")
@dsn_option
@json_option
def client(name: str, out: Path, dsn: str | None, as_json: bool) -> None:
    """Write a small installable Python client of task NAME: feed, infer, refine, and a command of its own."""
    with database(dsn) as connection:
        row = _task(connection, name)
    package = write_client(out, name, row)
    folder = shlex.quote(str(out.absolute()))  # a bare name would be a package of the index to pip
    _say(as_json, f"{out}: install it with pip install {folder}, then: {package} --help", out=str(out), package=package)


COMMANDS = (task,)


def _task(connection: Connection, name: str) -> Row:
    tasks = rows(connection, "task", task=name)
    if not tasks:
        raise NotFound(f"there is no task {name!r}", hint="easeml task lists them.")
    return tasks[0]


def _switch(connection: Connection, table: sql.Identifier, numbers: list[int], *, is_on: bool) -> None:
    switched = connection.execute(
        sql.SQL("UPDATE {} SET is_on = %s WHERE example_id = ANY (%s) RETURNING example_id").format(table),
        [is_on, numbers],
    ).fetchall()
    missing = set(numbers) - {row["example_id"] for row in switched}
    if missing:
        raise NotFound(f"there is no example {min(missing)}", hint="easeml task refine NAME lists them.")


def _say(as_json: bool, text: str, **facts: object) -> None:
    if as_json:
        print_json(json.loads(json.dumps(facts)))
    else:
        say(text)
