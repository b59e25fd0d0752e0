"""easeml export and easeml import: a trial as a file, and back on another server."""

from __future__ import annotations

import re
from pathlib import Path

import click

from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.output import json_option, print_json, say
from easeml_db.cli.terminal.statements import call
from easeml_db.errors import EasemlError, InvalidData, NotAllowed

SUFFIX = ".safetensors"
MOST_BYTES = 1 << 30
"""PostgreSQL takes no larger value; a device has no end at all."""


@click.command("export")
@click.argument("dataset")
@click.option("--trial", "trial_id", type=int, help="The trial to export (default: the one that answers).")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File (default: DATASET.safetensors).")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@dsn_option
@json_option
def export_command(
    dataset: str, trial_id: int | None, out: Path | None, force: bool, dsn: str | None, as_json: bool
) -> None:
    """Write a trial of DATASET with its encoder into one file, for easeml import or the Python package easeml_model."""
    path = out or Path(file_name(dataset))
    taken = NotAllowed(f"{path} exists already", hint="Give another name with --out, or --force.")
    if path.exists() and not force:
        raise taken
    with database(dsn) as connection:
        contents = bytes(call(connection, "export_trial", dataset, trial_id=trial_id))
    try:
        with path.open("wb" if force else "xb") as file:  # does not follow a link that another user has put there
            file.write(contents)
    except FileExistsError as error:
        raise taken from error
    except OSError as error:
        raise EasemlError(f"cannot write {path}: {error.strerror}", hint="Choose another place with --out.") from error
    if as_json:
        print_json({"file": str(path), "n_bytes": len(contents)})
    else:
        say(f"{path}: {len(contents)} bytes")


def file_name(dataset: str) -> str:
    """Return the file name for a dataset: neither hidden nor one that other commands would read as an option."""
    return (re.sub(r"[^\w.-]+", "-", dataset).lstrip("-.") or "trial") + SUFFIX


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", help="Name of the dataset that predicts (default: that of the file).")
@dsn_option
@json_option
def import_command(file: Path, name: str | None, dsn: str | None, as_json: bool) -> None:
    """Store FILE, which easeml export has written, as a dataset that predicts."""
    with file.open("rb") as stored:
        contents = stored.read(MOST_BYTES + 1)
    if len(contents) > MOST_BYTES:
        raise InvalidData(f"{file}: expected a trial of at most {MOST_BYTES} bytes, got a larger file")
    with database(dsn) as connection:
        trial_id = call(connection, "import_trial", contents, name=name)
        row = connection.execute(
            "SELECT dataset_name, architecture FROM easeml.leaderboard WHERE trial_id = %s", [trial_id]
        ).fetchone()
    facts = {"trial_id": trial_id, **(row or {})}
    if as_json:
        print_json(facts)
    else:
        say(f"trial {trial_id} ({facts['architecture']}) answers for dataset {facts['dataset_name']}")


COMMANDS = (export_command, import_command)
