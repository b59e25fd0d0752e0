"""What comes of the runs: pure functions from runs to measures, tables and words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from easeml_experiments.contract import Measure, at_least, at_most
from easeml_experiments.peers.launch import Measured
from easeml_experiments.peers.settings import LARGE_BATCH, SMALL_BATCH
from easeml_experiments.peers.statistics import Difference, paired_difference

# Hours of an epoch relative to Cerebro's, from figure 7: ImageNet (convolutional networks), Criteo (three layers).
PAPER = {
    "lenet": {"data-parallel": 5.42 / 1.77, "model-averaging": 1.97 / 1.77, "tasks": 1.77 / 1.72},
    "mlp": {"data-parallel": 14.06 / 3.40, "model-averaging": 3.84 / 3.40, "tasks": 3.40 / 3.95},
}
# CPU utilisation on Criteo, figure 7.
PAPER_CPU_USE = {"mop": 0.519, "tasks": 0.536, "model-averaging": 0.522, "data-parallel": 0.160}
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """All trials of a network trained in one way."""

    network: str
    batch_size: int
    seed: int
    method: str
    measured: Measured

    @property
    def place(self) -> str:
        """Which trials, in words."""
        return f"{self.network}, batch {self.batch_size}, seed {self.seed}"

    def best_errors(self) -> dict[tuple[int, int], float]:
        """Return the lowest validation error of each trial, by (seed, trial number)."""
        return {(self.seed, number): min(errors) for number, errors in self.measured.record.errors.items()}


class Group:
    """The runs of one network and batch size."""

    def __init__(self, runs: Sequence[Run], network: str, batch_size: int) -> None:
        self.network, self.batch_size = network, batch_size
        self._runs = [run for run in runs if run.network == network and run.batch_size == batch_size]

    def of(self, method: str) -> list[Run]:
        """Return a method's runs, one for each seed it was repeated with."""
        return [run for run in self._runs if run.method == method]

    def seconds(self, method: str, *, with_start: bool = False) -> list[float]:
        """Return wall times, by seed."""
        return [run.measured.seconds if with_start else run.measured.training_seconds for run in self.of(method)]

    def ratio(self, method: str, other: str, *, with_start: bool = False) -> float:
        """Return the median wall time of a method relative to another's, in pairs of runs with one seed."""
        ours = {run.seed: run.measured for run in self.of(method)}
        theirs = {run.seed: run.measured for run in self.of(other)}
        name = "seconds" if with_start else "training_seconds"
        return float(median(getattr(ours[seed], name) / getattr(theirs[seed], name) for seed in ours if seed in theirs))

    def setting(self, *methods: str, with_start: bool = False) -> str:
        """Return the trials, and each method's seconds."""
        n_trials = len(self.of("mop")[0].measured.record.errors)
        times = [f"{name} {_times(self.seconds(name, with_start=with_start))} s" for name in methods]
        return ", ".join([f"{self.network}, {n_trials} trials, batch {self.batch_size}", *times])

    def difference(self, method: str) -> Difference:
        """Return the best errors of a method's trials less those of sequential SGD, seed by seed and trial by trial."""
        reference = {key: error for run in self.of("tasks") for key, error in run.best_errors().items()}
        ours = {key: error for run in self.of(method) for key, error in run.best_errors().items()}
        pairs = [(ours[key], reference[key]) for key in sorted(ours) if key in reference]
        return paired_difference(pairs)


def measures(runs: Sequence[Run]) -> tuple[Measure, ...]:
    """Return every measure, network by network."""
    found: list[Measure] = []
    for network in dict.fromkeys(run.network for run in runs):
        group = Group(runs, network, SMALL_BATCH)
        found += [*_time_measures(group, Group(runs, network, LARGE_BATCH)), *_resource_measures(group)]
        found += [*_processor_measures(group), *_error_measures(group), *_unit_measures(group)]
    return tuple(found)


