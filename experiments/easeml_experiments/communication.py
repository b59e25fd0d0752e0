"""Cerebro, table 2: the bytes that each way of training moves, by formula and really counted.

Model hopping is counted from the recorded units; task parallel training from the rows that its processes load and
the states that they return; data-parallel training and model averaging by the kernel's TCP counters of the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from easeml_experiments import communication_cost as cost
from easeml_experiments.contract import Measure, Options, Result
from easeml_experiments.peers.comparison import Run
from easeml_experiments.peers.method_runner import MethodRunner, opened
from easeml_experiments.peers.settings import COMMUNICATION, COMMUNICATION_QUICK, SMALL_BATCH
from easeml_experiments.peers.training import build, parameter_bytes

WHY = (
    "The formulas count messages; an implementation adds and saves. Model hopping hops whole states, with Adam's two"
    " moments: three times the parameters. A session that still has a trial does not read its state back, so less is"
    " read than a shared store's second transfer of each state. A ring all-reduce sends 2 (p - 1) / p of the gradients"
    " from each worker where the paper counts one: the same for two workers. Model averaging by all-reduce needs no"
    " server in the middle, which the paper's formula has. Gloo's own messages, the first parameters and the sums of"
    " the validation come on top."
)
MIB = 2**20
# VGG16 on ImageNet: Cerebro, table 5 and figure 7.
PAPER_SETTING = cost.Workload(
    n_epochs=10, state_bytes=792 * MIB, n_workers=8, n_configs=16, batch_rows=32, n_rows=1_200_000,
    data_bytes=250 * 10**9,
)  # fmt: skip
FORMULAS: Mapping[str, tuple[str, Callable[[cost.Workload], int]]] = {
    "model hopping": ("kmp|S| + m|S|", cost.model_hopping),
    "model hopping, shared store": ("2kmp|S|", cost.shared_store_hopping),
    "task parallel": ("p<D> + m|S|", cost.task_parallel),
    "model averaging": ("2kmp|S|", cost.bulk_synchronous),
    "data parallel, all-reduce": ("kmp|S| ceil(|D|/(bp))", cost.all_reduce),
    "data parallel, server": ("2kmp|S| ceil(|D|/(bp))", cost.parameter_server),
}
TOLERANCE = 0.1


@dataclass(frozen=True)
class Count:
    """Bytes of one way of training. `expected` is what counted / formula should be; None: it is only reported."""

    method: str
    batch_size: int
    work: cost.Workload
    counted_bytes: int | None = None
    expected: float | None = None

    @property
    def formula_bytes(self) -> int:
        """Bytes by the formula."""
        return FORMULAS[self.method][1](self.work)

    @property
    def ratio(self) -> float | None:
        """Counted relative to the formula."""
        return None if self.counted_bytes is None else self.counted_bytes / self.formula_bytes

    def row(self) -> dict[str, Any]:
        """Return the row that the tables have."""
        return {
            "method": self.method,
            "formula": FORMULAS[self.method][0],
            "batch_size": self.batch_size,
            **vars(self.work),
            "formula_bytes": self.formula_bytes,
            "counted_bytes": self.counted_bytes,
            "counted_by_formula": self.ratio,
        }


def run(options: Options) -> Result:
    """Train in each way, count, compare."""
    with opened(COMMUNICATION_QUICK if options.is_quick else COMMUNICATION, options) as runner:
        counts = list(_counts(runner))
    paper = [Count(method, PAPER_SETTING.batch_rows, PAPER_SETTING) for method in FORMULAS]
    tables = {"counts": [count.row() for count in counts], "paper_setting": [count.row() for count in paper]}
    return Result((*map(_measure, counts), *_savings(counts)), WHY, tables, {"bytes": _plot(counts)})


# Counting


def _counts(runner: MethodRunner) -> Iterator[Count]:
    (network,) = runner.setting.networks
    seed, ring = runner.options.seed, cost.ring_share(runner.server.n_slots)
    mop, tasks = (runner.run(method, network, SMALL_BATCH, seed) for method in ("mop", "tasks"))
    states = _work(runner, mop, tasks, max(unit["state_bytes"] for unit in mop.measured.units))
    parameters = replace(states, state_bytes=_parameter_bytes(runner))
    written, read = mop.measured.record.handed_bytes, mop.measured.hopped_bytes
    yield Count("model hopping", SMALL_BATCH, states, written)
    yield Count("model hopping, shared store", SMALL_BATCH, states, written + read)
    record = tasks.measured.record
    yield Count("task parallel", SMALL_BATCH, states, record.loaded_bytes + record.handed_bytes, 1.0)
    averaging = runner.run("model-averaging", network, SMALL_BATCH, seed)
    yield Count("model averaging", SMALL_BATCH, parameters, averaging.measured.record.wire_bytes, ring / 2)
    for batch_size in runner.setting.batch_sizes:
        work = replace(parameters, batch_rows=max(1, batch_size // runner.server.n_slots))
        parallel = runner.run("data-parallel", network, batch_size, seed)
        yield Count("data parallel, all-reduce", batch_size, work, parallel.measured.record.wire_bytes, ring)
        yield Count("data parallel, server", batch_size, work)


def _work(runner: MethodRunner, mop: Run, tasks: Run, state_bytes: int) -> cost.Workload:
    """Return the numbers that the formulas take, as they are in these runs."""
    n_slots, setting, record = runner.server.n_slots, runner.setting, tasks.measured.record
    n_configs = len(record.errors)
    return cost.Workload(
        n_epochs=setting.max_epochs,
        state_bytes=state_bytes,
        n_workers=n_slots,
        n_configs=n_configs,
        batch_rows=max(1, SMALL_BATCH // n_slots),
        n_rows=sum(unit["n_rows"] for unit in mop.measured.units) // (setting.max_epochs * n_configs),
        data_bytes=record.held_bytes,
    )


def _parameter_bytes(runner: MethodRunner) -> int:
    (network,) = runner.setting.networks
    work = runner.setting.workload(network, SMALL_BATCH, seed=runner.options.seed, n_workers=runner.server.n_slots)
    return parameter_bytes(build(work, 1))


# Telling


def _measure(count: Count) -> Measure:
    """Compare counted bytes with the formula; model hopping must stay within its formula."""
    name, work = f"{count.method}, counted / formula", count.work
    setting = f"{FORMULAS[count.method][0]}, p {work.n_workers}, |S| {work.n_configs}, k {work.n_epochs},"
    setting += f" m {work.state_bytes / 1e6:.2f} MB, batch {count.batch_size}: {count.formula_bytes / 1e6:,.1f} MB"
    if count.ratio is None:
        return Measure(name, setting, None, "formula only")
    if count.expected is None:
        return Measure(name, setting, None, count.ratio, "<= 1", count.ratio <= 1)
    holds = abs(count.ratio - count.expected) <= TOLERANCE * count.expected
    return Measure(name, setting, None, count.ratio, f"{count.expected:g} within {TOLERANCE:.0%}", holds)


def _savings(counts: Sequence[Count]) -> Iterator[Measure]:
    """Compare counted bytes of data-parallel training with those of model hopping, written and read."""
    (hopping,) = (count for count in counts if count.method == "model hopping, shared store")
    paper = cost.all_reduce(PAPER_SETTING) / cost.shared_store_hopping(PAPER_SETTING)
    for count in counts:
        if count.method == "data parallel, all-reduce" and count.counted_bytes and hopping.counted_bytes:
            ratio = count.counted_bytes / hopping.counted_bytes
            setting = f"batch {count.batch_size}, {count.counted_bytes / 1e6:,.1f} MB against"
            setting += f" {hopping.counted_bytes / 1e6:,.1f} MB; paper: by its formulas, VGG16 on ImageNet, batch 32"
            yield Measure("data parallel / MOP, bytes moved", setting, paper, ratio)


def _plot(counts: Sequence[Count]) -> Any:
    import altair as alt

    rows = [
        {"method": f"{count.method}, batch {count.batch_size}", "kind": kind, "bytes": n_bytes}
        for count in counts
        for kind, n_bytes in (("formula", count.formula_bytes), ("counted", count.counted_bytes))
        if n_bytes
    ]
    dots = alt.Chart(alt.InlineData(rows)).mark_point(filled=True, size=80)
    return dots.encode(
        x=alt.X("bytes:Q", scale=alt.Scale(type="log"), title="bytes moved"),
        y=alt.Y("method:N", title=None, sort=None),
        color=alt.Color("kind:N", title=None),
        shape=alt.Shape("kind:N", title=None),
    ).properties(width=480)
