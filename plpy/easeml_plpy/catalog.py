"""What the package can train and measure, as rows for SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from .architectures import ARCHITECTURES, fits
from .metrics import DEFAULT_METRIC, METRICS
from .session import Session, tenant_entry_point
from .task import Task, TaskKind

# Chosen where nothing is asked for, in the order in which a run without history opens them: boosting is the fastest way
# to a good model of a table, networks and a linear model see what trees do not, a forest stands noise that misleads
# boosting, and images need convolutions.
DEFAULTS_BY_RANK = {1: ("lightgbm", "mlp", "extra_trees", "linear"), 2: ("mlp", "lenet"), 3: ("mlp", "lenet")}
# Where there are free texts, a linear model of their words comes first: it is as good as any, and quick.
DEFAULTS_OF_TEXTS = ("sgd", "mlp", "lightgbm", "extra_trees")


@tenant_entry_point
def list_architectures(session: Session) -> list[tuple[str, str, list[str], list[int], str, str, list[str]]]:
    """Return (name, trainer, tasks, input ranks, summary, hyperparameters as JSON, made for) of every architecture."""
    return [
        (
            a.name,
            a.trainer,
            list(a.tasks),
            list(a.input_ranks),
            a.summary,
            _hyperparameters(a.name),
            list(a.made_for),
        )
        for a in ARCHITECTURES.values()
        if not a.is_derived
    ]


@tenant_entry_point
def specifications(session: Session, architectures: Sequence[str]) -> str:
    """Return what architectures declare of their hyperparameters, as a procedure reads it: a JSON array in their order.

    Every run asks for a few of them: a query over all of the catalogue would take a millisecond.
    """
    known = (name for name in architectures if name in ARCHITECTURES)
    rows = (f'{{"architecture": {json.dumps(name)}, "hyperparameters": {_hyperparameters(name)}}}' for name in known)
    return f"[{', '.join(rows)}]"


@cache
def _hyperparameters(name: str) -> str:
    """Return an architecture's hyperparameters as JSON."""
    return json.dumps([each.to_json() for each in ARCHITECTURES[name].hyperparameters])


@tenant_entry_point
def list_metrics(session: Session) -> list[tuple[str, str, bool, bool, str]]:
    """Return (name, task, is higher better, is default, summary) of every metric."""
    return [(m.name, m.task, m.is_higher_better, m.name == DEFAULT_METRIC[m.task], m.summary) for m in METRICS.values()]


@tenant_entry_point
def fitting_architectures(
    session: Session, task: TaskKind, input_shape: Sequence[int], n_outputs: int, has_texts: bool
) -> list[tuple[str, str | None, bool]]:
    """Return (name, reason why it does not fit or None, is a default) of every architecture, the defaults first."""
    wanted = Task(task, tuple(input_shape), n_outputs)
    reasons = {
        name: fits(architecture, wanted) for name, architecture in ARCHITECTURES.items() if not architecture.is_derived
    }
    rank = len(wanted.input_shape)
    defaults = DEFAULTS_OF_TEXTS if has_texts else DEFAULTS_BY_RANK.get(rank, ("linear", "mlp"))
    if sum(reasons[name] is None for name in defaults) < 2:
        defaults = ("linear", "mlp")
    names = dict.fromkeys((*defaults, *reasons))
    return [(name, reasons[name], name in defaults) for name in names]
