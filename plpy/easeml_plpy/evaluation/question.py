"""A question about a trial on held-out rows: which trial, which rows, and the arguments, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from easeml_plpy.columns.encoder import LabelTarget
from easeml_plpy.evaluation.answers import Answers, Examined, answers_for, row_keys
from easeml_plpy.evaluation.classification import ClassAnswers
from easeml_plpy.evaluation.regression import NumberAnswers
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.errors import InvalidArgument, NotAllowed, NotFound, close_matches_hint
from easeml_plpy.server.session import Session

SPLITS = ("validation", "test")


@dataclass(frozen=True)
class Question:
    """A question about a trial; `options` are the further arguments of the function, as JSON values."""

    session: Session
    examined: Examined
    options: Mapping[str, Any]

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The labels of a classification, None for a regression."""
        target = datasets.dataset(self.session, self.examined.dataset_id).encoder.target
        return target.labels if isinstance(target, LabelTarget) else None

    def of_classes(self, subject: str) -> tuple[str, ...]:
        """Return the labels. Raises NotAllowed for a regression."""
        if self.labels is None:
            raise NotAllowed(
                f"dataset {self.examined.dataset_name!r} is a regression, which has no {subject}",
                hint="easeml.evaluate and easeml.residuals measure regressions.",
            )
        return self.labels

    def number_answers(self, split: str) -> NumberAnswers:
        """Return answers of a regression. Raises NotAllowed for a classification."""
        if self.labels is not None:
            raise NotAllowed(
                f"dataset {self.examined.dataset_name!r} is a classification, which has no residuals",
                hint="easeml.confusion_matrix and easeml.held_out_answers show what classes were answered.",
            )
        answers = self.answers(split)
        return NumberAnswers(answers.targets.astype(np.float64), answers.outputs[:, 0].astype(np.float64))

    def split(self) -> str:
        """Return the split that is asked about. Raises InvalidArgument."""
        split = self.options["split"]
        if split not in SPLITS:
            raise InvalidArgument(
                f"split: expected validation or test, got {_quoted(split)}",
                hint="Trials have learned from all other rows, so they tell nothing about how good a trial is.",
            )
        return str(split)

    def answers(self, split: str) -> Answers:
        """Return what the trial answers for the rows of a split. Raises NotReady."""
        return answers_for(self.session, self.examined, split)

    def row_keys(self, split: str) -> list[str | None]:
        """Return the keys of the rows of a split."""
        return row_keys(self.session, self.examined, split)

    def class_answers(self, labels: tuple[str, ...], split: str) -> ClassAnswers:
        """Return answers of a classification, judged as the options say. Raises InvalidArgument, NotFound."""
        positive, threshold = self.positive(labels), self.threshold(labels)
        answers = self.answers(split)
        return ClassAnswers(answers.targets, answers.outputs.astype(np.float64), positive, threshold)

    def positive(self, labels: tuple[str, ...]) -> int | None:
        """Return the class that counts as positive: the one named, else the second of two. Raises NotFound."""
        named = self.options.get("positive")
        if named is None:
            return 1 if len(labels) == 2 else None
        if named not in labels:
            raise NotFound(
                f"positive: dataset {self.examined.dataset_name!r} has no class {named!r}",
                hint=close_matches_hint(str(named), labels),
            )
        return labels.index(named)

    def threshold(self, labels: tuple[str, ...]) -> float | None:
        """Return from which probability on a row counts as positive. Raises InvalidArgument."""
        threshold = self.options.get("threshold")
        if threshold is None:
            return None
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise InvalidArgument(
                f"threshold: expected a number from 0 to 1, got {threshold}",
                hint="It is a probability: threshold => 0.2 calls a row positive from 20 % on.",
            )
        if self.positive(labels) is None:
            raise InvalidArgument(
                f"threshold: dataset {self.examined.dataset_name!r} has {len(labels)} classes, and none is named",
                hint="Say which class it is about: positive => 'label'.",
            )
        return float(threshold)

    def count(self, name: str, low: int, high: int) -> int:
        """Return a whole number between these bounds. Raises InvalidArgument."""
        value = self.options[name]
        if not isinstance(value, int) or not low <= value <= high:
            raise InvalidArgument(
                f"{name}: expected a number from {low} to {high}, got {_quoted(value)}",
                hint=f"Leave {name} out to have the usual number.",
            )
        return value


def _quoted(value: object) -> str:
    return "NULL" if value is None else repr(value)
