"""Architectures of installed packages: what is offered works; what fails, downloads or answers otherwise is named."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from easeml_plpy.architectures.registered import Declaration, offered_entry_points
from easeml_plpy.catalogue.architecture_checks import checked_hyperparameters, try_out
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import EasemlError
from easeml_plpy.server.session import Session

TOYS = """
import random, socket, urllib.request
import torch
from torch import nn

def linear(input_shape, n_outputs, *, width=4):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(width) if width < 0 else nn.Linear(input_shape[0], width),
                         nn.BatchNorm1d(width), nn.Linear(width, n_outputs))

def raises(input_shape, n_outputs): raise KeyError("weights")
def leaves(input_shape, n_outputs): raise SystemExit(3)
def no_module(input_shape, n_outputs): return lambda rows: rows
def too_wide(input_shape, n_outputs): return nn.Linear(input_shape[0], n_outputs + 1)
def other_arguments(task): return nn.Linear(1, 1)
def downloads(input_shape, n_outputs):
    urllib.request.urlopen("http://127.0.0.1:9/weights.pt", timeout=1)
def connects(input_shape, n_outputs):
    socket.create_connection(("127.0.0.1", 9), timeout=1)

class Nowhere(nn.Linear):
    def forward(self, rows): return super().forward(rows) * float("nan")

def diverges(input_shape, n_outputs): return Nowhere(input_shape[0], n_outputs)

class Forgetful(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.inner, self.scale = nn.Linear(n_in, n_out), random.random()
    def forward(self, rows): return self.inner(rows) * self.scale

def forgets(input_shape, n_outputs): return Forgetful(input_shape[0], n_outputs)
secret = 1
"""
TASK = Task("classification", (5,), 3)


class Ended(Exception):
    """What the server raises when it ends a statement."""


SESSION = cast(Session, SimpleNamespace(SPIError=Ended))


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package `toys` that offers all its functions but `hidden`."""
    names = [line.split("(")[0].split()[1] for line in TOYS.splitlines() if line.startswith("def ")]
    (tmp_path / "easeml_test_toys.py").write_text(TOYS)
    info = tmp_path / "easeml_test_toys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: easeml-test-toys\nVersion: 1.0\n")
    lines = [f"{name} = easeml_test_toys:{name}" for name in [*names, "not_there"]]
    (info / "entry_points.txt").write_text("[easeml.architectures]\n" + "\n".join(lines) + "\nlost = nowhere_at:all\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def declared(function: str, hyperparameters: Any = ()) -> Declaration:
    return Declaration(
        name="mine",
        entry_point=function if ":" in function else f"easeml_test_toys:{function}",
        hyperparameters=checked_hyperparameters(list(hyperparameters)),
        summary="mine",
        tasks=("classification", "regression"),
        input_ranks=(1,),
        made_for=("table",),
    )


WIDTH = {"name": "width", "kind": "integer", "default": 6, "low": 2, "high": 9, "search": [2, 9]}


@pytest.mark.parametrize("task", [TASK, Task("regression", (5,), 1)])
def test_a_function_that_an_installed_package_offers_is_an_architecture(task: Task) -> None:
    chosen = declared("linear", [WIDTH]).architecture()
    try_out(SESSION, chosen, task)
    assert [each.name for each in chosen.hyperparameters][:3] == ["width", "optimizer", "learning_rate"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("raises", r"fails for an input \[5\] and 3 output\(s\): KeyError: 'weights'"),
        ("leaves", r"mine fails for an input .* SystemExit: 3"),
        ("diverges", r"mine fails for an input .* trial diverged: loss is nan"),
        ("no_module", "TypeError: mine builds function"),
        ("too_wide", r"returns \[6, 4\] for 6 inputs of \[5\], expected \[6, 3\]"),
        ("other_arguments", "TypeError: other_arguments"),
        ("downloads", "mine needs the network"),
        ("connects", "mine needs the network"),
        ("forgets", "answers otherwise once it was stored"),
        ("not_there", "AttributeError: "),
        ("nowhere_at:all", "ModuleNotFoundError: No module named 'nowhere_at'"),
        ("easeml_test_toys:secret", "no installed package offers 'easeml_test_toys:secret'"),
        ("os:system", "no installed package offers 'os:system'"),
        ("", "no installed package offers"),
    ],
)
def test_what_does_not_work_is_refused_in_one_line(function: str, message: str) -> None:
    with pytest.raises(EasemlError, match=message) as caught:
        try_out(SESSION, declared(function).architecture(), TASK)
    assert "\n" not in caught.value.message


def test_what_no_package_offers_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "easeml_test_trap.py").write_text("raise SystemExit('imported')")
    with pytest.raises(EasemlError, match="no installed package offers"):
        try_out(SESSION, declared("easeml_test_trap:build").architecture(), TASK)
    assert "easeml_test_trap:build" not in offered_entry_points()


def test_the_network_is_there_again_afterwards() -> None:
    with pytest.raises(EasemlError, match="network"):
        try_out(SESSION, declared("connects").architecture(), TASK)
    assert socket.getaddrinfo("127.0.0.1", 9)


def test_a_cancel_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(rows: Any, targets: Any) -> None:
        raise Ended

    import easeml_test_toys  # type: ignore[import-not-found]

    monkeypatch.setattr(easeml_test_toys, "raises", ended)
    with pytest.raises(Ended):
        try_out(SESSION, declared("raises").architecture(), TASK)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "hyperparameters: expected a list"),
        ([1], r"hyperparameters\[0\]: expected an object with name, kind and default"),
        ([{**WIDTH, "colour": 1}], "there is no field 'colour'"),
        ([{**WIDTH, "name": "a b"}], r"\.name: expected small letters"),
        ([{**WIDTH, "kind": "tensor"}], r"\.kind: expected one of float, integer"),
        ([{**WIDTH, "kind": "groups"}], r"\.kind: expected one of"),
        ([{**WIDTH, "low": 10}], "expected low and high, numbers in that order, got 10 and 9"),
        ([{**WIDTH, "high": None}], "expected low and high"),
        ([{**WIDTH, "default": 1}], r"\.default: expected an integer from 2 to 9, got 1"),
        ([{**WIDTH, "search": [2, 10]}], r"\.search\[1\]: expected an integer from 2 to 9, got 10"),
        ([{**WIDTH, "search": {"low": 2}}], r"\.search: expected a list of values, or an object"),
        ([{**WIDTH, "search": {"type": "integer", "low": 2, "high": 99}}], r"\.search\.high: expected"),
        ([WIDTH, WIDTH], "'width' is there twice"),
        ([{**WIDTH, "name": "learning_rate"}], "'learning_rate' is there twice"),
        ([{"name": "a", "kind": "categorical", "default": "b"}], r"\.choices: expected a list of words"),
        ([{"name": "a", "kind": "categorical", "default": "b", "choices": ["c"]}], r"\.default: expected one of 'c'"),
        ([{**WIDTH, "kind": "integers", "default": [1]}], r"\.max_length: expected"),
    ],
)
def test_hyperparameters_that_cannot_be_are_refused_by_their_path(entries: Any, message: str) -> None:
    with pytest.raises(EasemlError, match=message):
        checked_hyperparameters(entries)
