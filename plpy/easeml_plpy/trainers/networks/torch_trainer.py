"""The trainer of nn.Modules by gradient descent: it starts and resumes TorchTrials.

It imports torch only when a trial needs it, because a session that predicts also lists trainers but may not need torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from easeml_plpy.architectures import Architecture, Config
from easeml_plpy.architectures.size import FLOAT32_BYTES, Size
from easeml_plpy.architectures.torch_hyperparameters import PER_TRIAL
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import CorruptCheckpoint, ShapeMismatch
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import AnsweringTrial, Blueprint, LiveTrial, Trainer, read_trial
from easeml_plpy.trainers.networks.numpy_network import MODULE, restored_network

if TYPE_CHECKING:
    from torch import nn

    from easeml_plpy.trainers.networks.torch_trial import TorchTrial


OPTIMIZER_SLOTS = {"adam": 2, "adamw": 2}
"""Numbers that an optimiser keeps for each parameter; sgd keeps one if it has momentum."""


class TorchTrainer(Trainer["TorchTrial"]):
    """Starts and resumes TorchTrials."""

    is_joint: ClassVar[bool] = True
    varying: ClassVar[tuple[str, ...]] = PER_TRIAL
    size_settings: ClassVar[tuple[str, ...]] = ("hidden_units", "width", "n_members", "batch_size")

    def needed_bytes(self, size: Size, config: Config, n_rows: int) -> int:
        """See Trainer. Those of a step and of the state at its end: parameters, gradients and the optimiser's slots.

        The state is a copy of parameters and slots. A batch has no more rows than its partition.
        """
        optimizer = config.text("optimizer")
        n_slots = OPTIMIZER_SLOTS.get(optimizer, int(config.number("momentum") > 0))
        n_averages = int(bool(config.get("averaging")))
        n_copies = 2 + n_slots + n_averages + (1 + n_slots + n_averages)
        n_rows_at_once = min(config.integer("batch_size"), n_rows)
        return FLOAT32_BYTES * (size.n_parameters * n_copies + n_rows_at_once * size.n_outputs_a_row)

    def check_foreign(self, blueprint: Blueprint, payload: checkpoint.Payload) -> None:
        """See Trainer. A network is built as large as its config says, so the state has to be as large."""
        arrays = checkpoint.load(payload).arrays
        stored = sum(array.size for name, array in arrays.items() if name.startswith(MODULE))  # with buffers
        declared = blueprint.architecture.size(blueprint.task, blueprint.config).n_parameters
        if declared > stored:
            raise CorruptCheckpoint(
                f"the config asks for a network of {declared} numbers, and the state has {stored}",
                hint="Export the trial again where it was trained.",
            )

    def answering(
        self, architecture: Architecture, config: Mapping[str, object], task: Task, payload: checkpoint.Payload
    ) -> AnsweringTrial:
        """See Trainer. Most architectures answer without torch."""
        blueprint, state = read_trial(architecture, config, task, payload)
        return restored_network(blueprint, state) or self._restore(blueprint, state)

    def count_steps(self, config: Config, n_rows: Sequence[int], n_epochs: int) -> int:
        """See Trainer. Each partition ends with a short batch of its own."""
        batch_size = config.integer("batch_size")
        return n_epochs * sum(-(-n // batch_size) for n in n_rows)

    def _begin(self, blueprint: Blueprint, *, n_steps_total: int, seed: int) -> TorchTrial:
        """See Trainer. Parameters are drawn on the CPU, so devices start alike."""
        import torch

        torch.manual_seed(seed)
        return self._trial(blueprint, build_module(blueprint), n_steps_total)

    def _restore(self, blueprint: Blueprint, state: checkpoint.Checkpoint) -> TorchTrial:
        """See Trainer."""
        trial = self._trial(blueprint, _filled_module(blueprint, state), state.read("n_steps_total", int))
        trial.restore(state)
        return trial

    def _refilled(self, stale: LiveTrial, blueprint: Blueprint, state: checkpoint.Checkpoint) -> TorchTrial | None:
        """See Trainer. Its network and optimiser are there: to make them takes longer than to fill them."""
        from easeml_plpy.trainers.networks.torch_trial import TorchTrial

        return stale if isinstance(stale, TorchTrial) and stale.refill(blueprint, state) else None

    def _trial(self, blueprint: Blueprint, module: nn.Module, n_steps_total: int) -> TorchTrial:
        from easeml_plpy.trainers.networks.torch_trial import TorchTrial

        return TorchTrial(blueprint, module, n_steps_total=n_steps_total)


class AdversarialTrainer(TorchTrainer):
    """Starts and resumes AdversarialTrials. Joint batches and stacks are for one loss, and these have two."""

    is_joint: ClassVar[bool] = False
    varying: ClassVar[tuple[str, ...]] = ()

    def _trial(self, blueprint: Blueprint, module: nn.Module, n_steps_total: int) -> TorchTrial:
        from easeml_plpy.trainers.networks.adversarial import AdversarialTrial

        return AdversarialTrial(blueprint, module, n_steps_total=n_steps_total)


def build_module(blueprint: Blueprint) -> nn.Module:
    """Return the network of a config, its parameters drawn from torch's global generator."""
    from torch import nn

    module = blueprint.architecture.build(blueprint.task, blueprint.config)
    if not isinstance(module, nn.Module):
        raise TypeError(f"{blueprint.architecture.name} builds {type(module).__name__}, not an nn.Module")
    return module


def _filled_module(blueprint: Blueprint, state: checkpoint.Checkpoint) -> nn.Module:
    """Return the network with the state's own tensors as parameters: nothing is drawn only to be overwritten."""
    from easeml_plpy.trainers.networks.torch_trial import with_prefix
    from easeml_plpy.trainers.networks.unfilled import NothingDrawn

    with NothingDrawn():
        module = build_module(blueprint)
    stored = with_prefix(state.tensors, MODULE)
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
