"""What the package can train and measure, as rows for SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from easeml_plpy.architectures import Architecture, fits
from easeml_plpy.architectures.registered import registered_architectures
from easeml_plpy.architectures.tables.target_transforms import SEARCHED_TRANSFORM, TARGET_TRANSFORM, is_skewed
from easeml_plpy.columns.encoder import NumberTarget, Target, target_from_json
from easeml_plpy.columns.task import Objects, Task, TaskKind
from easeml_plpy.metrics import METRICS
from easeml_plpy.metrics.metrics import DEFAULT_METRIC
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import InvalidArgument
from easeml_plpy.server.session import Session
from easeml_plpy.trainers import ARCHITECTURES, architecture, trainer_for
from easeml_plpy.trainers.contract import LiveTrial, Trainer

# Chosen where nothing is asked for, in the order in which a run without history opens them: boosting is the fastest way
# to a good model of a table, networks and a linear model see what trees do not, a forest stands noise that misleads
# boosting, and images need convolutions.
DEFAULTS_BY_RANK = {1: ("lightgbm", "mlp", "extra_trees", "linear"), 2: ("mlp", "lenet"), 3: ("mlp", "lenet")}
# Where there are free texts, a linear model of their words comes first: it is as good as any, and quick.
# Where tensors come out: those that fit of these.
DEFAULTS_OF_TENSORS = ("unet", "autoencoder", "seq2seq", "mlp")
# Where series or trees of unequal size go in.
DEFAULTS_OF_SERIES, DEFAULTS_OF_TREES = ("gru", "lstm", "temporal_cnn", "transformer"), ("tree_lstm", "tree_rnn")
DEFAULTS_OF_TEXTS = ("sgd", "mlp", "lightgbm", "extra_trees")


@entry_point(for_tenants=True)
def list_architectures(session: Session) -> list[tuple[str, str, list[str], list[int], str, str, list[str]]]:
    """Return (name, trainer, tasks, input ranks, summary, hyperparameters as JSON, made for) of every architecture."""
    return [
        (a.name, a.trainer, list(a.tasks), list(a.input_ranks), a.summary, _hyperparameters(a), list(a.made_for))
        for a in _all(session)
        if not a.is_derived  # these are made for a run, which cannot ask for one
    ]


@entry_point(for_tenants=True)
def architecture_facts(session: Session) -> list[tuple[str, str, bool, bool, bool, list[str] | None]]:
    """Return (name, trainer, does whole rounds, is joint, has growing epochs, varying) of every architecture.

    The ensemble is among them: no run asks for one, but units train it.
    """
    return [_facts(candidate, trainer_for(candidate.trainer)) for candidate in _all(session)]


def _facts(chosen: Architecture, trainer: Trainer[LiveTrial]) -> tuple[str, str, bool, bool, bool, list[str] | None]:
    varying = list(trainer.varying) if chosen.is_stackable and trainer.varying else None
    facts = trainer.takes_all_partitions, trainer.is_joint, trainer.has_growing_epochs
    return (chosen.name, chosen.trainer, *facts, varying)


@entry_point(for_tenants=True)
def specifications(session: Session, architectures: Sequence[str], target: str | None) -> str:
    """Return what architectures declare of their hyperparameters, as a procedure reads it: a JSON array in their order.

    Every run asks for a few of them: a query over all of the catalogue would take a millisecond.
    """
    return specifications_for(architectures, target)


def specifications_for(architectures: Sequence[str], target: str | None) -> str:
    """Return the specifications for a dataset with this target of its encoder, as JSON: if it is skewed, a search tries
    transforms of it.
    """
    skewed = target is not None and _is_skewed(target_from_json(json.loads(target)))
    rows = (
        f'{{"architecture": {json.dumps(candidate.name)}, "hyperparameters": {_hyperparameters(candidate, skewed)}}}'
        for candidate in map(architecture, architectures)
    )
    return f"[{', '.join(rows)}]"


def _is_skewed(target: Target) -> bool:
    if not isinstance(target, NumberTarget) or target.low is None or target.high is None:
        return False
    return is_skewed(target.low, target.mean, target.high)


def _hyperparameters(chosen: Architecture, is_skewed: bool = False) -> str:
    return _hyperparameters_of(chosen.name, is_skewed) if chosen.entry_point is None else _as_json(chosen, False)


@cache
def _hyperparameters_of(name: str, is_skewed: bool) -> str:
    return _as_json(ARCHITECTURES[name], is_skewed)


def _as_json(chosen: Architecture, is_skewed: bool) -> str:
    """Return its hyperparameters as they are searched for a skewed target or for another."""
    return json.dumps([
        (SEARCHED_TRANSFORM if is_skewed and declared == TARGET_TRANSFORM else declared).to_json()
        for declared in chosen.hyperparameters
    ])  # fmt: skip


def _all(session: Session) -> list[Architecture]:
    """Return easeml's own architectures, then those that an administrator registered."""
    return [*ARCHITECTURES.values(), *registered_architectures(session)]


@lru_cache(maxsize=64)  # every run on a dataset asks the same
def _fits_of_ours(task: Task) -> Mapping[str, str | None]:
    """Return by name why an architecture of ours does not fit, or None."""
    return {ours.name: fits(ours, task) for ours in ARCHITECTURES.values() if not ours.is_derived}


@entry_point(for_tenants=True)
def list_metrics(session: Session) -> list[tuple[str, str, bool, bool, str]]:
    """Return (name, task, is higher better, is default, summary) of every metric."""
    defaults = DEFAULT_METRIC.values()
    return [(m.name, m.task, m.is_higher_better, m.name in defaults, m.summary) for m in METRICS.values()]


@entry_point(for_tenants=True)
def fitting_architectures(
    session: Session,
    task: TaskKind,
    input_shape: Sequence[int],
    n_outputs: int,
    has_texts: bool,
    output_shape: Sequence[int] | None,
    n_links: int | None,
) -> list[tuple[str, str | None, bool]]:
    """Return (name, reason why it does not fit or None, is a default) of every architecture, the defaults first."""
    for name, shape in (
        ("input_shape", input_shape),
        ("output_shape", output_shape or [1]),
        ("n_outputs", [n_outputs]),
    ):
        if not shape or not all(isinstance(size, int) and size > 0 for size in shape):
            raise InvalidArgument(f"{name}: expected sizes of 1 and more, got {shape!r}"[:200])
    if n_links is not None and not 0 <= n_links < input_shape[-1]:
        raise InvalidArgument(f"n_links: expected 0 to {input_shape[-1] - 1} for these inputs, got {n_links}")
    objects = None if n_links is None else Objects(input_shape[-1] - 1 - n_links, n_links)
    goal = Task(task, tuple(input_shape), n_outputs, output_shape=tuple(output_shape or ()), objects=objects)
    reasons = dict(_fits_of_ours(goal)) | {
        candidate.name: fits(candidate, goal) for candidate in registered_architectures(session)
    }
    rank = len(goal.input_shape)
    defaults = DEFAULTS_OF_TEXTS if has_texts else DEFAULTS_BY_RANK.get(rank, ("linear", "mlp"))
    if goal.output_shape:
        defaults = tuple(name for name in DEFAULTS_OF_TENSORS if reasons[name] is None) or ("bit_autoencoder",)
    elif n_links is not None:
        defaults = DEFAULTS_OF_TREES if n_links else DEFAULTS_OF_SERIES
    elif sum(reasons[name] is None for name in defaults) < 2:
        defaults = ("linear", "mlp")
    return [(name, reasons[name], name in defaults) for name in dict.fromkeys((*defaults, *reasons))]
