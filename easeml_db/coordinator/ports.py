"""The only seams between decisions and the world: Store, Executor, Inbox, Clock, and the messages that arrive.

The coordinator's loop knows nothing else, so it runs alike on PostgreSQL and on a simulated clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.decisions.trial_groups.allocation import AllocationLog
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile, Sample
from easeml_db.errors import EasemlError
from easeml_db.words.run import Arm, Run
from easeml_db.words.tenant import PastArm, Tenancy
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import TrainingUnit


@dataclass(frozen=True)
class Member:
    """A further rank of a gang: a unit of the same trial and round, on a slot of its own."""

    unit: TrainingUnit
    seed: int
    slot_id: int


@dataclass(frozen=True)
class Order:
    """A unit given to a slot. `attempt` counts from 1; the lease fences what a replaced coordinator ordered.

    With `members` it is a gang: its own unit and slot are rank 0, members are the others, and their steps follow one
    another. All are recorded at once or none, and the order is answered once.

    A pilot with `measured_seconds` repeats iterations for so long and says when each ended.
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
        return (self.slot_id, *(member.slot_id for member in self.members))

    def alone(self) -> tuple[Order, ...]:
        """What each rank does, as an order of its own."""
        others = (replace(self, unit=m.unit, seed=m.seed, slot_id=m.slot_id, members=()) for m in self.members)
        return (replace(self, members=()), *others)


@dataclass(frozen=True)
class UnitRecorded:
    """The unit is in the tables; `seconds` is its time from order to answer, `pruned_bytes` what it freed."""

    order: Order
    seconds: float
    pruned_bytes: int = 0


@dataclass(frozen=True)
class Piloted:
    """The pilot is over: what a train unit and a validate or test unit of its trial are going to take; `sample` where
    it was to measure."""

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
    """The unit is not in the tables. The error's class tells whose fault it was (SlotLost, OutOfSpace: nobody's)."""

    order: Order
    error: EasemlError


@dataclass(frozen=True)
class SlotReady:
    """The slot's session is open and warm."""

    slot_id: int


@dataclass(frozen=True)
class RunChanged:
    """Somebody asked for, cancelled, resumed or dropped a run."""

    run_id: int


@dataclass(frozen=True)
class SlotsChanged:
    """The table of slots changed."""


@dataclass(frozen=True)
class TenantsChanged:
    """The policy, or a tenant's terms, changed."""


@dataclass(frozen=True)
class Stop:
    """Somebody wants the coordinator to end."""


Message = (
    UnitRecorded
    | Piloted
    | UnitFailed
    | SlotStuck
    | SlotReady
    | SlotWaiting
    | RunChanged
    | SlotsChanged
    | TenantsChanged
    | Stop
)


