"""Replays a trial whose rows lie on nodes: unit after unit on the node that has its rows, with a state that hops.

Whole rounds run on one node, to which the rows that it lacks are copied, as they were for the trial.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby

from easeml_db.errors import EasemlError
from easeml_db.postgres.nodes.node_orders import mates_of, splits_of
from easeml_db.postgres.nodes.node_store import Connection, KnownState
from easeml_db.postgres.nodes.node_works import Fields, NodeWork, segment_errors
from easeml_db.postgres.nodes.states_in_use import StatesInUse
from easeml_db.postgres.nodes.transfers import bring_known, bring_state
from easeml_db.postgres.on_nodes.gathering import gather, homes_of

CHECK = "SELECT easeml_segment.check_part(%s, %s, %s)"
TRAIN, TRAIN_ROUND = "train_on_node", "train_round_on_node"
NUMBER = "SELECT nextval('easeml.checkpoints_checkpoint_id_seq') AS number"
OF_UNIT = ("position", "partition_number", "seed")
OF_OPENING = ("architecture", "config", "max_epochs", "metric", "dataset_id", "train_rows", "device", "n_threads")


class _Replay:
    """A trial that trains again, and the result of comparing its states so far."""

    def __init__(
        self, control: Connection, job: Fields, works: Mapping[str, NodeWork], lease_number: int, in_use: StatesInUse
    ) -> None:
        self._control, self._job, self._lease_number, self._in_use = control, job, lease_number, in_use
        self._homes = homes_of(job, works)
        self._at: tuple[NodeWork, KnownState] | None = None  # where the newest state is, and which
        self._kept = ExitStack()  # it is no garbage
        self.n_matching = 0
        self.first_difference: Fields | None = None
        self.final_sha256 = ""

    async def gather(self) -> None:
        """Gather the rows of all partitions on one node."""
        chosen = await gather(self._control, self._job, self._homes, *splits_of("train", self._job))
        self._homes = dict.fromkeys(self._homes, chosen)

    async def check(self) -> None:
        """Raise NotAllowed where packed rows are not those that the trial trained on."""
        for part, work in self._homes.items():
            await work.execute(CHECK, self._job["dataset_id"], part, self._job["checksums"][part])

    async def repeat(self, units: Sequence[Fields]) -> None:
        """Train a unit of the log, or all units of a whole round, and compare the state with the recorded one."""
        first, members = units[0], [{name: unit[name] for name in OF_UNIT} for unit in units]
        work = self._homes[first["partition_number"]]
        before = await self._bring(work)
        row = await (await self._control.execute(NUMBER)).fetchone()
        number = 0 if row is None else row["number"]
        at = {"step": 0, "slot_id": 0}
        order = {**members[0], **at, "epoch": first["epoch"], "trial_id": self._job["trial_id"], "kind": "train"}
        order |= {"attempt": 1, "lease_number": self._lease_number}
        if self._job["is_whole"]:
            gang = {"token": "", "rank": 0, "timeout_seconds": 0.0, "members": [{**member, **at} for member in members]}
            order |= {"gang": gang}
        with ExitStack() as using:
            using.enter_context(self._in_use.using(number))
            called = TRAIN_ROUND if self._job["is_whole"] else TRAIN
            result = await work.unit(called, json.dumps(order), json.dumps(self._opened(work, before, number)))
            for unit in units:
                self._compare(unit, result["sha256"])
            await self.forget()
            state = KnownState(number, self._job["trial_id"], result["n_bytes"], result["sha256"])
            self._at, self._kept = (work, state), using.pop_all()

    def _opened(self, work: NodeWork, before: int | None, number: int) -> Fields:
        """Return the context of a unit for a node, beside its order."""
        unknown = ("best_checkpoint_id", "best_epoch", "best_metric_value", "best_loss", "started_at")
        return {
            **{name: self._job[name] for name in OF_OPENING}, **dict.fromkeys(unknown),
            "composition": self._job["composition"],
            "checkpoint_id": before, "new_checkpoint_id": number, "mean_rows": {"train": 1.0, "evaluate": 1.0},
            **self._job["limits"][work.node.segment_name],
        }  # fmt: skip

    async def _bring(self, work: NodeWork) -> int | None:
        """Send the newest state to a node; return its number, None before the first unit, which may need others."""
        if self._at is None:
            async with segment_errors(work.node):
                for mate in mates_of(self._job):
                    await bring_known(self._control, work.store, mate, self._lease_number)
            return None
        source, state = self._at
        if source is not work:
            async with segment_errors(work.node):
                await bring_state(source.store, work.store, state, self._lease_number)
            async with segment_errors(source.node):
                await source.store.drop_state(state.checkpoint_id)
            self._at = work, state
        return state.checkpoint_id

    def _compare(self, unit: Fields, sha256: str) -> None:
        self.final_sha256 = sha256
        if sha256 == unit["sha256"]:
            self.n_matching += 1
        elif self.first_difference is None:
            named = {name: unit[name] for name in ("epoch", "position", "partition_number")}
            hashes = {"stored_sha256": unit["sha256"], "replayed_sha256": sha256}
            self.first_difference = {**named, **hashes, "tensors": None}

    async def forget(self) -> None:
        """Remove the last state; one that cannot be removed is garbage."""
        with self._kept:
            if self._at is not None:
                async with segment_errors(self._at[0].node):
                    await self._at[0].store.drop_state(self._at[1].checkpoint_id)
                self._at = None


async def replay(
    control: Connection, job: Fields, works: Mapping[str, NodeWork], lease_number: int, in_use: StatesInUse
) -> Fields:
    """Train a trial again where its rows lie; return what easeml.replay promises."""
    again = _Replay(control, job, works, lease_number, in_use)
    try:
        if job["is_whole"]:
            await again.gather()
        await again.check()
        for _, units in groupby(job["units"], key=lambda unit: (unit["epoch"], job["is_whole"] or unit["position"])):
            await again.repeat(list(units))
    finally:
        with suppress(EasemlError):
            await again.forget()
    n_units = len(job["units"])
    return {
        "trial_id": job["trial_id"], "n_units": n_units, "n_matching": again.n_matching,
        "is_identical": again.n_matching == n_units, "first_difference": again.first_difference,
        "final_sha256": again.final_sha256, "device": job["device"], "n_threads": job["n_threads"],
    }  # fmt: skip
