"""Sessions that fill the lock table of the server: ended before nobody else can work, and noted for administrators.

Any role with CONNECT can take locks by the thousand, where nobody has revoked the functions, and any owner of tables
by locking these. Once the table is full, no transaction can write and nobody can log in. Even ending a session needs a
lock then, to look up whose it is. So this session keeps some places between two looks, in an idle transaction without
a snapshot, and gives them back for the look.
"""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

from easeml_db.errors import EasemlError, ServerUnavailable
from easeml_db.postgres.chores.repeated_chores import RepeatedChore
from easeml_db.postgres.stores.store_session import StoreSession

ALARM_SECONDS = 60.0  # after an end: who was ended comes again


class Pace(NamedTuple):
    """The least rest between two looks, and how many times as long as the last look it is: one at 25,000 locks takes
    46 ms, and keeps others from the table meanwhile.
    """

    least_seconds: float
    n_times: float


USUAL, ALARMED = Pace(0.5, 20.0), Pace(0.02, 1.0)


class LockHolders(RepeatedChore):
    """Looks at the lock table twice a second."""

    def __init__(self, leading: StoreSession) -> None:
        super().__init__(leading, "locks")
        self._alarmed_until = 0.0
        self._has_reserve = False

    async def take_turn(self) -> float:
        """End who holds too much, and note it; return for how many seconds to rest."""
        began = time.monotonic()
        try:
            await self._look(await self._session(), began)
        except ServerUnavailable:
            self._has_reserve = False
            await self._leave()
        except EasemlError:
            pass  # the session is worth keeping: no other could log in now
        pace = ALARMED if began < self._alarmed_until else USUAL
        return max(pace.least_seconds, pace.n_times * (time.monotonic() - began))

    async def _look(self, session: StoreSession, began: float) -> None:
        if self._has_reserve:
            self._has_reserve = False
            await session.row("release_locks")
        holders = await session.rows("lock_holders")
        if any(holder["n_sessions"] for holder in holders):
            self._alarmed_until = began + ALARM_SECONDS
        for holder in holders:
            await session.row("note_lock_holder", **holder)
        self._has_reserve = True  # from BEGIN on there is a transaction to end
        await session.row("begin_reserve")
        with contextlib.suppress(EasemlError):
            await session.row("reserve_locks")
