"""The web server of the console. It is waitress, which bounds threads and connections, and needs no thread for each
slow request.
"""

from __future__ import annotations

import logging

from waitress import create_server
from waitress.server import BaseWSGIServer, MultiSocketServer

from easeml_db.console.app import MOST_BYTES, N_THREADS, make_app
from easeml_db.console.settings import Settings

MOST_CONNECTIONS = 100
IDLE_SECONDS = 20


def make_server(settings: Settings) -> BaseWSGIServer | MultiSocketServer:
    """Listen at the settings' host and port; `run()` serves until Ctrl+C. Raises OSError where that is not possible.

    Of further connections than MOST_CONNECTIONS none is accepted until another has ended, or was idle for IDLE_SECONDS.
    """
    # Do not log waiting requests or requests themselves to the terminal of the user who started it.
    logging.getLogger("waitress").setLevel(logging.ERROR)
    return create_server(
        make_app(settings), host=settings.host, port=settings.port, threads=N_THREADS, ident=None,
        connection_limit=MOST_CONNECTIONS, channel_timeout=IDLE_SECONDS, cleanup_interval=IDLE_SECONDS // 4,
        max_request_body_size=MOST_BYTES + 1,
    )  # fmt: skip
