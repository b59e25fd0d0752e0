"""Cerebro's experiments with AutoML procedures on this machine: Hyperband, TPE (HyperOpt) and ASHA on model hopping and
on task parallelism, by turns.

PostgreSQL is stopped while the others run. Every side has as many workers as slots, of one thread each, and has trained
a trial for an epoch on each of them before its time counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

from easeml_db.errors import InvalidArgument
from easeml_experiments.contract import Options, Result
from easeml_experiments.experiment_server import specifications
from easeml_experiments.peers.launch import Measured, launch
from easeml_experiments.peers.method_runner import MethodRunner, opened
from easeml_experiments.peers.workload import Workload
from easeml_experiments.procedures import hopping, search_job
from easeml_experiments.procedures.comparison import Run, measures, tables, why
from easeml_experiments.procedures.comparison_setup import FULL, QUICK, ComparisonSetup, Procedure, hyperband
from easeml_experiments.procedures.plots import plots
from easeml_experiments.procedures.search_job import SearchJob

WITHOUT_RAY = "Ray is not installed, so plain processes stand for task parallelism."


def run(options: Options) -> Result:
    """Search by turns, compare."""
    setup, other = asked_setup(options), "ray" if find_spec("ray") else "tasks"
    note = "" if other == "ray" else WITHOUT_RAY
    if note:
        options.say(note)
    with opened(setup.setting, options) as runner:
        runs = list(SearchRunner(runner, setup, _specifications(runner, setup), other).runs())
    return Result(measures(runs), why(runs, note), tables(runs), plots(runs))


def asked_setup(options: Options) -> ComparisonSetup:
    """Return what the options ask for. Raises InvalidArgument for a procedure that there is not."""
    setup = QUICK if options.is_quick else FULL
    known = {procedure.name: procedure for procedure in setup.procedures}
    if max_epochs := options.values.get("epochs"):
        known["hyperband"] = hyperband(max_epochs)
    names = str(options.values.get("procedures") or ",".join(known)).split(",")
    for name in names:
        if name not in known:
            raise InvalidArgument(f"--procedures: expected some of {', '.join(known)}, got {name!r}")
    setting = replace(setup.setting, n_rows=options.values.get("rows") or setup.setting.n_rows)
    n_repeats = options.values.get("repeats") or setup.n_repeats
    return ComparisonSetup(setting, tuple(known[name] for name in names), n_repeats)


def _specifications(runner: MethodRunner, setup: ComparisonSetup) -> str:
    runner.server.embedded.start()
    try:
        with runner.server.session() as session:
            return specifications(session, [setup.network.architecture])
    finally:
        runner.server.embedded.stop()


@dataclass(frozen=True)
class Asked:
    """A search to run; `n_parallel` is how many trials its procedure keeps in training."""

    procedure: Procedure
    method: str
    n_parallel: int
    seed: int


@dataclass(frozen=True)
class SearchRunner:
    """Runs one search after another; `other` is the task-parallel side."""

    runner: MethodRunner
    setup: ComparisonSetup
    architectures_json: str
    other: str

    def runs(self) -> Iterator[Run]:
        """Run all searches, the sides taking turns. In the quick form those on model hopping come first, and share one
        start of the server."""
        asked = [each for procedure in self.setup.procedures for each in self._asked(procedure)]
        if self.runner.options.is_quick:
            yield from self._hopping([each for each in asked if each.method == "mop"])
            asked = [each for each in asked if each.method != "mop"]
        for each in asked:
            yield from self._hopping([each]) if each.method == "mop" else self._launched(each)

    def _asked(self, procedure: Procedure) -> Iterator[Asked]:
        turns = self.turns(procedure)
        for repeat in range(self.setup.n_repeats):
            for method, n_parallel in turns[:: 1 if repeat % 2 == 0 else -1]:
                yield Asked(procedure, method, n_parallel, self.runner.options.seed + repeat)

    def turns(self, procedure: Procedure) -> Sequence[tuple[str, int]]:
        """Return (method, trials in training): twice as many as slots where they change no trial; else as in the paper
        as many as slots, and for model hopping in the full form also twice as many. The quick form has plain processes
        there: starting Ray takes longer than such a search.
        """
        p = self.runner.server.n_slots
        if procedure.is_exact:
            return [("mop", 2 * p), (self.other, 2 * p)]
        if self.runner.options.is_quick:
            return [("mop", p), ("tasks", p)]
        return [("mop", p), (self.other, p), ("mop", 2 * p)]

    def _hopping(self, asked: Sequence[Asked]) -> Iterator[Run]:
        """Search on model hopping."""
        jobs = [self._job(each) for each in asked]
        with hopping.opened(self.runner.server, self.setup.setting.name, jobs[0]) as search:
            for each, job in zip(asked, jobs, strict=True):
                yield self._told(each, search(job))

    def _launched(self, asked: Asked) -> Iterator[Run]:
        """Search in processes of their own."""
        search_job.save(self._job(asked), self.runner.folder)
        yield self._told(asked, launch(f"search-{asked.method}", self.runner.folder))

    def _job(self, asked: Asked) -> SearchJob:
        procedure, seed = asked.procedure, asked.seed
        search = self.setup.search(procedure, self.architectures_json, n_parallel=asked.n_parallel, seed=seed)
        return SearchJob(search, self._work(procedure, seed), procedure.max_seconds)

    def _told(self, asked: Asked, measured: Measured) -> Run:
        """Return a search that is over, and say what came of it."""
        procedure = asked.procedure
        done = Run(procedure.name, asked.method, asked.n_parallel, asked.seed, measured, procedure.max_seconds)
        times = f"{measured.training_seconds:.1f} s, {measured.seconds:.1f} s with start-up"
        trained = f"{len(done.epochs())} trials, {sum(done.epochs().values())} epochs"
        self.runner.options.say(f"{procedure.name}, seed {asked.seed}, {done.system}: {times}, {trained}")
        return done

    def _work(self, procedure: Procedure, seed: int) -> Workload:
        setting, network = self.setup.setting, self.setup.network
        shape, n_slots = setting.input_shape, self.runner.server.n_slots
        return Workload(network.architecture, (), shape, 10, procedure.max_epochs, seed, n_slots)