def _time_measures(group: Group, large: Group) -> Iterator[Measure]:
    paper = PAPER[group.network]
    both = group.setting("data-parallel", "mop")
    yield at_least("data parallel / MOP, time", both, paper["data-parallel"], group.ratio("data-parallel", "mop"), 3)
    if large.of("mop"):
        ratio = large.ratio("data-parallel", "mop")
        yield Measure("data parallel / MOP, time", large.setting("data-parallel", "mop"), None, ratio)
    setting = group.setting("mop", "ray-tune", with_start=True)
    ratio = group.ratio("mop", "ray-tune", with_start=True)
    yield at_most("MOP / Ray Tune, time with start-up", setting, paper["tasks"], ratio, 1)
    ratio = group.ratio("mop", "ray-tune")
    yield at_most("MOP / Ray Tune, time", group.setting("mop", "ray-tune"), paper["tasks"], ratio, 1.05)
    setting = group.setting("mop", "tasks")
    yield Measure("MOP / plain processes, time", setting, paper["tasks"], group.ratio("mop", "tasks"))
    ratio = group.ratio("model-averaging", "mop")
    setting = group.setting("model-averaging", "mop")
    yield Measure("model averaging / MOP, time", setting, paper["model-averaging"], ratio)
    n_workers = group.of("mop")[0].measured.record.n_workers
    setting = f"{group.setting('sequential', 'mop')}; {n_workers} slots, one process of {n_workers} threads"
    yield Measure("sequential / MOP, time", setting, None, group.ratio("sequential", "mop"))


def _resource_measures(group: Group) -> Iterator[Measure]:
    mop, tasks = group.of("mop")[0].measured, group.of("tasks")[0].measured
    share, p = mop.record.held_bytes / tasks.record.held_bytes, mop.record.n_workers
    setting = f"{group.network}, {mop.record.held_bytes / 1e6:.1f} MB of rows in the database for each of {p} slots"
    paper = 250 / 2000
    yield Measure("storage of a worker, MOP / task parallel", setting, paper, share, f"= 1/{p}", _is_near(share, 1 / p))
    for method in ("tasks", "ray-tune", "data-parallel"):
        theirs = median(run.measured.memory_bytes for run in group.of(method))
        ours = median(run.measured.memory_bytes for run in group.of("mop"))
        setting = f"{group.network}, all processes, {ours / 2**20:,.0f} MiB against {theirs / 2**20:,.0f} MiB"
        yield Measure(f"MOP / {method}, peak memory", setting, None, ours / theirs if theirs else None)


def _processor_measures(group: Group) -> Iterator[Measure]:
    """Yield processor time, which neighbours disturb less than wall time, and how much of the cores was used."""
    n_workers = group.of("mop")[0].measured.record.n_workers
    for method in ("tasks", "ray-tune"):
        ours, theirs = (sum(run.measured.processor_seconds for run in group.of(each)) for each in ("mop", method))
        setting = f"{group.network}, {ours:.0f} s against {theirs:.0f} s, start-up included"
        yield Measure(f"MOP / {method}, processor time", setting, None, ours / theirs if theirs else None)
    for method in ("mop", "tasks", "model-averaging", "data-parallel"):
        use = median(run.measured.processor_use(n_workers) for run in group.of(method))
        paper = PAPER_CPU_USE.get(method) if group.network == "mlp" else None
        yield Measure(f"{method}, processor use", f"{group.network}, of {n_workers} cores", paper, use)


def _error_measures(group: Group) -> Iterator[Measure]:
    for method in ("mop", "ray-tune", "data-parallel", "model-averaging"):
        difference = group.difference(method)
        is_target = method in ("mop", "ray-tune")
        yield Measure(
            f"{method} - sequential SGD, best validation error",
            f"{group.network}, batch {group.batch_size}, {difference.text}",
            "almost identical" if is_target else None,
            difference.mean,
            "interval holds 0" if method == "mop" else None,
            difference.holds_zero if method == "mop" else None,
        )
    (replay,) = group.of("replay")
    (mop,) = (run for run in group.of("mop") if run.seed == replay.seed)
    hashes = mop.measured.record.hashes
    n_same = sum(hashes[number] == digest for number, digest in replay.measured.record.hashes.items())
    setting = f"{group.network}, last states of MOP and of one process that makes the same visits"
    yield Measure("trials with the same bytes", setting, None, n_same, f"= {len(hashes)}", n_same == len(hashes))


