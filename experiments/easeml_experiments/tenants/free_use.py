"""Any strategies on any matrices: what they cost, and how far they are from a clairvoyant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from easeml_db.errors import InvalidArgument
from easeml_experiments.contract import Measure, Options, Result
from easeml_experiments.tenants.cells import ORACLE_LINES
from easeml_experiments.tenants.curves import draws_of, ratio
from easeml_experiments.tenants.histories import check_history
from easeml_experiments.tenants.judging import costs, interval, judged
from easeml_experiments.tenants.matrices import Matrices, read_matrices
from easeml_experiments.tenants.plots import Drawn, cost_rows, curve_rows, loss_chart
from easeml_experiments.tenants.protocol import Cell, Replayed, check_repeats, check_tested, replay_cell
from easeml_experiments.tenants.replay_cache import QUICK_REPEATS
from easeml_experiments.tenants.strategies import Strategy, strategy
from easeml_experiments.tenants.workers import workers

LEVELS = (0.05, 0.02, 0.01, 0.005)


def free_use(options: Options) -> Result:
    """Replay the strategies named on the matrices given. Raises InvalidArgument, InvalidData before anything runs."""
    values = options.values
    chosen = _strategies(values["policies"])
    matrices = _matrices(values["quality"], values.get("cost"), options.seed)
    check_history(values["history"])
    cell = Cell(matrices.name, values["tested"], budget=_budget(values["budget"]), history=values["history"])
    check_tested(matrices, cell.n_tested)
    n_repeats = QUICK_REPEATS if options.is_quick else check_repeats(values["repeats"])
    with workers(in_process=options.is_quick) as pool:
        options.say(f"{n_repeats} repeats of {', '.join(each.name for each in chosen)}")
        replayed = replay_cell(matrices, cell, chosen, n_repeats, options.seed, pool)
    return _result(replayed, [each.name for each in chosen], options, values.get("cost") is not None)


def _strategies(names: str) -> list[Strategy]:
    return [strategy(name) for name in dict.fromkeys(name.strip() for name in names.split(","))]


def _matrices(quality: Path, cost: Path | None, seed: int) -> Matrices:
    return read_matrices(quality.stem, quality, cost, seed=seed)


def _budget(budget: float) -> float:
    if not 0 < budget <= 1:
        raise InvalidArgument(f"--budget: expected a share of all cost, above 0 and at most 1, got {budget:g}")
    return budget


def _result(replayed: Replayed, names: list[str], options: Options, has_costs: bool) -> Result:
    cell, n_repeats = replayed.cell, len(replayed.runs[names[0]])
    draws = draws_of(n_repeats, options.seed)
    drawn = [Drawn(cell.data, name, replayed.losses(name), cell.budget) for name in (*names, *ORACLE_LINES)]
    rows = cost_rows(drawn, draws)
    measures = [
        *(costs(line.curves, line.label, cell.data) for line in drawn),
        *(one for name in names for one in _cost_measures(rows, name)),
        *(one for name in names for one in _to_hull(replayed, name, draws)),
        *_freezes(replayed, names),
    ]
    tables = {"curves": curve_rows(drawn), "costs": rows}
    return Result(
        tuple(measures), _why(cell, n_repeats, options.seed, has_costs), tables, {"losses": loss_chart(drawn)}
    )


def _cost_measures(rows: list[dict[str, Any]], name: str) -> Iterator[Measure]:
    """Yield the cost to the losses that were reached, mean and worst, with intervals."""
    for row in rows:
        for which in ("mean", "worst") if row["line"] == name and row["loss"] in LEVELS else ():
            low, high = (f"{row[f'{which}_{end}']:.3g}" if row[f"{which}_{end}"] is not None else "not reached"
                         for end in ("low", "high"))  # fmt: skip
            value = row[which] if row[which] is not None else "not reached"
            where = f"{row['panel']}, {which}; 95 %: {low} to {high}"
            yield Measure(f"{name}: cost % to loss {row['loss']:g}", where, None, value)


def _to_hull(replayed: Replayed, name: str, draws: Any) -> Iterator[Measure]:
    for level in LEVELS:
        found = ratio(replayed.losses(name), replayed.losses("oracle_hull"), level, draws)
        where = f"{replayed.cell.data}; {interval(found)}"
        yield judged(f"{name} / oracle_hull, cost to loss {level:g}", where, None, found.value, None)


def _freezes(replayed: Replayed, names: list[str]) -> Iterator[Measure]:
    for name in names:
        if strategy(name).policy == "hybrid":
            text = f"{replayed.n_frozen(name)} of {len(replayed.runs[name])}"
            yield Measure(f"{name}: repeats in which greedy froze", replayed.cell.data, None, text)


def _why(cell: Cell, n_repeats: int, seed: int, has_costs: bool) -> str:
    drawn = "" if has_costs else f" Costs were drawn from U(0, 1), seed {seed}: give --cost."
    return (
        f"No paper is repeated. {n_repeats} repeats, seed {seed}: {cell.n_tested} users tested, all others train the"
        f" priors (history: {cell.history}); a budget of {cell.budget:.0%} of all cost; no more was spent.{drawn}"
    )
