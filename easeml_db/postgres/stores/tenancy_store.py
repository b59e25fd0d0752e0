"""Arms, priors, beliefs and the policy's memory in PostgreSQL."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.errors import EasemlError
from easeml_db.postgres.stores.store_session import StoreSession
from easeml_db.words.run import Arm
from easeml_db.words.tenant import PastArm, Tenancy, Tenant


class PostgresTenancy:
    """TenancyStore on PostgreSQL."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._ahead: dict[int, dict[str, Any]] = {}

    async def tenancy(self) -> Tenancy:
        """Return how tenants are served."""
        tenants = [Tenant(**row) for row in await self._session.rows("tenants")]
        return Tenancy(**await self._session.row("tenancy"), tenants={tenant.name: tenant for tenant in tenants})

    async def past_arms(self) -> list[PastArm]:
        """Return the arms that runs have closed."""
        return [PastArm(**row) for row in await self._session.rows("history")]

    async def policy_memory(self, policy: str) -> Mapping[str, Any]:
        """Return the memory that this policy recorded with its last decision."""
        memory: Mapping[str, Any] = (await self._session.row("policy_memory", policy=policy)).get("memory", {})
        return memory

    async def read_ahead(self, run_ids: Sequence[int]) -> None:
        """Read the priors of several runs at once; the next `prior` of each returns the result."""
        self._ahead.clear()
        with contextlib.suppress(EasemlError):  # which the read of that run's prior raises again
            rows = await self._session.rows("read_prior", run_ids=list(run_ids))
            self._ahead |= {run_id: {} for run_id in run_ids} | {row["run_id"]: row for row in rows}

    async def prior(self, run_id: int) -> Prior | None:
        """Return the prior with which a run's arms began; None for a run that has none yet."""
        if run_id in self._ahead:
            row = self._ahead.pop(run_id)
        else:
            row = await self._session.row("read_prior", run_ids=[run_id])
        if not row:
            return None
        fields = {name: value for name, value in row.items() if name not in ("run_id", "mean", "covariance")}
        mean, covariance = np.array(row["mean"]), np.array(row["covariance"])
        return Prior(mean, covariance.reshape(len(mean), len(mean)), **fields)

    async def keep_priors(self, priors: Mapping[int, tuple[Prior, Sequence[int]]]) -> None:
        """Record the priors of runs, and about which arms they are: others that come later do not count."""
        self._ahead.clear()
        rows = [_prior_row(run_id, prior, arm_ids) for run_id, (prior, arm_ids) in priors.items()]
        await self._session.write("keep_priors", priors=json.dumps(rows, allow_nan=False))

    async def open_arm(self, opening: Opening) -> int:
        """Record a decision and open its arm; return the decision's number. StaleLease, NotFound."""
        document = json.dumps({**opening.row(), "lease_number": self._session.lease_number})
        return int((await self._session.needed("open_arm", opening=document))["opening"])

    async def close_arm(self, run_id: int, arm_id: int) -> Arm | None:
        """Record the result of an arm once its trials have ended; None if the run is gone."""
        await self._session.write("close_arm", arm_id=arm_id)
        rows = await self._session.rows("read_arms", run_ids=[run_id])
        arm_row = next((row for row in rows if row["arm_id"] == arm_id), None)
        return None if arm_row is None else Arm(**{name: value for name, value in arm_row.items() if name != "run_id"})

    async def charge(self, tenant: str, seconds: float) -> bool:
        """Add slot seconds of failed units to a tenant's usage; return whether they are recorded."""
        return bool(await self._session.write("charge", tenant=tenant, seconds=seconds))

    async def keep_beliefs(self, beliefs: Mapping[int, Sequence[Belief]]) -> None:
        """Record the present beliefs about the arms of these runs."""
        rows = [
            {"run_id": run_id, "beliefs": [asdict(belief) for belief in of_run]} for run_id, of_run in beliefs.items()
        ]
        await self._session.write("keep_beliefs", beliefs=json.dumps(rows))


def _prior_row(run_id: int, prior: Prior, arm_ids: Sequence[int]) -> dict[str, Any]:
    """Return a prior in the table's form. JSON has no infinity, but the server reads its text as a number."""
    return {
        "run_id": run_id, "prior": prior.name, "link": prior.link,
        "degrees_of_freedom": str(prior.degrees_of_freedom), "noise_variance": prior.noise_variance,
        "mean": prior.mean.tolist(), "covariance": prior.covariance.tolist(), "fitted": prior.fitted,
        "arm_ids": list(arm_ids),
    }  # fmt: skip
