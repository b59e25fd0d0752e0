"""easeml run watch: a run, live in a terminal, otherwise one line per change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click
import psycopg
from rich.console import Console
from rich.live import Live
from rich.text import Text

from easeml_db.cli.search.run_snapshot import ProgressRate, RunSnapshot, SlotSmoothing, changes
from easeml_db.cli.search.screen import screen
from easeml_db.cli.terminal.arguments import run_argument
from easeml_db.cli.terminal.connection import database, dsn_option, dsn_or_embedded, open_connection
from easeml_db.cli.terminal.output import INTERRUPTED, json_option, print_json, say
from easeml_db.cli.terminal.statements import Connection, read_run, rows, run_or_newest
from easeml_db.errors import ServerUnavailable

POLL_SECONDS = 0.2
AWAY_SECONDS = 60.0


@click.command()
@run_argument
@dsn_option
@json_option
def watch(run_id: int | None, dsn: str | None, as_json: bool) -> None:
    """Show RUN (default: the newest) live until it ends. Exits with 1 unless it finished.

    Ctrl-C leaves the view, not the run. With --json the end is printed as one document.
    """
    with database(dsn) as connection:
        chosen = run_or_newest(connection, run_id)
    watch_and_exit(dsn, chosen, as_json=as_json)


COMMANDS = (watch,)


def watch_and_exit(dsn: str | None, run_id: int, *, as_json: bool = False) -> None:
    """Watch a run to its end, then leave with the exit code that it earned."""
    snapshot = watch_run(dsn, run_id, show_lines=as_json)
    if as_json:
        print_json({"run": snapshot.run, "leaderboard": list(snapshot.trials)})
    sys.exit(0 if snapshot.run["status"] == "finished" else 1)


def watch_run(dsn: str | None, run_id: int, *, show_lines: bool = False, is_transient: bool = False) -> RunSnapshot:
    """Show a run until it ends; return its last snapshot. Ctrl-C says that the run goes on, and exits.

    show_lines: a plain line per change on standard error, also in a terminal. is_transient: clear the view at the end.
    """
    reader = RunReader(dsn_or_embedded(dsn), run_id)
    try:
        if show_lines or not sys.stdout.isatty():
            return _follow(reader, is_on_error=show_lines)
        return _show(reader, is_transient)
    except KeyboardInterrupt:
        say(f"run {run_id} goes on. Watch it again: easeml run watch {run_id}; stop it: easeml run cancel {run_id}")
        sys.exit(INTERRUPTED)
    finally:
        reader.close()


class RunReader:
    """Reads a run over one connection, which it opens again after the server was away."""

    def __init__(self, dsn: str, run_id: int) -> None:
        self._dsn, self._run_id = dsn, run_id
        self._connection: Connection | None = None
        self._rate, self._smoothing = ProgressRate(), SlotSmoothing()
        self._last_seconds = time.monotonic()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read(self) -> RunSnapshot | None:
        """Return the run with its present status; None while the server is away. Raises ServerUnavailable after a
        minute without it.
        """
        try:
            snapshot = self._read()
        except (psycopg.OperationalError, ServerUnavailable) as error:
            self.close()
            if time.monotonic() - self._last_seconds > AWAY_SECONDS:
                raise ServerUnavailable(
                    f"the server has been away for {AWAY_SECONDS:.0f} seconds: {' '.join(str(error).split())}",
                    hint="Start the private one with easeml up, or see to yours; the run goes on by itself.",
                ) from error
            return None
        self._last_seconds = time.monotonic()
        return snapshot

    def _read(self) -> RunSnapshot:
        if self._connection is None:
            self._connection = open_connection(self._dsn, "easeml run watch")
        now_seconds = time.monotonic()
        run = read_run(self._connection, self._run_id)
        return RunSnapshot(
            run=run,
            trials=rows(self._connection, "leaderboard", run_id=self._run_id),
            slots=self._smoothing.steady(rows(self._connection, "slots"), now_seconds),
            events=rows(self._connection, "events", run_id=self._run_id, limit=100),
            seconds_left=self._rate.seconds_left(run, now_seconds),
        )


def _show(reader: RunReader, is_transient: bool) -> RunSnapshot:
    console = Console()
    with Live(console=console, auto_refresh=False, transient=is_transient) as live:

        def draw(last: RunSnapshot | None, now: RunSnapshot | None) -> None:
            if now is not None:
                live.update(screen(now, console.height), refresh=True)
            else:
                live.update(Text("the server cannot be reached; trying again", style="bold red"), refresh=True)

        return _until_end(reader, draw)


def _follow(reader: RunReader, *, is_on_error: bool) -> RunSnapshot:
    is_away = False

    def print_changes(last: RunSnapshot | None, now: RunSnapshot | None) -> None:
        nonlocal is_away
        lines = ["the server cannot be reached; trying again"] if now is None and not is_away else []
        is_away = now is None
        for line in lines if now is None else changes(last, now):
            say(f"{time.strftime('%H:%M:%S')}  {line}", err=is_on_error)

    return _until_end(reader, print_changes)


def _until_end(reader: RunReader, tell: Callable[[RunSnapshot | None, RunSnapshot | None], None]) -> RunSnapshot:
    """Read again and again; report each reading together with the last one that succeeded."""
    last = None
    while True:
        now = reader.read()
        tell(last, now)
        if now is not None and now.has_ended:
            return now
        last = now or last
        time.sleep(POLL_SECONDS)
