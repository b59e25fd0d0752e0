"""easeml console: pages in a browser about tasks and runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from easeml_db.cli.terminal.connection import dsn_option, dsn_with_passwords
from easeml_db.cli.terminal.output import say
from easeml_db.errors import InvalidArgument, NotReady

if TYPE_CHECKING:
    from easeml_db.console.settings import Settings


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; the default is this machine alone."
)
@click.option("--port", default=8642, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option(
    "--remote", is_flag=True, help="Allow a HOST that other machines can reach, although passwords are not encrypted."
)
@dsn_option
def console(host: str, port: int, remote: bool, dsn: str | None) -> None:
    """Show tasks and runs in a browser, to users who log in as a role of the database."""
    try:
        from easeml_db.console.rows import check_dsn
        from easeml_db.console.server import make_server
        from easeml_db.console.settings import Settings
    except ImportError as error:
        raise NotReady(
            f"easeml console needs the package {error.name}, which is not installed",
            hint="pip install 'easeml-db[console]'",
        ) from error
    settings = Settings(dsn_with_passwords(dsn), host, port)
    check_dsn(settings.dsn)
    _check_host(settings, remote)
    # Users who log in must not get a password from the environment.
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSSLCERT", "PGSSLKEY"):
        os.environ.pop(name, None)
    try:
        server = make_server(settings)
    except (OSError, ValueError) as error:
        raise NotReady(f"cannot listen on {host}:{port}", hint="Choose another --port.") from error
    say(f"{settings.address}\nopen this address in a browser; Ctrl+C ends the console")
    server.run()  # until Ctrl+C
    say("")


COMMANDS = (console,)


def _check_host(settings: Settings, remote: bool) -> None:
    """Refuse an address that others reach, unless they should, and one that no browser can ask."""
    if not (settings.is_loopback or remote):
        raise InvalidArgument(
            f"--host: {settings.host} may be reached from other machines, and passwords would cross the network"
            " unencrypted",
            hint="Leave it out and use an SSH tunnel; --remote allows it all the same.",
        )
    if settings.is_any_address:
        raise InvalidArgument(
            f"--host: {settings.host or 'an empty one'} stands for all addresses of this machine, and the console"
            " answers under one",
            hint="Name the address that browsers will use.",
        )
