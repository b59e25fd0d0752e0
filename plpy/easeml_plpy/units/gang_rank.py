"""A session's part in a gang: the group that it has joined, and its exchanges over that group."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.errors import InvalidArgument
from easeml_plpy.server.session import Kept, Session
from easeml_plpy.server.value_types import Pause
from easeml_plpy.units.gang_group import Group, join, peers_lost
from easeml_plpy.units.units import GangOrder, Unit, UnitContext

F = TypeVar("F", bound=Mapping[str, object])
R = TypeVar("R")
T = TypeVar("T")

GROUPS: Kept[dict[str, Group]] = Kept(dict)


@dataclass(frozen=True)
class Rank:
    """This session in a gang: its own unit, the gang's order, and the group that all ranks have joined."""

    session: Session
    unit: Unit
    context: UnitContext
    order: GangOrder
    group: Group
    pause: Pause

    @property
    def n_rows(self) -> list[int]:
        """Training rows of each rank's partition."""
        return [self.context.trial.train_rows[member.partition_number] for member in self.order.members]

    def gather(self, value: T) -> list[T]:
        """Exchange a JSON value with the other ranks; return the values of all, in their order."""
        with peers_lost():
            values: list[T] = self.group.gather(value, self.pause)
        return values

    def record_once(self, facts: F, record: Callable[[str, Sequence[F]], R]) -> R:
        """Let rank 0 record and commit the work of all ranks; return the result on every rank. `record` takes the order
        in recorded form, and the facts of all ranks.
        """
        with peers_lost():
            reports = self.group.gather([facts, os.getpid()], self.pause)
        recorded = None
        if self.order.rank == 0:
            all_facts: list[F] = [report for report, _ in reports]
            recorded = record(self._order_with(all_facts, [pid for _, pid in reports]), all_facts)
            self.session.commit()
        with peers_lost():
            summary: R = self.group.gather(recorded, self.pause)[0]
        return summary

    def _order_with(self, all_facts: Sequence[F], backend_pids: Sequence[int]) -> str:
        """Return the order in recorded form, with the work of the other ranks."""
        ranks = zip(self.order.members, all_facts, backend_pids, strict=True)
        others = [{**member._asdict(), **facts, "backend_pid": pid} for member, facts, pid in ranks][1:]
        gang = {"n_ranks": len(self.order.members), "others": others}
        return json.dumps(json.loads(self.unit.text) | {"gang": gang})


@contextmanager
def joined(session: Session, unit: Unit, context: UnitContext) -> Iterator[Rank]:
    """Commit, and join the group, or take the one that the session has joined under this token before.

    Whatever is raised in here breaks the group, so that the other ranks end at once.
    """
    session.commit()
    gang, pause, groups = gang_of(unit), SessionPause(session), session.kept(GROUPS)
    if gang.token not in groups:
        n_ranks = len(gang.members)
        groups[gang.token] = join(gang.token, gang.rank, n_ranks, context.device, gang.timeout_seconds, pause)
    try:
        yield Rank(session, unit, context, gang, groups[gang.token], pause)
    except BaseException:  # also a cancel: whatever it is, the others are not to wait for this rank
        groups.pop(gang.token).break_off()
        raise


def gang_of(unit: Unit) -> GangOrder:
    """Return what the order says of the gang. Raises InvalidArgument."""
    if unit.gang is None:
        raise InvalidArgument(f"step {unit.step} of trial {unit.trial_id} was not ordered as a gang")
    return unit.gang


def first_seed(unit: Unit) -> int:
    """Return the seed of rank 0, from which every rank draws the parameters of a fresh trial."""
    return gang_of(unit).members[0].seed
