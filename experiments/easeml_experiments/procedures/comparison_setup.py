"""What is searched, in full and in quick form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from easeml_db.words.run import Search
from easeml_experiments.peers import settings as peers
from easeml_experiments.peers.settings import Network, Setting

DECADES = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
# Cerebro, table 6, but for the network: ResNet18 and ResNet34 there.
SPACE = {
    "learning_rate": DECADES,
    "weight_decay": DECADES,
    "batch_size": [16, 32, 64, 128, 256],
    **{"optimizer": "adam", "schedule": "constant", "dropout": 0.0},
}
ETA = 3


@dataclass(frozen=True)
class Procedure:
    """How a procedure is asked; `max_seconds` ends a search that has no other end. `is_exact` says that the same trials
    come of it whatever the order in which results arrive; then plain processes take part too."""

    name: str
    max_epochs: int
    n_configs: int | None = None
    max_seconds: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    is_exact: bool = False


@dataclass(frozen=True)
class ComparisonSetup:
    """The rows, the procedures over them, and how often each is repeated, with a seed of its own."""

    setting: Setting
    procedures: tuple[Procedure, ...]
    n_repeats: int

    @property
    def network(self) -> Network:
        """What is trained."""
        return self.setting.networks[0]

    def search(self, procedure: Procedure, architectures_json: str, *, n_parallel: int, seed: int) -> Search:
        """Return the arguments that both sides get."""
        return Search(
            architectures_json,
            json.dumps({**self.network.fixed, **SPACE}),
            procedure.name,
            n_configs=procedure.n_configs,
            max_epochs=procedure.max_epochs,
            seed=seed,
            options_json=json.dumps({**procedure.options, "n_parallel": n_parallel}),
        )


def hyperband(max_epochs: int) -> Procedure:
    """Return the setting of Hyperband up to R epochs (25 in the paper)."""
    return Procedure("hyperband", max_epochs, options={"eta": ETA}, is_exact=True)


FULL = ComparisonSetup(
    replace(peers.FULL, networks=(Network("lenet"),)),
    (
        hyperband(9),
        Procedure("tpe", 3, n_configs=16, options={"n_startup": 4}),
        Procedure("asha", 9, n_configs=1_000, max_seconds=60.0, options={"eta": ETA}),
    ),
    n_repeats=3,
)
QUICK = ComparisonSetup(
    peers.QUICK,
    (
        hyperband(3),
        Procedure("tpe", 1, n_configs=4, options={"n_startup": 2}),
        Procedure("asha", 3, n_configs=1_000, max_seconds=1.0, options={"eta": ETA}),
    ),
    n_repeats=1,
)
