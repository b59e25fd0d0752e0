"""The experiments that `easeml experiments` offers. To add one: write a module with `run(options) -> Result`, and name
it here. Modules are imported when they run, so that the command line starts without torch, ray or altair."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from easeml_db.errors import NotReady
from easeml_experiments.contract import Experiment, Options, Parameter, Result

INSTALL = 'In a clone of easeml: pip install ".[experiments]" ./experiments'
HISTORIES = ("true", "reversed", "shuffled", "shifted", "correlation=x")
TENANT_PRESETS = (
    "9", "V9", "V10", "10", "11", "12", "13", "14", "15", "fifty", "devices", "history", "regret", "decision",
    "targets",
)  # fmt: skip


def later(module: str) -> Callable[[Options], Result]:
    """Return `run` of a module of this package, imported at the call. Raises NotReady where the extra is missing."""

    def run(options: Options) -> Result:
        try:
            result: Result = import_module(f"easeml_experiments.{module}").run(options)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("easeml"):
                raise
            raise missing(error.name or "a package") from error
        return result

    return run


def missing(package: str) -> NotReady:
    """Return the error that says what to install."""
    return NotReady(f"experiments need {package}", hint=INSTALL)


EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (
        Experiment(
            "schedulers",
            "Makespans of the schedulers in simulation, and what a decision costs",
            "Cerebro, figure 6",
            later("schedulers"),
        ),
        Experiment(
            "mop-peers",
            "Model hopping inside PostgreSQL against task parallel, data parallel and model averaging",
            "Cerebro, figures 7 and 9",
            later("mop_peers"),
            trains=True,
        ),
        Experiment(
            "communication",
            "Bytes that each way of training moves, by formula and counted",
            "Cerebro, table 2 and section 3.2",
            later("communication"),
            trains=True,
        ),
        Experiment(
            "fault-tolerance",
            "Epoch times while two of the slots fail and come back, with three replicas",
            "Cerebro, figure 8(B)",
            later("fault_tolerance"),
        ),
        Experiment(
            "speedup",
            "Strong scaling over slots: real on this machine's cores, simulated up to 1,000",
            "Cerebro, figure 8(A)",
            later("speedup"),
        ),
        Experiment(
            "procedures",
            "Hyperband, TPE and ASHA on model hopping against the same on task parallelism",
            "Cerebro, figures 12, 13 and 18 to 21",
            later("procedures.experiment"),
            trains=True,
            parameters=(
                Parameter("procedures", "Comma-separated: hyperband, tpe, asha (default: all)."),
                Parameter("repeats", "Turns of each procedure, with a seed of its own each (default: 3).", int),
                Parameter("epochs", "Epochs R of Hyperband (default: 9; the paper's: 25).", int),
                Parameter("rows", "Rows to train, validate and test on (default: 20,000).", int),
            ),
        ),
        Experiment(
            "fluid",
            "Trial groups in simulation: water-filling of devices over trials against one trial on each device",
            "Fluid, figures 7 and 11 to 13, theorem 1",
            later("fluid.experiment"),
        ),
        Experiment(
            "planner",
            "Plans that meet a deadline at least cost: the paper's tables and figures in simulation, and random jobs",
            "RubberBand, tables 1 to 4 and figures 9 to 12",
            later("planner.experiment"),
            parameters=(
                Parameter("cases", "Random jobs to compare with the best static plan.", int, 300),
                Parameter("rows", "File that keeps each random job, so that a run that was stopped goes on there."),
                Parameter("small-cases", "Small random jobs to compare with all plans there are.", int, 60),
                Parameter(
                    "only", "Comma-separated parts, such as table 2,executions,coverage,real (default: all but real)."
                ),
                Parameter("real", "Also train eight jobs on two slots of this machine (minutes).", bool, False),
            ),
        ),
        Experiment(
            "tables",
            "Real tables: what select_models finds by itself against boosting, forests and FLAML outside",
            "no paper: our own targets",
            later("tables.experiment"),
            trains=True,
            parameters=(
                Parameter("only", "Comma-separated tables (default: all)."),
                Parameter("seeds", "Comma-separated seeds, each with a split of its own.", default="0,1,2"),
                Parameter("seconds", "Seconds of each search, ours and FLAML's.", float, 120.0),
                Parameter("rivals", "Also run the rivals whose results are missing.", bool, False),
                Parameter("skip-ours", "Run nothing of ours.", bool, False),
                Parameter("again", "Run ours again where there is a result.", bool, False),
                Parameter("results", "Folder that keeps every result.", default="tables-results"),
            ),
        ),
        Experiment(
            "tenants",
            "Multi-tenant selection replayed on matrices of qualities and costs: presets, or matrices of your own",
            "ease.ml, figures 9 to 15",
            later("tenants.experiment"),
            parameters=(
                Parameter("preset", f"Comma-separated: all, {', '.join(TENANT_PRESETS)}.", default="all"),
                Parameter("data", "Folder with the matrices of the presets.", Path, environment="EASEML_MATRICES"),
                Parameter(
                    "quality", "Matrix of your own (CSV: users x models, from 0 to 1), instead of presets.", Path
                ),
                Parameter("cost", "Its costs (CSV of the same shape, positive); without: drawn from U(0, 1).", Path),
                Parameter(
                    "policies", "Strategies to replay on it, comma-separated.", default="ours,hybrid,round_robin"
                ),
                Parameter("budget", "Share of the cost of everything that may be spent on it.", float, 0.1),
                Parameter("repeats", "Random choices of tested users, in presets as well.", int, 50),
                Parameter("history", f"What the past says of its models: {', '.join(HISTORIES)}.", default="true"),
                Parameter("tested", "Tenants in each repeat; all other users train the priors.", int, 10),
            ),
        ),
    )
}
