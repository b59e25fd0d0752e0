"""Orders that the coordinator gives to slots, and the messages that arrive in its inbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from easeml_db.decisions.trial_groups.measuring import Sample
from easeml_db.errors import EasemlError
from easeml_db.words.training_unit import TrainingUnit


@dataclass(frozen=True)
class Member:
    """A further rank of a gang: a unit of the same trial and round, on its own slot or on the order's. In a batch it is
    a unit of another trial, on the same slot."""

    unit: TrainingUnit
    seed: int
    slot_id: int


@dataclass(frozen=True)
class Order:
    """A unit assigned to a slot. `attempt` counts from 1; the lease fences the orders of a replaced coordinator.

    With `members` it is a gang: its own unit and slot are rank 0, the members are the other ranks, with consecutive
    steps. Either all are recorded or none, and the order gets one answer. If all members are on its own slot, the order
    is a whole round: one session works once over all their partitions. If each member belongs to another trial, it is a
    batch: one session does all of them, and each is recorded or fails by itself.

    A pilot with `measured_seconds` repeats iterations for that long and reports when each ended.
    """

    unit: TrainingUnit
    seed: int
    slot_id: int
    lease_number: int
    attempt: int
    members: tuple[Member, ...] = ()
    measured_seconds: float = 0.0

    @property
    def slot_ids(self) -> tuple[int, ...]:
        """The slots that it keeps busy, by rank."""
        if not self.members:
            return (self.slot_id,)
        return tuple(dict.fromkeys((self.slot_id, *[member.slot_id for member in self.members])))

    @property
    def is_gang(self) -> bool:
        """Return whether several slots work on it together."""
        return len(self.slot_ids) > 1

    @property
    def is_whole(self) -> bool:
        """Return whether one slot works once over several partitions."""
        return bool(self.members) and not self.is_gang and not self.is_batch

    @property
    def is_batch(self) -> bool:
        """Return whether one slot does units of several trials."""
        return bool(self.members) and self.members[0].unit.trial_id != self.unit.trial_id

    def by_trial(self) -> tuple[Order, ...]:
        """Return an order for each trial of a batch; any other order is of one trial."""
        return self.alone() if self.is_batch else (self,)

    def alone(self) -> tuple[Order, ...]:
        """Return the work of each rank, as an order of its own."""
        if not self.members:
            return (self,)
        others = (replace(self, unit=m.unit, seed=m.seed, slot_id=m.slot_id, members=()) for m in self.members)
        return (replace(self, members=()), *others)


@dataclass(frozen=True)
class UnitRecorded:
    """The unit is recorded; `seconds` is its time from order to answer, `pruned_bytes` the bytes of states that it
    pruned. In a batch, the trials with an entry in `failures` are not recorded.
    """

    order: Order
    seconds: float
    pruned_bytes: int = 0
    failures: Mapping[int, EasemlError] = field(default_factory=dict)


@dataclass(frozen=True)
class Piloted:
    """The pilot has ended: the expected seconds of a train unit and of a validate or test unit of its trial; `sample`
    if it also measured iterations.
    """

    order: Order
    train_seconds: float
    evaluate_seconds: float
    sample: Sample | None = None


@dataclass(frozen=True)
class SlotStuck:
    """The unit gave no sign of life and could be neither cancelled nor terminated: these of its slots are given up
    (of a gang, others come back)."""

    order: Order
    reason: str
    slot_ids: tuple[int, ...]


@dataclass(frozen=True)
class SlotWaiting:
    """The slot's session cannot be opened; it is tried again until it can."""

    slot_id: int
    reason: str


@dataclass(frozen=True)
class UnitFailed:
    """The unit is not recorded. Its error says whose fault it was (SlotLost, OutOfSpace, ServerBusy: no one's)."""

    order: Order
    error: EasemlError


@dataclass(frozen=True)
class SlotReady:
    """The slot's session is open and warm."""

    slot_id: int


@dataclass(frozen=True)
class InstanceBilled:
    """The wait in the provider's queue is over: from now on the instance is paid."""

    instance_id: int


@dataclass(frozen=True)
class InstanceUp:
    """The instance is there with all its slots. `device`: of each slot, as programs say it (None: as others here)."""

    instance_id: int
    device: str | None = None


@dataclass(frozen=True)
class InstanceDown:
    """The instance is stopped."""

    instance_id: int


@dataclass(frozen=True)
class InstanceFailed:
    """The instance did not come up, or died, and is not paid any more; or it could not be stopped (`is_stopping`)."""

    instance_id: int
    reason: str
    is_stopping: bool = False


@dataclass(frozen=True)
class ProgramSaid:
    """A program of a provisioner has been called."""

    instance_id: int
    program: str
    outcome: str
    output: str


@dataclass(frozen=True)
class RunChanged:
    """A user asked for, cancelled, resumed or dropped a run."""

    run_id: int


@dataclass(frozen=True)
class SlotsChanged:
    """The table of slots changed."""


@dataclass(frozen=True)
class TenantsChanged:
    """The policy, or a tenant's terms, changed."""


@dataclass(frozen=True)
class StopRequested:
    """A request that the coordinator stop."""


Message = (
    UnitRecorded
    | Piloted
    | UnitFailed
    | SlotStuck
    | SlotReady
    | SlotWaiting
    | InstanceBilled
    | InstanceUp
    | InstanceDown
    | InstanceFailed
    | ProgramSaid
    | RunChanged
    | SlotsChanged
    | TenantsChanged
    | StopRequested
)
