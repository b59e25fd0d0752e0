"""A tenant: a database role with its own datasets, runs and share of the machine; and the settings that apply to all
tenants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tenant:
    """`name` is that of the database role, `weight` its share relative to the others', `deadline_seconds` when its runs
    end (since 1970), and `max_slots` how many slots work for it at once. Further limits are kept by the server."""

    name: str
    weight: float = 1.0
    deadline_seconds: float | None = None
    max_slots: int | None = None


@dataclass(frozen=True)
class Tenancy:
    """How tenants are served: the policy, the prior of their bandits, a seed, the longest wait of a tenant for others'
    arms (infinity: as long as they take), and the tenants by name. A tenant that is not listed has weight 1.
    """

    policy: str = "robust"
    prior: str = "auto"
    seed: int = 0
    max_wait_seconds: float = 60.0
    tenants: Mapping[str, Tenant] = field(default_factory=dict)

    def tenant(self, name: str) -> Tenant:
        """Return the terms of a tenant."""
        return self.tenants.get(name) or Tenant(name)


@dataclass(frozen=True, slots=True)
class PastArm:
    """An arm that some run has closed: its quality, its cost and its work (see `run.Arm`)."""

    run_id: int
    task: str
    name: str
    quality: float
    cost_seconds: float
    work: float
