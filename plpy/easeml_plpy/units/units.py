"""The inputs of a unit: its order, and the context that it reads when it opens.

A unit opens in one short transaction, works without one, and records everything in a last one, which first checks
the coordinator's lease and the trial's progress (recording.py). The statements of both are SQL functions
(sql/units/functions.sql).
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from easeml_plpy.server.devices import bind, is_gpu
from easeml_plpy.server.errors import EasemlError, TrialFailed
from easeml_plpy.server.memory import is_exhausted, slot_share
from easeml_plpy.server.session import Kept, Session, Statement, only_column
from easeml_plpy.server.value_types import JSON
from easeml_plpy.trainers import architecture, trainer_for
from easeml_plpy.units.composition import Composition

Instant: TypeAlias = str
"""A timestamptz, as PL/Python hands it over: it only goes back."""


class Member(NamedTuple):
    """One rank of a gang: the step that it takes over, and where."""

    step: int
    position: int
    partition_number: int
    seed: int
    slot_id: int


class GangOrder(NamedTuple):
    """A session's part in a gang: its rank, all members by rank, and the token under which they meet."""

    token: str
    rank: int
    timeout_seconds: float
    members: tuple[Member, ...]


class Unit(NamedTuple):
    """One unit as the coordinator orders it; `text` is the order itself. `measured_seconds` is a pilot's."""

    text: str
    trial_id: int
    step: int
    kind: str
    epoch: int
    position: int
    partition_number: int
    seed: int
    slot_id: int
    lease_number: int
    attempt: int
    gang: GangOrder | None = None
    measured_seconds: float = 0.0

    @classmethod
    def from_text(cls, text: str) -> Unit:
        """Parse the jsonb argument of a unit procedure."""
        fields = json.loads(text)
        gang = fields.pop("gang", None)
        if gang is None:
            return cls(text=text, **fields)
        members = tuple(Member(**member) for member in gang.pop("members"))
        return cls(text=text, gang=GangOrder(**gang, members=members), **fields)


class TrialSpec(NamedTuple):
    """The specification of a trial and its dataset; `train_rows` by partition."""

    architecture: str
    config: Mapping[str, JSON]
    max_epochs: int
    dataset_id: int
    train_rows: tuple[int, ...]

    @property
    def training_split(self) -> str:
        """The rows that it learns from: an ensemble chooses its members on validation rows."""
        return "validation" if architecture(self.architecture).is_derived else "train"

    @property
    def view(self) -> str:
        """The view of the dataset that its architecture takes."""
        return architecture(self.architecture).view


class UnitContext(NamedTuple):
    """The context of a unit, read by one statement. `device` is torch's name, and the session is bound to it.
    `composition`: the trials from which an ensemble can be made, if the session has no tables that list them.
    """

    trial: TrialSpec
    checkpoint_id: int | None
    best_checkpoint_id: int | None
    best_epoch: int | None
    best_metric_value: float | None
    best_loss: float | None
    metric: str
    device: str
    started_at: Instant
    composition: Composition | None = None


class OpenedUnit(NamedTuple):
    """What easeml.open_unit returns."""

    architecture: str
    config: str
    max_epochs: int
    checkpoint_id: int | None
    best_checkpoint_id: int | None
    best_epoch: int | None
    best_metric_value: float | None
    best_loss: float | None
    metric: str
    dataset_id: int
    train_rows: list[int]
    device: str | None
    n_threads: int | None
    memory_limit_bytes: int | None
    started_at: Instant
    n_slots: int

    @property
    def limit_bytes(self) -> int | None:
        """The memory limit of its slot: its own, or its share of the machine; a GPU's slot may have none."""
        if self.memory_limit_bytes is None and not is_gpu(self.device or "cpu"):
            return slot_share(self.n_slots)
        return self.memory_limit_bytes


