"""What a tenant keeps, counted once in a transaction and added up from then on.

A sum over all blocks for each new block would take time with the square of their number. The count lies in the session,
where tenants cannot reach it. What a rolled back savepoint added stays in it, so it is at most too high: whoever finds
it above a limit counts again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .session import Kept, Session, entry_point


@dataclass
class _Counts:
    transaction: str = ""
    n_bytes: dict[str, int] = field(default_factory=dict)


COUNTS: Kept[_Counts] = Kept(_Counts)


@entry_point
def add_bytes(session: Session, tenant: str, transaction: str, n_bytes: int) -> int | None:
    """Add to the count of a tenant and return it; None where this transaction has not counted yet."""
    counts = session.kept(COUNTS)
    if counts.transaction != transaction or tenant not in counts.n_bytes:
        return None
    counts.n_bytes[tenant] += n_bytes
    return counts.n_bytes[tenant]


@entry_point
def begin_count(session: Session, tenant: str, transaction: str, n_bytes: int) -> int:
    """Take down what a tenant keeps, and return it."""
    counts = session.kept(COUNTS)
    if counts.transaction != transaction:
        counts.transaction, counts.n_bytes = transaction, {}
    counts.n_bytes[tenant] = n_bytes
    return n_bytes
