"""The allocations by name. To add one, write a file in this folder and add a line here; SQL reads the names."""

from __future__ import annotations

from collections.abc import Callable

from easeml_db.decisions.hopper.allocation.auto import Auto
from easeml_db.decisions.hopper.allocation.batched import Batched
from easeml_db.decisions.hopper.allocation.contract import Allocation
from easeml_db.decisions.hopper.allocation.data_parallel import DataParallel
from easeml_db.decisions.hopper.allocation.hopping import Hopping
from easeml_db.decisions.hopper.allocation.planned import Planned
from easeml_db.decisions.hopper.allocation.water_filling import water_filling
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.errors import InvalidArgument

PLANNED = "planned"
ALLOCATIONS: dict[str, Callable[[RunWork], Allocation]] = {
    "hopping": Hopping,
    "data_parallel": DataParallel,
    "water_filling": water_filling,
    "auto": Auto,
    "batched": Batched,
    PLANNED: Planned,
}


DEFAULT, TIMED = "hopping", "batched"
"""The allocation of a run that asks for none: with a time limit the quicker one, else the one whose bytes are fixed."""


def complete_allocation(allocation: str | None, has_time_limit: bool) -> str:
    """Return the allocation of a run, for SQL."""
    return allocation if allocation is not None else TIMED if has_time_limit else DEFAULT


def planned_allocation() -> str:
    """Return the allocation that follows a plan, for SQL."""
    return PLANNED


def list_allocations() -> list[str]:
    """Return the names, for SQL."""
    return list(ALLOCATIONS)


def allocation_of_ending(name: str) -> str:
    """Return the allocation of a run after the end of its search, when there is no plan to follow any more."""
    return DEFAULT if getattr(ALLOCATIONS.get(name), "follows_plan", False) else name


def uses_gangs(name: str) -> bool:
    """Return whether an allocation needs to know which architectures can train on several slots at once. Finding out
    loads the training library, for which runs that only hop need not wait.
    """
    return bool(getattr(ALLOCATIONS.get(name), "uses_gangs", True))


def needs_gangs(name: str) -> bool:
    """Return whether an allocation is for gangs, for SQL, which refuses it where there can be none."""
    return bool(getattr(ALLOCATIONS.get(name), "needs_gangs", False))


def uses_batches(name: str) -> bool:
    """Return whether an allocation needs to know which trials have the same shape."""
    return bool(getattr(ALLOCATIONS.get(name), "uses_batches", False))


def create_allocation(work: RunWork) -> Allocation:
    """Return the allocation that a run asks for. Raises InvalidArgument if none has that name."""
    factory = ALLOCATIONS.get(work.run.allocation)
    if factory is None:
        raise InvalidArgument(
            f"there is no allocation {work.run.allocation!r}", hint=f"Choose one of: {', '.join(ALLOCATIONS)}."
        )
    return factory(work)
