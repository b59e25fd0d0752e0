"""A task of a task-parallel worker: a trial's rung over all rows, which the process holds.

It visits the partitions in the order in which the database does, so a trial ends in the same bytes as under model
hopping, and a procedure that depends on results alone takes the same decisions. Between two tasks a trial's state is a
file that all workers share, as checkpoints are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from easeml_experiments.peers import training, workload
from easeml_experiments.procedures.search_history import Task, TaskResult
from easeml_experiments.procedures.search_job import OneTrial, one_trial
from easeml_plpy.server.errors import TrialFailed
from easeml_plpy.server.memory import keep_freed_memory
from easeml_plpy.trainers import architecture
from easeml_plpy.trainers.networks.torch_trial import TorchTrial

_held: dict[str, Any] = {}


def hold(folder: Path) -> None:
    """Start of a process: a slot's thread and allocator, all rows in memory."""
    torch.set_num_threads(1)
    keep_freed_memory()
    work = workload.load(folder)
    parts, validation = (
        [workload.partition(folder, split, number) for number in range(work.n_workers)]
        for split in ("train", "validation")
    )
    _held.update(folder=folder, work=work, parts=parts, validation=validation)


def train(task: Task) -> TaskResult:
    """Train and validate, epoch by epoch; a trial that diverges has failed."""
    clock = Clock()
    errors: list[float] = []
    measured_at: list[float] = []
    work = one_trial(replace(_held["work"], max_epochs=task.max_epochs), task.config)
    failure, state = None, b""
    try:
        with clock.spending("states"):
            live = _live(work, task)
        for epoch in range(task.n_epochs + 1, task.target_epochs + 1):
            with clock.spending("training"):
                training.train_once(live, work, task.trial_number, epoch, _held["parts"])
            with clock.spending("validation"):
                errors.append(training.error_of(live, work, *_held["validation"]))
            measured_at.append(time.time())
        with clock.spending("states"):
            state = _kept(live, task.trial_number)
    except TrialFailed as error:
        failure = str(error)
    return TaskResult(
        task.trial_number, tuple(errors), tuple(measured_at), sha256(state).hexdigest(), len(state),
        clock.seconds, workload.n_bytes(*_held["parts"]), failure,
    )  # fmt: skip


class Clock:
    """Seconds by activity."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def spending(self, activity: str) -> Iterator[None]:
        """Count the block's time as spent on this."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[activity] = self.seconds.get(activity, 0.0) + time.perf_counter() - started


def _live(work: OneTrial, task: Task) -> TorchTrial:
    """Return the trial as it was left, or a new one."""
    if task.n_epochs == 0:
        return training.start(work, task.trial_number, training.build(work, task.trial_number), _held["parts"])
    state = _path(task.trial_number).read_bytes()
    return training.TRAINER.resume(architecture(work.architecture), work.config(task.trial_number), work.task, state)


def _kept(live: TorchTrial, trial_number: int) -> bytes:
    """Write the state down and return it."""
    state = live.dump()
    _path(trial_number).write_bytes(state)
    return state


def _path(trial_number: int) -> Path:
    folder: Path = _held["folder"]
    return folder / f"state_{trial_number}"
