"""What comes of the searches: pure functions from runs to measures, tables and words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from easeml_experiments.contract import Measure, at_most
from easeml_experiments.peers.launch import Measured
from easeml_experiments.peers.record import Record

# Hours on Cerebro over hours on task parallelism (Celery; Spark for HyperOpt), configs that ASHA explored in the same
# time, best validation errors on both: section 6.3, appendix E.
PAPER_TIME = {"hyperband": 43.5 / 42.1, "tpe": 31.8 / 25.9}
PAPER_CONFIGS = 83 / 67
PAPER_ERROR = {"tpe": 0.341 - 0.332, "asha": 0.319 - 0.332}
TARGET = {"hyperband": 1.05}
TITLES = {"hyperband": "Hyperband", "tpe": "TPE", "asha": "ASHA"}
NAMES = {"mop": "MOP", "ray": "Ray", "tasks": "processes"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One search. `n_parallel` is how many trials the procedure keeps in training."""

    procedure: str
    method: str
    n_parallel: int
    seed: int
    measured: Measured
    max_seconds: float | None = None

    @property
    def record(self) -> Record:
        """What the method reported."""
        return self.measured.record

    @property
    def system(self) -> str:
        """The method, with what it was asked for."""
        return f"{NAMES[self.method]}, |S| = {self.n_parallel}"

    def points(self) -> list[Row]:
        """Return every measured epoch in the order of time, within the time of the search: trial_number, epoch, seconds
        since the search began, validation_error.
        """
        found = [
            {"trial_number": n, "epoch": epoch, "seconds": at - self.record.started, "validation_error": error}
            for n, errors in self.record.errors.items()
            for epoch, (error, at) in enumerate(zip(errors, self.record.measured_at[n], strict=True), 1)
        ]
        kept = [each for each in found if self.max_seconds is None or each["seconds"] <= self.max_seconds]
        return sorted(kept, key=lambda each: each["seconds"])

    def best_error(self) -> float:
        """Return the lowest validation error; 1 where nothing was measured."""
        return min((each["validation_error"] for each in self.points()), default=1.0)

    def epochs(self) -> dict[int, int]:
        """Return epochs trained, by trial number."""
        numbers = [each["trial_number"] for each in self.points()]
        return {number: numbers.count(number) for number in sorted(set(numbers))}

    def shares(self) -> dict[str, float]:
        """Return shares of the workers' time by activity; what no activity is known of was idle."""
        whole = self.record.n_workers * self.measured.training_seconds
        shares = {name: seconds / whole for name, seconds in self.record.spent_seconds.items()}
        return shares | {"idle": 1.0 - sum(share for name, share in shares.items() if name != "idle")}


class Group:
    """All runs of a procedure: those of model hopping and those of task parallelism, a pair for each seed."""

    def __init__(self, runs: Sequence[Run], procedure: str) -> None:
        mine = [run for run in runs if run.procedure == procedure]
        self.procedure, self.other = procedure, next(run.method for run in mine if run.method != "mop")
        self._runs = mine
        self.peers = self.of(self.other)

    def of(self, method: str, n_parallel: int | None = None) -> list[Run]:
        """Return a method's runs, by seed."""
        found = [run for run in self._runs if run.method == method and n_parallel in (None, run.n_parallel)]
        return sorted(found, key=lambda run: run.seed)

    def sizes(self) -> list[int]:
        """Return how many trials model hopping was asked to keep in training, each once."""
        return sorted({run.n_parallel for run in self.of("mop")})

    def pairs(self, n_parallel: int) -> list[tuple[Run, Run]]:
        """Return runs of one seed: model hopping, task parallelism."""
        theirs = {run.seed: run for run in self.peers}
        return [(run, theirs[run.seed]) for run in self.of("mop", n_parallel) if run.seed in theirs]


def measures(runs: Sequence[Run]) -> tuple[Measure, ...]:
    """Return every measure, procedure by procedure."""
    found: list[Measure] = []
    for procedure in dict.fromkeys(run.procedure for run in runs):
        group = Group(runs, procedure)
        for n_parallel in group.sizes():
            pairs = group.pairs(n_parallel)
            found += _count_measures(group, pairs) if pairs[0][0].max_seconds else _time_measures(group, pairs)
            found += _error_measures(group, pairs)
        if procedure == "hyperband":
            found += [*_sameness_measures(group), *_resource_measures(group), *_share_measures(group)]
    return tuple(found)


