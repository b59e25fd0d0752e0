"""The bytes that a tenant keeps, counted once in a transaction and added to from then on.

A sum over all blocks for each new block would take quadratic time. The count is kept in the session, where tenants
cannot reach it. Bytes that a rolled back savepoint added stay in the count, so it may be too high but never too low: a
caller that finds it above a limit counts again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Kept, Session


@dataclass
class _Counts:
    transaction: str = ""
    n_bytes: dict[str, int] = field(default_factory=dict)


COUNTS: Kept[_Counts] = Kept(_Counts)


@entry_point()
def add_bytes(session: Session, tenant: str, transaction: str, n_bytes: int) -> int | None:
    """Add to the count of a tenant and return it; None if this transaction has not counted yet."""
    counts = session.kept(COUNTS)
    if counts.transaction != transaction or tenant not in counts.n_bytes:
        return None
    counts.n_bytes[tenant] += n_bytes
    return counts.n_bytes[tenant]


@entry_point()
def begin_count(session: Session, tenant: str, transaction: str, n_bytes: int) -> int:
    """Begin the count of the bytes that a tenant keeps, and return it."""
    counts = session.kept(COUNTS)
    if counts.transaction != transaction:
        counts.transaction, counts.n_bytes = transaction, {}
    counts.n_bytes[tenant] = n_bytes
    return n_bytes