OPEN_UNIT = Statement(
    "SELECT architecture, config, max_epochs, checkpoint_id, best_checkpoint_id, best_epoch, best_metric_value,"
    " best_loss, metric, dataset_id, train_rows, device, n_threads, memory_limit_bytes, started_at,"
    " $2 AS n_slots FROM easeml.open_unit($1)",
    ("jsonb", "int8"),
    OpenedUnit,
)
COUNT_SLOTS: Statement[int] = Statement("SELECT count(*) AS n_slots FROM easeml.slots", (), only_column)
COUNT_HOLDS_SECONDS = 1.0
"""An old snapshot keeps dead row versions, and each count must skip them."""
RECORD_START: Statement[Instant] = Statement(
    "UPDATE easeml.slots SET start_seconds = start_seconds || jsonb_build_object($2, $3) WHERE slot_id = $1"
    " RETURNING clock_timestamp()",
    ("int4", "text", "float8"),
    only_column,
)


@dataclass
class _Counted:
    """How many slots there were when the session last counted them."""

    n_slots: int = 1
    at: float = -math.inf


COUNTED: Kept[_Counted] = Kept(_Counted)
PREPARED: Kept[set[str]] = Kept(set[str])
"""The trainers for which the session has imported what their trials need."""


def open_unit(session: Session, unit: Unit) -> UnitContext:
    """Read the unit's context and bind the session to its slot. Raises StaleLease when the step is not due."""
    context = bound_context(session.row(OPEN_UNIT, unit.text, _n_slots(session)))
    return context._replace(started_at=_prepared(session, unit, context) or context.started_at)


def _n_slots(session: Session) -> int:
    """Return how many slots there are, or were a moment ago."""
    counted = session.kept(COUNTED)
    if time.monotonic() - counted.at > COUNT_HOLDS_SECONDS:
        counted.n_slots, counted.at = session.row(COUNT_SLOTS), time.monotonic()
    return counted.n_slots


def _prepared(session: Session, unit: Unit, context: UnitContext) -> Instant | None:
    """Import what trials of the architecture need; if anything was imported, return the time from which its unit
    counts. A session does it once, so it belongs to the start of the slot, not to the time of a unit.
    """
    name, prepared = architecture(context.trial.architecture).trainer, session.kept(PREPARED)
    if name in prepared:
        return None
    prepared.add(name)
    n_modules, began = len(sys.modules), time.perf_counter()
    with suppress(ImportError):  # the trial says what is missing
        trainer_for(name).prepare()
    if len(sys.modules) == n_modules:
        return None
    return session.row(RECORD_START, unit.slot_id, name, time.perf_counter() - began)


def opened_from_text(text: str) -> OpenedUnit:
    """Parse what easeml.open_node_unit returned."""
    unit = json.loads(text)
    return OpenedUnit(**{name: unit[name] for name in OpenedUnit._fields} | {"config": json.dumps(unit["config"])})


def bound_context(opened: OpenedUnit) -> UnitContext:
    """Return the context of a unit that was opened, and bind the session to its slot."""
    return context_of(opened, bind(opened.device or "cpu", opened.n_threads or 1, opened.limit_bytes))


def context_of(opened: OpenedUnit, device: str) -> UnitContext:
    """Return the context of a unit that was opened, whose session is bound to a device."""
    config = json.loads(opened.config)
    trial = TrialSpec(opened.architecture, config, opened.max_epochs, opened.dataset_id, tuple(opened.train_rows))
    return UnitContext(
        trial=trial,
        checkpoint_id=opened.checkpoint_id,
        best_checkpoint_id=opened.best_checkpoint_id,
        best_epoch=opened.best_epoch,
        best_metric_value=opened.best_metric_value,
        best_loss=opened.best_loss,
        metric=opened.metric,
        device=device,
        started_at=opened.started_at,
    )


@contextmanager
def trial_to_blame(session: Session) -> Iterator[None]:
    """Turn what the trial's own code raises into TrialFailed; errors of ours and of the server pass through."""
    try:
        yield
    except (EasemlError, session.SPIError):
        raise
    except Exception as error:  # any class: the code that trains is a plug-in, and its fault must not end the run
        raise _failure(error) from error


def _failure(error: Exception) -> TrialFailed:
    """Return in one line why the trial failed."""
    text = str(error).partition("\n")[0]
    if is_exhausted(error):
        hint = "Use a smaller batch or network, or raise the slot's memory limit."
        return TrialFailed("out of memory" + (f": {text.rpartition('] ')[2]}" if text else ""), hint=hint)
    return TrialFailed(f"{type(error).__name__}: {text}" if text else type(error).__name__)
