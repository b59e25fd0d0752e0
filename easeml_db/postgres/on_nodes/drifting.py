"""Drift of rows on nodes from training rows on nodes: each node counts its own rows by bin.

After each step the control server combines the counts and sets the next step. Counts travel, and no row.
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
    """The nodes with training rows, the nodes with rows of the source, and the job, which each step extends."""

    def __init__(self, control: Connection, job: Fields, works: Mapping[str, NodeWork]) -> None:
        self._control, self._job, self._works = control, dict(job), works
        self._homes, self._sources = list(job["homes"]), list(job["places"])

    async def measure(self) -> Fields:
        """Return {"rows"}: what easeml.drift returns."""
        async with AsyncExitStack() as reading:  # which keeps temporary tables
            for name in self._sources:
                await reading.enter_async_context(self._works[name].connection.transaction())
            await self._step("source", self._sources, tables=self._job["places"])
            await self._step("sizes", self._homes, parts=self._job["homes"])
            await self._step("trained", self._homes, blocks=self._job["blocks_by_segment"])
            while self._job["thresholds"]:
                await self._step("ranks", self._homes)
            await self._step("counts", self._homes)
            await self._step("new", self._sources)
        return {"rows": self._job["rows"]}

    async def _step(self, step: str, names: list[str], **by_node: Mapping[str, Any]) -> None:
        """Do a step on nodes at once, and settle their answers."""
        sent = {name: self._job[name] for name in OF_NODES if name in self._job}
        parts = {name: {key: values[name] for key, values in by_node.items()} for name in names}
        answers = await all_of(self._answer(step, name, {**sent, **parts[name]}) for name in names)
        state = json.dumps({**sent, "segments": names, "found": answers})
        row: Any = await (await self._control.execute(SETTLE, [step, state])).fetchone()
        self._job |= row["settled"]

    async def _answer(self, step: str, name: str, request: Fields) -> Fields:
        limit = self._job["limits"][name]
        (row,) = await self._works[name].execute(STEP, step, json.dumps({**request, "limit": limit}))
        answer: Fields = row["found"]
        return answer


async def measured(control: Connection, job: Fields, works: Mapping[str, NodeWork]) -> Fields:
    """Compare rows of a source on nodes with training rows on nodes. Raises EasemlError."""
    return await _Comparison(control, job, works).measure()
