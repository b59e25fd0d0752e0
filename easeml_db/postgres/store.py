"""The Store on PostgreSQL: one connection for short transactions, one that listens and holds the advisory lock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, LiteralString

import numpy as np
import psycopg

from easeml_db import __version__
from easeml_db.coordinator.ports import Message, RunChanged, SlotsChanged, TenantsChanged
from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.decisions.trial_groups.allocation import AllocationLog, ShareChange
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import EasemlError, ServerUnavailable, VersionMismatch
from easeml_db.postgres.connection import connect, out_of_space, server_error, unavailable
from easeml_db.postgres.queries import queries
from easeml_db.words.run import Arm, Run, Search
from easeml_db.words.tenant import PastArm, Tenancy, Tenant
from easeml_db.words.topology import Slot
from easeml_db.words.trial import Trial

ADVISORY_KEY = 7_202_011_708_307  # arbitrary, fixed: "easeml" in one database
STANDBY_SECONDS = 1.0
VACUUM = "VACUUM (TRUNCATE false) easeml.checkpoints, easeml.checkpoint_chunks"


class PostgresStore:
    """Reads and writes the tables of schema easeml, one short transaction a method."""

    def __init__(
        self, dsn: str, deliver: Callable[[Message], None], on_standby: Callable[[], None] = lambda: None
    ) -> None:
        self._dsn, self._deliver, self._on_standby = dsn, deliver, on_standby
        self._lease_number = 0
        self._has_to_vacuum = False
        self._vacuuming: asyncio.Task[None] | None = None
        self._vacuumer: psycopg.AsyncConnection[dict[str, Any]] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._joint_architectures: frozenset[str] | None = None

    async def open(self) -> None:
        """Connect, and refuse a database whose extension is missing or of another version."""
        self._connection = await connect(self._dsn, "easeml coordinator")
        self._listener = await connect(self._dsn, "easeml coordinator (listener)", idle_session_timeout="0")
        row = await self._one("SELECT extversion FROM pg_extension WHERE extname = 'easeml'")
        if row is None or row["extversion"] != __version__:
            found = "no extension easeml" if row is None else f"extension easeml {row['extversion']}"
            raise VersionMismatch(
                f"the database has {found}, this coordinator is {__version__}",
                hint="Run: easeml install --dsn ...",
            )

    async def close(self) -> None:
        """Close the connections; the advisory lock goes with them."""
        for task in self._background:
            task.cancel()
        if self._vacuumer is not None:
            await self._vacuumer.close()
        await self._listener.close()
        await self._connection.close()

    async def acquire_lease(self) -> int:
        """Wait for the advisory lock, then draw a new lease number."""
        # Asking again and again, and not waiting in the server: a waiting statement would hold back vacuum.
        is_told = False
        while not (await self._listener_says("SELECT pg_try_advisory_lock(%s) AS locked", [ADVISORY_KEY]))["locked"]:
            if not is_told:
                self._on_standby()
            is_told = True
            await asyncio.sleep(STANDBY_SECONDS)
        row = await self._say("draw_lease")
        self._lease_number = int(row["lease_number"])
        names = {"host": socket.gethostname(), "process_id": os.getpid(), "version": __version__}
        await self._say("register", **names)
        await self._say("clear_slots")
        await self._listener_says("LISTEN easeml_runs")
        await self._listener_says("LISTEN easeml_slots")
        await self._listener_says("LISTEN easeml_tenants")
        self._listening = self._spawn(self._listen())
        return self._lease_number

    async def holds_lease(self) -> bool:
        """Say whether the lease is still ours."""
        return bool((await self._say("read_lease"))["lease_number"] == self._lease_number)

    async def heartbeat(self) -> None:
        """Give a sign of life. Raises ServerUnavailable when the listener, and with it the lock, is lost."""
        if self._listening.done():
            raise ServerUnavailable("the coordinator's listening connection was lost")
        await self._say("heartbeat")

    async def slots(self) -> list[Slot]:
        """Return all slots, in whatever state."""
        return [Slot(**row) for row in await self._all("slots")]

    async def lose_slot(self, slot_id: int, reason: str) -> None:
        """Mark a slot as lost: what its unit may still do is not recorded any more."""
        # A process that is stuck within a transaction may hold the slot's row; the coordinator must not wait for it.
        # Its unit is fenced all the same, by its trial's progress.
        with contextlib.suppress(psycopg.errors.LockNotAvailable):
            async with self._connection.transaction():
                await self._connection.execute("SET LOCAL lock_timeout = '1s'")
                await self._say("lose_slot", slot_id=slot_id, reason=reason)

    async def explain_slot(self, slot_id: int, reason: str | None) -> None:
        """Say why a slot that should work does not; None: it does."""
        await self._say("explain_slot", slot_id=slot_id, reason=reason)

    async def recover_slots(self) -> list[int]:
        """Make active again the lost slots whose stuck process is gone; return them."""
        return [row["slot_id"] for row in await self._all("recover_slots")]

    async def open_runs(self) -> list[Run]:
        """Return all queued and running runs, oldest first."""
        runs = [await self.read_run(row["run_id"]) for row in await self._all("open_runs")]
        return [run for run in runs if run is not None]

    async def read_run(self, run_id: int) -> Run | None:
        """Return an open run; None when it ended or is gone."""
        rows = await self._all("read_run", run_id=run_id)
        if not rows:
            return None
        n_partitions, holders, search = (rows[0].pop(name) for name in ("n_partitions", "holders", "search"))
        trials = await self._all("read_trials", run_id=run_id)
        architectures = {row["trial_id"]: row.pop("architecture") for row in trials}
        return Run(
            **rows[0], architectures=architectures,
            arms=tuple(Arm(**row) for row in await self._all("read_arms", run_id=run_id)),
            arm_of={row["trial_id"]: row.pop("arm_id") for row in trials},
            trials=tuple(_trial(run_id, n_partitions, row) for row in trials),
            holders=None if holders is None else tuple(frozenset(segments) for segments in holders),
            search=None if search is None else Search(**search),
            joint_architectures=frozenset() if rows[0]["allocation"] == "hopping" else await self._read_joint(),
        )  # fmt: skip

    async def _read_joint(self) -> frozenset[str]:
        """Return the architectures that can train on several slots at once; asked once, in a session of its own."""
        if self._joint_architectures is None:
            session = await connect(self._dsn, "easeml coordinator (architectures)")
            async with session:  # its process loads torch, and ends here
                rows = await (await session.execute(queries("coordinator")["joint_architectures"].encode())).fetchall()
            self._joint_architectures = frozenset(row["architecture"] for row in rows)
        return self._joint_architectures

    async def tenancy(self) -> Tenancy:
        """Return how tenants are served."""
        tenants = [Tenant(**row) for row in await self._all("tenants")]
        return Tenancy(**await self._say("tenancy"), tenants={tenant.role: tenant for tenant in tenants})

    async def history(self) -> list[PastArm]:
        """Return the arms that runs have closed."""
        return [PastArm(**row) for row in await self._all("history")]

    async def policy_memory(self, policy: str) -> Mapping[str, Any]:
        """Return what this policy wrote down with its last decision."""
        memory: Mapping[str, Any] = (await self._say("policy_memory", policy=policy)).get("memory", {})
        return memory

    async def prior(self, run_id: int) -> Prior | None:
        """Return the prior with which a run's arms began; None for a run that has none yet."""
        row = await self._say("read_prior", run_id=run_id)
        if not row:
            return None
        mean, covariance = np.array(row.pop("mean")), np.array(row.pop("covariance"))
        return Prior(mean, covariance.reshape(len(mean), len(mean)), **row)

    async def keep_prior(self, run_id: int, prior: Prior, arm_ids: Sequence[int]) -> None:
        """Write down the prior of a run, and about which arms it is: others that come later do not count."""
        await self._say(
            "keep_prior", run_id=run_id, prior=prior.name, link=prior.link, degrees_of_freedom=prior.degrees_of_freedom,
            noise_variance=prior.noise_variance, mean=prior.mean.tolist(), covariance=prior.covariance.tolist(),
            fitted=json.dumps(prior.fitted, allow_nan=False), arm_ids=list(arm_ids),
        )  # fmt: skip

    async def open_arm(self, opening: Opening) -> int:
        """Write a decision down and open its arm; return the decision's number. StaleLease, NotFound."""
        document = json.dumps({**opening.row(), "lease_number": self._lease_number})
        return int((await self._say("open_arm", opening=document))["opening"])

    async def close_arm(self, run_id: int, arm_id: int) -> Arm | None:
        """Write down what an arm came to, once its trials are over; None when the run is gone."""
        await self._say("close_arm", arm_id=arm_id)
        arms = [Arm(**row) for row in await self._all("read_arms", run_id=run_id)]
        return next((arm for arm in arms if arm.arm_id == arm_id), None)

    async def trial_history(self, run_id: int, arm_id: int) -> list[TrialHistory]:
        """Return what a procedure may know of an arm's trials, by trial_number."""
        rows = await self._all("read_history", arm_id=arm_id)
        return [TrialHistory(**(row | {"scores": tuple(_score(score) for score in row["scores"])})) for row in rows]

    async def apply_decisions(self, run_id: int, arm_id: int, decisions: Sequence[Mapping[str, Any]]) -> int:
        """Start, continue and stop trials, all or none; return the bytes of states pruned. StaleLease, NotFound, or
        EasemlError where the tables refuse what follows from rows that a tenant has written itself."""
        try:
            document = json.dumps(list(decisions), allow_nan=False)
        except ValueError as error:
            raise EasemlError(f"a decision cannot be written down: {error}") from error
        try:
            return int((await self._say("apply_decisions", arm_id=arm_id, decisions=document))["pruned_bytes"])
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise server_error(error) from error

    async def keep_beliefs(self, run_id: int, beliefs: Sequence[Belief]) -> None:
        """Write down what is believed of a run's arms now."""
        await self._say("keep_beliefs", run_id=run_id, beliefs=json.dumps([asdict(belief) for belief in beliefs]))

    async def profiles(self, run_id: int) -> Mapping[tuple[str, str], MeasuredProfile]:
        """Return what is known of devices for the run's data set, by (architecture, kind of device)."""
        return {
            (row.pop("architecture"), row.pop("device_kind")): _profile(row)
            for row in await self._all("read_profiles", run_id=run_id)
        }

    async def keep_profile(self, run_id: int, architecture: str, device_kind: str, measured: MeasuredProfile) -> None:
        """Write down what was measured before a run's first units."""
        values = asdict(measured)
        values |= values.pop("profile") | {"measurements": json.dumps(measured.measurements, allow_nan=False)}
        await self._say("keep_profile", run_id=run_id, architecture=architecture, device_kind=device_kind, **values)

    async def keep_allocations(self, run_id: int, log: AllocationLog, labels: Mapping[int, str]) -> None:
        """Write down trial groups, labelled by number, and who got which devices."""
        document = {
            "run_id": run_id, "lease_number": self._lease_number, "ended": log.ended,
            "groups": [
                {"group_number": g.group_number, "label": labels[g.group_number], "n_trials": len(g.trial_ids)}
                for g in log.groups
            ],
            "decisions": [_share_change(each) for each in log.changes],
        }  # fmt: skip
        await self._say("keep_allocations", journal=json.dumps(document))

    async def start_run(self, run_id: int) -> None:
        """Mark a queued run as running."""
        await self._say("start_run", run_id=run_id)

    async def plan_run(
        self, run_id: int, scheduler: str, simulated_seconds: float | None, bound_seconds: float | None, reason: str
    ) -> None:
        """Write down how a run is scheduled from now on."""
        await self._say(
            "plan_run", run_id=run_id, scheduler=scheduler, simulated_seconds=simulated_seconds,
            bound_seconds=bound_seconds, reason=reason,
        )  # fmt: skip

    async def fail_trial(self, run_id: int, trial_id: int, reason: str) -> None:
        """Mark a trial as failed, with the reason."""
        await self._say("fail_trial", trial_id=trial_id, reason=reason)

    async def finish_run(self, run_id: int) -> None:
        """End a run: stop what is left of its trials; failed when every trial failed, else finished."""
        await self._say("start_run", run_id=run_id)
        await self._say("stop_trials", run_id=run_id)
        await self._say("close_arms", run_id=run_id)
        await self._say("finish_run", run_id=run_id)

    async def note(self, run_id: int, trial_id: int | None, kind: str, message: str) -> None:
        """Write an event into the run's history."""
        await self._say("note", run_id=run_id, trial_id=trial_id, kind=kind, message=message)

    async def reclaim(self) -> int:
        """Vacuum pruned states in the background, since units need not wait for it; return the bytes of the others."""
        self._has_to_vacuum = True
        if self._vacuuming is None or self._vacuuming.done():
            self._vacuuming = self._spawn(self._vacuum())
        return int((await self._say("live_bytes"))["n_bytes"])

    async def release_lease(self) -> None:
        """Sign off."""
        await self._say("sign_off")

    async def _vacuum(self) -> None:
        """Vacuum until nobody asks again; the session stays, since one for each vacuum would cost as much as that."""
        if self._vacuumer is None or self._vacuumer.closed:
            self._vacuumer = await connect(self._dsn, "easeml coordinator (vacuum)", idle_session_timeout="0")
        while self._has_to_vacuum:
            self._has_to_vacuum = False
            await self._vacuumer.execute(VACUUM)

    async def _listen(self) -> None:
        async for notice in self._listener.notifies():
            # Anybody may notify: what is no number is not for us.
            if notice.channel == "easeml_slots":
                self._deliver(SlotsChanged())
            elif notice.channel == "easeml_tenants":
                self._deliver(TenantsChanged())
            elif notice.payload.isascii() and notice.payload.isdigit() and len(notice.payload) < 19:
                self._deliver(RunChanged(int(notice.payload)))

    async def _listener_says(self, statement: LiteralString, values: Sequence[object] = ()) -> dict[str, Any]:
        try:
            cursor = await self._listener.execute(statement, values or None)
            return (await cursor.fetchone() or {}) if cursor.description else {}
        except psycopg.OperationalError as error:
            raise unavailable(error) from error

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # a broken listener shows at the next heartbeat, a failed vacuum is tried again

    async def _one(self, sql: LiteralString) -> dict[str, Any] | None:
        return await (await self._connection.execute(sql)).fetchone()

    async def _say(self, name: str, **values: object) -> dict[str, Any]:
        rows = await self._all(name, **values)
        return rows[0] if rows else {}

    async def _all(self, name: str, **values: object) -> list[dict[str, Any]]:
        statement = queries("coordinator")[name].encode()
        try:
            cursor = await self._connection.execute(statement, {"lease_number": self._lease_number, **values})
            return await cursor.fetchall() if cursor.description else []
        except psycopg.errors.LockNotAvailable:
            raise
        except psycopg.errors.DiskFull as error:
            raise out_of_space(error) from error
        except psycopg.OperationalError as error:
            raise unavailable(error) from error
        except psycopg.Error as error:
            if (error.sqlstate or "").startswith("ML"):
                raise server_error(error) from error
            raise


def _score(value: float | None) -> float:
    return math.nan if value is None else value


def _trial(run_id: int, n_partitions: int, row: dict[str, Any]) -> Trial:
    return Trial(run_id=run_id, n_partitions=n_partitions, **(row | {"met": frozenset(row["met"] or ())}))


def _profile(row: dict[str, Any]) -> MeasuredProfile:
    return MeasuredProfile(Profile(*(row.pop(name) for name in ("alpha", "beta", "c", "d"))), **row)


def _share_change(change: ShareChange) -> dict[str, Any]:
    share = change.share
    return {
        "group_number": change.group_number, "trial_id": share.trial_id, "width": share.width,
        "reason": change.reason, "devices": [device.name for device in share.devices],
        "slot_ids": [slot for device in share.devices for slot in device.slot_ids],
    }  # fmt: skip
