"""Trainers: the code that changes a trial's state. `trainer_for` returns the trainer that an architecture names."""

from __future__ import annotations

from collections.abc import Mapping

from easeml_plpy.architectures import Architecture, architecture
from easeml_plpy.architectures.tables.boosting import BoostingParameters
from easeml_plpy.architectures.tables.forests import ForestParameters
from easeml_plpy.columns.task import Task
from easeml_plpy.server.devices import share_threads
from easeml_plpy.server.errors import NotFound, close_matches_hint
from easeml_plpy.states.checkpoint import Payload
from easeml_plpy.trainers.committee import FoldedTrial, answering_committee, resume_committee
from easeml_plpy.trainers.contract import (
    AnsweringTrial,
    Blueprint,
    LiveTrial,
    RefitTrial,
    Trainer,
    Training,
    WholeTrial,
)
from easeml_plpy.trainers.ensemble import EnsembleTrainer, Member
from easeml_plpy.trainers.networks.torch_trainer import AdversarialTrainer, TorchTrainer
from easeml_plpy.trainers.partial_fit import PartialFitTrainer
from easeml_plpy.trainers.trees.forest import ForestTrial
from easeml_plpy.trainers.trees.lightgbm_trainer import BoostingTrial
from easeml_plpy.trainers.trees.tree_trainer import TreeTrainer

__all__ = [
    "TRAINERS",
    "AnsweringTrial",
    "Blueprint",
    "FoldedTrial",
    "LiveTrial",
    "RefitTrial",
    "Task",
    "Trainer",
    "Training",
    "WholeTrial",
    "answering_trial",
    "resume_trial",
    "resumed_member",
    "trainer_for",
]


def resumed_member(member: Member, device: str) -> AnsweringTrial:
    """Return a member of an ensemble as it was dumped."""
    own = architecture(member.architecture)
    return resume_trial(own, member.config, member.task, member.answering_state, device=device)


def _answering_member(member: Member, device: str) -> AnsweringTrial:
    own = architecture(member.architecture)
    return answering_trial(own, member.config, member.task, member.answering_state)


TRAINERS: dict[str, Trainer[LiveTrial]] = {
    "torch": TorchTrainer(),
    "adversarial": AdversarialTrainer(),
    "partial_fit": PartialFitTrainer(),
    "boosting": TreeTrainer(BoostingTrial, BoostingParameters, "lightgbm"),
    "forest": TreeTrainer(ForestTrial, ForestParameters, "sklearn.tree"),
    "ensemble": EnsembleTrainer(resumed_member, _answering_member),
}


def trainer_for(name: str) -> Trainer[LiveTrial]:
    """Return the trainer of that name, as in `Architecture.trainer`. Raises NotFound."""
    if name not in TRAINERS:
        raise NotFound(f"there is no trainer {name!r}", hint=close_matches_hint(name, TRAINERS))
    return TRAINERS[name]


def resume_trial(
    architecture: Architecture,
    config: Mapping[str, object],
    task: Task,
    state: Payload,
    *,
    device: str = "cpu",
    stale: LiveTrial | None = None,
) -> LiveTrial:
    """Return the trial that was dumped, with folds a committee. Raises CorruptCheckpoint, ShapeMismatch and others.

    stale: the same trial at another moment, of no further use: it may become the trial that was dumped."""
    trainer = trainer_for(architecture.trainer)
    if task.n_folds and not architecture.is_derived:
        return resume_committee(trainer, architecture, config, task, state, device=device)
    return trainer.resume(architecture, config, task, state, device=device, stale=stale)


def answering_trial(
    architecture: Architecture, config: Mapping[str, object], task: Task, state: Payload
) -> AnsweringTrial:
    """Return a dumped trial for prediction only, on the CPU. Raises the errors of `resume_trial`."""
    trainer = trainer_for(architecture.trainer)
    if task.n_folds and not architecture.is_derived:
        trial: AnsweringTrial = answering_committee(trainer, architecture, config, task, state)
    else:
        trial = trainer.answering(architecture, config, task, state)
    share_threads()
    return trial
