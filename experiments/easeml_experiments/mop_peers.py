"""Cerebro's end-to-end comparison on this machine: the same trials over the same rows, trained in six ways.

Model hopping, Ray Tune and plain processes take turns, once for each seed; the others run once. PostgreSQL is stopped
while the others run. Every method has as many processes as there are slots, of one thread each; only the sequential
one has a single process, with as many threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from easeml_experiments.contract import Options, Result
from easeml_experiments.peers.comparison import Run, measures, tables, why
from easeml_experiments.peers.method_runner import MethodRunner, opened
from easeml_experiments.peers.plots import plots
from easeml_experiments.peers.settings import FULL, QUICK, SMALL_BATCH, Network

TAKING_TURNS = ("mop", "ray-tune", "tasks")
ONCE = ("sequential", "data-parallel", "model-averaging", "replay")


def run(options: Options) -> Result:
    """Train in all ways, compare."""
    with opened(QUICK if options.is_quick else FULL, options) as runner:
        runs = [one for network in runner.setting.networks for one in _runs(runner, network)]
    return Result(measures(runs), why(runs), tables(runs), plots(runs))


def _runs(runner: MethodRunner, network: Network) -> Iterator[Run]:
    """Run every method over one network's trials."""
    seed = runner.options.seed
    for repeat in range(runner.setting.n_repeats):
        for method in _rotated(TAKING_TURNS, repeat):
            yield runner.run(method, network, SMALL_BATCH, seed + repeat)
    for method in ONCE:
        yield runner.run(method, network, SMALL_BATCH, seed)
    for batch_size in runner.setting.batch_sizes[1:]:
        for method in ("mop", "data-parallel"):
            yield runner.run(method, network, batch_size, seed)


def _rotated(methods: Sequence[str], n: int) -> Sequence[str]:
    return [*methods[n % len(methods) :], *methods[: n % len(methods)]]
