"""The work that waits for each partition if partitions are bound to segments, and the slots that can do it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from easeml_db.decisions.hopper.schedulers.contract import Candidate, Placement

UNKNOWN_LOAD = 1.0  # for trials that were never timed


class PartitionLoads:
    """Seconds of work that idle trials still have, by partition; the work of a trial is divided among the partitions
    that it may meet next.
    """

    def __init__(self, placement: Placement) -> None:
        self._load = [0.0] * placement.n_partitions
        self.serve(placement)

    def serve(self, placement: Placement) -> None:
        """Serve the slots of this placement from now on; its partitions are the same."""
        partitions = range(placement.n_partitions)
        self._held = {slot: [q for q in partitions if placement.can_run(slot, q)] for slot in placement.segment_of}
        self._n_able = [max(len(placement.slots_for((q,))), 1) for q in partitions]

    def add(self, candidate: Candidate) -> None:
        """Add the work of a trial that is idle."""
        self._change(candidate, 1)

    def remove(self, candidate: Candidate) -> None:
        """Remove the work of a trial that is idle no more."""
        self._change(candidate, -1)

    def share(self, partition: int) -> float:
        """Return the seconds of work on a partition for each of the slots that can run it."""
        return self._load[partition] / self._n_able[partition]

    def held_by(self, slot: int) -> Collection[int]:
        """Return the partitions that a slot can run."""
        return self._held[slot]

    def most_loaded_partitions(self, slot: int) -> Sequence[int]:
        """Sort the partitions that a slot can run by the work that waits for it there."""
        held = self._held[slot]
        return held if len(held) < 2 else sorted(held, key=lambda q: (-self.share(q), q))

    def most_loaded_slots(self, slots: Sequence[int]) -> Sequence[int]:
        """Sort slots by the work that waits for them."""
        if len(slots) < 2:
            return slots
        shares = [self.share(partition) for partition in range(len(self._load))]
        loads = {slot: sum(shares[partition] for partition in self._held[slot]) for slot in slots}
        # Equal loads, summed in another order, differ in their last digits: rounding makes them tie.
        return sorted(slots, key=lambda slot: (-round(loads[slot], 9), slot))

    def _change(self, candidate: Candidate, sign: int) -> None:
        partitions = candidate.partition_numbers
        seconds = candidate.remaining_seconds if math.isfinite(candidate.remaining_seconds) else UNKNOWN_LOAD
        share = sign * seconds / len(partitions)
        for partition in partitions:
            self._load[partition] += share
