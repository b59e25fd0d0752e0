"""One nn.Module in training, with its optimiser, on one device.

What is stored: parameters and buffers under `module/`, the optimiser's slots under `optimizer/<slot>/`, averaged
weights under `average/`, and the step counter that drives the learning rate. The optimiser's settings come from the
config at each resume, so a config changed on purpose (population-based training) takes effect; an optimiser of another
kind starts with empty slots.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import nn

from easeml_plpy.architectures.tables.target_transforms import target_transform
from easeml_plpy.server.chunks import ANSWER_ROWS, pass_steps
from easeml_plpy.server.devices import torch_device
from easeml_plpy.server.errors import TrialFailed
from easeml_plpy.server.memory import is_exhausted
from easeml_plpy.server.value_types import JSON, Array, Pause
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import Blueprint, Training, state_header
from easeml_plpy.trainers.networks.averaging import AveragedWeights
from easeml_plpy.trainers.networks.lengths import by_length
from easeml_plpy.trainers.networks.losses import Loss
from easeml_plpy.trainers.networks.numpy_network import AVERAGE, MODULE
from easeml_plpy.trainers.networks.optimizers import Descent, build_optimizer
from easeml_plpy.trainers.training_rows import Rows, check_inputs, check_rows, visit_order

OPTIMIZER = "optimizer/"
_OUTPUT_BYTES = 16 * 2**20


class TorchTrial:
    """One network with its optimiser, on one device."""

    def __init__(self, blueprint: Blueprint, module: nn.Module, *, n_steps_total: int) -> None:
        self.blueprint = blueprint
        self.task = blueprint.task
        self.descent = Descent.of(blueprint.config)
        self.device = torch_device(blueprint.device)
        self.module = module.to(self.device)
        self.parameter_bytes = sum(parameter.nbytes for parameter in module.parameters())
        self._optimizer = build_optimizer(self.descent, self.module, self.device)
        self.loss = Loss(self.task, blueprint.config)
        self._transform = target_transform(self.task, blueprint.config)
        self._averaged = AveragedWeights(self.module, self.descent.averaging) if self.descent.averaging else None
        self.n_steps = 0
        self.n_steps_total = n_steps_total

    def train(self, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int, pause: Pause) -> Training:
        """See LiveTrial. A loss that is not finite is noticed within 64 steps."""
        check_rows(self.task, inputs, targets)
        if not len(inputs):
            return Training(math.nan, 0, 0)
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        order = visit_order(len(inputs), seed)
        if self.task.objects is not None:
            order = by_length(order, inputs, self.task.objects, self.batch_size, seed)
        order = order.to(self.device)
        self.begin_pass(targets, seed)
        first_step = self.n_steps
        loss_sum = self.train_rows(inputs, targets, order, pause)
        self.check_parameters()
        return Training(loss_sum / len(inputs), len(inputs), self.n_steps - first_step)

    def outputs(self, inputs: Rows) -> Array:
        """See AnsweringTrial."""
        check_inputs(self.task, inputs)
        rows = torch.as_tensor(inputs)
        if self.module.training:  # switching all layers takes as long as an SQL statement
            self.module.eval()
        n_rows = max(1, min(ANSWER_ROWS, _OUTPUT_BYTES // _row_bytes(rows)))
        averages = contextlib.nullcontext() if self._averaged is None else self._averaged.in_place()
        with torch.inference_mode(), averages:
            batches = [self._answer(batch.to(self.device)).cpu() for batch in torch.split(rows, n_rows)]
        outputs: Array = torch.cat(batches).numpy().astype(np.float32, copy=False)
        return outputs

    def dump(self) -> bytes:
        """See LiveTrial."""
        return checkpoint.dump(dict(self._tensors()), _attributes(self, self.n_steps))

    def refill(self, blueprint: Blueprint, state: checkpoint.Checkpoint) -> bool:
        """Become the trial of that state, if this is the same trial at another moment; return False, and change
        nothing, if it is another trial or has another config.
        """
        n_steps = state.read("n_steps", int)
        is_same = blueprint == self.blueprint and state.attributes == _attributes(self, n_steps)
        if not (is_same and state.fill(dict(self._tensors()))):
            return False
        self.n_steps = n_steps
        return True

    def restore(self, state: checkpoint.Checkpoint) -> None:
        """Restore the optimiser and counter of a state whose module is already in place."""
        names = [name for name, _ in self.module.named_parameters()]
        slots: dict[int, dict[str, torch.Tensor]] = {}
        if state.attributes["optimizer"] == self.descent.optimizer:
            for key, tensor in with_prefix(state.tensors, OPTIMIZER).items():
                slot, _, name = key.partition("/")
                slots.setdefault(names.index(name), {})[slot] = tensor
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": slots, "param_groups": groups})
        if self._averaged is not None:
            self._averaged.restore(with_prefix(state.tensors, AVERAGE))
        self.n_steps = state.read("n_steps", int)

    def _train_chunk(self, inputs: torch.Tensor, targets: torch.Tensor, pause: Pause) -> float:
        """Train on rows that already lie in the order of visit; return the sum of their losses.

        Losses stay on the device until the end of the chunk, so that steps never wait for them.
        """
        batch_size = self.batch_size
        losses = []
        batches = zip(torch.split(inputs, batch_size), torch.split(targets, batch_size), strict=True)
        for batch, batch_targets in batches:
            losses.append(self.step(self.module, batch, batch_targets))
            pause()
        values = self.checked(losses)
        n_last = len(inputs) - batch_size * (len(values) - 1)
        return math.fsum(values[:-1]) * batch_size + values[-1] * n_last

    # For training beside others: on several slots at once (joint_training.py), and of many trials at once (stack.py)

    def train_rows(self, inputs: torch.Tensor, targets: torch.Tensor, order: torch.Tensor, pause: Pause) -> float:
        """Train on these rows in this order; return the sum of their losses."""
        loss_sum = 0.0
        # Gather a whole number of batches at once, within 4 MB unless one batch is larger.
        n_rows = self.batch_size * pass_steps(self.batch_size * _row_bytes(inputs))
        for rows in torch.split(order, n_rows) if len(order) else ():
            loss_sum += self._train_chunk(inputs[rows], targets[rows], pause)
        return loss_sum

    def begin_pass(self, targets: torch.Tensor, seed: int) -> None:
        """Get ready to train on rows with these targets."""
        torch.manual_seed(seed)
        self.loss.see(targets)
        self.module.train()

    def learning_rates(self, n_steps: int) -> list[float]:
        """Return the learning rates of the next steps."""
        return [self._learning_rate(self.n_steps + step) for step in range(n_steps)]

    def optimizer_slots(self) -> list[dict[str, torch.Tensor]]:
        """Return the optimiser state of each parameter; empty before the first step."""
        kept = [self._optimizer.state.get(parameter, {}) for parameter in self.module.parameters()]
        return [{slot: tensor for slot, tensor in slots.items() if tensor is not None} for slots in kept]

    def averages(self) -> Mapping[str, torch.Tensor]:
        """Return the averaged weights by the names of the parameters; none without averaging."""
        return {} if self._averaged is None else self._averaged.tensors()

    def take_over(
        self,
        weights: Sequence[torch.Tensor],
        slots: Sequence[Mapping[str, torch.Tensor]],
        averages: Sequence[torch.Tensor] | None,
        *,
        n_steps: int,
    ) -> None:
        """Continue from the numbers that steps elsewhere have produced, in the order of the parameters."""
        parameters = list(self.module.parameters())
        for parameter, new in zip(parameters, weights, strict=True):
            parameter.data.copy_(new)
        for parameter, parameter_slots in zip(parameters, slots, strict=False):
            self._optimizer.state[parameter] = {slot: tensor.clone() for slot, tensor in parameter_slots.items()}
        for average, new in zip(self.averages().values(), averages or (), strict=False):
            average.copy_(new)
        self.n_steps += n_steps

    @property
    def batch_size(self) -> int:
        """Rows of a step."""
        return self.descent.batch_size

    def step(
        self, network: nn.Module, batch: torch.Tensor, targets: torch.Tensor, *, weight: float = 1.0
    ) -> torch.Tensor:
        """Do one step of the optimiser; return the batch's mean loss, still on the device.

        `network` is the module or what wraps it; the loss is multiplied by `weight` before its gradient is taken.
        """
        rate = self._learning_rate(self.n_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        try:
            self._optimizer.zero_grad(set_to_none=True)
            loss = self.gradients(network, batch, targets, weight)
            self._optimizer.step()
        except (MemoryError, RuntimeError) as error:
            if not is_exhausted(error):
                raise
            raise self._out_of_memory(error) from error
        self.n_steps += 1
        if self._averaged is not None:
            self._averaged.add(self.n_steps)
        return loss.detach()

    def gradients(self, network: nn.Module, batch: torch.Tensor, targets: torch.Tensor, weight: float) -> torch.Tensor:
        """Give parameters the gradients of a batch; return its mean loss."""
        loss = self.loss(network(batch), targets)
        (loss if weight == 1.0 else loss * weight).backward()  # type: ignore[no-untyped-call]
        return loss

    def apply_gradients(self) -> None:
        """Update the parameters that have gradients, and clear the gradients."""
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _answer(self, batch: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.module(batch)
        answers = outputs.softmax(dim=-1) if self.task.kind == "classification" else outputs
        if self._transform is not None:
            answers = self._transform.inverse(answers, torch)
        return answers.mean(dim=1) if answers.dim() == 3 else answers

    def _learning_rate(self, step: int) -> float:
        return self.descent.rate_at(step, self.n_steps_total)

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield everything that is stored, by its name in the state."""
        for name, tensor in self.module.state_dict().items():
            yield MODULE + name, tensor
        for name, parameter in self.module.named_parameters():
            for slot, tensor in self._optimizer.state.get(parameter, {}).items():
                if tensor is not None:
                    yield f"{OPTIMIZER}{slot}/{name}", tensor
        if self._averaged is not None:
            for name, tensor in self._averaged.tensors().items():
                yield AVERAGE + name, tensor

    def checked(self, losses: Sequence[torch.Tensor]) -> list[float]:
        """Return the losses of the last steps as numbers. Raises TrialFailed at the first that is not finite."""
        values: list[float] = torch.stack(list(losses)).tolist()
        for step, value in enumerate(values, start=self.n_steps - len(values)):
            if not math.isfinite(value):
                raise self._diverged(f"loss is {value} at step {step}", step)
        return values

    def check_parameters(self) -> None:
        """Raise TrialFailed when the last step broke a parameter, which no loss has shown yet."""
        is_finite = [torch.isfinite(parameter).all() for parameter in self.module.parameters()]
        if not bool(torch.stack(is_finite).all()):
            step = self.n_steps - 1
            raise self._diverged(f"parameters are not finite after step {step}", step)

    def _diverged(self, what: str, step: int) -> TrialFailed:
        return TrialFailed(
            f"trial diverged: {what} with learning rate {self._learning_rate(step):.6g}",
            hint="Search lower learning rates, or check that inputs are finite and of moderate size.",
        )

    def _out_of_memory(self, error: Exception) -> TrialFailed:
        return TrialFailed(
            f"trial ran out of memory at step {self.n_steps} with batch_size {self.batch_size}",
            detail=str(error).partition("\n")[0],
            hint="Search smaller batch sizes or narrower networks.",
        )


def _attributes(trial: TorchTrial, n_steps: int) -> dict[str, JSON]:
    """Return the attributes of the trial's state after a number of steps."""
    return {
        **state_header(trial.blueprint.architecture, trial.task),
        "optimizer": trial.descent.optimizer,
        "n_steps": n_steps,
        "n_steps_total": trial.n_steps_total,
    }


def _row_bytes(inputs: torch.Tensor) -> int:
    return inputs.element_size() * math.prod(inputs.shape[1:])


def with_prefix(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors under a prefix, named without it."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