def _time_measures(group: Group, pairs: Sequence[tuple[Run, Run]]) -> Iterator[Measure]:
    name = f"{TITLES[group.procedure]}, MOP / {NAMES[group.other]}, time"
    paper, target = PAPER_TIME.get(group.procedure), TARGET.get(group.procedure)
    ratio = median(ours.measured.training_seconds / theirs.measured.training_seconds for ours, theirs in pairs)
    setting = _setting(pairs, "training_seconds")
    yield at_most(name, setting, paper, ratio, target) if target else Measure(name, setting, paper, ratio)
    with_start = median(ours.measured.seconds / theirs.measured.seconds for ours, theirs in pairs)
    yield Measure(f"{name} with start-up", _setting(pairs, "seconds"), None, with_start)
    processor = sum(ours.measured.processor_seconds for ours, _ in pairs)
    other = sum(theirs.measured.processor_seconds for _, theirs in pairs)
    setting = f"{processor:.0f} s against {other:.0f} s, start-up included"
    yield Measure(
        f"{TITLES[group.procedure]}, MOP / {NAMES[group.other]}, processor time",
        f"{pairs[0][0].system}, {setting}",
        None,
        processor / other if other else None,
    )


def _count_measures(group: Group, pairs: Sequence[tuple[Run, Run]]) -> Iterator[Measure]:
    ours, theirs = (sum(len(pair[side].epochs()) for pair in pairs) for side in (0, 1))
    seconds = pairs[0][0].max_seconds
    setting = f"{pairs[0][0].system}, {ours} against {theirs} in {len(pairs)} x {seconds:g} s"
    name = f"{TITLES[group.procedure]}, MOP / {NAMES[group.other]}, configs explored"
    yield Measure(name, setting, PAPER_CONFIGS, ours / theirs if theirs else None)
    ours, theirs = (sum(sum(pair[side].epochs().values()) for pair in pairs) for side in (0, 1))
    name = f"{TITLES[group.procedure]}, MOP / {NAMES[group.other]}, epochs trained"
    yield Measure(name, f"{pairs[0][0].system}, {ours} against {theirs}", None, ours / theirs if theirs else None)


def _error_measures(group: Group, pairs: Sequence[tuple[Run, Run]]) -> Iterator[Measure]:
    ours, theirs = (fmean(pair[side].best_error() for pair in pairs) for side in (0, 1))
    setting = f"{pairs[0][0].system}, mean of {len(pairs)}: {ours:.4f} against {theirs:.4f}"
    name = f"{TITLES[group.procedure]}, MOP - {NAMES[group.other]}, best validation error"
    paper = PAPER_ERROR.get(group.procedure, "almost identical")
    yield Measure(name, setting, paper, ours - theirs)


def _sameness_measures(group: Group) -> Iterator[Measure]:
    """Measure whether both sides trained the same trials equally far, and to the same bytes."""
    pairs = [pair for n_parallel in group.sizes() for pair in group.pairs(n_parallel)]
    n_trials = sum(len(ours.epochs()) for ours, _ in pairs)
    n_alike = sum(
        ours.record.configs[number] == theirs.record.configs.get(number) and n == theirs.epochs().get(number)
        for ours, theirs in pairs
        for number, n in ours.epochs().items()
    )
    setting = f"{TITLES[group.procedure]}, {len(pairs)} pairs"
    name = "trials with the same config and number of epochs"
    yield Measure(name, setting, "same", n_alike, f"= {n_trials}", n_alike == n_trials)
    n_same = sum(
        digest == theirs.record.hashes.get(number)
        for ours, theirs in pairs
        for number, digest in ours.record.hashes.items()
    )
    yield Measure("trials with the same bytes", setting, None, n_same, f"= {n_trials}", n_same == n_trials)


def _resource_measures(group: Group) -> Iterator[Measure]:
    ours, theirs = group.of("mop")[0].record, group.peers[0].record
    share, p = ours.loaded_bytes / theirs.loaded_bytes, ours.n_workers
    setting = f"{p} workers, {ours.loaded_bytes / 1e6:.1f} against {theirs.loaded_bytes / 1e6:.1f} MB of training rows"
    is_near = abs(share - 1 / p) <= 0.01 / p
    yield Measure(f"storage, MOP / {NAMES[group.other]}", setting, 1 / 8, share, f"= 1/{p}", is_near)
    memory = [median(run.measured.memory_bytes for run in runs) for runs in (group.of("mop"), group.peers)]
    setting = f"all processes, {memory[0] / 2**20:,.0f} against {memory[1] / 2**20:,.0f} MiB"
    yield Measure(
        f"MOP / {NAMES[group.other]}, peak memory", setting, None, memory[0] / memory[1] if memory[1] else None
    )


