"""What an experiment is given and gives back: settings in; measures, tables and plots out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measure:
    """One line of the result: `paper` is what the paper reports (None: nothing), `value` what was measured now,
    `target` what it should reach, in words ("<= 1.02"), `holds` whether it does (None: there is no target)."""

    name: str
    setting: str
    paper: float | str | None
    value: float | str | None
    target: str | None = None
    holds: bool | None = None


def at_least(name: str, setting: str, paper: float | str | None, value: float, bound: float) -> Measure:
    """Return a measure that should not be below its bound."""
    return Measure(name, setting, paper, value, f">= {bound:g}", value >= bound)


def at_most(name: str, setting: str, paper: float | str | None, value: float, bound: float) -> Measure:
    """Return a measure that should not be above its bound."""
    return Measure(name, setting, paper, value, f"<= {bound:g}", value <= bound)


@dataclass(frozen=True)
class Parameter:
    """A setting of one experiment, an option --name of its command: of type str, int, float, bool (a flag) or Path (a
    file or folder that exists); `environment` names the variable that stands in for it."""

    name: str
    help: str
    type: type = str
    default: Any = None
    environment: str | None = None


@dataclass(frozen=True)
class Options:
    """How to run: `is_quick` shrinks everything for tests; `say` shows progress, a line at a time; `n_slots` is how
    many units train side by side where an experiment trains for real (None: one for each core); `values` are those of
    the experiment's own parameters."""

    seed: int = 0
    is_quick: bool = False
    say: Callable[[str], None] = lambda _: None
    n_slots: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """Measures, the tables behind them (name -> rows), plots (name -> an Altair chart), and why our values differ from
    the paper's, in a few sentences."""

    measures: tuple[Measure, ...]
    why: str
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    plots: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A named experiment: `source` says which figure or table of which paper it repeats; `trains` whether it trains
    for real, and so takes a number of slots; `parameters` are settings of its own."""

    name: str
    summary: str
    source: str
    run: Callable[[Options], Result]
    trains: bool = False
    parameters: tuple[Parameter, ...] = ()
