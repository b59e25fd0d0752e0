"""Tables for people, drawn by rich. They have a module of their own because importing rich takes longer than most
commands.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from easeml_db.words.visible_text import visible

PIPE_WIDTH = 10_000


class PlainTable(Table):
    """A table whose words are no markup: brackets in the name of a dataset are brackets, no link and no colour."""

    def add_row(self, *cells: RenderableType | None, **named: Any) -> None:
        """Add a row of texts, or of what is drawn already."""
        super().add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in cells), **named)


def print_table(table: Table) -> None:
    """Print a table; where there is no terminal it gets a line for each row, however long, for those who search it."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
        table.expand = False
    console.print(table)