def _share_measures(group: Group) -> Iterator[Measure]:
    """Yield what the workers' time went into."""
    for runs in (group.of("mop"), group.peers):
        shares = mean_shares(runs)
        setting = f"{TITLES[group.procedure]}, {runs[0].system}, makespan times workers"
        for activity, share in shares.items():
            yield Measure(f"share of time, {activity}", setting, None, share)
    units = [unit for run in group.of("mop") for unit in run.measured.units if unit["kind"] == "train"]
    if units:
        setting = f"{len(units)} units, state of {max(unit['state_bytes'] for unit in units) / 1e6:.2f} MB"
        yield Measure("median unit, s", setting, "minutes", median(unit["seconds"] for unit in units))


def mean_shares(runs: Sequence[Run]) -> dict[str, float]:
    """Return mean shares of the workers' time, by activity."""
    all_shares = [run.shares() for run in runs]
    return {name: fmean(shares.get(name, 0.0) for shares in all_shares) for name in all_shares[0]}


def _setting(pairs: Sequence[tuple[Run, Run]], name: str) -> str:
    ours, theirs = (", ".join(f"{getattr(pair[side].measured, name):.1f}" for pair in pairs) for side in (0, 1))
    n_trials = len(pairs[0][0].epochs())
    return f"{pairs[0][0].system}, {n_trials} trials, {len(pairs)} pairs: {ours} against {theirs} s"


def why(runs: Sequence[Run], note: str = "") -> str:
    """Say why our values differ from the paper's, with what was measured."""
    parts = [
        "The paper trains ResNets on ImageNet with 8 GPUs; its units take minutes, and an epoch is a barrier for all"
        " trials. Here LeNet-5 trains on the cores of one machine, units take about a second, and no trial waits for"
        " another's epoch.",
        "Task parallelism here visits the rows in the order that model hopping has, so the same trials come of it; the"
        " paper's shuffles them differently. Its tasks are served first come, first served, and a trial's rung is one"
        " task, so a worker may be idle while another still has a whole rung to do; model hopping shares such a rest"
        " out unit by unit.",
    ]
    by_name = {run.procedure for run in runs}
    if "hyperband" in by_name:
        parts.append(_losses(Group(runs, "hyperband")))
    if by_name - {"hyperband"}:
        parts.append(
            "TPE and ASHA decide by what happened to end first, so their trials differ from side to side; with as many"
            " trials in training as slots, as in the paper, a slot of model hopping may find no idle trial."
        )
    return " ".join([*parts, note]).strip()


def _losses(group: Group) -> str:
    ours, theirs = mean_shares(group.of("mop")), mean_shares(group.peers)
    spent = ", ".join(f"{name} {share:.1%}" for name, share in ours.items())
    other = ", ".join(f"{name} {share:.1%}" for name, share in theirs.items())
    return f"In Hyperband slots of MOP spent their time on {spent}; workers of {NAMES[group.other]} on {other}."


# Tables


def tables(runs: Sequence[Run]) -> dict[str, list[Row]]:
    """Return rows of searches, of every epoch of every trial, and of model hopping's units."""
    return {
        "searches": [_search_row(run) for run in runs],
        "epochs": [_key(run) | point for run in runs for point in run.points()],
        "units": [_key(run) | dict(unit) for run in runs for unit in run.measured.units],
    }


def _key(run: Run) -> Row:
    return {"procedure": run.procedure, "method": run.method, "n_parallel": run.n_parallel, "seed": run.seed}


def _search_row(run: Run) -> Row:
    shares: Mapping[str, float] = run.shares()
    return _key(run) | {
        "n_workers": run.record.n_workers,
        "makespan_seconds": run.measured.training_seconds,
        "seconds_with_start": run.measured.seconds,
        "processor_seconds": run.measured.processor_seconds,
        "peak_memory_bytes": run.measured.memory_bytes,
        "n_trials": len(run.epochs()),
        "n_epochs": sum(run.epochs().values()),
        "best_validation_error": run.best_error(),
        "row_bytes_held": run.record.loaded_bytes,
        **{f"share_{name}": share for name, share in shares.items()},
    }
