"""Where a node keeps packed rows and states, if it is not in the tables of the extension easeml_segment.

A connection to such a node has its store as an attribute. Whatever moves rows and states asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from psycopg import sql

    from easeml_db.postgres.transfers import KnownState, Part


class OtherStore(Protocol):
    """The rows and states of one node. Its tables have the names of those of easeml_segment, and further columns."""

    @property
    def and_here(self) -> sql.Composable:
        """A condition that holds for rows of this node alone, with AND before it."""

    @property
    def lead(self) -> sql.Composable:
        """What stands first in a query of packed rows that come here."""

    @property
    def block_columns(self) -> sql.Composable:
        """The table and the columns that packed rows come to."""

    @property
    def chunk_columns(self) -> sql.Composable:
        """The table and the columns that chunks come to."""

    def chunk_lead(self, state: KnownState, lease_number: int) -> sql.Composable:
        """What stands before number and bytes in a query of chunks that come here."""

    async def has_part(self, part: Part) -> bool:
        """Say whether the rows of a part are here."""

    async def begin_part(self, part: Part, encoder: str) -> bool:
        """Note, in a transaction, that the rows of a part are here; return False where they are already."""

    async def has_state(self, state: KnownState) -> bool:
        """Say whether the chunks of a state are here."""

    async def has_number(self, checkpoint_id: int) -> bool:
        """Say whether anything is here under the number of a state."""

    async def drop_states(self, checkpoint_ids: Sequence[int]) -> None:
        """Remove states."""

    async def listed_states(self, lease_number: int) -> set[int]:
        """Return the states that were written under this lease or an earlier one."""

    async def listed_datasets(self) -> set[int]:
        """Return the datasets of which rows are here."""

    async def drop_datasets(self, dataset_ids: Sequence[int]) -> None:
        """Remove the rows of datasets."""

    async def vacuum(self) -> None:
        """Have the room of removed states used again."""


def other_store(connection: object) -> OtherStore | None:
    """Return the store of the node that a connection leads to; None: the tables of easeml_segment, or of easeml."""
    found: OtherStore | None = getattr(connection, "store", None)
    return found
