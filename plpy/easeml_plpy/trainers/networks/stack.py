"""Trials of one shape that train as one computation: a stack.

A trial of the stack takes the steps that it would take alone, over its own rows in its own order, with its own rates;
its state differs by rounding only. Its result depends on the size of the stack and on its place in it, but not on the
others' numbers: one that diverges does not affect them. So a stack of copies of one trial repeats its states. The stack
trains on the batches that are complete for all its trials. Each trial then trains on the rest of its rows alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from easeml_plpy.architectures.torch_hyperparameters import shared_settings
from easeml_plpy.server.chunks import pass_steps
from easeml_plpy.server.errors import TrialFailed
from easeml_plpy.server.value_types import Pause
from easeml_plpy.trainers.contract import Training
from easeml_plpy.trainers.networks.averaging import share_at
from easeml_plpy.trainers.networks.losses import stacked_losses
from easeml_plpy.trainers.networks.stacked_layers import StackedNetwork
from easeml_plpy.trainers.networks.stacked_matrix import RowsOfNumbers
from easeml_plpy.trainers.networks.stacked_optimizer import StackedOptimizer
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from easeml_plpy.trainers.training_rows import check_rows, visit_order


@dataclass(frozen=True)
class Pass:
    """A trial's pass over rows: inputs (n, *input_shape), targets (n,), and the seed of their order."""

    inputs: torch.Tensor
    targets: torch.Tensor
    seed: int


def stack_key(trial: TorchTrial) -> Hashable:
    """Return what trials have in common that can be stacked."""
    blueprint = trial.blueprint
    return blueprint.architecture.name, shared_settings(blueprint.config), blueprint.task, blueprint.device


