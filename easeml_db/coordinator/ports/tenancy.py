"""The choice of the next run: arms, priors, beliefs, and the policy's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.words.run import Arm
from easeml_db.words.tenant import PastArm, Tenancy


class TenancyStore(Protocol):
    """Reads tenants' settings and past arms, and records openings and results of arms."""

    async def tenancy(self) -> Tenancy:
        """Return how tenants are served."""

    async def past_arms(self) -> list[PastArm]:
        """Return the arms that runs have closed."""

    async def policy_memory(self, policy: str) -> Mapping[str, Any]:
        """Return the memory that this policy recorded with its last decision; empty if it has made none."""

    async def read_ahead(self, run_ids: Sequence[int]) -> None:
        """Read the priors of several runs at once; the next `prior` of each may return the result. Earlier results are
        forgotten.
        """

    async def prior(self, run_id: int) -> Prior | None:
        """Return the prior with which a run's arms began; None for a run that has none yet."""

    async def keep_priors(self, priors: Mapping[int, tuple[Prior, Sequence[int]]]) -> None:
        """Record the priors of runs, each with the arms that it is about: arms that come later do not count. The first
        prior of a run stays; a stale lease writes none."""

    async def open_arm(self, opening: Opening) -> int:
        """Record a decision and open its arm; return the decision's number. Raises StaleLease, also if the arm is open
        already, and NotFound if the run is over or its row is locked.
        """

    async def close_arm(self, run_id: int, arm_id: int) -> Arm | None:
        """Record the result of an arm once its trials have ended, and return the arm: not closed if a trial is open or
        its row is locked, None if the run is gone. Raises StaleLease.
        """

    async def charge(self, tenant: str, seconds: float) -> bool:
        """Add slot seconds of failed units to a tenant's usage; return whether they are recorded, which fails while the
        row is locked.
        """

    async def keep_beliefs(self, beliefs: Mapping[int, Sequence[Belief]]) -> None:
        """Record the present beliefs about the arms of these runs. Raises StaleLease."""
