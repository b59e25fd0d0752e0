"""Cerebro's end-to-end comparison on this machine: the same trials over the same rows, trained in six ways.

Model hopping, Ray Tune and plain processes take turns, once for each seed; the others run once. PostgreSQL is stopped
while the others run. Every method has as many processes as there are slots, of one thread each; only the sequential
one has a single process, with as many threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from easeml_experiments.contract import Options, Result
from easeml_experiments.peers.bench import Bench, opened
from easeml_experiments.peers.comparison import Run, measures, tables, why
from easeml_experiments.peers.plots import plots
from easeml_experiments.peers.settings import FULL, QUICK, Network

TAKING_TURNS = ("mop", "ray-tune", "tasks")
ONCE = ("sequential", "data-parallel", "model-averaging", "replay")
SMALL_BATCH, LARGE_BATCH = 32, 256


def run(options: Options) -> Result:
    """Train in all ways, compare."""
    with opened(QUICK if options.is_quick else FULL, options) as bench:
        runs = [one for network in bench.setting.networks for one in _runs(bench, network)]
    return Result(measures(runs), why(runs), tables(runs), plots(runs))


def _runs(bench: Bench, network: Network) -> Iterator[Run]:
    """Every method over one network's trials."""
    seed = bench.options.seed
    for repeat in range(bench.setting.n_repeats):
        for method in _rotated(TAKING_TURNS, repeat):
            yield bench.run(method, network, SMALL_BATCH, seed + repeat)
    for method in ONCE:
        yield bench.run(method, network, SMALL_BATCH, seed)
    for method in ("mop", "data-parallel"):
        yield bench.run(method, network, LARGE_BATCH, seed)


def _rotated(methods: Sequence[str], n: int) -> Sequence[str]:
    return [*methods[n % len(methods) :], *methods[: n % len(methods)]]
