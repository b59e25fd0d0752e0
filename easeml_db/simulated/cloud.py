"""A provider of instances in memory: they wait in a queue, start or fail to start, die, and are counted.

It outlives every coordinator. An instance is identified by its request: a repeated request gets the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from easeml_db.simulated.time import SimulatedTime


@dataclass
class CloudInstance:
    """An instance as the provider sees it; `ends_seconds` None: it is there."""

    request_id: str
    billed_seconds: float
    ready_seconds: float
    is_failing: bool
    dies_seconds: float | None
    ends_seconds: float | None = None


@dataclass(frozen=True)
class CloudFaults:
    """The fate of the k-th instance (from 1): seconds in the queue and to start, whether it fails to start, and how
    long after its start it dies (None: it lives).
    """

    queue_seconds: Callable[[int], float] = lambda number: 0.0
    start_seconds: Callable[[int], float] = lambda number: 0.0
    is_failing: Callable[[int], bool] = lambda number: False
    dies_after: Callable[[int], float | None] = lambda number: None


class Cloud:
    """All instances that were ever started."""

    def __init__(self, time: SimulatedTime, faults: CloudFaults | None = None) -> None:
        self._time, self.faults = time, faults or CloudFaults()
        self.instances: dict[str, CloudInstance] = {}
        self.n_stops = 0

    def start(self, request_id: str) -> CloudInstance:
        """Return the instance of a request, started if it is new. One that has ended is not started again."""
        if request_id not in self.instances:
            number, now = len(self.instances) + 1, self._time.now_seconds
            billed = now + self.faults.queue_seconds(number)
            ready, dies = billed + self.faults.start_seconds(number), self.faults.dies_after(number)
            self.instances[request_id] = CloudInstance(
                request_id, billed, ready, self.faults.is_failing(number), None if dies is None else ready + dies
            )
        return self.instances[request_id]

    def stop(self, request_id: str) -> None:
        """End an instance, once; one that was never requested counts as gone."""
        self.n_stops += 1
        instance = self.instances.get(request_id)
        if instance is not None and instance.ends_seconds is None:
            instance.ends_seconds = self._time.now_seconds

    def alive(self) -> list[str]:
        """Return the requests whose instances are ready or starting, and therefore paid."""
        return [instance.request_id for instance in self.instances.values() if instance.ends_seconds is None]
