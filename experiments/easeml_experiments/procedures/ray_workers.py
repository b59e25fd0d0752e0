"""Task parallelism on Ray: an actor for each worker, a remote call for each task.

Actors, their calls and the waiting are Ray's; which trial goes how far is decided by the same procedure as under model
hopping, since Ray Tune's schedulers have other rungs (its HyperBandScheduler stops whole bands at once, its
AsyncHyperBandScheduler stops trials and never resumes them).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from easeml_experiments.peers.launch import in_own_session
from easeml_experiments.peers.ray_processes import local_ray
from easeml_experiments.peers.record import Record
from easeml_experiments.procedures import search_job, task_training
from easeml_experiments.procedures.search_history import Task, TaskResult
from easeml_experiments.procedures.task_driver import WorkerPool, drive


class Worker:
    """A process of Ray's that holds the rows."""

    def __init__(self, folder: Path) -> None:
        in_own_session()
        task_training.hold(folder)

    def train(self, task: Task) -> TaskResult:
        """Do a task."""
        return task_training.train(task)


def run(folder: Path) -> Record:
    """Search."""
    asked = search_job.load(folder)
    with local_ray(folder, asked.work.n_workers):
        actor = ray.remote(num_cpus=1)(Worker)
        return drive("ray", asked, RayWorkerPool([actor.remote(folder) for _ in range(asked.work.n_workers)]))


class RayWorkerPool(WorkerPool):
    """A worker is a handle of an actor."""

    def _started(self, worker: Any, task: Task) -> Any:
        return worker.train.remote(task)

    def _first_ended(self, results: Sequence[Any]) -> Any:
        return ray.wait(list(results), num_returns=1)[0][0]

    def _value(self, result: Any) -> TaskResult:
        done: TaskResult = ray.get(result)
        return done
