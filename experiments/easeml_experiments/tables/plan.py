"""What is to be run, from the options of the command."""

from __future__ import annotations

from dataclasses import dataclass

from easeml_db.errors import InvalidArgument, NotReady
from easeml_experiments.contract import Options
from easeml_experiments.tables.catalogue import TABLES
from easeml_experiments.tables.rivals import RIVALS, Rival
from easeml_experiments.tables.sources import missing_package
from easeml_experiments.tables.table import Table

N_SLOTS = 2
SECONDS, SEEDS = 120.0, "0,1,2"
INSTALL_RIVALS = 'in a clone of easeml: pip install "./experiments[tables]"'
QUICK_TABLES, QUICK_RIVALS = "diabetes,wine", "hgb"


@dataclass(frozen=True)
class TablesPlan:
    """Tables, seeds, seconds of each search, the rivals that may run; whether ours runs, and again where it has."""

    tables: tuple[Table, ...]
    seeds: tuple[int, ...]
    seconds: float
    rivals: tuple[Rival, ...]
    n_slots: int
    is_quick: bool
    has_ours: bool
    is_again: bool


def plan_of(options: Options) -> TablesPlan:
    """Read the options. Raises InvalidArgument for what there is not, NotReady for what is not installed."""
    values = options.values
    only, seeds, rivals = values.get("only") or "", values.get("seeds") or SEEDS, ",".join(RIVALS)
    if options.is_quick:
        only, seeds, rivals = QUICK_TABLES, str(options.seed), QUICK_RIVALS
    plan = TablesPlan(
        tuple(TABLES[name] for name in _names(only)),
        _seeds(seeds),
        float(values.get("seconds") or SECONDS),
        tuple(RIVALS[name] for name in rivals.split(",") if values.get("rivals") or options.is_quick),
        options.n_slots or N_SLOTS,
        options.is_quick,
        not values.get("skip_ours"),
        bool(values.get("again")),
    )
    _check_packages(plan)
    return plan


def _names(only: str) -> list[str]:
    names = _listed(only) or list(TABLES)
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise InvalidArgument(f"--only: there is no table {unknown[0]!r}", hint=f"There are: {', '.join(TABLES)}.")
    return names


def _seeds(text: str) -> tuple[int, ...]:
    if not all(part.isdecimal() for part in _listed(text)):
        raise InvalidArgument(f"--seeds: expected whole numbers such as 0,1,2, got {text!r}")
    return tuple(map(int, _listed(text)))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _check_packages(plan: TablesPlan) -> None:
    """Refuse at once what a run of hours would meet at its end."""
    data = {table.package: table.name for table in plan.tables if missing_package(table.package)}
    rivals = {rival.package: rival.name for rival in plan.rivals if missing_package(rival.package)}
    if data or rivals:
        hints = sorted(str(missing_package(package)) for package in data) + [INSTALL_RIVALS] * bool(rivals)
        names = ", ".join([*data.values(), *rivals.values()])
        raise NotReady(f"what {names} need is not installed", hint="; ".join(hints))