def _unit_measures(group: Group) -> Iterator[Measure]:
    facts = unit_facts(group)
    setting = f"{group.network}, {facts['n_units']:.0f} units, state of {facts['state_bytes'] / 1e6:.2f} MB"
    yield Measure("median unit, s", setting, "minutes", facts["seconds"])
    yield Measure("of a unit not training, share", setting, None, facts["overhead_share"])
    setting = f"{group.network}, {facts['n_hops']:.0f} of {facts['n_units']:.0f} units began on another slot"
    yield Measure("partitions that a slot met", setting, 1, facts["partitions_met"])


def unit_facts(group: Group) -> dict[str, float]:
    """Return medians, counts and shares of the units of all of MOP's runs."""
    runs = [run.measured for run in group.of("mop")]
    units = [unit for run in runs for unit in run.units]
    met = {(index, unit["slot_id"]): set[int]() for index, run in enumerate(runs) for unit in run.units}
    for index, run in enumerate(runs):
        for unit in run.units:
            met[index, unit["slot_id"]].add(unit["partition_number"])
    seconds = sum(unit["seconds"] for unit in units)
    return {
        "n_units": len(units),
        "n_hops": sum(run.n_hops for run in runs),
        "seconds": median(unit["seconds"] for unit in units),
        "overhead_seconds": median(unit["seconds"] - unit["training_seconds"] for unit in units),
        "overhead_share": 1 - sum(unit["training_seconds"] for unit in units) / seconds,
        "state_bytes": max(unit["state_bytes"] for unit in units),
        "partitions_met": fmean(map(len, met.values())),
    }


def why(runs: Sequence[Run]) -> str:
    """Say why our values differ from the paper's, with what was measured of units."""
    parts = [
        "The paper has 8 workers on 10 Gb/s Ethernet, and networks of 179 to 792 MiB; here workers are processes of"
        " one machine, so gradients cross the loopback, and data-parallel training loses less to its messages where a"
        " step is long (the convolutional network) than where it is short (the network of three layers)."
    ]
    for network in dict.fromkeys(run.network for run in runs):
        facts = unit_facts(Group(runs, network, SMALL_BATCH))
        parts.append(
            f"A unit of {network} took {facts['seconds']:.2f} s, of which {facts['overhead_seconds'] * 1000:.0f} ms"
            f" went into reading and storing a state of {facts['state_bytes'] / 1e6:.2f} MB; the paper's take minutes."
        )
    parts.append(
        "One server's slots can all read every partition, so a slot may meet, and cache, more than one of them; what is"
        " stored is one copy. Validation and test units are part of MOP's time."
    )
    return " ".join(parts)


def tables(runs: Sequence[Run]) -> dict[str, list[Row]]:
    """Return rows of methods, of validation errors, and of MOP's units."""
    return {
        "methods": [_method_row(run) for run in runs],
        "errors": [row for run in runs for row in _error_rows(run)],
        "units": [_key(run) | dict(unit) for run in runs for unit in run.measured.units],
    }


def _key(run: Run) -> dict[str, Any]:
    return {"network": run.network, "batch_size": run.batch_size, "seed": run.seed, "method": run.method}


def _method_row(run: Run) -> Row:
    record = run.measured.record
    return _key(run) | {
        "n_workers": record.n_workers,
        "seconds": run.measured.seconds,
        "training_seconds": run.measured.training_seconds,
        "processor_seconds": run.measured.processor_seconds,
        "peak_memory_bytes": run.measured.memory_bytes,
        "best_validation_error": min(run.best_errors().values()),
        "held_bytes_per_worker": record.held_bytes,
        "loaded_bytes": record.loaded_bytes,
        "handed_bytes": record.handed_bytes,
        "wire_bytes": record.wire_bytes,
    }


def _error_rows(run: Run) -> Iterator[Row]:
    for number, errors in sorted(run.measured.record.errors.items()):
        for epoch, error in enumerate(errors, 1):
            yield _key(run) | {"trial_number": number, "epoch": epoch, "validation_error": error}


def _times(seconds: Sequence[float]) -> str:
    return " and ".join(f"{each:.1f}" for each in seconds)


def _is_near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= 0.01 * wanted
