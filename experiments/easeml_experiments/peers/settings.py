"""What the comparisons train, in full and in quick form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from easeml_experiments.peers.workload import Workload
from easeml_loaders import Source, bundled_source, fashion_mnist_source

LEARNING_RATES = (1e-4, 3e-4, 1e-3, 3e-3)
WEIGHT_DECAYS = (1e-4, 1e-6)  # Cerebro, table 5
SMALL_BATCH, LARGE_BATCH = 32, 256
PAPER_MLP = {"hidden_units": [1000, 500], "averaging": 0.0}  # Cerebro's network for Criteo, table 5


@dataclass(frozen=True)
class Network:
    """An architecture with what is fixed of it."""

    architecture: str
    fixed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """Rows of a source, and trials over a grid of learning rates and weight decays.

    `batch_sizes`: data-parallel training is measured with each of them, and everything with the first.
    """

    name: str
    column: str
    n_rows: int
    dataset_options: Mapping[str, Any]
    input_shape: tuple[int, ...]
    networks: Sequence[Network]
    max_epochs: int
    n_repeats: int
    learning_rates: Sequence[float] = LEARNING_RATES
    weight_decays: Sequence[float] = WEIGHT_DECAYS
    batch_sizes: Sequence[int] = (SMALL_BATCH, LARGE_BATCH)

    def source(self) -> Source:
        """Return the rows. Raises NotFound where Debian's package is not installed."""
        return bundled_source("digits") if self.name == "digits" else fashion_mnist_source()

    def space(self, network: Network, batch_size: int) -> dict[str, Any]:
        """Return the search space, whose grid is the trials."""
        rates, decays = list(self.learning_rates), list(self.weight_decays)
        return {
            **network.fixed,
            **{"optimizer": "adam", "schedule": "constant", "dropout": 0.0, "batch_size": batch_size},
            **{"learning_rate": rates, "weight_decay": decays},
        }

    def workload(self, network: Network, batch_size: int, *, seed: int, n_workers: int) -> Workload:
        """Return the trials of the grid, in its order: the last hyperparameter changes fastest."""
        space = self.space(network, batch_size)
        pairs = product(self.learning_rates, self.weight_decays)
        configs = tuple({**space, "learning_rate": rate, "weight_decay": decay} for rate, decay in pairs)
        return Workload(network.architecture, configs, self.input_shape, 10, self.max_epochs, seed, n_workers)


FULL = Setting(
    name="fashion_mnist",
    column="image",
    n_rows=20_000,
    dataset_options={"input_shape": [28, 28], "validation_fraction": 0.15, "test_fraction": 0.01},
    input_shape=(28, 28),
    networks=(Network("mlp", PAPER_MLP), Network("lenet")),
    max_epochs=3,
    n_repeats=2,
)
QUICK = Setting(
    name="digits",
    column="pixels",
    n_rows=1_797,
    dataset_options={"validation_fraction": 0.15, "test_fraction": 0.01},
    input_shape=(8, 8),
    networks=(Network("mlp", {"hidden_units": [64], "averaging": 0.0}),),
    max_epochs=2,
    n_repeats=1,
    learning_rates=LEARNING_RATES[2:],
    batch_sizes=(SMALL_BATCH,),
)
FEW_TRIALS: dict[str, Any] = {"learning_rates": (3e-4, 1e-3)}
COMMUNICATION = replace(FULL, n_rows=12_000, networks=(Network("mlp", PAPER_MLP),), max_epochs=2, **FEW_TRIALS)
COMMUNICATION_QUICK = replace(
    QUICK,
    networks=(Network("mlp", {"hidden_units": [256], "averaging": 0.0}),),
    weight_decays=WEIGHT_DECAYS[:1],
    **FEW_TRIALS,
)
