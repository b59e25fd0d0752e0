"""Quality and cost of every (user, model), from CSV files: a header of models, a first column of users, gaps empty."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from easeml_db.errors import InvalidArgument, InvalidData

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Matrices:
    """`quality` in [0, 1] and `cost` > 0, both (n, K); nan in both where a model is not offered to a user."""

    name: str
    users: tuple[str, ...]
    models: tuple[str, ...]
    quality: Floats
    cost: Floats

    def __post_init__(self) -> None:
        if self.quality.shape != self.cost.shape:
            raise InvalidData(
                f"{self.name}: expected qualities and costs of one shape, got {self.quality.shape} and "
                f"{self.cost.shape}"
            )
        self._check(self.quality, "quality", "a number from 0 to 1", (self.quality < 0) | (self.quality > 1))
        self._check(self.cost, "cost", "a positive number", ~(self.cost > 0) | np.isinf(self.cost))
        empty = ~self.offered.any(axis=1)
        if empty.any():
            raise InvalidData(f"{self.name}: user {self.users[int(np.argmax(empty))]} has no model at all")

    @property
    def offered(self) -> NDArray[np.bool_]:
        """Which models are offered to whom, (n, K)."""
        return np.isfinite(self.quality)

    def _check(self, values: Floats, what: str, expected: str, wrong: NDArray[np.bool_]) -> None:
        wrong = wrong & self.offered
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise InvalidData(
                f"{what} of model {self.models[column]} for user {self.users[row]}: expected {expected}, "
                f"got {values[row, column]:g}"
            )


def read_matrices(name: str, quality: Path, cost: Path | None, *, seed: int = 0) -> Matrices:
    """Read both files; without costs they are drawn from U(0, 1) (ease.ml, section 5.1). Raises InvalidData."""
    users, models, qualities = _read(quality)
    if cost is None:
        costs = np.random.default_rng((seed, 179)).uniform(0.0, 1.0, qualities.shape)
    else:
        cost_users, cost_models, costs = _read(cost)
        if costs.shape == qualities.shape and (cost_users, cost_models) != (users, models):
            raise InvalidData(f"{cost}: expected the users and models of {quality}, in that order")
    if costs.shape == qualities.shape:
        costs = np.where(np.isfinite(qualities), costs, np.nan)
    return Matrices(name, users, models, qualities, costs)


def _read(path: Path) -> tuple[tuple[str, ...], tuple[str, ...], Floats]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except ValueError as error:
        raise InvalidData(f"{path}: expected a header and a row for each user, got an empty file") from error
    if not rows or len(header) < 2:
        raise InvalidData(f"{path}: expected at least one model and one user")
    values = np.array([_numbers(path, n, row, header) for n, row in enumerate(rows, start=2)])
    return tuple(row[0] for row in rows), tuple(header[1:]), values


def _numbers(path: Path, line: int, row: list[str], header: list[str]) -> list[float]:
    if len(row) != len(header):
        raise InvalidData(f"{path}, line {line}: expected {len(header)} columns, got {len(row)}")
    try:
        return [float(cell) if cell.strip() else np.nan for cell in row[1:]]
    except ValueError as error:
        raise InvalidData(f"{path}, line {line}: expected numbers or empty cells: {error}") from error
