"""The entry point of all questions about a trial on held-out rows: easeml.evaluate and related functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from easeml_plpy.evaluation import classification, regression, tables
from easeml_plpy.evaluation.answers import examined_trial, require_answers
from easeml_plpy.evaluation.explain import explain, explain_row
from easeml_plpy.evaluation.question import SPLITS, Question
from easeml_plpy.evaluation.scores import Score, or_null, score_values
from easeml_plpy.evaluation.tables import Row
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotReady
from easeml_plpy.server.session import Session

T = TypeVar("T")


@entry_point(returns_failure=True)
def examine_trial(session: Session, subject: str, dataset: str | None, trial_id: int | None, options: str) -> str:
    """Return the rows of what is asked as a JSON array of objects."""
    examined = examined_trial(session, dataset, trial_id)
    if subject not in ABOUT_INPUTS:
        require_answers(session, examined)
    question = Question(session, examined, json.loads(options))
    return json.dumps(list(SUBJECTS[subject](question)), allow_nan=False)


def _evaluate(question: Question) -> Iterable[Row]:
    labels = question.labels
    if labels is None:
        return _score_rows(question, regression.SCORES, question.number_answers)
    question.threshold(labels)
    has_positive = question.positive(labels) is not None
    scores = classification.SCORES + (classification.POSITIVE_SCORES if has_positive else ())
    return _score_rows(question, scores, partial(question.class_answers, labels))


def _score_rows(question: Question, scores: Sequence[Score[T]], answers_for: Callable[[str], T]) -> Iterator[Row]:
    """Yield each score with its values for validation and test rows, none for a split without rows."""
    measured = {split: _measured(scores, answers_for, split) for split in SPLITS}
    for score in scores:
        yield {
            "metric": score.name,
            **{split: or_null(by_metric[score.name]) if by_metric else None for split, by_metric in measured.items()},
            "is_higher_better": score.is_higher_better,
            "summary": score.summary,
            "evaluated_trial_id": question.examined.trial_id,
        }


def _measured(scores: Sequence[Score[T]], answers_for: Callable[[str], T], split: str) -> Mapping[str, float]:
    try:
        answers = answers_for(split)
    except NotReady:  # no rows
        return {}
    return score_values(scores, answers)


def _confusion_matrix(question: Question) -> Iterable[Row]:
    labels, split = question.of_classes("confusion matrix"), question.split()
    return tables.confusion_rows(question.class_answers(labels, split), labels)


def _roc_curve(question: Question) -> Iterable[Row]:
    labels, split = question.of_classes("ROC curve"), question.split()
    return tables.roc_rows(question.class_answers(labels, split), labels)


def _calibration(question: Question) -> Iterable[Row]:
    labels, split, n_bins = question.of_classes("calibration"), question.split(), question.count("n_bins", 1, 1000)
    return tables.calibration_rows(question.class_answers(labels, split), labels, n_bins)


def _class_metrics(question: Question) -> Iterable[Row]:
    labels, split = question.of_classes("classes"), question.split()
    return tables.class_rows(question.class_answers(labels, split), labels)


def _residuals(question: Question) -> Iterable[Row]:
    split = question.split()
    return tables.residual_rows(question.number_answers(split), question.row_keys(split))


def _held_out_answers(question: Question) -> Iterable[Row]:
    labels, split = question.of_classes("classes"), question.split()
    return tables.answer_rows(question.class_answers(labels, split), question.row_keys(split), labels)


SUBJECTS: Mapping[str, Callable[[Question], Iterable[Row]]] = {
    "evaluate": _evaluate,
    "confusion_matrix": _confusion_matrix,
    "roc_curve": _roc_curve,
    "calibration": _calibration,
    "class_metrics": _class_metrics,
    "residuals": _residuals,
    "held_out_answers": _held_out_answers,
    "explain": explain,
    "explain_row": explain_row,
}
ABOUT_INPUTS = ("explain", "explain_row")
"""What asks for more than the answers for held-out rows."""
