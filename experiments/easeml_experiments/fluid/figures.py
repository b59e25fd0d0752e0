"""The figures of Fluid as points to compare, and the measures that come of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from easeml_db.decisions.trial_groups.limits import packing_limit, scaling_limit
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_experiments.contract import Measure, at_least
from easeml_experiments.fluid.comparison import ALPHA, BETA, SIZES, Cell
from easeml_experiments.fluid.workload import PROCEDURES, grid

Row = dict[str, Any]
RATIO = "makespan without / with"
PAPER = MappingProxyType(
    {
        "PBT": "little more than 1",
        "Hyperband": "1.3 to 2",
        "ASHA": "1.1 to 1.3",
        "synchronous BOHB": "1.3 to 2",
        "BOHB": "1.1 to 1.3",
    }
)
SYNCHRONOUS = MappingProxyType({4: 1.6, 8: 2.0, 16: 2.5})
ASYNCHRONOUS, AT_BEST = ("BOHB", "ASHA"), 1.3
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "7": "tuning procedures",
        "11a": "packing only, grid, 8 GPUs",
        "11b": "scaling only, grid, 8 GPUs",
        "12": "grid of 9, 8 GPUs",
        "13a": "packing only, grid of 27, 8 GPUs",
        "13b": "scaling only, grid of 3",
    }
)
MOST_MEASURED = 16  # devices on which scaling is measured, and trials packed on one


def cells() -> list[Cell]:
    """Return every point of every figure."""
    return [*figure_7(), *figure_11(), *figure_12(), *figure_13()]


def figure_7() -> Iterator[Cell]:
    """Return the cells of procedures on 4, 8 and 16 devices; figures 8, 9 and 10 too, as far as they are about time."""
    for name, make in PROCEDURES.items():
        for n_devices in SIZES:
            yield Cell("7", name, make, n_devices)


def figure_11() -> Iterator[Cell]:
    """Yield packing without scaling for many trials, scaling without packing for few."""
    for n_trials in (9, 27, 81):
        yield Cell("11a", f"{n_trials} trials", partial(grid, n_trials=n_trials), 8, packing_only(ALPHA))
    for n_trials in (1, 2, 4, 6):
        yield Cell("11b", f"{n_trials} trials", partial(grid, n_trials=n_trials), 8, Profile(beta=BETA, d=4))


def figure_12() -> Iterator[Cell]:
    """Return the cells of trials whose speeds are more and more uneven."""
    for sigma in (0.0, 0.1, 0.3, 0.6, 1.0):
        yield Cell("12", f"sigma {sigma:g}", partial(grid, n_trials=9), 8, sigma=sigma)


def figure_13() -> Iterator[Cell]:
    """Yield more overhead; what is still worthwhile is found as the paper finds it."""
    for factor in (1.0, 1.5, 2.0, 10.0):
        yield Cell("13a", f"overhead x{factor:g}", grid, 8, packing_only(1 + factor * (ALPHA - 1), most=2))
    for beta in (1.05, BETA, 1.2, 1.4):
        for n_devices in SIZES:
            yield Cell("13b", f"beta {beta:g}", partial(grid, n_trials=3), n_devices, scaling_only(beta))


def packing_only(alpha: float, *, most: int = 2) -> Profile:
    """Return c by the rule, from the times that this overhead gives, up to `most`."""
    c = packing_limit([[alpha**p] * (p + 1) for p in range(most)])
    return Profile(alpha=alpha, c=c)


def scaling_only(beta: float) -> Profile:
    """Return d by the rule, from the speed-ups that this overhead gives on up to 16 devices."""
    return Profile(beta=beta, d=scaling_limit([w / beta ** (w - 1) for w in range(1, MOST_MEASURED + 1)]))


def measures(points: Sequence[Row]) -> Iterator[Measure]:
    """Return targets of figure 7, then the ratio of every other point, then utilisation."""
    procedures = [point for point in points if point["figure"] == "7"]
    for point in procedures:
        yield _ratio(point)
    yield from _never_longer(procedures)
    for name in ASYNCHRONOUS:
        best = max(point["ratio"] for point in procedures if point["setting"] == name)
        yield at_least(RATIO, f"{name}, at best", PAPER[name], best, AT_BEST)
    for point in procedures:
        for name, paper in (("without", "at most 0.6 where busy"), ("with", None)):
            yield Measure(f"utilisation, {name}", _where(point), paper, point[f"utilisation_{name}"])
    for point in points:
        if point["figure"] != "7":
            where = f"figure {point['figure']}: {TITLES[point['figure']]}, {point['setting']}"
            yield Measure(RATIO, f"{where}{_on(point)}", 1.0 if where.endswith("x10") else None, point["ratio"])


def _where(point: Row) -> str:
    return f"{point['setting']}, {point['n_devices']} GPUs"


def _on(point: Row) -> str:
    return f", {point['n_devices']} GPUs" if point["figure"] == "13b" else ""


def _ratio(point: Row) -> Measure:
    name, where = point["setting"], _where(point)
    if name == "synchronous BOHB":
        return at_least(RATIO, where, PAPER[name], point["ratio"], SYNCHRONOUS[point["n_devices"]])
    return Measure(RATIO, where, PAPER.get(name), point["ratio"])


def _never_longer(points: Sequence[Row]) -> Iterator[Measure]:
    for name in ("synchronous BOHB", *ASYNCHRONOUS):
        least = min(point["ratio_least"] for point in points if point["setting"] == name)
        yield at_least(RATIO, f"{name}, least of all sizes and seeds", None, least, 1.0)
