"""Whether a config fits into memory: it is refused when a run starts if no slot can ever hold it, else when its unit
runs.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from easeml_plpy.architectures import complete
from easeml_plpy.architectures.config import Config, NotedConfig
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.columns.task import Task
from easeml_plpy.row_forms import row_form_of, task_in
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidArgument
from easeml_plpy.server.memory import slot_share
from easeml_plpy.server.plpython import SqlValue
from easeml_plpy.server.session import Session, Statement
from easeml_plpy.trainers import architecture, trainer_for

HINT = "Use narrower layers or smaller batches, or ask an administrator for slots with more memory."
KEPT_CHARACTERS = 100_000  # an encoder that is longer is read each time
LISTS = ("integers", "names", "groups")  # kinds of hyperparameters
PLAIN = {"float": float, "integer": int, "categorical": str}  # what a search has found to be legal, by kind


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


def needed_bytes(chosen: Architecture, task: Task, config: Config, partition_rows: Sequence[int]) -> int:
    """Return the least memory that a unit takes, from the training rows of each partition."""
    trainer = trainer_for(chosen.trainer)
    n_rows = trainer.rows_at_once(partition_rows)
    return trainer.needed_bytes(chosen.size(task, config), config, n_rows) * max(task.n_folds, 1)


def shortage(
    chosen: Architecture, task: Task, config: Config, partition_rows: Sequence[int], limit_bytes: int
) -> str | None:
    """Return in words by how much a config exceeds a limit; None unless it certainly does."""
    needed = needed_bytes(chosen, task, config, partition_rows)
    if needed <= limit_bytes:
        return None
    settings = trainer_for(chosen.trainer).size_settings
    shown = ", ".join(f"{name} {json.dumps(config[name])}" for name in settings if name in config)
    return f"{chosen.name}{f' with {shown}' if shown else ''} takes at least {needed / 1e9:.1f} GB"


@entry_point(returns_failure=True)
def within_memory(
    session: Session,
    begin: Callable[..., Mapping[str, object]],
    encoder: str,
    train_rows: Sequence[int],
    *arguments: SqlValue,
) -> str:
    """Return a run's arms and first trials from `begin(*arguments)`, as JSON. Refuse them if no slot can ever hold one
    of the "trials", or one does not fit the data. They are checked before they become JSON, because parsing a hundred
    of them again takes longer than checking them.
    """
    begun = begin(*arguments)
    _check(begun["trials"], encoder, train_rows, _limit(session.row(SLOTS)))  # type: ignore[arg-type]
    return json.dumps(begun)


@entry_point(for_tenants=True)
def held_architectures(
    session: Session, encoder: str, train_rows: Sequence[int] | None, architectures: Sequence[str] | None
) -> tuple[list[str], str | None]:
    """Return the architectures whose default config some slot can hold, and in words what the others take."""
    limit, names = _limit(session.row(SLOTS)), list(architectures or ())
    if limit is None:
        return names, None
    data = (_encoder_of if len(encoder) <= KEPT_CHARACTERS else Encoder.from_text)(encoder)
    words = {name: _default_shortage(name, data, train_rows or (), limit) for name in names}
    held = [name for name in names if words[name] is None]
    left_out = ", ".join(said for said in words.values() if said)
    return held, f"{left_out}, and a slot may take {limit / 1e9:.1f} GB at most" if left_out else None


def _default_shortage(name: str, data: Encoder, train_rows: Sequence[int], limit: int) -> str | None:
    chosen = architecture(name)
    return shortage(chosen, task_in(row_form_of(chosen.view, data), data), complete(chosen, {}), train_rows, limit)


def _limit(slots: _Slots) -> int | None:
    """Return the largest memory limit of a slot; None if one is on a GPU, whose memory only the driver knows, and
    asking it takes seconds.
    """
    if slots.has_gpu:
        return None
    return max(slots.largest or 0, slot_share(slots.n_slots) if slots.has_share else 0)


def _check(
    trials: Sequence[Mapping[str, Any]], encoder: str, train_rows: Sequence[int], limit_bytes: int | None
) -> None:
    read = _encoder_of if len(encoder) <= KEPT_CHARACTERS else Encoder.from_text
    data, checks = read(encoder), dict[str, Check]()
    for trial in trials:
        name = trial["architecture"]
        if name not in checks:
            chosen = architecture(name)
            checks[name] = Check(chosen, task_in(row_form_of(chosen.view, data), data), train_rows, limit_bytes)
        checks[name].check(trial["config"])


@lru_cache(maxsize=4)  # a session starts several runs on a dataset
def _encoder_of(text: str) -> Encoder:
    return Encoder.from_text(text)


class Check:
    """Checks configs of one architecture, whose numbers and words a search has found to be legal.

    A config that agrees with an earlier one in every value that its check read needs no second check: of ten thousand
    that differ only in their learning rates, one is checked. Lists are always compared, since only `complete` knows how
    long they may be.
    """

    def __init__(self, chosen: Architecture, task: Task, train_rows: Sequence[int], limit: int | None) -> None:
        self._chosen, self._task, self._train_rows, self._limit = chosen, task, train_rows, limit
        self._declared = {hyperparameter.name: hyperparameter for hyperparameter in chosen.hyperparameters}
        self._plain = {hyperparameter.name: PLAIN.get(hyperparameter.kind) for hyperparameter in chosen.hyperparameters}
        self._lists = {hyperparameter.name for hyperparameter in chosen.hyperparameters if hyperparameter.kind in LISTS}
        self._fitting: dict[tuple[str, ...], set[bytes]] = {}  # by names of settings, the values of configs that fit
        self.n_checked = 0

    def check(self, config: Mapping[str, object]) -> None:
        """Raise InvalidArgument if a config cannot be trained."""
        if any(_values(config, names) in fitting for names, fitting in self._fitting.items()):
            return
        self.n_checked += 1
        noted = NotedConfig(self._completed(config))
        _check_config(self._chosen, noted, self._task, self._train_rows, self._limit)
        names = tuple(sorted(self._lists | noted.read))
        self._fitting.setdefault(names, set()).add(_values(config, names))

    def _completed(self, config: Mapping[str, object]) -> Config:
        if config.keys() != self._declared.keys():
            return complete(self._chosen, config)
        settled = Config(config)  # type: ignore[arg-type]
        for name, kind in self._plain.items():
            if type(config[name]) is not kind:
                settled[name] = self._declared[name].check(config[name], f"config.{name}")
        return settled


def _values(config: Mapping[str, object], names: Sequence[str]) -> bytes:
    """Return bytes that are equal for values of the same types only, in a quarter of the time that `repr` takes.

    The second version of marshal's format is the last that is the same for equal values: later ones refer back to what
    is the same object.
    """
    return marshal.dumps(list(map(config.get, names)), 2)


def _check_config(
    chosen: Architecture, config: Config, task: Task, train_rows: Sequence[int], limit: int | None
) -> None:
    objection = chosen.config_objection(task, config)
    if objection:
        raise InvalidArgument(f"search_space: {objection}")
    if limit is None:
        return
    words = shortage(chosen, task, config, train_rows, limit)
    if words:
        raise InvalidArgument(f"search_space: {words}, and a slot may take {limit / 1e9:.1f} GB at most", hint=HINT)
