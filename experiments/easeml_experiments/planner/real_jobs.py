"""What the planner's real runs train: two tables and eight jobs that differ in procedure, architecture and table.

The jobs take some tens of seconds on two slots. As in the paper, most search over how fast a trial learns, so that
trials of a job take as long as one another; two search over all that their architectures do by default, where trials
differ by factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

N_PARTITIONS = 4
N_WIDE = 40  # columns of the wide table
POINTS = """
CREATE TABLE points AS SELECT i AS id, sin(i * 0.37) AS a, cos(i * 0.11) AS b, sin(i * 1.7) * cos(i * 0.3) AS c,
    (i % 97) / 97.0 AS d,
    (i * 7919 % 1009) / 1009.0 AS e, sin(i * 0.013) AS f,
    CASE WHEN sin(i * 0.37) * cos(i * 0.11) + sin(i * 0.013) > 0.1 THEN 'yes' ELSE 'no' END AS y
FROM generate_series(1, {n_rows}) i
"""
WIDE = "CREATE TABLE wide AS SELECT i AS id, {columns}, sin(i * 0.37) * cos(i * 0.11) + sin(i * 0.013) AS y FROM {rows}"
RATES: Mapping[str, Any] = {"learning_rate": {"type": "float", "low": 1e-4, "high": 1e-2, "log": True}}


@dataclass(frozen=True)
class RealJob:
    """What a job asks for: a table, architectures, and further arguments of easeml.select_models. `has_deadline`: it
    trains once more, with a deadline that the fastest plan keeps easily. `n_pilot_epochs`: for which its architectures
    are timed before, more where later epochs take longer."""

    name: str
    table: str
    architectures: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    search_space: Mapping[str, Any] | None = None
    has_deadline: bool = False
    n_pilot_epochs: int = 2


JOBS = (
    RealJob("random, mlp", "points", ("mlp",), {"procedure": "random", "n_configs": 8, "max_epochs": 8}, RATES),
    RealJob(
        "grid, linear", "wide", ("linear",), {"procedure": "grid", "max_epochs": 24},
        {"learning_rate": [1e-4, 1e-3, 1e-2], "weight_decay": [0.0, 1e-5, 1e-3]},
    ),
    RealJob(
        "halving, resnet", "wide", ("resnet",),
        {"procedure": "successive_halving", "n_configs": 9, "max_epochs": 18}, RATES, has_deadline=True,
    ),
    RealJob("hyperband, mlp", "points", ("mlp",), {"procedure": "hyperband", "max_epochs": 9}, RATES),
    RealJob("asha, mlp", "wide", ("mlp",), {"procedure": "asha", "n_configs": 16, "max_epochs": 9}, RATES),
    RealJob(
        "synchronous bohb, mlp", "wide", ("mlp",), {"procedure": "sync_bohb", "max_epochs": 9}, RATES,
        has_deadline=True,
    ),
    RealJob(
        "trees", "points", ("lightgbm",), {"procedure": "random", "n_configs": 6, "max_epochs": 16}, n_pilot_epochs=6
    ),
    RealJob(
        "random, two architectures", "wide", ("linear", "resnet"),
        {"procedure": "random", "n_configs": 12, "max_epochs": 6},
    ),
)  # fmt: skip


def statements(n_rows: int) -> Iterator[str]:
    """Yield what makes the tables and their datasets; the wide table has two thirds of the rows."""
    columns = {f"x{k}": f"sin(i * 0.37 * {k}) AS x{k}" for k in range(1, N_WIDE + 1)}
    yield POINTS.format(n_rows=n_rows)
    yield WIDE.format(columns=", ".join(columns.values()), rows=f"generate_series(1, {2 * n_rows // 3}) i")
    for table, inputs in (("points", "a,b,c,d,e,f"), ("wide", ",".join(columns))):
        yield f"SELECT easeml.create_dataset('{table}', '{table}', '{{{inputs}}}', 'y', n_partitions => {N_PARTITIONS})"
