"""Trials in memory: kept by the session after a unit, else resumed from a stored state, else fresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from easeml_plpy.architectures import complete
from easeml_plpy.catalogue.config_memory import HINT, shortage
from easeml_plpy.columns.task import Task
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.cache import Bounded
from easeml_plpy.server.devices import device_bytes
from easeml_plpy.server.errors import TrialFailed
from easeml_plpy.server.session import Kept, Session
from easeml_plpy.server.value_types import JSON
from easeml_plpy.states.states import read_state
from easeml_plpy.trainers import architecture, resume_trial, trainer_for
from easeml_plpy.trainers.committee import begin_committee
from easeml_plpy.trainers.contract import LiveTrial
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from easeml_plpy.units.composition import Composition, composition_of
from easeml_plpy.units.ensembles import composed_trial
from easeml_plpy.units.units import TrialSpec, Unit, UnitContext, trial_to_blame

N_LIVE_TRIALS = 4
LARGE_BYTES, LEAST_WEIGHT = 4 << 20, 1 / 64  # of parameters


class _KeptTrial(NamedTuple):
    """A trial whose state is that of a recorded checkpoint, on a device."""

    checkpoint_id: int
    device: str
    live: LiveTrial

    @property
    def weight(self) -> float:
        """Its weight in the cache: a small network counts less than one trial, because batches hold many."""
        if not isinstance(self.live, TorchTrial):
            return 1.0
        return min(1.0, max(LEAST_WEIGHT, self.live.parameter_bytes / LARGE_BYTES))


LIVE: Kept[Bounded[_KeptTrial]] = Kept(lambda: Bounded(N_LIVE_TRIALS, lambda kept: kept.weight))


def live_trial(
    session: Session, unit: Unit, context: UnitContext, checkpoint_id: int | None, seed: int
) -> tuple[LiveTrial, int]:
    """Return the trial as of that checkpoint, and the bytes of state that were read from the tables for it.

    Without a checkpoint it is a fresh one, whose parameters the seed draws. It is taken out of the session's store:
    only a recorded unit may put it back. After a hop it is there as of an earlier unit, and what it is made of is used
    again. Raises TrialFailed, CorruptCheckpoint.
    """
    kept = session.kept(LIVE).pop(unit.trial_id)
    if kept is not None and (kept.checkpoint_id, kept.device) == (checkpoint_id, context.device):
        return kept.live, 0
    with trial_to_blame(session):
        task = datasets.dataset(session, context.trial.dataset_id).task(context.trial.view)
        check_fits(context.trial, task, context.device)
        if checkpoint_id is None:
            return begun_trial(session, unit.trial_id, context.trial, seed, context.device, context.composition), 0
        state = read_state(session, unit.trial_id, checkpoint_id)
        stale = None if kept is None else kept.live
        trial = context.trial
        live = resumed_trial(trial.architecture, trial.config, task, state, context.device, stale=stale)
        return live, len(state)


def keep_live(session: Session, unit: Unit, context: UnitContext, checkpoint_id: int, live: LiveTrial) -> None:
    """Keep a live trial whose state is that of a recorded checkpoint."""
    session.kept(LIVE).put(unit.trial_id, _KeptTrial(checkpoint_id, context.device, live))


def check_fits(trial: TrialSpec, task: Task, device: str) -> None:
    """Raise TrialFailed for a config that cannot be trained in the memory that this session may take."""
    chosen = architecture(trial.architecture)
    limit = device_bytes(device)
    words = shortage(chosen, task, complete(chosen, trial.config), trial.train_rows, limit)
    if words:
        raise TrialFailed(f"out of memory: {words}, and its slot may take {limit / 1e9:.1f} GB", hint=HINT)


def begun_trial(
    session: Session, trial_id: int, trial: TrialSpec, seed: int, device: str, composition: Composition | None = None
) -> LiveTrial:
    """Return a trial before its first unit: drawn from its seed, or made from other trials of its run. `composition`
    names those trials; without it they are read from the tables.
    """
    if architecture(trial.architecture).is_derived:
        return composed_trial(session, composition or composition_of(session, trial_id), trial, seed, device)
    return fresh_trial(trial, datasets.dataset(session, trial.dataset_id).task(trial.view), seed, device)


def fresh_trial(trial: TrialSpec, task: Task, seed: int, device: str) -> LiveTrial:
    """Return a trial before its first unit, whose seed draws the parameters."""
    chosen = architecture(trial.architecture)
    config = complete(chosen, trial.config)
    trainer = trainer_for(chosen.trainer)
    if task.n_folds:
        return begin_committee(
            trainer,
            chosen,
            config,
            task,
            train_rows=trial.train_rows,
            n_epochs=trial.max_epochs,
            seed=seed,
            device=device,
        )
    n_steps_total = trainer.count_steps(config, trial.train_rows, trial.max_epochs)
    return trainer.start(chosen, config, task, n_steps_total=n_steps_total, seed=seed, device=device)


def resumed_trial(
    architecture_name: str,
    config: Mapping[str, JSON],
    task: Task,
    state: bytes,
    device: str = "cpu",
    *,
    stale: LiveTrial | None = None,
) -> LiveTrial:
    """Return a trial with a stored state; the optimiser's settings are those of the config. `stale`: the same trial at
    another moment, which may be turned into it.
    """
    chosen = architecture(architecture_name)
    return resume_trial(chosen, complete(chosen, config), task, state, device=device, stale=stale)
