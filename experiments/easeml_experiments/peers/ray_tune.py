"""Task parallel under Ray Tune: one actor for each core, used again for trial after trial.

The grid, its scheduling and the actors are Ray's; what an actor does is what a plain process does. Everything that
Ray could spend time on beside that is off: dashboard, usage reports, loggers, checkpoints.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray import tune

from easeml_experiments.peers import tasks, workload
from easeml_experiments.peers.ray_processes import local_ray
from easeml_experiments.peers.record import Record, from_outcomes
from easeml_experiments.peers.training import Outcome


class RayTrial(tune.Trainable):  # type: ignore[misc]
    """A trial as Ray sees it; its rows stay in the process from trial to trial."""

    def setup(self, config: dict[str, Any]) -> None:
        """Hold the rows, start the first trial."""
        self._held_bytes = tasks.begin(Path(config["folder"]), "tasks")
        self.reset_config(config)

    def reset_config(self, config: dict[str, Any]) -> bool:
        """Start the next trial in this actor."""
        self._trial = tasks.trial(config["trial_number"])
        return True

    def step(self) -> dict[str, Any]:
        """Train an epoch; the last one returns the trial's outcome too."""
        is_last = self._trial.train_epoch()
        report = {"done": is_last, "error": self._trial.outcome.errors[-1]}
        return report | ({"outcome": asdict(self._trial.outcome), "held_bytes": self._held_bytes} if is_last else {})


def run(folder: Path) -> Record:
    """Train them all on shuffled rows."""
    work = workload.load(folder)
    with local_ray(folder, work.n_workers):
        return _record(_tuner(folder, work).fit(), work)


def _tuner(folder: Path, work: workload.Workload) -> Any:
    return tune.Tuner(
        tune.with_resources(RayTrial, {"cpu": 1}),
        param_space={"trial_number": tune.grid_search(list(work.numbers)), "folder": str(folder)},
        tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=work.n_workers),
        run_config=tune.RunConfig(
            name="trials",
            storage_path=str(folder / "ray"),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
        ),
    )


def _record(results: Any, work: workload.Workload) -> Record:
    if results.errors:
        raise RuntimeError(f"{len(results.errors)} trials failed under Ray: {results.errors[0]}")
    outcomes = [Outcome(**result.metrics["outcome"]) for result in results]
    held = max(result.metrics["held_bytes"] for result in results)
    return from_outcomes("ray-tune", outcomes, n_workers=work.n_workers, held_bytes=held)
