"""Procedures say which configs are tried, and how long; when and where they train is the hopper's.

Today the two one-shot procedures, grid and random. The contract (`contract.py`) is made for those to come:
successive halving, Hyperband and the like stop trials, or let them go on, at the end of an epoch.

    contract.py   Procedure, its decisions and the history it sees
    grid.py  random.py
    proposal.py   JSON in, JSON out: what easeml.select_models calls in the server
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from easeml_db.procedures.contract import Procedure
from easeml_db.procedures.grid import GridProcedure
from easeml_db.procedures.random import RandomProcedure
from easeml_db.search_space.parsing import SearchSpace


class ProcedureFactory(Protocol):
    """Makes the procedure of one run; refuses what it cannot do before anything is written."""

    def __call__(self, space: SearchSpace, *, n_configs: int | None = None, seed: int = 0) -> Procedure: ...


PROCEDURES: Mapping[str, ProcedureFactory] = MappingProxyType({"grid": GridProcedure, "random": RandomProcedure})
