"""What a metric is: its direction, which outputs it measures, and its value from additive statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from easeml_plpy.columns.task import Task, TaskKind
from easeml_plpy.server.missing_numbers import number
from easeml_plpy.server.value_types import Array

MetricTask: TypeAlias = TaskKind | Literal["tensor"]
"""What a metric measures; tensors that come out have the metrics of numbers, too."""


@dataclass(frozen=True)
class Metric:
    """A measure of predictions that knows its direction.

    `value` computes it from the statistics of at least one row (`measure_classification`, `measure_regression` and
    `measure_tensors` say what these hold), NaN where it is not defined. Where they lack something, `sums` returns it of
    the outputs and targets of a partition, as `measure` gets them: numbers by name, which are added up over partitions,
    and which `value` reads by `own_sum`.
    """

    name: str
    task: MetricTask
    is_higher_better: bool
    summary: str
    value: Callable[[Task, Any], float]
    sums: Callable[[Task, Array, Array], Mapping[str, float]] | None = None

    def measures(self, task: Task) -> bool:
        """Return whether the metric measures the outputs of a task."""
        return self.task in (task.kind, kind_of(task))


def own_sum(statistics: Mapping[str, Any], name: str) -> float:
    """Return a number that the `sums` of a metric have added up; NaN if a partition has none that is finite."""
    return number(statistics.get("sums", {}).get(name))


def kind_of(task: Task) -> MetricTask:
    """Return the kind of outputs: classes, numbers, or tensors."""
    return "tensor" if task.output_shape else task.kind
