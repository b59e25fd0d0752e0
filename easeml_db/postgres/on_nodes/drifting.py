"""How far rows on nodes are from those that were trained on, which lie on nodes, too: each counts its own by bin.

What nodes find in a step is put together on the control server, which says what follows. Counts travel, and no row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from easeml_db.postgres.nodes.node_store import Connection
from easeml_db.postgres.nodes.node_works import Fields, NodeWork, all_of

STEP = "SELECT easeml_segment.drift_on_node(%s, %s::jsonb) AS found"
SETTLE = "SELECT easeml.settle_drift(%s, %s::jsonb) AS settled"
OF_NODES = ("dataset_id", "role", "options", "has_target", "bins", "widths", "step", "thresholds")


class _Comparison:
    """The nodes that have training rows, those that have rows of the source, and what is known so far."""

    def __init__(self, control: Connection, told: Fields, works: Mapping[str, NodeWork]) -> None:
        self._control, self._told, self._works = control, dict(told), works
        self._homes, self._sources = list(told["homes"]), list(told["places"])

    async def measure(self) -> Fields:
        """Return {"rows"}: what easeml.drift returns."""
        async with AsyncExitStack() as reading:  # which keeps temporary tables
            for name in self._sources:
                await reading.enter_async_context(self._works[name].connection.transaction())
            await self._step(
                "source", self._sources, {name: {"tables": self._told["places"][name]} for name in self._sources}
            )
            await self._step("sizes", self._homes, {name: {"parts": self._told["homes"][name]} for name in self._homes})
            blocks = self._told["blocks_by_segment"]
            await self._step("trained", self._homes, {name: {"blocks": blocks[name]} for name in self._homes})
            while self._told["thresholds"]:
                await self._step("ranks", self._homes)
            await self._step("counts", self._homes)
            await self._step("new", self._sources)
        return {"rows": self._told["rows"]}

    async def _step(self, step: str, names: list[str], own: Mapping[str, Fields] | None = None) -> None:
        """Have nodes do a step side by side, and settle what follows."""
        sent = {name: self._told[name] for name in OF_NODES if name in self._told}
        found = await all_of(self._found(step, name, {**sent, **(own or {}).get(name, {})}) for name in names)
        told = json.dumps({**sent, "segments": names, "found": found})
        row: Any = await (await self._control.execute(SETTLE, [step, told])).fetchone()
        self._told |= row["settled"]

    async def _found(self, step: str, name: str, told: Fields) -> Fields:
        limit = self._told["limits"][name]
        (row,) = await self._works[name].execute(STEP, step, json.dumps({**told, "limit": limit}))
        found: Fields = row["found"]
        return found


async def measured(control: Connection, told: Fields, works: Mapping[str, NodeWork]) -> Fields:
    """Compare rows of a source on nodes with training rows on nodes. Raises EasemlError."""
    return await _Comparison(control, told, works).measure()
