"""Logged-in users, kept only in this process, under tokens that only their browsers have."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from secrets import compare_digest, token_urlsafe

IDLE_SECONDS = 1800.0
MOST_LOGINS = 100
MOST_FAILURES = 10
FAILURE_SECONDS = 60.0
LONGEST_NAME = 63


@dataclass(frozen=True)
class Login:
    """A role, the connection string with which it logged in, and the token that its forms must send."""

    role: str
    dsn: str
    form_token: str
    seen_at: float


class Logins:
    """Logins by token; `now` returns monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._lock = now, threading.Lock()
        self._logins: dict[str, Login] = {}
        self._failures: list[tuple[float, str]] = []  # with the roles that were tried

    def add(self, role: str, dsn: str) -> str:
        """Record a login; return its token. Beyond a hundred logins, the role that has most loses the one that was idle
        longest, so that a role that logs in repeatedly ends no other role's logins.
        """
        token = token_urlsafe(32)
        with self._lock:
            self._forget()
            if len(self._logins) >= MOST_LOGINS:
                del self._logins[self._longest_idle()]
            self._logins[token] = Login(role, dsn, token_urlsafe(32), self._now())
        return token

    def of(self, token: str | None) -> Login | None:
        """Return the login of a token, and note that it was seen; None for none, or one that was idle too long."""
        with self._lock:
            self._forget()
            login = self._logins.get(token or "")
            if login is None or token is None:
                return None
            self._logins[token] = replace(login, seen_at=self._now())
            return login

    def remove(self, token: str | None) -> None:
        """Forget a login."""
        with self._lock:
            self._logins.pop(token or "", None)

    def fail(self, role: str) -> None:
        """Record a failed login as a role."""
        with self._lock:
            self._failures.append((self._now(), role[:LONGEST_NAME]))

    def is_blocked(self, role: str) -> bool:
        """Return whether too many logins as a role failed within the last minute; those of other roles do not count."""
        with self._lock:
            self._failures = [failure for failure in self._failures if failure[0] > self._now() - FAILURE_SECONDS]
            return sum(tried == role[:LONGEST_NAME] for _, tried in self._failures) >= MOST_FAILURES

    def _longest_idle(self) -> str:
        """Return the token of the login that was idle longest, of the role that has most logins."""
        counts = Counter(login.role for login in self._logins.values())
        return min(self._logins, key=lambda token: (-counts[self._logins[token].role], self._logins[token].seen_at))

    def _forget(self) -> None:
        oldest = self._now() - IDLE_SECONDS
        self._logins = {token: login for token, login in self._logins.items() if login.seen_at > oldest}


def is_same(given: str | None, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return compare_digest((given or "").encode(), expected.encode())
