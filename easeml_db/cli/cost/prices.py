"""easeml price: what slots cost; price lists as CSV files."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import click

from easeml_db.cli.terminal.arguments import jsonb
from easeml_db.cli.terminal.connection import database
from easeml_db.cli.terminal.listing import group_options, listing_group, read_rows
from easeml_db.cli.terminal.output import print_json, print_rows, say
from easeml_db.cli.terminal.statements import call
from easeml_db.errors import InvalidArgument, NotFound

PRICE_COLUMNS = {
    "price_list": "list", "instance_type": "instance", "device_kind": "device", "n_slots": "slots",
    "price_per_hour": "an hour", "billed_by": "by the", "billed_per": "per", "minimum_seconds": "least s",
    "price_per_gb": "a GB", "queue_seconds": "queue s", "start_seconds": "start s", "max_instances": "at most",
    "speed": "speed",
}  # fmt: skip
TEXT_COLUMNS = ("instance_type", "device_kind", "billed_by", "billed_per")
FILE_COLUMNS = (
    "instance_type", "device_kind", "n_slots", "price_per_hour", "billed_by", "billed_per", "minimum_seconds",
    "price_per_gb", "queue_seconds", "queue_sd_seconds", "start_seconds", "start_sd_seconds", "max_instances", "speed",
)  # fmt: skip
MAX_FILE_BYTES = 1_000_000


def _print_prices(dsn: str | None, as_json: bool) -> None:
    prices = read_rows(dsn, "prices", price_list=None)
    print_rows(prices, as_json=as_json, empty="no price lists", columns=PRICE_COLUMNS)
    if not as_json:
        for name, caveat in dict.fromkeys((row["price_list"], row["caveat"]) for row in prices if row["caveat"]):
            say(f"{name}: {caveat}")


prices = listing_group("price", "List prices (without a command), or import, export and drop lists.", _print_prices)


@prices.command("import")
@click.argument("price_list", metavar="NAME")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--caveat", help="What to know before trusting the figures.")
@click.option("--local", "is_local", is_flag=True, help="Its slots are those of this server.")
@group_options
def import_prices(
    price_list: str, path: Path, caveat: str | None, is_local: bool, dsn: str | None, as_json: bool
) -> None:
    """Make the price list NAME from FILE: a CSV with the columns that easeml price export writes."""
    types = read_types(path)
    with database(dsn) as connection:
        call(connection, "create_price_list", price_list, jsonb(types), caveat=caveat, is_local=is_local)
    _print_prices(dsn, as_json)


@prices.command("export")
@click.argument("price_list", metavar="NAME")
@group_options
def export_prices(price_list: str, dsn: str | None, as_json: bool) -> None:
    """Print the price list NAME as CSV."""
    entries = read_rows(dsn, "prices", price_list=price_list)
    if not entries:
        raise NotFound(f"there is no price list {price_list!r}", hint="easeml price lists them.")
    if as_json:
        print_json(entries)
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, FILE_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(entries)
    say(text.getvalue().rstrip("\n"))


@prices.command("drop")
@click.argument("price_list", metavar="NAME")
@group_options
def drop_prices(price_list: str, dsn: str | None, as_json: bool) -> None:
    """Drop the price list NAME; those that come with easeml stay."""
    with database(dsn) as connection:
        call(connection, "drop_price_list", price_list)
    _print_prices(dsn, as_json)


def read_types(path: Path) -> list[dict[str, Any]]:
    """Return the instance types of a CSV file. Raises InvalidArgument."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidArgument(f"{path}: expected at most {MAX_FILE_BYTES} bytes, got {path.stat().st_size}")
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"{path}: expected a CSV file in UTF-8: {error}") from error
    if not rows:
        raise InvalidArgument(f"{path}: expected a line of names and one for each instance type, got nothing")
    return [_typed(row, f"{path}, line {number}") for number, row in enumerate(rows, 2)]


def _typed(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the values of a line: numbers as numbers; an empty field stands for the default."""
    typed: dict[str, Any] = {}
    for name, value in row.items():
        if name is None or value is None:
            raise InvalidArgument(f"{where}: expected {len(row)} fields, as the first line names")
        if not value.strip():
            continue
        try:
            typed[name] = value.strip() if name in TEXT_COLUMNS else float(value)
        except ValueError:
            raise InvalidArgument(f"{where}: {name}: expected a number, got {value!r}") from None
    return typed


COMMANDS = (prices,)
