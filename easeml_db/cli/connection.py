"""Which server a command talks to: --dsn, else EASEML_DSN, else the private server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import psycopg

from easeml_db.local.server import Embedded, default_folder
from easeml_db.postgres.connection import connect_now, server_error

dsn_option = click.option(
    "--dsn",
    envvar="EASEML_DSN",
    help="Connection string of the server (default: the private one of easeml up).",
)
data_option = click.option(
    "--data", "folder", type=click.Path(path_type=Path, file_okay=False), envvar="EASEML_DATA",
    help="Folder of the private server (default: your data folder; /var/lib/easeml/default for root).",
)  # fmt: skip


def embedded(folder: Path | None = None) -> Embedded:
    """Return the private server in that folder, or in the default one."""
    return Embedded((folder or default_folder()).absolute())


def dsn_or_embedded(dsn: str | None = None) -> str:
    """Return the connection string to use. Raises NotReady when there is no private server either."""
    return dsn or embedded(_folder_of_environment()).dsn()


def _folder_of_environment() -> Path | None:
    import os

    folder = os.environ.get("EASEML_DATA")
    return Path(folder) if folder else None


@contextmanager
def database(dsn: str | None) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """Open a connection; the server's errors come out as the project's, its notices go to standard error."""
    with connect_now(dsn_or_embedded(dsn), "easeml command line") as connection:
        connection.add_notice_handler(_show)
        try:
            yield connection
        except psycopg.Error as error:
            raise server_error(error) from error


def _show(notice: psycopg.errors.Diagnostic) -> None:
    if notice.severity_nonlocalized in ("NOTICE", "WARNING"):
        click.echo(f"{(notice.severity or '').lower()}: {notice.message_primary}", err=True)
        if notice.message_hint:
            click.echo(f"  hint: {notice.message_hint}", err=True)
