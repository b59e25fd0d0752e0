"""A tenant: a database role with its own data sets, runs and share of the machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tenant:
    """`weight` is the tenant's share relative to the others'; 1.0 unless an administrator says otherwise."""

    role: str
    weight: float = 1.0