def n_common_steps(trials: Sequence[TorchTrial], passes: Sequence[Pass]) -> int:
    """Count the whole batches that all passes have."""
    return min(len(visit.inputs) // trial.batch_size for trial, visit in zip(trials, passes, strict=True))


def train_stacked(
    trials: Sequence[TorchTrial], passes: Sequence[Pass], n_steps: int, pause: Pause
) -> list[Training | TrialFailed]:
    """Train each trial on its own rows, the first `n_steps` of its steps together; return the result of each.

    Raises NotStackable, MemoryError and RuntimeError before anything has changed, ShapeMismatch and InvalidData; and
    TrialFailed if trials have trained only a part of their passes.
    """
    for trial, visit in zip(trials, passes, strict=True):
        check_rows(trial.task, visit.inputs, visit.targets)
    stack = Stack(trials, passes)
    losses = stack.train(n_steps, pause)
    try:
        stack.put_back()
        return [stack.finish(place, list(losses[:, place]), pause) for place in range(len(trials))]
    except (MemoryError, RuntimeError) as error:
        raise TrialFailed(f"trials that trained together could not go on alone: {error}") from error


def repeat_stacked(trial: TorchTrial, visit: Pass, stack: Sequence[int], pause: Pause) -> None:
    """Train a trial as it trained in a stack of a given size, at a given place, for a number of steps. Raises
    TrialFailed.
    """
    width, place, n_steps = stack
    trials = [trial if number == place else copy.deepcopy(trial) for number in range(width)]
    again = Stack(trials, [visit] * width)
    losses = again.train(n_steps, pause)
    again.put_back()
    training = again.finish(place, list(losses[:, place]), pause)
    if isinstance(training, TrialFailed):
        raise training


class Stack:
    """The weights of all trials side by side; `put_back` returns its own to each trial."""

    def __init__(self, trials: Sequence[TorchTrial], passes: Sequence[Pass]) -> None:
        self._trials, self._passes = trials, passes
        named = [dict(trial.module.named_parameters()) for trial in trials]
        self._layout = RowsOfNumbers.of(named[0], len(trials))
        self._weights = self._layout.filled([list(parameters.values()) for parameters in named])
        # Leaves share memory with the weights, so that one operation of the optimiser changes all parameters at once.
        self._leaves = self._layout.stacked(self._weights)
        self._gradients = self._layout.zeros()
        # One for each trial: dropout alone draws from the stream that `begin_pass` seeds, and must draw the same here.
        self._generators = [torch.Generator().manual_seed(visit.seed) for visit in passes]
        self._network = StackedNetwork([trial.module for trial in trials], self._leaves, self._generators)
        self._optimizer = StackedOptimizer(
            [trial.descent for trial in trials], self._layout, [trial.optimizer_slots() for trial in trials]
        )
        averages = [list(trial.averages().values()) for trial in trials]
        self._averages = self._layout.filled(averages) if any(averages) else None
        self._orders = [visit_order(len(visit.inputs), visit.seed).to(self._layout.device) for visit in passes]
        self._n_steps = 0

    def train(self, n_steps: int, pause: Pause) -> torch.Tensor:
        """Do a number of steps of every trial; return the losses, (n_steps, trials)."""
        for trial, visit in zip(self._trials, self._passes, strict=True):
            trial.begin_pass(visit.targets.to(trial.device), visit.seed)
        self._optimizer.begin(self._rates(n_steps))
        shares = self._shares(n_steps) if self._averages is not None else None
        losses = []
        for first in range(0, n_steps, self._chunk_steps()):
            last = min(first + self._chunk_steps(), n_steps)
            inputs, targets = self._rows(first, last)
            for step in range(first, last):
                batch = slice((step - first) * self._batch_size, (step - first + 1) * self._batch_size)
                losses.append(self._step(step, inputs[:, batch], targets[:, batch]))
                if self._averages is not None and shares is not None:
                    # A share of the way, which shrinks with each trial's own count of steps (averaging.py).
                    self._averages.lerp_(self._weights, shares[step])
                pause()
        self._n_steps += n_steps
        return torch.stack(losses) if losses else torch.zeros(0, len(self._trials))

    @torch.no_grad()
    def put_back(self) -> None:
        """Give each trial its weights, and count the steps that it has done."""
        for place, trial in enumerate(self._trials if self._n_steps else ()):
            averages = None if self._averages is None else self._layout.parts(self._averages, place)
            weights, slots = self._layout.parts(self._weights, place), self._optimizer.slots(place)
            trial.take_over(weights, slots, averages, n_steps=self._n_steps)

    def finish(self, place: int, losses: list[torch.Tensor], pause: Pause) -> Training | TrialFailed:
        """Train a trial alone on the rest of its pass, and return the result of the whole pass."""
        trial, visit, n_steps = self._trials[place], self._passes[place], self._n_steps
        n_done, n_rows = n_steps * self._batch_size, len(visit.inputs)
        try:
            loss_sum = math.fsum(trial.checked(losses)) * self._batch_size if losses else 0.0
            # The trial's dropout continues the random stream where the stack stopped.
            torch.set_rng_state(self._generators[place].get_state())
            rest = self._orders[place][n_done:]
            loss_sum += trial.train_rows(visit.inputs.to(trial.device), visit.targets.to(trial.device), rest, pause)
            trial.check_parameters()
        except TrialFailed as failure:
            return failure
        n_alone = -(-len(rest) // self._batch_size)
        return Training(loss_sum / n_rows if n_rows else math.nan, n_rows, n_steps + n_alone)

    @property
    def _batch_size(self) -> int:
        return self._trials[0].batch_size

    def _step(self, number: int, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Do one step of every trial; return their losses, (trials,)."""
        losses = stacked_losses([trial.loss for trial in self._trials], self._network(inputs), targets)
        # No network's loss depends on another's weights, so the gradient of the sum holds the gradient of each.
        gradients = torch.autograd.grad(losses.sum(), list(self._leaves.values()))
        self._optimizer.step(number, self._weights, self._layout.joined(gradients, self._gradients))
        return losses.detach()

    def _rows(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows of some steps, (trials, rows, ...), each trial's in its own order."""
        rows = slice(first * self._batch_size, last * self._batch_size)
        device, pairs = self._layout.device, list(zip(self._passes, self._orders, strict=True))
        inputs = torch.stack([visit.inputs.to(device)[order[rows]] for visit, order in pairs])
        return inputs, torch.stack([visit.targets.to(device)[order[rows]] for visit, order in pairs])

    def _chunk_steps(self) -> int:
        """Return for how many steps to gather rows at once."""
        inputs = self._passes[0].inputs
        row_bytes = inputs.element_size() * math.prod(inputs.shape[1:]) * len(self._trials)
        return pass_steps(row_bytes * self._batch_size)

    def _rates(self, n_steps: int) -> torch.Tensor:
        """Return the learning rates of the next steps, (n_steps, trials, 1)."""
        rates = [trial.learning_rates(n_steps) for trial in self._trials]
        return torch.tensor(rates, device=self._layout.device).mT.unsqueeze(2).contiguous()

    def _shares(self, n_steps: int) -> torch.Tensor:
        """Return how far averages go towards the weights after each step, (n_steps, trials, 1)."""
        pairs = [(trial.descent.averaging, trial.n_steps) for trial in self._trials]
        shares = [[share_at(keep, before + step) for keep, before in pairs] for step in range(1, n_steps + 1)]
        return torch.tensor(shares, device=self._layout.device, dtype=self._layout.dtype).view(n_steps, len(pairs), 1)
