"""Packed rows and states on a server: code that moves them uses this contract, and knows no table.

A store is chosen once, when a connection is opened (nodes.py), and goes along with it from there on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg import sql

Connection = psycopg.AsyncConnection[dict[str, Any]]
Facts = dict[str, Any]


@dataclass(frozen=True)
class KnownState:
    """A state as the control server knows it; the node's state of that number must be the same."""

    checkpoint_id: int
    trial_id: int
    n_bytes: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """The rows of one split in one partition of a dataset."""

    dataset_id: int
    split: str
    partition_number: int


class Arrival(NamedTuple):
    """A transfer into a store: the query for the source, the target table and columns, and their types, if they must be
    known on the way.
    """

    query: sql.Composable
    into: sql.Composable
    types: tuple[str, ...] = ()


class Source(Protocol):
    """A server that states and packed rows come from: a node, or the control server."""

    @property
    def connection(self) -> Connection:
        """The connection by which it is reached."""

    def chunks_of(self, checkpoint_id: int) -> sql.Composable:
        """Return the query of a state's bytes in their order: checkpoint_id, chunk_number, bytes."""

    def blocks_of(self, part: Part, first: int, last: int) -> sql.Composable:
        """Return the query of some blocks of a part: dataset_id, split, partition_number, block_number, n_rows, inputs,
        targets."""

    async def last_block(self, part: Part) -> int:
        """Return the number of the last block of a part, -1 if it has none."""


class NodeStore(Source, Protocol):
    """The rows and states of one node."""

    # What is there

    async def facts(self) -> Facts:
        """Return the facts that the node reports. Raises the reason if it cannot be used."""

    async def hold(self, token: str) -> None:
        """Make the node serve a token, and no other."""

    async def make_ready(self) -> None:
        """Prepare the session for units. Raises NotReady."""

    async def register(self, registered: list[dict[str, Any]]) -> None:
        """Tell the node of architectures of installed packages, as they were registered on the control server."""

    async def receive(self, source: Connection, arrival: Arrival) -> int:
        """Copy a transfer from a source; return the number of bytes."""

    # Rows

    async def has_part(self, part: Part) -> bool:
        """Return whether the rows of a part are here."""

    async def begin_dataset(self, dataset_id: int, encoder: str) -> None:
        """Record the encoder of a dataset, unless it is recorded already."""

    async def begin_part(self, part: Part, encoder: str) -> bool:
        """Record, in a transaction, that the rows of a part are here; return False if they are already."""

    def arriving_blocks(self, blocks: sql.Composable) -> Arrival:
        """Return how blocks come here, of which a source has this query."""

    async def datasets(self) -> set[int]:
        """Return the datasets of which something is here."""

    async def drop_datasets(self, dataset_ids: Collection[int]) -> None:
        """Remove the rows of datasets."""

    # States

    async def has_state(self, state: KnownState) -> bool:
        """Return whether the bytes of a state are here, with the right trial and hash."""

    async def begin_state(self, state: KnownState, lease_number: int) -> bool:
        """Begin a transaction, and in it a state; return False if a state of that number exists."""

    def arriving_state(self, state: KnownState, lease_number: int, chunks: sql.Composable) -> Arrival:
        """Return how the bytes of a state come here, of which a source has this query."""

    async def states(self, lease_number: int) -> set[int]:
        """Return the states that were written under this lease or an earlier one."""

    async def drop_state(self, checkpoint_id: int) -> None:
        """Remove a state, if it is here."""

    async def collect(self, checkpoint_ids: Collection[int], lease_number: int) -> None:
        """Remove states that `states` listed under a lease, and have their room used again."""
