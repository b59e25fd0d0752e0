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
    """A table without markup: brackets in the name of a dataset stay brackets, and become no link or colour."""

    def add_row(self, *cells: RenderableType | None, **named: Any) -> None:
        """Add a row of texts, or of renderables."""
        super().add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in cells), **named)


def print_table(table: Table) -> None:
    """Print a table. Without a terminal each row gets one line, however long, so that the output can be searched."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
        table.expand = False
    console.print(table)
