"""Runs of many tenants side by side: live in a terminal, otherwise one line per change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from easeml_db.cli.search.screen import STATUS_STYLES
from easeml_db.cli.terminal.output import say
from easeml_db.cli.terminal.plain_table import PlainTable
from easeml_db.cli.terminal.statements import Connection, Row, rows
from easeml_db.errors import NotReady
from easeml_db.report.wording import metric_text

POLL_SECONDS = 0.2
OPEN_STATUSES = ("queued", "running")
Board = Sequence[Row]


def is_open(row: Row) -> bool:
    """Return whether a run goes on."""
    return row["status"] in OPEN_STATUSES


def watch_board(
    connection: Connection, run_ids: Sequence[int], lines: BoardChanges, until: Callable[[dict[str, Row]], bool]
) -> None:
    """Show these runs, by tenant, until the condition holds or none goes on. Raises NotReady without a coordinator."""
    if not sys.stdout.isatty():
        _follow(connection, run_ids, until, lines.tell)
        return
    with Live(console=Console(), auto_refresh=False, transient=True) as live:
        _follow(connection, run_ids, until, lambda board: live.update(board_screen(board), refresh=True))


def _follow(
    connection: Connection,
    run_ids: Sequence[int],
    until: Callable[[dict[str, Row]], bool],
    show: Callable[[Board], None],
) -> None:
    while True:
        board = rows(connection, "run_board", run_ids=list(run_ids))
        show(board)
        if until({row["tenant"]: row for row in board}) or not any(map(is_open, board)):
            return
        if not all(row["is_alive"] for row in board):
            raise NotReady("the coordinator is gone", hint="easeml logs shows what it said; easeml up starts another.")
        time.sleep(POLL_SECONDS)


class BoardChanges:
    """Prints a line for each run whose status or arms have changed."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[object, ...]] = {}

    def tell(self, board: Board) -> None:
        """Print a line for each change."""
        for row in board:
            now = (row["status"], row["n_open"], row["n_closed"])
            if self._seen.get(row["run_id"]) != now:
                say(f"{time.strftime('%H:%M:%S')}  {line(row)}")
            self._seen[row["run_id"]] = now


def line(row: Row) -> str:
    """Return the status of a run in one line."""
    arms = f"{row['n_closed']} closed, {row['n_open']} open, {row['n_waiting']} waiting"
    best = f"best {metric_text(row['best_quality'])}; " if row["n_closed"] else ""
    return f"{row['tenant']} {row['status']}: {arms}; {best}{last_words(row)}"


def last_words(row: Row) -> str:
    """Return the last decision about a run, or how it ended if it is over."""
    if is_open(row):
        return str(row["reason"] or "waits for the first decision")
    if row["status"] != "finished":
        return str(row["failure_reason"] or f"{row['status']}: {row['n_waiting']} of {row['n_arms']} arms never opened")
    left = f"the deadline came: {row['n_waiting']} of {row['n_arms']} arms never opened"
    return left if row["n_waiting"] else "every arm is closed"


def board_screen(board: Board) -> RenderableType:
    """Return the runs as a table, and below it the last decision about each."""
    table = PlainTable(box=None, pad_edge=False, header_style="bold")
    for name in ("tenant", "weight", "data", "status"):
        table.add_column(name, no_wrap=True, justify="right" if name == "weight" else "left")
    for name in ("closed", "open", "waiting", "best", "gap", "deadline"):
        table.add_column(name, no_wrap=True, justify="right", min_width=6)
    for row in board:
        table.add_row(
            row["tenant"], f"{row['weight']:g}", row["dataset_name"],
            Text(row["status"], style=STATUS_STYLES.get(row["status"], "")),
            *(str(row[name]) for name in ("n_closed", "n_open", "n_waiting")),
            metric_text(row["best_quality"] if row["n_closed"] else None), metric_text(row["estimated_gap"]),
            _deadline(row),
        )  # fmt: skip
    return Group(table, Text(), _decisions(board))


def _deadline(row: Row) -> Text:
    seconds = row["seconds_to_deadline"]
    if seconds is None:
        return Text()
    return Text(f"in {seconds:.1f} s", style="bold") if seconds > 0 else Text("over", style="yellow")


def _decisions(board: Board) -> PlainTable:
    table = PlainTable(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column("tenant", no_wrap=True)
    table.add_column("last decision", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in board:
        is_served = is_open(row) and (row["reason"] or "").startswith("served")
        table.add_row(row["tenant"], Text(last_words(row), style="cyan" if is_served else "dim"))
    return table
