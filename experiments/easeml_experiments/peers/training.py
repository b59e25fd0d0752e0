"""Training as every method does it: the product's own trainer outside of the database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import torch
from torch import nn

from easeml_db.words.training_unit import partition_at, unit_seed
from easeml_experiments.peers.workload import Tensors, Workload
from easeml_plpy.architectures import complete
from easeml_plpy.metrics import metrics
from easeml_plpy.trainers import architecture
from easeml_plpy.trainers.contract import Blueprint, Training
from easeml_plpy.trainers.networks.torch_trainer import TorchTrainer, build_module
from easeml_plpy.trainers.networks.torch_trial import TorchTrial

TRAINER = TorchTrainer()


@dataclass
class Outcome:
    """A whole trial: validation errors after each epoch, times in seconds since 1970, its last state's bytes."""

    trial_number: int
    started: float
    finished: float = 0.0
    errors: list[float] = field(default_factory=list)
    state_bytes: int = 0
    state_sha256: str = ""


def build(workload: Workload, trial_number: int) -> nn.Module:
    """Build the network with the parameters that the trial starts with, in the database too."""
    chosen = architecture(workload.architecture)
    first = partition_at(trial_number, 0, workload.n_workers)
    torch.manual_seed(unit_seed(workload.seed, trial_number, 1, first))
    return build_module(Blueprint(chosen, complete(chosen, workload.config(trial_number)), workload.task))


def parameter_bytes(module: nn.Module) -> int:
    """Return bytes of all parameters, and so of their gradients."""
    return sum(parameter.nbytes for parameter in module.parameters())


def start(
    workload: Workload, trial_number: int, module: nn.Module, parts: Sequence[Tensors], *, n_sharing: int = 1
) -> TorchTrial:
    """Start a trial that trains a network over these parts; n_sharing: among how many workers each batch is divided."""
    chosen = architecture(workload.architecture)
    config = complete(chosen, workload.config(trial_number))
    config["batch_size"] = max(1, config.integer("batch_size") // n_sharing)
    n_rows = [len(targets) for _, targets in parts]
    n_steps_total = TRAINER.count_steps(config, n_rows, workload.max_epochs)
    return TorchTrial(Blueprint(chosen, config, workload.task), module, n_steps_total=n_steps_total)


class WholeTrial:
    """A trial that one worker trains alone, epoch by epoch.

    parts: the rows as one part, which each epoch visits in a fresh order (sequential stochastic gradient descent); or
    all partitions, which each epoch visits as the database does.
    """

    def __init__(self, workload: Workload, trial_number: int, parts: Sequence[Tensors], validation: Tensors) -> None:
        self._workload, self._parts, self._validation = workload, parts, validation
        self.outcome = Outcome(trial_number, time.time())
        self._live = start(workload, trial_number, build(workload, trial_number), parts)

    def train_epoch(self) -> bool:
        """Train and validate; say whether that was the last epoch."""
        train_once(self._live, self._workload, self.outcome.trial_number, len(self.outcome.errors) + 1, self._parts)
        self.outcome.errors.append(error_of(self._live, self._workload, self._validation))
        if len(self.outcome.errors) < self._workload.max_epochs:
            return False
        state = self._live.dump()
        self.outcome.state_bytes, self.outcome.state_sha256 = len(state), sha256(state).hexdigest()
        self.outcome.finished = time.time()
        return True

    def train_all(self) -> Outcome:
        """Train every epoch."""
        while not self.train_epoch():
            pass
        return self.outcome


def train_once(live: TorchTrial, workload: Workload, trial_number: int, epoch: int, parts: Sequence[Tensors]) -> None:
    """Train one pass over the parts, beginning where the database begins."""
    for position in range(len(parts)):
        number = partition_at(trial_number, position, len(parts))
        train_part(live, workload, trial_number, epoch, number, parts[number])


def train_part(
    live: TorchTrial, workload: Workload, trial_number: int, epoch: int, part_number: int, rows: Tensors
) -> Training:
    """Train one pass over a part, in the order that the database draws for a partition of that number."""
    return live.train(*rows, seed=unit_seed(workload.seed, trial_number, epoch, part_number), pause=_no_pause)


def _no_pause() -> None:
    """Do nothing: nobody has to be let in between batches."""


def error_of(live: TorchTrial, workload: Workload, *parts: Tensors) -> float:
    """Return the share of wrong labels over all parts, measured as the database measures it."""
    measured = [metrics.measure(workload.task, live.outputs(inputs), targets.numpy()) for inputs, targets in parts]
    return 1.0 - metrics.values(workload.task, metrics.combine(measured))["accuracy"]
