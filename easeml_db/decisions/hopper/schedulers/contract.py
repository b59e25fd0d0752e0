"""The contract of schedulers and its terms: placement, candidates, assignments.

A scheduler serves one run. The caller reports idle trials and asks it to fill idle slots, never mentioning units under
way. One conformance suite (tests/unit/hopper) checks the rules for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from easeml_db.errors import InvalidArgument

# What each slot has cached: partition numbers of this run, by slot.
Cached = Mapping[int, Collection[int]]


@dataclass(frozen=True)
class Placement:
    """Which slot may run which partition.

    `segment_of` gives the segment of each slot, `holders` the segments that hold each partition (shape (p,)). No
    `holders`: every slot may run every partition. Partitions that a segment in `gathering` does not hold may be copied
    there, for a unit over all partitions.
    """

    n_partitions: int
    segment_of: Mapping[int, int]
    holders: tuple[frozenset[int], ...] | None = None
    gathering: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.n_partitions < 1:
            raise InvalidArgument(f"n_partitions: expected at least 1, got {self.n_partitions}")
        if self.holders is not None and len(self.holders) != self.n_partitions:
            raise InvalidArgument(f"holders: expected {self.n_partitions} partitions, got {len(self.holders)}")

    @classmethod
    def shared(cls, slots: Sequence[int], n_partitions: int) -> Placement:
        """Let every slot run every partition."""
        return cls(n_partitions, dict.fromkeys(slots, 1))

    @classmethod
    def one_holder_each(cls, slots: Sequence[int]) -> Placement:
        """Take as many slots as partitions; the j-th slot alone holds partition j (as in Cerebro's figure 6)."""
        return cls(
            len(slots), {slot: j for j, slot in enumerate(slots)}, tuple(frozenset({j}) for j in range(len(slots)))
        )

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots in service, in order."""
        return tuple(sorted(self.segment_of))

    def can_run(self, slot: int, partition: int) -> bool:
        """Return whether a slot may run a partition."""
        return self.holders is None or self.segment_of[slot] in self.holders[partition]

    def slots_for(self, partitions: Collection[int]) -> set[int]:
        """Return the slots that may run one of these partitions."""
        if self.holders is None:
            return set(self.segment_of) if partitions else set()
        segments = frozenset().union(*(self.holders[partition] for partition in partitions))
        return {slot for slot, segment in self.segment_of.items() if segment in segments}

    def slots_for_all(self) -> set[int]:
        """Return the slots that may run every partition, or to whose segment all may be brought."""
        every = range(self.n_partitions)
        return {
            slot
            for slot, segment in self.segment_of.items()
            if segment in self.gathering or all(self.can_run(slot, q) for q in every)
        }


def lead_of(n_epochs: int, *, is_limited: bool) -> int:
    """Return the lead of a trial that has done `n_epochs` epochs: trials with a smaller lead go first.

    Every trial has its first epoch before another has more, so that all can be compared early. If a time limit may end
    the run, trials with fewer epochs always go first; otherwise the limit could find some trials trained and others
    not.
    """
    return n_epochs if is_limited else min(n_epochs, 1)


@dataclass(frozen=True)
class Candidate:
    """An idle trial: the partitions that it may meet next (one if the visit order is cyclic, all that it has not met in
    this round if it is free) and its remaining seconds of work (>= 0; inf: not known).

    Trials of a lower `rank` go first if the scheduler considers remaining work; within a rank, those with a smaller
    `lead`. A round is one pass of a trial over all partitions; `round_number` counts them from 0 over its whole life.
    """

    trial_id: int
    trial_number: int
    round_number: int
    partition_numbers: tuple[int, ...]
    remaining_seconds: float
    rank: int = 0
    lead: int = 0

    def __post_init__(self) -> None:
        if not self.remaining_seconds >= 0:
            raise InvalidArgument(f"remaining_seconds: expected a number of at least 0, got {self.remaining_seconds}")


class Assignment(NamedTuple):
    """Run the unit of this trial over this partition on this slot now."""

    trial_id: int
    partition_number: int
    slot_id: int


class Scheduler(Protocol):
    """Decides which idle trial meets which partition on which idle slot."""

    def put(self, candidate: Candidate) -> None:
        """Mark a trial as idle, or update it."""

    def take(self, trial_id: int) -> None:
        """Remove a trial from the idle ones: it ended, failed, or is withheld for a moment."""

    def serve(self, placement: Placement) -> bool:
        """Serve other slots from now on; return False if that is impossible and the scheduler must be made again."""

    def choose(self, idle_slots: Sequence[int], cached: Cached | None = None) -> list[Assignment]:
        """Fill idle slots and take the chosen trials; at most one trial a slot and one slot a trial."""


@dataclass(frozen=True)
class Workload:
    """Trials with known unit times, to simulate or to plan.

    `unit_seconds[i][q]` is the time of trial number i + 1 over partition q on a slot of speed 1, shape (n, p);
    `n_rounds` how often each trial passes over all partitions; `speeds` of slots default to 1. `visit_order` is
    cyclic (trial i meets partition (i + k) mod p at position k) or free (the scheduler chooses).
    """

    unit_seconds: tuple[tuple[float, ...], ...]
    placement: Placement
    visit_order: str = "free"
    n_rounds: int = 1
    speeds: Mapping[int, float] = field(default_factory=dict)

    def seconds(self, trial_number: int, partition: int, slot: int) -> float:
        """Return how long a unit takes on a slot."""
        return self.unit_seconds[trial_number - 1][partition] / self.speeds.get(slot, 1.0)
