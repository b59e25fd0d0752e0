"""The choice of the next run: arms, priors, beliefs, and the policy's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.words.run import Arm
from easeml_db.words.tenant import PastArm, Tenancy


class TenancyStore(Protocol):
    """Reads tenants' terms and past arms, and records which arms are opened and what they came to."""

    async def tenancy(self) -> Tenancy:
        """Return how tenants are served."""

    async def past_arms(self) -> list[PastArm]:
        """Return the arms that runs have closed."""

    async def policy_memory(self, policy: str) -> Mapping[str, Any]:
        """Return what this policy recorded with its last decision; nothing if it has made none."""

    async def read_ahead(self, run_ids: Sequence[int]) -> None:
        """Read the priors of several runs at once: the next `prior` of each may return what was found now. What was
        read before is forgotten."""

    async def prior(self, run_id: int) -> Prior | None:
        """Return the prior with which a run's arms began; None for a run that has none yet."""

    async def keep_priors(self, priors: Mapping[int, tuple[Prior, Sequence[int]]]) -> None:
        """Record the priors of runs, each with the arms that it is about: arms that come later do not count. The first
        prior of a run stays; a stale lease writes none."""

    async def open_arm(self, opening: Opening) -> int:
        """Record a decision and open its arm; return the decision's number. Raises StaleLease, also where the arm is
        open already, and NotFound where the run is over or somebody holds its row."""

    async def close_arm(self, run_id: int, arm_id: int) -> Arm | None:
        """Record what an arm came to, once its trials are over, and return it: not closed where a trial is open or
        somebody holds its row, None when the run is gone. Raises StaleLease."""

    async def charge(self, tenant: str, seconds: float) -> bool:
        """Count slot seconds that came to nothing into what a tenant has used; return whether they are recorded: they
        are not while somebody holds the row."""

    async def keep_beliefs(self, beliefs: Mapping[int, Sequence[Belief]]) -> None:
        """Record what is believed of the arms of these runs now. Raises StaleLease."""
