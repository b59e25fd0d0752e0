"""Trainers: the code that changes a trial's state; and the registry of all that can be trained.

To add a library: write a folder with a `Library`, its trainer with the architectures that it trains, and register it
below. All else asks the trainer (contract.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from easeml_plpy.architectures import ENSEMBLE, ESTIMATORS, NETWORKS, Architecture
from easeml_plpy.architectures.registered import registered_architecture
from easeml_plpy.columns.task import Task
from easeml_plpy.server.devices import share_threads
from easeml_plpy.server.errors import NotFound, close_matches_hint
from easeml_plpy.states.checkpoint import Payload
from easeml_plpy.trainers.committee import answering_committee, resume_committee
from easeml_plpy.trainers.contract import AnsweringTrial, Library, LiveTrial, Trainer
from easeml_plpy.trainers.ensemble import EnsembleTrainer, Member
from easeml_plpy.trainers.forests import FORESTS
from easeml_plpy.trainers.lightgbm import LIGHTGBM
from easeml_plpy.trainers.networks.torch_trainer import AdversarialTrainer, TorchTrainer
from easeml_plpy.trainers.partial_fit import PartialFitTrainer

TRAINERS: dict[str, Trainer[LiveTrial]] = {}
ARCHITECTURES: dict[str, Architecture] = {}
"""Those of ours; an administrator registers further ones in the database."""


def register(library: Library) -> None:
    """Offer the architectures of a library to all runs."""
    TRAINERS.update(library.trainers)
    ARCHITECTURES.update({declared.name: declared for declared in library.architectures})


def resumed_member(member: Member, device: str) -> AnsweringTrial:
    """Return a member of an ensemble as it was dumped."""
    named = architecture(member.architecture)
    return resume_trial(named, member.config, member.task, member.answering_state, device=device)


def _answering_member(member: Member, device: str) -> AnsweringTrial:
    return answering_trial(architecture(member.architecture), member.config, member.task, member.answering_state)


register(Library({"torch": TorchTrainer(), "adversarial": AdversarialTrainer()}, NETWORKS))
register(Library({"partial_fit": PartialFitTrainer()}, ESTIMATORS))
register(LIGHTGBM)
register(FORESTS)
register(Library({"ensemble": EnsembleTrainer(resumed_member, _answering_member)}, (ENSEMBLE,)))


def architecture(name: str) -> Architecture:
    """Return the architecture of that name, one of ours or one that was registered. Raises NotFound."""
    named = ARCHITECTURES.get(name) or registered_architecture(name)
    if named is None:
        raise NotFound(f"there is no architecture {name!r}", hint=close_matches_hint(name, ARCHITECTURES))
    return named


def trainer_for(name: str) -> Trainer[LiveTrial]:
    """Return the trainer of that name, as in `Architecture.trainer`. Raises NotFound."""
    if name not in TRAINERS:
        raise NotFound(f"there is no trainer {name!r}", hint=close_matches_hint(name, TRAINERS))
    return TRAINERS[name]


def trainer_of(architecture_name: str) -> Trainer[LiveTrial]:
    """Return the trainer of an architecture. Raises NotFound."""
    return trainer_for(architecture(architecture_name).trainer)


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
