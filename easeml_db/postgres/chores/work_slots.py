"""The few places in which the service takes steps for tenants on its own initiative, such as checks of refreshed
datasets.

A step may take half an hour, and nobody knows beforehand which will. So while others wait, only one place may be held
that long, and the rest are freed after a minute. However many tenants hold places as long as they can, each waiting
tenant begins after a minute for each tenant before it. A tenant whose step was ended queues for the one long place, and
has it for a whole step when its turn comes, so no long step is postponed for ever. No step is ended unless a tenant
waits that has not had its minute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_AT_ONCE = 2
SHORT_SECONDS = 60.0
"""After this time a step that does not have the long place is ended, if somebody waits."""


@dataclass(frozen=True)
class Places:
    """The tenant that has the long place, and the queue for it: tenants whose steps were ended for others."""

    long: str | None = None
    line: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """The next change: the tenants whose steps end, those whose steps begin, and the places afterwards."""

    places: Places
    ends: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()


def change_of(
    places: Places, at_work: Mapping[str, float], waiting: Sequence[str], now: float, *, short_seconds: float
) -> Change:
    """Return the tenants whose steps end and begin now. at_work: start of each step at work, by tenant. waiting:
    tenants with a step to take and none at work, in order of their turns. A step told to end is still at work; ask
    again when it is over.
    """
    line = [tenant for tenant in places.line if tenant in at_work or tenant in waiting]
    long = places.long if places.long in at_work else None
    n_free = MOST_AT_ONCE - len(at_work)
    begins: list[str] = []
    if long is None and line and (line[0] in at_work or n_free > 0):
        long = line.pop(0)
        begins += [long] if long not in at_work else []
    # Those in line have had their minute: without the long place they would only begin anew, and be ended again.
    in_turn = sorted((tenant for tenant in waiting if tenant not in begins), key=lambda tenant: tenant in line)
    begins = (begins + in_turn)[: max(n_free, 0)]
    n_fresh = sum(tenant not in begins and tenant not in line for tenant in in_turn)
    late = [tenant for tenant, began in at_work.items() if tenant != long and now - began >= short_seconds]
    late.sort(key=lambda tenant: at_work[tenant])
    if n_fresh and late and long is None and not line:
        long = late.pop(0)
    ends = late[:n_fresh]
    line += [tenant for tenant in ends if tenant not in line]
    return Change(Places(long, tuple(line)), tuple(ends), tuple(begins))
