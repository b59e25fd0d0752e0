"""Architectures that an administrator registered: each is a function of a package that is installed beside the server.

A package offers its functions in its metadata, as entry points of the group `easeml.architectures`; nothing else is
ever imported. So a role that can write a row of easeml.registered_architectures, or a config, cannot make the server
import an arbitrary module. A name never changes its meaning (sql/tasks/architectures.sql), so a process may cache
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture, InputKind
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.offline import offline
from easeml_plpy.architectures.torch_hyperparameters import CLASS_WEIGHT, LABEL_SMOOTHING, TORCH_HYPERPARAMETERS
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import NotFound, close_matches_hint
from easeml_plpy.server.session import Kept, Session, Statement
from easeml_plpy.server.value_types import JSON

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from torch import nn

GROUP = "easeml.architectures"
TRAINING = (*TORCH_HYPERPARAMETERS, LABEL_SMOOTHING, CLASS_WEIGHT)
"""How networks are trained: each registered one has these, besides its own."""
Builder = Callable[..., "nn.Module"]
"""build(input_shape, n_outputs, **hyperparameters): a network from (n, *input_shape) to (n, n_outputs)."""


@dataclass(frozen=True)
class Declaration:
    """The registration of an architecture; `hyperparameters` are its own, which its function takes by name."""

    name: str
    entry_point: str
    hyperparameters: tuple[Hyperparameter, ...]
    summary: str
    tasks: tuple[str, ...]
    input_ranks: tuple[int, ...]
    made_for: tuple[InputKind, ...]

    def architecture(self) -> Architecture:
        """Return it as runs see it."""
        names = tuple(hyperparameter.name for hyperparameter in self.hyperparameters)

        def build(task: Task, config: Config) -> nn.Module:
            with offline(self.name):
                return load_builder(self.entry_point)(
                    task.input_shape, task.n_outputs, **{name: config[name] for name in names}
                )

        return Architecture(
            name=self.name,
            trainer="torch",
            summary=self.summary,
            hyperparameters=(*self.hyperparameters, *TRAINING),
            build=build,
            tasks=self.tasks,
            input_ranks=self.input_ranks,
            made_for=self.made_for,
            is_stackable=False,
            entry_point=self.entry_point,
        )


def load_builder(entry_point: str) -> Builder:
    """Import the function behind an entry point that an installed package offers. Raises NotFound."""
    offered = offered_entry_points()
    if entry_point not in offered:
        raise NotFound(
            f"entry_point: no installed package offers {entry_point!r} in the group {GROUP}",
            hint=close_matches_hint(entry_point, offered)
            if offered
            else f'A package offers one in its pyproject.toml: [project.entry-points."{GROUP}"], a line'
            ' mymodel = "package.module:build". Install it in the Python environment of the server.',
        )
    (offer, *_) = _entry_points().select(name=offered[entry_point])
    return cast(Builder, offer.load())


def offered_entry_points() -> dict[str, str]:
    """Return what installed packages offer, "package.module:function", with the name under which each does."""
    return {offer.value.replace(" ", ""): offer.name for offer in _entry_points()}


def _entry_points() -> EntryPoints:
    """Return what installed packages offer to us."""
    # Imported here: it imports email and urllib, for which a session that predicts would wait.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


class _Registered(NamedTuple):
    """A row of easeml.registered_architectures."""

    architecture: str
    entry_point: str
    hyperparameters: str
    summary: str
    tasks: Sequence[str]
    input_ranks: Sequence[int]
    made_for: Sequence[str]


OFFERED = Statement(
    "SELECT architecture, entry_point, hyperparameters, summary, tasks, input_ranks, made_for"
    " FROM easeml.registered_architectures WHERE withdrawn_at IS NULL ORDER BY architecture",
    (),
    _Registered,
)
NAMED = Statement(
    "SELECT architecture, entry_point, hyperparameters, summary, tasks, input_ranks, made_for"
    " FROM {schema}.registered_architectures WHERE architecture = $1",
    ("text",),
    _Registered,
)
KNOWN: Kept[dict[str, Architecture]] = Kept(dict)


def registered_architectures(session: Session) -> list[Architecture]:
    """Return the architectures that are registered and were not withdrawn."""
    return [_declared(row).architecture() for row in session.rows(OFFERED)]


def registered_architecture(name: str) -> Architecture | None:
    """Return the registered architecture of that name, withdrawn or not; None if there is none, or no server."""
    session = Session.current()
    return None if session is None else _known(session, name)


def _known(session: Session, name: str) -> Architecture | None:
    kept = session.kept(KNOWN)
    if name not in kept:
        rows = session.rows(NAMED, name)
        if not rows:
            return None
        kept[name] = _declared(rows[0]).architecture()
    return kept[name]


def _declared(row: _Registered) -> Declaration:
    entries: list[Mapping[str, Any]] = json.loads(row.hyperparameters)
    return Declaration(
        name=row.architecture,
        entry_point=row.entry_point,
        hyperparameters=tuple(map(hyperparameter_of, entries)),
        summary=row.summary,
        tasks=tuple(row.tasks),
        input_ranks=tuple(row.input_ranks),
        made_for=cast("tuple[InputKind, ...]", tuple(row.made_for)),
    )


def hyperparameter_of(entry: Mapping[str, Any]) -> Hyperparameter:
    """Return a hyperparameter of what `Hyperparameter.to_json` gave, with the fields that are there."""
    given: dict[str, JSON] = {key: value for key, value in entry.items() if value is not None}
    parsed = Hyperparameter(**given)  # type: ignore[arg-type]
    return parsed if parsed.choices is None else replace(parsed, choices=tuple(parsed.choices))
