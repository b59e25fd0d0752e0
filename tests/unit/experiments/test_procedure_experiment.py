"""Procedures on both sides of the comparison: a search's history, tasks that continue trials, what is made of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from easeml_db.errors import InvalidArgument
from easeml_experiments import Options
from easeml_experiments.peers import workload
from easeml_experiments.peers.launch import Measured
from easeml_experiments.peers.record import Record
from easeml_experiments.peers.workload import Workload
from easeml_experiments.procedures import search_job, task_training
from easeml_experiments.procedures.comparison import Run, measures, tables, why
from easeml_experiments.procedures.comparison_setup import FULL, QUICK, ComparisonSetup
from easeml_experiments.procedures.experiment import asked_setup
from easeml_experiments.procedures.plots import rung_ends
from easeml_experiments.procedures.search_history import SearchHistory, Task, TaskResult
from easeml_experiments.procedures.search_job import SearchJob
from easeml_experiments.procedures.slot_time import seconds_by_activity
from easeml_experiments.procedures.task_driver import WARM_UP_NUMBER, WorkerPool, drive

WORK = Workload("mlp", (), (8, 8), 10, 9, 5, 2)
CONFIG = {"architecture": "mlp", "hidden_units": (16,), "batch_size": 8, "learning_rate": 0.01, "dropout": 0.25}


def asked(name: str, setup: ComparisonSetup = FULL, **changed: Any) -> SearchJob:
    """A search as both sides get it, over an mlp."""
    (procedure,) = (each for each in setup.procedures if each.name == name)
    search = setup.search(procedure, SPECIFICATIONS, n_parallel=2, seed=1)
    return SearchJob(search, WORK, **{"max_seconds": procedure.max_seconds, **changed})


SPECIFICATIONS = (
    '[{"architecture": "mlp", "hyperparameters": [{"name": "learning_rate", "kind": "float", "default": 0.1},'
    ' {"name": "weight_decay", "kind": "float", "default": 0.1},'
    ' {"name": "batch_size", "kind": "integer", "default": 8},'
    ' {"name": "optimizer", "kind": "categorical", "default": "adam", "choices": ["adam"]},'
    ' {"name": "schedule", "kind": "categorical", "default": "constant", "choices": ["constant"]},'
    ' {"name": "dropout", "kind": "float", "default": 0.0}]}]'
)


def answered(task: Task, *, failure: str | None = None) -> TaskResult:
    """A task done: trials of higher numbers are better, and each epoch helps."""
    epochs = range(task.n_epochs + 1, task.target_epochs + 1)
    errors = tuple(1.0 / (task.trial_number + epoch) for epoch in epochs)
    return TaskResult(task.trial_number, errors, tuple(map(float, epochs)), "ab", 4, {"training": 1.0}, 100, failure)


# The history of a search


def test_hyperband_trains_its_rungs_and_nothing_else() -> None:
    history = SearchHistory(asked("hyperband").procedure())
    waiting, n_epochs = deque(history.next_tasks()), 0
    while waiting:
        task = waiting.popleft()
        n_epochs += task.target_epochs - task.n_epochs
        history.tell(answered(task))
        waiting.extend(history.next_tasks())
    planned = asked("hyperband").procedure().preview()
    assert n_epochs == sum(rung.total_epochs for rung in planned)
    assert sorted(len(trial.scores) for trial in history.trials) == [1] * 6 + [3] * 6 + [9] * 5
    assert {trial.status for trial in history.trials} == {"stopped", "finished"}


def test_a_continued_trial_goes_on_where_it_was() -> None:
    history = SearchHistory(asked("asha").procedure())
    for task in history.next_tasks():
        history.tell(answered(task))
    while not (continued := [task for task in history.next_tasks() if task.n_epochs]):
        for trial in history.trials:
            if trial.status == "running":
                history.tell(answered(Task(trial.trial_number, trial.config, 0, 1, 9)))
    assert [(task.n_epochs, task.target_epochs) for task in continued] == [(1, 3)]


def test_a_trial_that_diverges_has_failed_and_goes_no_further() -> None:
    history = SearchHistory(asked("hyperband").procedure())
    first, *others = history.next_tasks()
    history.tell(TaskResult(first.trial_number, (), (), failure="diverged"))
    for task in others:
        history.tell(answered(task))
    assert first.trial_number not in [task.trial_number for task in history.next_tasks()]
    assert history.trials[first.trial_number - 1].status == "failed"


# Driving


class AtOnce(WorkerPool):
    """Workers that have done a task as soon as it is given; they remember what they were given."""

    def __init__(self, n_workers: int) -> None:
        super().__init__(range(n_workers))
        self.given: list[Task] = []

    def _started(self, worker: Any, task: Task) -> Any:
        self.given.append(task)
        return len(self.given) - 1

    def _first_ended(self, results: Sequence[Any]) -> Any:
        return min(results)

    def _value(self, result: Any) -> TaskResult:
        return answered(self.given[result])


def test_every_worker_is_warm_before_the_search_and_its_results_are_kept() -> None:
    workers = AtOnce(3)
    record = drive("tasks", asked("hyperband"), workers)
    assert [task.trial_number >= WARM_UP_NUMBER for task in workers.given] == [True] * 3 + [False] * 22
    assert max(record.errors) == max(record.configs) == len(record.configs) == 17
    assert all(len(record.measured_at[number]) == len(errors) for number, errors in record.errors.items())
    assert (record.held_bytes, record.loaded_bytes) == (100, 300)
    assert record.spent_seconds == {"training": 22.0}


def test_a_search_whose_time_is_up_starts_nothing_more() -> None:
    workers = AtOnce(2)
    record = drive("tasks", asked("asha", max_seconds=0.0), workers)
    assert len(workers.given) == 2  # the warm-up
    assert record.errors == {}


# Tasks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows in two partitions, held by this process."""
    generator = torch.Generator().manual_seed(0)
    for split, n_rows in (("train", 24), ("validation", 10)):
        for number in range(2):
            write(tmp_path, split, number, torch.rand(n_rows, 8, 8, generator=generator))
    workload.save(WORK, tmp_path)
    hold(tmp_path)
    return tmp_path


