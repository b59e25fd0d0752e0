"""The trials of a run from which an ensemble is made, as the tables list them. A node, which knows no runs, is sent the
list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import JSON


class Candidate(NamedTuple):
    """A trial that may become a member: what it is, its best state, the epochs that led there and their seconds."""

    trial_id: int
    trial_number: int
    architecture: str
    config: Mapping[str, JSON]
    checkpoint_id: int
    n_bytes: int
    sha256: str
    n_epochs: int
    training_seconds: float


class Composition(NamedTuple):
    """The candidates, the best of each architecture first; the metric of the run; whether members are trained again,
    the seconds that the run has left for it (None: any number), and the seconds that reading all rows takes.
    """

    candidates: tuple[Candidate, ...]
    metric: str
    is_refit_wanted: bool
    seconds_left: float | None
    reading_seconds: float

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> Composition:
        """Parse the result of easeml.composition."""
        return cls(**{**entries, "candidates": tuple(Candidate(**entry) for entry in entries["candidates"])})

    def later(self, seconds: float) -> Composition:
        """Return the composition some seconds later."""
        return self if self.seconds_left is None else self._replace(seconds_left=self.seconds_left - seconds)


COMPOSITION: Statement[str] = Statement("SELECT easeml.composition($1) AS told", ("int8",), only_column)


def composition_of(session: Session, trial_id: int) -> Composition:
    """Read what an ensemble can be made of, on the control server."""
    return Composition.from_json(json.loads(session.row(COMPOSITION, trial_id)))
