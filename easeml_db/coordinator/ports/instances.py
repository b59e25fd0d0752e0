"""Instances that bring slots for planned runs: what the tables say of them, and what starts and stops them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from easeml_db.words.instance import Instance


class InstanceStore(Protocol):
    """Records instances before they are started and after they are gone. Raises StaleLease."""

    async def alive(self) -> list[Instance]:
        """Return all instances that are requested, ready, or being released."""

    async def local_slots(self) -> int:
        """Return how many slots this server may have, those added for planned runs among them."""

    async def request(self, run_id: int, provisioner: str, instance_type: str, n: int) -> Sequence[int]:
        """Record a request for instances; return their numbers, none where the run is not open."""

    async def billed(self, instance_id: int) -> None:
        """Record that an instance is paid from now on."""

    async def attach(self, instance_id: int, device: str | None) -> bool:
        """Give a requested instance its slots, and count it as ready; return whether there were slots for it."""

    async def release(self, instance_id: int) -> None:
        """Return the slots that were taken for an instance, and drain those that were added for it."""

    async def end(self, instance_id: int, status: str, cost: float, reason: str | None = None) -> None:
        """Record that an instance is released, or has failed, and remove the slots that were added for it."""

    async def keep_call(self, instance_id: int, program: str, outcome: str, output: str) -> None:
        """Record the output of a program."""


class Provisioner(Protocol):
    """Starts and stops instances. Outcomes arrive in the inbox: InstanceBilled once an instance is billed, InstanceUp,
    InstanceDown or InstanceFailed, and ProgramSaid for each call of a program. Both calls return at once and may be
    repeated: an existing instance is found and not started again; one that is already gone is reported as down.
    """

    async def start(self, instance: Instance) -> None:
        """Start an instance, or find it, and watch it until it is stopped."""

    async def stop(self, instance: Instance) -> None:
        """Stop an instance, whether it is ready or not."""

    async def close(self) -> None:
        """Stop watching; instances stay as they are."""
