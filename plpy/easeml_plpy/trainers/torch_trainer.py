"""Trains nn.Modules with gradient descent.

What is stored: parameters and buffers under `module/`, the optimiser's slots under `optimizer/<slot>/`, and
the step counter that drives the learning rate. The optimiser's settings come from the config at each resume,
so a config changed on purpose (population-based training) takes effect; an optimiser of another kind starts
with empty slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from easeml_plpy import checkpoint
from easeml_plpy.architectures import Architecture, complete
from easeml_plpy.errors import InvalidArgument, NotAllowed, ShapeMismatch, TrialFailed
from easeml_plpy.task import Task
from easeml_plpy.trainers.contract import (
    Array,
    Training,
    check_fit,
    check_inputs,
    check_rows,
    check_state_header,
    state_header,
    visit_order,
)
from easeml_plpy.trainers.optimizers import build_optimizer, learning_rate_at

_MODULE = "module/"
_OPTIMIZER = "optimizer/"
_CHUNK_STEPS = 64
_CHUNK_BYTES = 4 * 2**20  # measured: a chunk that stays in the cache beats a larger one by up to a tenth
_OUTPUT_ROWS = 1024
_OUTPUT_BYTES = 16 * 2**20

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


# The live trial


class TorchTrial:
    """One network with its optimiser, on one device."""

    def __init__(
        self,
        architecture: Architecture,
        config: Mapping[str, Any],
        task: Task,
        module: nn.Module,
        *,
        n_steps_total: int,
        device: torch.device,
    ) -> None:
        self._architecture = architecture
        self._config = config
        self._task = task
        self._device = device
        self._module = module.to(device)
        self._optimizer = build_optimizer(config, self._module, device)
        self._loss: Loss = functional.cross_entropy if task.kind == "classification" else _squared_error
        self._n_steps = 0
        self._n_steps_total = n_steps_total

    def train(self, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int, pause: Callable[[], None]) -> Training:
        """See LiveTrial. A loss that is not finite is noticed within 64 steps."""
        check_rows(self._task, inputs, targets)
        if not len(inputs):
            return Training(math.nan, 0, 0)
        inputs, targets = inputs.to(self._device), targets.to(self._device)
        order = visit_order(len(inputs), seed).to(self._device)
        torch.manual_seed(seed)
        self._module.train()
        first_step, loss_sum = self._n_steps, 0.0
        for rows in torch.split(order, self._chunk_rows(inputs)):
            loss_sum += self._train_chunk(inputs[rows], targets[rows], pause)
        self.check_parameters()
        return Training(loss_sum / len(inputs), len(inputs), self._n_steps - first_step)

    def outputs(self, inputs: torch.Tensor) -> Array:
        """See LiveTrial."""
        check_inputs(self._task, inputs)
        self._module.eval()
        n_rows = max(1, min(_OUTPUT_ROWS, _OUTPUT_BYTES // _row_bytes(inputs)))
        with torch.inference_mode():
            batches = [self._answer(batch.to(self._device)).cpu() for batch in torch.split(inputs, n_rows)]
        outputs: Array = torch.cat(batches).numpy().astype(np.float32, copy=False)
        return outputs

    def dump(self) -> bytes:
        """See LiveTrial."""
        attributes = {
            **state_header(self._architecture, self._task),
            "optimizer": self._config["optimizer"],
            "n_steps": self._n_steps,
            "n_steps_total": self._n_steps_total,
        }
        return checkpoint.dump(dict(self._tensors()), attributes)

    def restore(self, state: checkpoint.Checkpoint) -> None:
        """Take over the optimiser and counter of a state whose module is already in place."""
        names = [name for name, _ in self._module.named_parameters()]
        slots: dict[int, dict[str, torch.Tensor]] = {}
        if state.attributes["optimizer"] == self._config["optimizer"]:
            for key, tensor in _with_prefix(state.tensors, _OPTIMIZER).items():
                slot, _, name = key.partition("/")
                slots.setdefault(names.index(name), {})[slot] = tensor
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self._n_steps = state.attributes["n_steps"]

    def _train_chunk(self, inputs: torch.Tensor, targets: torch.Tensor, pause: Callable[[], None]) -> float:
        """Train on rows that already lie in the order of visit; returns the sum of their losses.

        Losses stay on the device until the end of the chunk, so that steps never wait for them.
        """
        batch_size: int = self._config["batch_size"]
        losses = []
        batches = zip(torch.split(inputs, batch_size), torch.split(targets, batch_size), strict=True)
        for batch, wanted in batches:
            losses.append(self.step(self._module, batch, wanted))
            pause()
        values = self.checked(losses)
        n_last = len(inputs) - batch_size * (len(values) - 1)
        return math.fsum(values[:-1]) * batch_size + values[-1] * n_last

    # For training on several slots at once (joint_training.py)

    @property
    def module(self) -> nn.Module:
        """The network."""
        return self._module

    @property
    def task(self) -> Task:
        """What it learns."""
        return self._task

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self._device

    @property
    def batch_size(self) -> int:
        """Rows of a step."""
        n_rows: int = self._config["batch_size"]
        return n_rows

    def step(
        self, network: nn.Module, batch: torch.Tensor, wanted: torch.Tensor, *, weight: float = 1.0
    ) -> torch.Tensor:
        """One step of the optimiser; returns the batch's mean loss, still on the device.

        `network` is the module or what wraps it; the loss is multiplied by `weight` before its gradient is taken.
        """
        rate = self._learning_rate(self._n_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        try:
            self._optimizer.zero_grad(set_to_none=True)
            loss = self._loss(network(batch), wanted)
            (loss if weight == 1.0 else loss * weight).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            raise self._out_of_memory(error) from error
        self._n_steps += 1
        return loss.detach()

    def _answer(self, batch: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self._module(batch)
        return outputs.softmax(dim=1) if self._task.kind == "classification" else outputs

    def _learning_rate(self, step: int) -> float:
        return learning_rate_at(self._config["schedule"], self._config["learning_rate"], step, self._n_steps_total)

    def _chunk_rows(self, inputs: torch.Tensor) -> int:
        """Rows gathered at once: a whole number of batches, within 4 MB unless one batch is larger."""
        batch_size: int = self._config["batch_size"]
        n_batches = _CHUNK_BYTES // (batch_size * _row_bytes(inputs))
        return batch_size * max(1, min(_CHUNK_STEPS, n_batches))

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Everything that is stored, by its name in the state."""
        for name, tensor in self._module.state_dict().items():
            yield _MODULE + name, tensor
        for name, parameter in self._module.named_parameters():
            for slot, tensor in self._optimizer.state.get(parameter, {}).items():
                if tensor is not None:
                    yield f"{_OPTIMIZER}{slot}/{name}", tensor

    def checked(self, losses: Sequence[torch.Tensor]) -> list[float]:
        """The losses of the last steps as numbers. Raises TrialFailed at the first that is not finite."""
        values: list[float] = torch.stack(list(losses)).tolist()
        for step, value in enumerate(values, start=self._n_steps - len(values)):
            if not math.isfinite(value):
                raise self._diverged(f"loss is {value} at step {step}", step)
        return values

    def check_parameters(self) -> None:
        """Raise TrialFailed when the last step broke a parameter, which no loss has shown yet."""
        is_finite = [torch.isfinite(parameter).all() for parameter in self._module.parameters()]
        if not bool(torch.stack(is_finite).all()):
            step = self._n_steps - 1
            raise self._diverged(f"parameters are not finite after step {step}", step)

    def _diverged(self, what: str, step: int) -> TrialFailed:
        return TrialFailed(
            f"trial diverged: {what} with learning rate {self._learning_rate(step):.6g}",
            hint="Search lower learning rates, or check that inputs are finite and of moderate size.",
        )

    def _out_of_memory(self, error: Exception) -> TrialFailed:
        return TrialFailed(
            f"trial ran out of memory at step {self._n_steps} with batch_size {self._config['batch_size']}",
            detail=str(error).partition("\n")[0],
            hint="Search smaller batch sizes or narrower networks.",
        )


