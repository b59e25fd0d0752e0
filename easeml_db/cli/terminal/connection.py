"""Which server a command talks to: --dsn, else EASEML_DSN, else the private server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import psycopg
from psycopg.types.json import set_json_loads
from psycopg.types.string import TextLoader

from easeml_db.cli.terminal.output import say
from easeml_db.postgres.connection import SAFE_PATH, connect_now, server_error
from easeml_db.words.visible_text import visible, visible_value

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

TEXT_OIDS = (18, 19, 25, 705, 1042, 1043)  # "char", name, text, unknown, bpchar, varchar
OTHER_TYPES = 0  # the driver's name for all types that it does not know

dsn_option = click.option(
    "--dsn", envvar="EASEML_DSN", help="Connection string of the server (default: the private one of easeml up)."
)
data_option = click.option(
    "--data", "folder", type=click.Path(path_type=Path, file_okay=False), envvar="EASEML_DATA",
    help="Folder of the private server (default: your data folder; /var/lib/easeml/default for root).",
)  # fmt: skip


def embedded(folder: Path | None = None) -> Embedded:
    """Return the private server in that folder, or in the default one."""
    from easeml_db.local.server import Embedded, default_folder  # a command with a dsn knows of none

    return Embedded((folder or default_folder()).absolute())


def dsn_or_embedded(dsn: str | None = None) -> str:
    """Return the connection string to use. Raises NotReady when there is no private server either."""
    return dsn or embedded(_folder_of_environment()).dsn()


def dsn_with_passwords(dsn: str | None = None) -> str:
    """Return the connection string where roles must prove who they are: the socket of the private server trusts."""
    return dsn or embedded(_folder_of_environment()).tcp_dsn()


def _folder_of_environment() -> Path | None:
    import os

    folder = os.environ.get("EASEML_DATA")
    return Path(folder) if folder else None


@contextmanager
def database(dsn: str | None, *, has_own_names: bool = False) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """Open a connection; the server's errors come out as the project's, its notices go to standard error.

    has_own_names: the user names tables, as in SQL, so the session has the user's search_path.
    """
    with open_connection(dsn_or_embedded(dsn), has_own_names=has_own_names) as connection:
        connection.add_notice_handler(_show)
        try:
            yield connection
        except psycopg.Error as error:
            raise server_error(error) from error


def open_connection(
    dsn: str, application_name: str = "easeml command line", *, has_own_names: bool = False
) -> psycopg.Connection[dict[str, Any]]:
    """Open a connection whose rows are safe to show: characters that could control a terminal arrive as visible
    escapes, unless the command prints JSON, which escapes them itself.
    """
    path = None if has_own_names else SAFE_PATH
    connection = connect_now(dsn, application_name, search_path=path)
    if not _prints_json():
        for oid in (*TEXT_OIDS, OTHER_TYPES):
            connection.adapters.register_loader(oid, VisibleTextLoader)
        set_json_loads(lambda text: visible_value(json.loads(text)), connection)
    return connection


class VisibleTextLoader(TextLoader):
    """Reads a text, with characters that could control a terminal as visible escapes."""

    def load(self, data: Any) -> str | bytes:
        """Return the text."""
        text = super().load(data)
        return visible(text) if isinstance(text, str) else text


def _prints_json() -> bool:
    context = click.get_current_context(silent=True)
    while context is not None:
        if context.params.get("as_json"):
            return True
        context = context.parent
    return False


def _show(notice: psycopg.errors.Diagnostic) -> None:
    if notice.severity_nonlocalized in ("NOTICE", "WARNING"):
        say(f"{(notice.severity or '').lower()}: {visible(notice.message_primary or '')}", err=True)
        if notice.message_hint:
            say(f"  hint: {visible(notice.message_hint)}", err=True)
