"""Checks of an architecture before an administrator registers it: its declaration first, then building, training,
storing and predicting once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from easeml_plpy.architectures import Architecture
from easeml_plpy.architectures.contract import InputKind
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.registered import TRAINING, Declaration, hyperparameter_of
from easeml_plpy.columns.task import Task
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import EasemlError, InvalidArgument, TrialFailed, close_matches_hint
from easeml_plpy.server.session import Session
from easeml_plpy.trainers import ARCHITECTURES, trainer_for

if TYPE_CHECKING:
    import torch

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
KINDS = ("float", "integer", "categorical", "integers")
FIELDS = frozenset(Hyperparameter.__dataclass_fields__)
BOUNDED = ("float", "integer", "integers")
MADE_FOR: dict[str, InputKind] = {"image_classification": "image", "series_classification": "series"}
N_ROWS = 6
"""Rows of the training that tries an architecture: more than one batch, and a last one that is not full."""


@entry_point(returns_failure=True)
def check_architecture(
    session: Session, name: str, entry_point: str, descriptions: str, hyperparameters: str, summary: str
) -> str:
    """Return the declaration to register as JSON, if it works for each program. Raises InvalidArgument and others.

    descriptions: what easeml.describe_program said of the programs, a JSON array.
    """
    if not NAME.fullmatch(name):
        raise InvalidArgument(f"name: expected small letters, digits and _, at most 40, got {name[:60]!r}")
    if name in ARCHITECTURES:
        raise InvalidArgument(f"name: easeml has an architecture {name!r} of its own", hint="Choose another name.")
    described: list[dict[str, Any]] = json.loads(descriptions)
    declaration = Declaration(
        name=name,
        entry_point=entry_point,
        hyperparameters=checked_hyperparameters(json.loads(hyperparameters)),
        summary=summary,
        tasks=tuple(dict.fromkeys(program["task"] for program in described)),
        input_ranks=tuple(sorted({len(program["input_shape"]) for program in described})),
        made_for=tuple(dict.fromkeys(MADE_FOR.get(program["template"], "table") for program in described)),
    )
    for program in described:
        try_out(session, declaration.architecture(), _task_of(program))
    return json.dumps(
        {
            "hyperparameters": [hyperparameter.to_json() for hyperparameter in declaration.hyperparameters],
            "tasks": declaration.tasks,
            "input_ranks": declaration.input_ranks,
            "made_for": declaration.made_for,
            "templates": list(dict.fromkeys(program["template"] for program in described)),
        }
    )


def _task_of(description: Mapping[str, Any]) -> Task:
    if description["recursive"]:
        raise InvalidArgument(
            "programs: registered architectures take arrays of one shape, not series or trees of unequal size",
            hint="For example Input = [16,16,3] Output = [4].",
        )
    if description["output"] is not None:
        raise InvalidArgument(
            "programs: registered architectures return classes or one number, not tensors",
            hint="For example Input = [16,16,3] Output = [4].",
        )
    return Task(description["task"], tuple(description["input_shape"]), description["n_outputs"])


# Hyperparameters


def checked_hyperparameters(entries: object) -> tuple[Hyperparameter, ...]:
    """Return the hyperparameters of a JSON array of objects, as ours are declared. Raises InvalidArgument."""
    if not isinstance(entries, list) or len(entries) > 50:
        raise InvalidArgument(
            "hyperparameters: expected a list of at most 50 objects",
            hint='For example [{"name": "width", "kind": "integer", "default": 32, "low": 4, "high": 512}].',
        )
    declared = tuple(_hyperparameter(entry, f"hyperparameters[{place}]") for place, entry in enumerate(entries))
    names = [hyperparameter.name for hyperparameter in (*declared, *TRAINING)]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise InvalidArgument(
            f"hyperparameters: {twice!r} is there twice",
            hint=f"Every network is trained with {', '.join(setting.name for setting in TRAINING)} already.",
        )
    return declared


def _hyperparameter(entry: object, path: str) -> Hyperparameter:
    if not isinstance(entry, Mapping) or not {"name", "kind", "default"} <= entry.keys():
        raise InvalidArgument(f"{path}: expected an object with name, kind and default, got {entry!r}")
    for key in entry:
        if key not in FIELDS:
            raise InvalidArgument(f"{path}: there is no field {key!r}", hint=close_matches_hint(key, FIELDS))
    if not isinstance(entry["name"], str) or not NAME.fullmatch(entry["name"]):
        raise InvalidArgument(f"{path}.name: expected small letters, digits and _, got {entry['name']!r}")
    if entry["kind"] not in KINDS:
        raise InvalidArgument(f"{path}.kind: expected one of {', '.join(KINDS)}, got {entry['kind']!r}")
    _check_limits(entry, path)
    hyperparameter = hyperparameter_of({"summary": entry["name"], **entry})
    hyperparameter.check(hyperparameter.default, f"{path}.default")
    _check_search(hyperparameter, path)
    return hyperparameter


def _check_limits(entry: Mapping[str, Any], path: str) -> None:
    """Raise InvalidArgument unless legal values are declared: bounds of numbers, choices of words."""
    low, high = entry.get("low"), entry.get("high")
    numbers = [bound for bound in (low, high) if isinstance(bound, int | float) and not isinstance(bound, bool)]
    if entry["kind"] in BOUNDED and (len(numbers) < 2 or not numbers[0] <= numbers[1]):
        raise InvalidArgument(f"{path}: expected low and high, numbers in that order, got {low!r} and {high!r}")
    choices = entry.get("choices")
    if entry["kind"] == "categorical" and not (isinstance(choices, list) and choices):
        raise InvalidArgument(f"{path}.choices: expected a list of words, got {choices!r}")
    if entry["kind"] == "integers" and not isinstance(entry.get("max_length"), int):
        raise InvalidArgument(f"{path}.max_length: expected how many numbers there may be")
    if not isinstance(entry.get("log", False), bool) or not isinstance(entry.get("summary", ""), str):
        raise InvalidArgument(f"{path}: expected log to be true or false, and summary to be a text")


def _check_search(declared: Hyperparameter, path: str) -> None:
    search, is_number = declared.search, declared.kind in ("float", "integer")
    if search is None:
        return
    if isinstance(search, list) and search:
        for place, value in enumerate(search):
            declared.check(value, f"{path}.search[{place}]")
    elif isinstance(search, Mapping) and is_number and {"type", "low", "high"} <= search.keys():
        for end in ("low", "high"):
            declared.check(search[end], f"{path}.search.{end}")
    else:
        raise InvalidArgument(
            f"{path}.search: expected a list of values, or an object with type, low and high, got {search!r}",
            hint='For example {"type": "float", "low": 0.001, "high": 0.1, "log": true}.',
        )


# Trying it


def try_out(session: Session, chosen: Architecture, task: Task) -> None:
    """Build an architecture for a task, train it on a few rows, store it and ask it again. Raises InvalidArgument."""
    trainer, config = trainer_for(chosen.trainer), {"batch_size": N_ROWS - 2}
    rows, targets = _rows(task)
    with _named(session, chosen, task):
        live = trainer.start(chosen, config, task, n_steps_total=2, seed=0)
        _check_shape(chosen, task, live.outputs(rows).shape)
        live.train(rows, targets, seed=0, pause=lambda: None)
        resumed = trainer.resume(chosen, config, task, live.dump())
        answers = live.outputs(rows), resumed.outputs(rows)
    if not np.array_equal(*answers):
        raise InvalidArgument(
            f"architecture {chosen.name} answers otherwise once it was stored and restored",
            hint="All that it learns has to be parameters or buffers of the module; nothing is random but training.",
        )


def _rows(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(N_ROWS, *task.input_shape, generator=generator)
    classes = torch.arange(N_ROWS) % task.n_outputs
    return rows, classes if task.kind == "classification" else torch.randn(N_ROWS, generator=generator)


def _check_shape(chosen: Architecture, task: Task, shape: tuple[int, ...]) -> None:
    if shape != (N_ROWS, task.n_outputs):
        raise InvalidArgument(
            f"architecture {chosen.name} returns {list(shape)} for {N_ROWS} inputs of {list(task.input_shape)},"
            f" expected {[N_ROWS, task.n_outputs]}",
            hint="One number for each class, or for each row the number that comes out.",
        )


@contextmanager
def _named(session: Session, chosen: Architecture, task: Task) -> Iterator[None]:
    """Turn an error of a package's code into one line that also names the shapes."""
    try:
        yield
    except session.SPIError:
        raise
    except (Exception, SystemExit) as error:  # any class: the code is another's
        if isinstance(error, EasemlError) and not isinstance(error, TrialFailed):
            raise
        message = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:300]
        raise InvalidArgument(
            f"architecture {chosen.name} fails for an input {list(task.input_shape)} and {task.n_outputs} output(s):"
            f" {message}",
            hint="It is called as build(input_shape, n_outputs, **hyperparameters), and returns an nn.Module.",
        ) from error