def write(folder: Path, split: str, number: int, inputs: torch.Tensor) -> None:
    """A partition of these inputs, with targets."""
    torch.save((inputs, torch.arange(len(inputs)) % 10), folder / f"{split}_{number}.pt")


def hold(folder: Path) -> None:
    """Hold the rows, but leave this process its threads."""
    n_threads = torch.get_num_threads()
    task_training.hold(folder)
    torch.set_num_threads(n_threads)


@pytest.mark.usefixtures("folder")
def test_a_trial_of_two_tasks_ends_in_the_bytes_of_one() -> None:
    whole = task_training.train(Task(3, CONFIG, 0, 2, 2))
    first = task_training.train(Task(4, CONFIG, 0, 1, 2))
    assert first.state_sha256 != whole.state_sha256
    task_training.train(Task(3, CONFIG, 0, 1, 2))
    second = task_training.train(Task(3, CONFIG, 1, 2, 2))
    assert second.state_sha256 == whole.state_sha256
    assert second.errors == whole.errors[1:]
    assert whole.measured_at == tuple(sorted(whole.measured_at))
    assert set(whole.spent_seconds) == {"states", "training", "validation"}
    assert whole.held_bytes == 2 * 24 * (64 * 4 + 8)


def test_a_task_that_diverges_says_so(folder: Path) -> None:
    write(folder, "train", 1, torch.full((24, 8, 8), 3e38))
    hold(folder)
    done = task_training.train(Task(1, CONFIG, 0, 2, 2))
    assert done.failure is not None
    assert "diverged" in done.failure