# The trainer


class TorchTrainer:
    """Starts and resumes TorchTrials."""

    is_joint = True

    def start(
        self,
        architecture: Architecture,
        config: Mapping[str, Any],
        task: Task,
        *,
        n_steps_total: int,
        seed: int,
        device: str = "cpu",
    ) -> TorchTrial:
        """See Trainer. Parameters are drawn on the CPU, so devices start alike."""
        check_fit(architecture, task)
        completed = complete(architecture, config)
        place = _device(device)
        torch.manual_seed(seed)
        module = architecture.build(task, completed)
        return TorchTrial(architecture, completed, task, module, n_steps_total=n_steps_total, device=place)

    def resume(
        self,
        architecture: Architecture,
        config: Mapping[str, Any],
        task: Task,
        payload: checkpoint.Payload,
        *,
        device: str = "cpu",
    ) -> TorchTrial:
        """See Trainer."""
        check_fit(architecture, task)
        completed = complete(architecture, config)
        state = checkpoint.load(payload)
        check_state_header(architecture, task, state)
        trial = TorchTrial(
            architecture,
            completed,
            task,
            _filled_module(architecture, completed, task, state),
            n_steps_total=state.attributes["n_steps_total"],
            device=_device(device),
        )
        trial.restore(state)
        return trial

    def count_steps(self, config: Mapping[str, Any], n_rows: Sequence[int], n_epochs: int) -> int:
        """See Trainer. The config must be complete: each partition ends with a short batch of its own."""
        batch_size: int = config["batch_size"]
        return n_epochs * sum(-(-n // batch_size) for n in n_rows)


def _filled_module(
    architecture: Architecture, config: Mapping[str, Any], task: Task, state: checkpoint.Checkpoint
) -> nn.Module:
    """The network with the state's own tensors as parameters: nothing is drawn only to be overwritten."""
    with torch.device("meta"):
        module: nn.Module = architecture.build(task, config)
    stored = _with_prefix(state.tensors, _MODULE)
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    actual = {name: tuple(tensor.shape) for name, tensor in stored.items()}
    if actual != expected:
        raise ShapeMismatch(
            "state does not have the shapes that the config asks for",
            detail=f"stored {actual}, expected {expected}",
            hint="A trial's architecture cannot change once it has started.",
        )
    module.load_state_dict(stored, assign=True)
    return module


def _squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean squared error of outputs (n, 1) against targets (n,)."""
    return functional.mse_loss(outputs.squeeze(1), targets)


def _device(name: str) -> torch.device:
    """The named device, made to give the same bytes each time. Raises InvalidArgument, NotAllowed."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidArgument(f"device: expected 'cpu' or 'cuda:N', got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"device: expected 'cpu' or 'cuda:N', got {name!r}")
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():
            raise NotAllowed(f"device {name!r}: this segment sees {torch.cuda.device_count()} GPUs")
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    return device


def _is_out_of_memory(error: Exception) -> bool:
    """The CPU allocator raises a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)


def _row_bytes(inputs: torch.Tensor) -> int:
    return inputs.element_size() * math.prod(inputs.shape[1:])


def _with_prefix(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The tensors under a prefix, named without it."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
