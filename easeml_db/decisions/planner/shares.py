"""How many slots a planned run may have now: the available slots, shared by weight among the tenants that want some."""

from __future__ import annotations

from collections.abc import Mapping


def slots_to_be_had(
    n_slots: int, weights: Mapping[str, float], tenant: str, *, n_taken: int = 0, max_slots: int | None = None
) -> int:
    """Return the slots for a run of a tenant: its share by weight, less what its other planned runs have.

    `weights` are those of all tenants with open runs. If several tenants want slots, one is left to the others; so the
    result is 0 if there is only one slot.
    """
    total = sum(weights.values())
    share = n_slots if len(weights) < 2 else min(round(n_slots * weights[tenant] / total), n_slots - 1)
    if len(weights) > 1 and n_slots > 1:
        share = max(share, 1)
    most = share if max_slots is None else min(share, max_slots)
    return max(0, most - n_taken)
