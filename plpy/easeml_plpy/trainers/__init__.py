"""Trainers: the code that changes a trial's state. `trainer_for` gives the one an architecture names."""

from __future__ import annotations

from easeml_plpy.errors import NotFound, close_matches_hint
from easeml_plpy.task import Task
from easeml_plpy.trainers.boosting import BoostingTrainer
from easeml_plpy.trainers.contract import Blueprint, LiveTrial, Trainer, Training, WholeTrial
from easeml_plpy.trainers.ensemble import EnsembleTrainer
from easeml_plpy.trainers.forest import ForestTrainer
from easeml_plpy.trainers.partial_fit import PartialFitTrainer
from easeml_plpy.trainers.torch_trainer import TorchTrainer

__all__ = ["TRAINERS", "Blueprint", "LiveTrial", "Task", "Trainer", "Training", "WholeTrial", "trainer_for"]

TRAINERS: dict[str, Trainer[LiveTrial]] = {
    "torch": TorchTrainer(),
    "partial_fit": PartialFitTrainer(),
    "boosting": BoostingTrainer(),
    "forest": ForestTrainer(),
    "ensemble": EnsembleTrainer(),
}


def trainer_for(name: str) -> Trainer[LiveTrial]:
    """Return the trainer of that name, as in `Architecture.trainer`. Raises NotFound."""
    if name not in TRAINERS:
        raise NotFound(f"there is no trainer {name!r}", hint=close_matches_hint(name, TRAINERS))
    return TRAINERS[name]
