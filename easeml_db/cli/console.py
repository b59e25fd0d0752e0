"""easeml console: pages in a browser about tasks and runs."""

from __future__ import annotations

import logging
import os

import click

from easeml_db.cli.connection import dsn_option, dsn_or_embedded
from easeml_db.cli.output import say
from easeml_db.errors import InvalidArgument, NotReady


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on: this machine alone.")
@click.option("--port", default=8642, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option("--remote", is_flag=True, help="Allow a HOST that other machines reach: passwords are not encrypted.")
@dsn_option
def console(host: str, port: int, remote: bool, dsn: str | None) -> None:
    """Show tasks and runs in a browser, to whoever logs in as a role of the database."""
    try:
        from werkzeug.serving import make_server

        from easeml_db.console.app import make_app
        from easeml_db.console.settings import Settings
    except ImportError as error:
        raise NotReady("the console needs Flask", hint="pip install 'easeml-db[console]'") from error
    settings = Settings(dsn_or_embedded(dsn), host, port)
    if not (settings.is_loopback or remote):
        raise InvalidArgument(
            f"--host: {host} may be reached from other machines, and passwords would cross the network unencrypted",
            hint="Leave it out and use an SSH tunnel; --remote allows it all the same.",
        )
    # Neither the log of requests, which has the key, nor a password of the environment is for those who log in.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSSLCERT", "PGSSLKEY"):
        os.environ.pop(name, None)
    try:
        server = make_server(host, port, make_app(settings), threaded=True)
    except (OSError, SystemExit) as error:
        raise NotReady(f"cannot listen on {host}:{port}", hint="Choose another --port.") from error
    say(f"{settings.address}\nopen this address in a browser; Ctrl+C ends the console")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("")


COMMANDS = (console,)
