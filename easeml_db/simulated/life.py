"""The life of one coordinator process in a simulated world: it counts calls, has an inbox, and can be killed.

What a process did to the tables stays when it is killed. Its units run on, as in a server that has not noticed yet,
and try to be recorded.
"""

from __future__ import annotations

from collections import deque

from easeml_db.coordinator.ports.messages import Message
from easeml_db.simulated.world import SimulatedWorld


class Killed(BaseException):
    """The process is dead. Not an Exception, so that no handler catches it."""


class Life:
    """The state that the ports of one process share. With `dies_at_call` = k the k-th call (from 1) of any port but the
    clock kills the process instead.
    """

    def __init__(self, world: SimulatedWorld, dies_at_call: int | None = None) -> None:
        self.world = world
        self.inbox: deque[Message] = deque()
        self.lease_number = 0
        self.n_calls = 0
        self.n_heartbeats = 0
        self.is_dead = False
        self._dies_at_call = dies_at_call

    def call(self) -> None:
        """Count a call of a port; the dead make none."""
        self.n_calls += 1
        if self.n_calls == self._dies_at_call:
            self.die()
        if self.is_dead:
            raise Killed

    def deliver(self, message: Message) -> None:
        """Put a message into the inbox; the dead get none."""
        if not self.is_dead:
            self.inbox.append(message)

    def die(self) -> None:
        """End without a message: units under way continue."""
        self.is_dead = True
        self.world.time.leave(self)
        self.world.unlock(self)