def test_searches_survive_their_files(tmp_path: Path) -> None:
    search_job.save(asked("asha"), tmp_path)
    assert search_job.load(tmp_path) == asked("asha")


# What slots spent their time on


def test_activities_sum_up_to_the_makespan_of_all_slots() -> None:
    units = [
        {"kind": "train", "slot_id": 1, "started": 10.0, "finished": 12.0, "training_seconds": 1.5},
        {"kind": "validate", "slot_id": 1, "started": 12.05, "finished": 12.3, "training_seconds": None},
        {"kind": "train", "slot_id": 2, "started": 11.0, "finished": 12.0, "training_seconds": 1.0},
    ]
    found = seconds_by_activity(units, started=9.9, finished=12.5, n_slots=2)
    assert found == pytest.approx(
        {"training": 2.5, "validation": 0.25, "states": 0.5, "between": 0.05, "idle": 5.2 - 3.3}
    )


# Comparing


def made_up(method: str, procedure: str, seed: int, seconds: float, **changed: Any) -> Run:
    """A search of two trials, of one and two epochs, that took these seconds after a start-up of one."""
    loaded = {"mop": 100, "ray": 200}[method]
    made = Record(
        method, 2, 10.0, 10.0 + seconds, {1: [0.5], 2: [0.25, 0.125]}, {1: "a", 2: "b"}, 100, loaded,
        configs={1: {"x": 1}, 2: {"x": 2}}, measured_at={1: [11.0], 2: [12.0, 10.0 + seconds]},
        spent_seconds={"training": seconds, "idle": seconds},
    )  # fmt: skip
    return Run(procedure, method, 4, seed, Measured(made, 9.0, 2**20, seconds), **changed)


RUNS = [
    made_up(method, procedure, seed, seconds, max_seconds=5.0 if procedure == "asha" else None)
    for procedure in ("hyperband", "asha")
    for method, seed, seconds in (("mop", 0, 10.0), ("ray", 0, 8.0), ("ray", 1, 20.0), ("mop", 1, 20.0))
]


def test_times_are_compared_pair_by_pair() -> None:
    found = {each.name: each for each in measures(RUNS)}
    time = found["Hyperband, MOP / Ray, time"]
    assert time.value == pytest.approx((10 / 8 + 20 / 20) / 2)
    assert time.holds is False
    assert found["storage, MOP / Ray"].holds
    assert found["trials with the same bytes"].holds
    assert found["trials with the same config and number of epochs"].value == 4
    assert found["ASHA, MOP / Ray, configs explored"].value == 1.0


def test_what_was_measured_after_the_time_of_a_search_does_not_count() -> None:
    run = next(run for run in RUNS if run.procedure == "asha")
    assert run.epochs() == {1: 1, 2: 1}
    assert run.best_error() == 0.25


def test_tables_and_words_have_every_search() -> None:
    found = tables(RUNS)
    assert len(found["searches"]) == len(RUNS)
    assert {row["share_training"] for row in found["searches"]} == {0.5}
    assert len(found["epochs"]) == 4 * 3 + 4 * 2
    assert "training 50.0%, idle 50.0%" in why(RUNS)


def test_rungs_end_after_powers_of_eta() -> None:
    assert rung_ends(9) == [1, 3, 9]
    assert rung_ends(2) == [1]


# Options


def test_options_choose_procedures_repeats_and_epochs() -> None:
    setup = asked_setup(Options(values={"procedures": "asha,hyperband", "repeats": 2, "epochs": 25, "rows": 9}))
    assert [(each.name, each.max_epochs) for each in setup.procedures] == [("asha", 9), ("hyperband", 25)]
    assert (setup.n_repeats, setup.setting.n_rows) == (2, 9)
    assert asked_setup(Options(is_quick=True)) == QUICK
    with pytest.raises(InvalidArgument, match="sorcery"):
        asked_setup(Options(values={"procedures": "sorcery"}))
