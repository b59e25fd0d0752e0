"""Whether a config fits into memory: refused when a run starts if no slot can ever hold it, else at its unit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from .architectures import architecture, complete
from .architectures.config import Config
from .architectures.contract import Architecture
from .encoder import Encoder
from .errors import InvalidArgument
from .memory import slot_share
from .session import Session, Statement, answering
from .task import Task
from .views import task_in, view_of

HINT = "Use narrower layers or smaller batches, or ask an administrator for slots with more memory."
TELLING = (  # settings that make a config large
    *("hidden_units", "width", "n_members", "batch_size"),
    *("num_leaves", "trees_per_epoch"),
)


@dataclass(frozen=True)
class _Slots:
    n_slots: int
    largest: int | None
    has_share: bool
    has_gpu: bool


SLOTS = Statement(
    "SELECT count(*) AS n_slots, max(memory_limit_bytes) AS largest,"
    " coalesce(bool_or(memory_limit_bytes IS NULL), true) AS has_share,"
    " coalesce(bool_or(device LIKE 'cuda%'), false) AS has_gpu FROM easeml.slots",
    (),
    _Slots,
)


def shortage(chosen: Architecture, task: Task, config: Config, n_rows: int, limit_bytes: int) -> str | None:
    """Say in words by how much a config exceeds a limit; None where it does not for certain."""
    needed = chosen.needed_bytes(task, config, n_rows) * max(task.n_folds, 1)
    if needed <= limit_bytes:
        return None
    shown = ", ".join(f"{name} {json.dumps(config[name])}" for name in TELLING if name in config)
    return f"{chosen.name}{f' with {shown}' if shown else ''} takes at least {needed / 1e9:.1f} GB"


@answering
def check_memory(session: Session, encoder: str, train_rows: Sequence[int], trials: str) -> int | None:
    """Refuse a run one of whose first trials no slot can ever hold, or does not fit its data; return what a slot may
    take.

    None where a slot is on a GPU: its memory shows only to those who ask the driver, which takes seconds.
    """
    slots = session.row(SLOTS)
    limit = max(slots.largest or 0, slot_share(slots.n_slots) if slots.has_share else 0)
    known_limit = None if slots.has_gpu else limit
    data, tasks = Encoder.from_text(encoder), dict[str, Task]()
    for trial in json.loads(trials):
        chosen = architecture(trial["architecture"])
        if chosen.view not in tasks:
            tasks[chosen.view] = task_in(view_of(chosen.view, data), data)
        _check_trial(chosen, complete(chosen, trial["config"]), tasks[chosen.view], train_rows, known_limit)
    return known_limit


def _check_trial(
    chosen: Architecture, config: Config, task: Task, train_rows: Sequence[int], limit: int | None
) -> None:
    objection = chosen.config_objection(task, config)
    if objection:
        raise InvalidArgument(f"search_space: {objection}")
    if limit is None:
        return
    words = shortage(chosen, task, config, chosen.rows_at_once(train_rows), limit)
    if words:
        raise InvalidArgument(f"search_space: {words}, and a slot may take {limit / 1e9:.1f} GB at most", hint=HINT)
