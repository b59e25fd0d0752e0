"""The ask/tell contract of procedures: which configs are tried, and how long.

A procedure keeps nothing between two calls: `ask` gets the whole history and answers with decisions as
values, so a coordinator that was killed asks again and loses nothing. It is asked when a run starts and
when a trial ends an epoch. A trial that no decision names goes on to its `max_epochs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from easeml_db.search_space.configs import Config


@dataclass(frozen=True)
class Start:
    """Start a new trial with this config; trials are numbered in the order in which they are started."""

    config: Config


@dataclass(frozen=True)
class Continue:
    """Let a trial that waits for a decision train on, until it has done `n_epochs` in total."""

    trial_number: int
    n_epochs: int


@dataclass(frozen=True)
class Stop:
    """Give a trial up: it is final, and keeps what it has."""

    trial_number: int


Decision = Start | Continue | Stop


@dataclass(frozen=True)
class TrialHistory:
    """What a procedure may know of a trial: `scores` holds one value per finished epoch, higher is better."""

    trial_number: int
    config: Config
    state: str
    scores: tuple[float, ...] = ()


class Procedure(Protocol):
    """Decides on the trials of one run from their history alone: same history, same decisions."""

    def ask(self, history: Sequence[TrialHistory]) -> list[Decision]:
        """Return what to do now; `history` has one entry per trial, by trial_number."""
        ...
