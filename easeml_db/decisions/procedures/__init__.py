"""Procedures decide which configs are tried, and for how long; the hopper decides when and where they train.

One-shot procedures (grid, random) start everything at once. The others are asked again at the end of every
epoch, and start, continue and stop trials; each is a pure function of the history.

    contract.py   Procedure, its decisions and the history it sees       options.py   arguments, checked
    grid.py  random.py  successive_halving.py  hyperband.py  asha.py  pbt.py  tpe.py  bohb.py  sync_bohb.py
    race.py  race_candidates.py              all architectures against the clock; what is known of each
    portfolio.py  shipped_configs.py         configs that are tried first: learnt from history, or shipped
    budget.py                                limits of a run whose user set none
    rungs.py  promotion.py  brackets.py      whole-number rungs; who goes on; brackets one after the other
    drawing.py  tree_parzen.py  largest_budget.py  perturbation.py       where new configs come from
    creation.py  proposal.py                 from JSON: a procedure; a run's first trials and its plan
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from easeml_db.decisions.procedures.contract import Procedure
from easeml_db.decisions.procedures.halving.asha import AshaProcedure
from easeml_db.decisions.procedures.halving.bohb import BohbProcedure
from easeml_db.decisions.procedures.halving.hyperband import HyperbandProcedure
from easeml_db.decisions.procedures.halving.successive_halving import SuccessiveHalvingProcedure
from easeml_db.decisions.procedures.halving.sync_bohb import SyncBohbProcedure
from easeml_db.decisions.procedures.population.pbt import PopulationProcedure
from easeml_db.decisions.procedures.race.race import RaceProcedure
from easeml_db.decisions.procedures.sampling.grid import GridProcedure
from easeml_db.decisions.procedures.sampling.random import RandomProcedure
from easeml_db.decisions.procedures.sampling.tpe import TpeProcedure

PROCEDURES: Mapping[str, type[Procedure]] = MappingProxyType(
    {
        "random": RandomProcedure,
        "grid": GridProcedure,
        "successive_halving": SuccessiveHalvingProcedure,
        "hyperband": HyperbandProcedure,
        "asha": AshaProcedure,
        "pbt": PopulationProcedure,
        "tpe": TpeProcedure,
        "bohb": BohbProcedure,
        "sync_bohb": SyncBohbProcedure,
        "race": RaceProcedure,
    }
)


JOINT = "joint"  # an option of all that run once inside every arm: one search over all architectures


def takes_joint(procedure: str) -> bool:
    """Return whether a procedure runs inside every arm, unless it is asked to run once."""
    described = PROCEDURES[procedure].description
    return not described.is_one_shot and not described.is_run_wide


def takes_n_parallel(procedure: str | None) -> bool:
    """Return whether a procedure has the option n_parallel; one that there is not has none."""
    kind = PROCEDURES.get(procedure or "")
    return kind is not None and "n_parallel" in kind.description.options


def is_run_wide(procedure: str) -> bool:
    """Return whether a procedure is asked once about the trials of all arms."""
    return procedure in PROCEDURES and PROCEDURES[procedure].description.is_run_wide


def list_procedures() -> list[tuple[str, bool, list[str], str]]:
    """Return (name, is one shot, names of options, summary) of every procedure."""
    rows = []
    for name, factory in PROCEDURES.items():
        described = factory.description
        options = [*described.options, JOINT] if takes_joint(name) else [*described.options]
        rows.append((name, described.is_one_shot, options, described.summary))
    return rows


__all__ = ["PROCEDURES", "Procedure", "is_run_wide", "list_procedures", "takes_joint", "takes_n_parallel"]
