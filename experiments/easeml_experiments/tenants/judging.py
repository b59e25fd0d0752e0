"""Measures from replayed curves. A ratio above 1 says how many times longer the first takes; intervals hold 95 % of the
bootstrap over repeats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from easeml_experiments.contract import Measure, at_least, at_most
from easeml_experiments.tenants.curves import LEVELS, Curves, Ratio, ratio, ratios
from easeml_experiments.tenants.protocol import Cell
from easeml_experiments.tenants.replay_cache import ReplayCache


def missing(data: str) -> Measure:
    """Make the measure that stands for what cannot be measured for want of the matrices."""
    return Measure("matrices", data, None, "no data: --data DIR")


def present(replays: ReplayCache, cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if replays.has(cell.data)]


def interval(found: Ratio) -> str:
    return f"95 %: {found.low:.3g} to {found.high:.3g}"


def costs(curves: Curves, label: str, where: str) -> Measure:
    """Measure a strategy's cost, in percent of all, to three losses of the mean and of the worst curve."""
    mean, worst = (_percents(curves, worst=worst) for worst in (False, True))
    return Measure(f"{label}: cost % to loss 0.02 / 0.01 / 0.005", where, None, f"{mean} (worst repeat {worst})")


def _percents(curves: Curves, *, worst: bool) -> str:
    found = 100 * curves.cost_to(np.array([0.02, 0.01, 0.005]), worst=worst)
    return " / ".join(f"{each:.3g}" if np.isfinite(each) else "-" for each in found)


def frozen(replays: ReplayCache, cell: Cell, name: str = "hybrid") -> Measure:
    """Count the repeats in which hybrid went over to round robin."""
    where = f"{cell.data}, {cell.n_tested} tenants{', all costs 1' * cell.is_unit_cost}"
    return Measure(
        f"{name}: repeats in which greedy froze", where, None, f"{replays[cell].n_frozen(name)} of {replays.n_repeats}"
    )


def judged(
    name: str, where: str, paper: float | str | None, value: float, least: float | None, most: float | None = None
) -> Measure:
    if not np.isfinite(value):
        is_judged = least is not None or most is not None
        return Measure(name, where, paper, "not reached by both", holds=False if is_judged else None)
    if least is not None:
        return at_least(name, where, paper, value, least)
    return at_most(name, where, paper, value, most) if most is not None else Measure(name, where, paper, value)


def at_all_losses(
    replays: ReplayCache, cell: Cell, above: str, below: str, paper: str | None, *,
    most: float | None = None, least: float | None = None,
) -> Iterator[Measure]:  # fmt: skip
    """Return the greatest and the least ratio of costs over the losses, and where."""
    first, second = replays[cell].losses(above), replays[cell].losses(below)
    found = ratios(first, second, LEVELS)
    found = np.where(np.isfinite(found) & (found > 0), found, np.nan)  # reached by both
    if np.isnan(found).all():
        return
    for word, place, bound, said in (
        ("greatest", int(np.nanargmax(found)), most, paper), ("least", int(np.nanargmin(found)), least, None)
    ):  # fmt: skip
        level = float(LEVELS[place])
        where = f"{cell.data}, at loss {level:g}; {interval(ratio(first, second, level, replays.draws))}"
        title = f"{title_of(above)} / {below}, {word} ratio of costs, losses 0.2 to 0.005"
        yield judged(title, where, said, float(found[place]), bound)


def title_of(name: str) -> str:
    return {"spearmint": "Spearmint*", "spearmint_best_prior": "Spearmint* with our prior"}.get(name, name)


def ratios_at(replays: ReplayCache, cell: Cell, above: str, below: str, levels: Iterable[float]) -> Iterator[Measure]:
    """Return ratios of costs to some losses; a text where one of the two does not get there within the budget."""
    for level in levels:
        found = ratio(replays[cell].losses(above), replays[cell].losses(below), level, replays.draws)
        is_known = np.isfinite(found.value) and found.value > 0
        where = f"{cell.data}; {interval(found)}" if is_known else cell.data
        value = found.value if is_known else f"not reached by both within {cell.budget:.0%}"
        yield Measure(f"{title_of(above)} / {below}, cost to loss {level:g}", where, None, value)


def cost_ratio(replays: ReplayCache, cell: Cell, names: tuple[str, str], level: float, most: float | None) -> Measure:
    found = ratio(replays[cell].losses(names[0]), replays[cell].losses(names[1]), level, replays.draws)
    return judged(
        f"{names[0]} / {names[1]}, cost to loss {level:g}", f"{cell.data}, mean; {interval(found)}",
        None, found.value, None, most,
    )  # fmt: skip