class Store(Protocol):
    """What the coordinator reads and writes. Every method is one short transaction."""

    async def acquire_lease(self) -> int:
        """Wait until no other coordinator is active; return a lease number that no other ever had."""

    async def holds_lease(self) -> bool:
        """Say whether the lease is still ours."""

    async def heartbeat(self) -> None:
        """Give a sign of life."""

    async def slots(self) -> list[Slot]:
        """Return all slots, in whatever state."""

    async def lose_slot(self, slot_id: int, reason: str) -> None:
        """Mark a slot as lost: what its unit may still do is not recorded any more."""

    async def explain_slot(self, slot_id: int, reason: str | None) -> None:
        """Say why a slot that should work does not; None: it does."""

    async def recover_slots(self) -> list[int]:
        """Make active again the lost slots whose stuck process is gone; return them."""

    async def plan_run(
        self, run_id: int, scheduler: str, simulated_seconds: float | None, bound_seconds: float | None, reason: str
    ) -> None:
        """Write down how a run is scheduled from now on."""

    async def open_runs(self) -> list[Run]:
        """Return all queued and running runs, oldest first."""

    async def read_run(self, run_id: int) -> Run | None:
        """Return an open run; None when it ended or is gone."""

    async def tenancy(self) -> Tenancy:
        """Return how tenants are served."""

    async def history(self) -> list[PastArm]:
        """Return the arms that runs have closed."""

    async def policy_memory(self, policy: str) -> Mapping[str, Any]:
        """Return what this policy wrote down with its last decision; nothing if it has made none."""

    async def prior(self, run_id: int) -> Prior | None:
        """Return the prior with which a run's arms began; None for a run that has none yet."""

    async def keep_prior(self, run_id: int, prior: Prior, arm_ids: Sequence[int]) -> None:
        """Write down the prior of a run, and about which arms it is: others that come later do not count."""

    async def open_arm(self, opening: Opening) -> int:
        """Write a decision down and open its arm; return the decision's number. StaleLease, NotFound."""

    async def close_arm(self, run_id: int, arm_id: int) -> Arm | None:
        """Write down what an arm came to, once its trials are over, and return it: not closed where somebody holds its
        row, None when the run is gone."""

    async def trial_history(self, run_id: int, arm_id: int) -> list[TrialHistory]:
        """Return what a procedure may know of an arm's trials, by trial_number."""

    async def apply_decisions(self, run_id: int, arm_id: int, decisions: Sequence[Mapping[str, Any]]) -> int:
        """Start, continue and stop trials, all or none (sql/functions/searches.sql says what a decision is); return the
        bytes of states pruned. StaleLease, NotFound where the tables are ahead or somebody holds the rows."""

    async def keep_beliefs(self, run_id: int, beliefs: Sequence[Belief]) -> None:
        """Write down what is believed of a run's arms now."""

    async def profiles(self, run_id: int) -> Mapping[tuple[str, str], MeasuredProfile]:
        """Return what is known of devices for the run's data set, by (architecture, kind of device)."""

    async def keep_profile(self, run_id: int, architecture: str, device_kind: str, measured: MeasuredProfile) -> None:
        """Write down what was measured before a run's first units."""

    async def keep_allocations(self, run_id: int, log: AllocationLog, labels: Mapping[int, str]) -> None:
        """Write down trial groups, labelled by number, and who got which devices."""

    async def start_run(self, run_id: int) -> None:
        """Mark a queued run as running."""

    async def fail_trial(self, run_id: int, trial_id: int, reason: str) -> None:
        """Mark a trial as failed, with the reason."""

    async def finish_run(self, run_id: int) -> None:
        """End a run: stop what is left of its trials; failed when every trial failed, else finished."""

    async def note(self, run_id: int, trial_id: int | None, kind: str, message: str) -> None:
        """Write an event into the run's history."""

    async def reclaim(self) -> int:
        """Have the space of pruned states freed; return the bytes of those that are kept."""

    async def release_lease(self) -> None:
        """Give the lease back in good order."""


class Executor(Protocol):
    """Runs units on slots. What comes of an order (UnitRecorded, Piloted, UnitFailed or SlotStuck) arrives in the
    inbox, exactly once. After a lost unit each of its slots says SlotReady once it can work again."""

    async def open(self, slots: Sequence[Slot]) -> None:
        """Open sessions for these slots, and close those of all others; each says SlotReady when it is warm."""

    async def start(self, order: Order) -> None:
        """Begin a unit on its slot, or a gang on its slots, and return at once."""

    async def cancel(self, slot_id: int) -> None:
        """Ask the slot's unit, and with it all of its gang, to stop; it is answered by UnitFailed, or UnitRecorded if
        it was faster."""

    async def close(self) -> None:
        """Cancel what runs and close all sessions."""


class Inbox(Protocol):
    """Where messages arrive."""

    async def next(self, timeout_seconds: float) -> Message | None:
        """Return the next message, or None after the timeout."""


class Clock(Protocol):
    """Time, for budgets and heartbeats."""

    def now_seconds(self) -> float:
        """Seconds since some fixed instant."""
