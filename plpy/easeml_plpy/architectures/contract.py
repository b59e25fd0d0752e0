"""An architecture: a named way of building something trainable from a task and a config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.size import Size, linear_size
from easeml_plpy.architectures.tables.numpy_layers import Layer, Weights
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import InvalidArgument, close_matches_hint

ANY_TASK = ("classification", "regression")
ANY_RANK = (1, 2, 3, 4)
"""Input ranks of architectures that flatten their input."""
InputKind = Literal["table", "image", "series", "tree"]
OutputKind = Literal["one", "any", "tensors"]
"""What comes out: classes or one number, tensors only, or any of them."""


def _no_objection(task: Task) -> str | None:
    return None


def _no_config_objection(task: Task, config: Config) -> str | None:
    return None


@dataclass(frozen=True)
class Architecture:
    """A family of trainable functions.

    `build(task, config)` returns what the trainer of that name trains, and only that trainer inspects it: an nn.Module
    for 'torch', Adversaries for 'adversarial', an IncrementalEstimator for 'partial_fit', and so on. Without `tasks` or
    `input_ranks` any are accepted; `objection(task)` says why a task of a legal kind and rank still does not fit;
    `size(task, config)` is at least that of a linear predictor. `made_for` lists the kinds of input that it is made
    for; it takes others of a legal rank as if they were of these kinds. `view` names the form of its rows (row_forms/):
    `tasks`, `input_ranks` and `objection` are checked against the dataset's rows in `standard` before a run, and
    against its own row form when it trains. One that `is_derived` is made from other trials of a run: no user requests
    it, and its config names those trials. A torch architecture that is not `is_stackable` never trains several trials
    as one computation (networks/stack.py): its layers keep statistics of their batches. `config_objection(task,
    config)` says why a config does not fit a task of its row form. `forward(task, config, weights)` returns the result
    of `build` as a numpy function over the weights of a state, for sessions that predict; without it they import
    torch. `entry_point` names the function of an installed package that builds a registered one (registered.py).
    """

    name: str
    trainer: str
    summary: str
    hyperparameters: tuple[Hyperparameter, ...]
    build: Callable[[Task, Config], object]
    tasks: tuple[str, ...] = ANY_TASK
    input_ranks: tuple[int, ...] = ANY_RANK
    made_for: tuple[InputKind, ...] = ("table",)
    objection: Callable[[Task], str | None] = _no_objection
    size: Callable[[Task, Config], Size] = linear_size
    view: str = "standard"
    is_derived: bool = False
    is_stackable: bool = True
    config_objection: Callable[[Task, Config], str | None] = _no_config_objection
    forward: Callable[[Task, Config, Weights], Layer] | None = None
    outputs: OutputKind = "one"
    entry_point: str | None = None


def fits(architecture: Architecture, task: Task) -> str | None:
    """Return None if the architecture can learn the task, otherwise the reason why not."""
    if task.kind not in architecture.tasks:
        return f"{architecture.name} does {' and '.join(architecture.tasks)}, not {task.kind}"
    unfit = _misfit_of_objects(architecture, task)
    if unfit is not None:
        return unfit
    rank = len(task.input_shape)
    if rank not in architecture.input_ranks:
        ranks = " or ".join(str(legal) for legal in architecture.input_ranks)
        return f"{architecture.name} takes inputs of rank {ranks}, got shape {list(task.input_shape)}"
    if task.output_shape and architecture.outputs == "one":
        return f"{architecture.name} returns classes or one number, not tensors of shape {list(task.output_shape)}"
    if not task.output_shape and architecture.outputs == "tensors":
        return f"{architecture.name} returns tensors, not classes or one number"
    return architecture.objection(task)


def _misfit_of_objects(architecture: Architecture, task: Task) -> str | None:
    """Return why an architecture cannot read series or trees of unequal size, or reads only trees; else None."""
    if task.objects is None:
        return f"{architecture.name} takes trees" if architecture.made_for == ("tree",) else None
    kind: InputKind = "tree" if task.objects.n_links else "series"
    if kind in architecture.made_for or architecture.is_derived:
        return None
    what = "trees" if kind == "tree" else "series"
    return f"{architecture.name} does not take {what} of unequal size"


def complete(architecture: Architecture, config: Mapping[str, object]) -> Config:
    """Return the config with defaults filled in and each value checked, in the order of declaration.

    Completing twice changes nothing. Raises InvalidArgument that names the path, what was expected and got.
    """
    if architecture.is_derived:
        return Config(config)  # type: ignore[arg-type]
    hyperparameters = {hyperparameter.name: hyperparameter for hyperparameter in architecture.hyperparameters}
    for name in config:
        if name not in hyperparameters:
            raise InvalidArgument(
                f"config.{name}: expected a hyperparameter of {architecture.name}, got {name!r}",
                hint=close_matches_hint(name, hyperparameters),
            )
    return Config(
        (name, hyperparameter.check(config.get(name, hyperparameter.default), f"config.{name}"))
        for name, hyperparameter in hyperparameters.items()
    )
