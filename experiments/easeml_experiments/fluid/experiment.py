"""Runs the figures in simulation, StaticFluid against the optimum, and trials that really train on this machine."""

from __future__ import annotations

from easeml_experiments.contract import Options, Result
from easeml_experiments.fluid import plots, real
from easeml_experiments.fluid.bound import N_CASES, N_CASES_QUICK, cases
from easeml_experiments.fluid.bound import measures as bound_measures
from easeml_experiments.fluid.comparison import compare, summary
from easeml_experiments.fluid.figures import cells, measures

N_SEEDS = 5
WHY = (
    "Simulated. The paper prints neither alpha, beta, c and d of its testbed, nor its budgets, and its makespan is the"
    " time to a target accuracy; here it is the time that all rungs of a procedure take. So only the order of its"
    " ratios can be compared. Assumed: alpha 1.2, beta 1.1, c 2, d 4, a resize 0.05 epochs, ten reports an epoch,"
    " seconds per epoch lognormal(0.3), and that who is promoted has nothing to do with speed. Two packed trials do"
    " 1.67 times the work of one, and a trial alone so uses 0.6 of a device; that is the ratio where there are always"
    " trials enough, also for the asynchronous procedures, which gain less in the paper: it counts time to a target,"
    " and more trials at once need not reach it sooner. Hyperband and synchronous BOHB have the same rungs here, since"
    " they differ in the configs that they propose, not in how long these train: their ratios differ by what was drawn."
    " ASHA: 729 configs, which three compete is fixed. PBT: a population of 16, a barrier after every 5 epochs. The"
    " paper's theorem 1 (StaticFluid within twice the optimum) does not hold."
)


def run(options: Options) -> Result:
    """Compare every point over seeds; then random small cases; then, unless quick, train for real."""
    seeds = range(options.seed, options.seed + (1 if options.is_quick else N_SEEDS))
    rows = []
    for cell in cells():
        options.say(f"figure {cell.figure}: {cell.name}, {cell.n_devices} GPUs")
        rows += list(compare(cell, seeds))
    points = summary(rows)
    options.say("StaticFluid and the optimum")
    small = list(cases(options.seed, N_CASES_QUICK if options.is_quick else N_CASES))
    trained = [] if options.is_quick else real.runs(options)
    tables = {"figures": points, "runs": rows, "bound": small, **({"real": trained} if trained else {})}
    charts = {"ratios": plots.ratios(points), "utilisation": plots.utilisation(points), "bound": plots.bound(small)}
    found = (*measures(points), *bound_measures(small), *(real.measures(trained) if trained else ()))
    return Result(found, WHY, tables, charts)
