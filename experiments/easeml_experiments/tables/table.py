"""What is declared of a table: where its rows come from, what is to be learnt, and from what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Frame = Any  # pandas.DataFrame, which carries no types
Kind = Literal["numbers", "mixed", "dates", "text"]


@dataclass(frozen=True)
class Table:
    """A real table. `kind` says what makes it hard; `package` carries its rows; `texts` are the columns of free text,
    which the product has to find out by itself."""

    name: str
    kind: Kind
    package: str
    target: str
    task: Literal["regression", "classification"]
    read: Callable[[], Frame]
    texts: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        """The product's default metric for the task."""
        return "accuracy" if self.task == "classification" else "rmse"

    @property
    def is_higher_better(self) -> bool:
        """The direction of the metric."""
        return self.task == "classification"

    def frame(self) -> Frame:
        """Return inputs and target of the rows that have a target, numbered from 0."""
        frame = self.read()
        return frame[frame[self.target].notna()].reset_index(drop=True)

    def inputs(self, frame: Frame) -> list[str]:
        """Return the names of the inputs."""
        return [name for name in frame.columns if name != self.target]
