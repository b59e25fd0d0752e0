"""The other side of the comparisons: PyTorch written by hand, with everything in memory.

The optimiser is the fused one, the fastest that PyTorch has on a CPU. Nothing of easeml is in here but the allocator's
settings, so that both sides have the same.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from easeml_plpy.server import memory

ROWS_AT_ONCE = 1024


def mlp() -> nn.Module:
    """784 - 128 - 10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def small() -> nn.Module:
    """66 - 64 - 10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(66, 64), nn.ReLU(), nn.Linear(64, 10))


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling, for (n, 28, 28)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 5, padding=2)
        self.second = nn.Conv2d(6, 16, 5, padding=2)
        self.head = nn.Sequential(
            nn.Linear(16 * 7 * 7, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, 28, 28) to (n, 10)."""
        maps = functional.max_pool2d(functional.relu(self.first(images.unsqueeze(1))), 2)
        maps = functional.max_pool2d(functional.relu(self.second(maps)), 2)
        return self.head(maps.flatten(1))  # type: ignore[no-any-return]


NETWORKS = {"mlp": mlp, "lenet": LeNet}
ALL_NETWORKS = {**NETWORKS, "small": small}


def optimizer(network: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Adam."""
    return torch.optim.Adam(network.parameters(), lr=learning_rate, fused=True)


def train(
    network: nn.Module,
    adam: torch.optim.Optimizer,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    batch_size: int,
    seed: int,
) -> float:
    """Train one pass over the rows in an order drawn from the seed; return the mean loss."""
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    network.train()
    loss_sum = torch.zeros(())
    for rows in order.split(batch_size):
        adam.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(network(inputs[rows]), targets[rows])
        loss.backward()
        adam.step()
        loss_sum += loss.detach() * len(rows)
    return float(loss_sum) / len(inputs)


@torch.inference_mode()
def evaluate(network: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    """Return accuracy and log loss."""
    network.eval()
    n_right, loss_sum = 0, 0.0
    for batch, labels in zip(inputs.split(ROWS_AT_ONCE), targets.split(ROWS_AT_ONCE), strict=True):
        outputs = network(batch)
        n_right += int((outputs.argmax(1) == labels).sum())
        loss_sum += float(functional.cross_entropy(outputs, labels, reduction="sum"))
    return n_right / len(inputs), loss_sum / len(inputs)


@torch.inference_mode()
def predict(network: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return labels of all rows."""
    network.eval()
    return torch.cat([network(batch).argmax(1) for batch in inputs.split(ROWS_AT_ONCE)])


# A whole search: a process for each slot, trials dealt to whichever is free


@dataclass(frozen=True)
class PlainTrial:
    """One config."""

    architecture: str
    learning_rate: float
    batch_size: int
    max_epochs: int


_data: dict[str, Any] = {}


def be_as_a_slot() -> None:
    """Have one thread, and the allocator of a slot: an earlier version of easeml has none of its own."""
    torch.set_num_threads(1)
    getattr(memory, "keep_freed_memory", lambda: None)()


def load(path: str, networks: list[str]) -> None:
    """Start of a process: all data in memory, PyTorch warm with these networks."""
    be_as_a_slot()
    _data.update(torch.load(path))
    inputs, targets = _data["train"]
    for name in networks:
        network = ALL_NETWORKS[name]()
        train(network, optimizer(network, 1e-3), inputs[:512], targets[:512], 64, 0)


def is_ready(_: int) -> bool:
    """Answers once the process is up; long enough that each process gets one."""
    time.sleep(0.5)
    return True


def run_trial(trial: PlainTrial) -> float:
    """Train, validate after each epoch, test the state of the best epoch; return its accuracy."""
    torch.manual_seed(0)
    network = ALL_NETWORKS[trial.architecture]()
    adam = optimizer(network, trial.learning_rate)
    best, best_accuracy = None, -1.0
    for epoch in range(trial.max_epochs):
        train(network, adam, *_data["train"], trial.batch_size, epoch)
        accuracy, _ = evaluate(network, *_data["validation"])
        if accuracy > best_accuracy:
            best, best_accuracy = copy.deepcopy(network.state_dict()), accuracy
    if best is not None:
        network.load_state_dict(best)
    return evaluate(network, *_data["test"])[0]
