"""The answers to easeml.explain and easeml.explain_row: what a trial's answers depend on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from easeml_plpy.columns.encoder import Encoder, NumberTarget
from easeml_plpy.evaluation import classification, regression
from easeml_plpy.evaluation.answers import paged_outputs, restored, sampled_rows
from easeml_plpy.evaluation.attribution import Attribution, sampled_attribution
from easeml_plpy.evaluation.classification import ClassAnswers
from easeml_plpy.evaluation.features import Feature, feature_places, features_of
from easeml_plpy.evaluation.importance import importance_rows
from easeml_plpy.evaluation.question import Question
from easeml_plpy.evaluation.regression import NumberAnswers
from easeml_plpy.evaluation.scores import score_values
from easeml_plpy.evaluation.tables import Row
from easeml_plpy.prediction.client_row import fields_from_values, row_of_text
from easeml_plpy.prediction.prediction import check_finite
from easeml_plpy.prediction.serving import Served
from easeml_plpy.server.errors import InvalidArgument, NotFound, NotReady, close_matches_hint
from easeml_plpy.server.session import Statement, only_column
from easeml_plpy.server.value_types import JSON, Array
from easeml_plpy.trainers.contract import AdditiveTrial
from easeml_plpy.units.outputs import measurable_on

N_BACKGROUND_ROWS = 100
N_ROWS, N_ORDERS = 2000, 100
"""Default numbers of sampled rows and of orders of the inputs; fewer if rows are wide."""
MOST_ROWS, MOST_ORDERS = 1_000_000, 100_000
LEAST = 10
MOST_NUMBERS = 1 << 25
"""Numbers of all rows that a trial is asked for, where the caller leaves it open: an image has many features, and to
ask for each of them on 2,000 images would take minutes."""


def bounded(encoder: Encoder, n_times: int, n_requested: int) -> int:
    """Return how many rows (or orders) are predicted `n_times` each: those requested, or fewer if rows are wide."""
    n_numbers = sum(math.prod(field.shape) for field in encoder.inputs)
    return max(LEAST, min(n_requested, MOST_NUMBERS // (n_times * n_numbers)))


def _count(question: Question, name: str, bounds: tuple[int, int], default: int) -> int:
    return default if question.options[name] is None else question.count(name, *bounds)


EXPLAINED: Statement[str] = Statement(
    "SELECT result ->> 'rows' AS rows FROM easeml.node_jobs WHERE kind = 'explanation' AND trial_id = $1"
    " AND result ->> 'checkpoint_id' = $2::text AND arguments -> 'options' = $3 ORDER BY job_id DESC LIMIT 1",
    ("int8", "int8", "jsonb"),
    only_column,
)


def explain(question: Question) -> Iterable[Row]:
    """Return the importance of each input for a metric on held-out rows: computed here, or by the nodes before."""
    if question.examined.is_elsewhere:
        return _explained_by_nodes(question, "explain_on_nodes")
    return explained(question)


def explain_row(question: Question) -> Iterable[Row]:
    """Return what each input of one row adds to the answer: computed here, or by the nodes if that takes their rows."""
    if question.examined.is_elsewhere and _exact(restored(question.session, question.examined)) is None:
        return _explained_by_nodes(question, "explain_row_on_nodes")
    return explained_row(question)


def _explained_by_nodes(question: Question, procedure: str) -> Iterable[Row]:
    """Return the result of the same question on nodes, which a procedure has asked. Raises NotReady."""
    examined = question.examined
    answers = question.session.rows(
        EXPLAINED, examined.trial_id, examined.checkpoint_id, json.dumps(dict(question.options))
    )
    if not answers:
        raise NotReady(
            f"the rows of dataset {examined.dataset_name!r} are on its nodes, and they have not been asked for this",
            hint=f"Ask first, with the same arguments: CALL easeml.{procedure}('{examined.dataset_name}', ...).",
        )
    rows: Iterable[Row] = json.loads(answers[0])
    return rows


def explained(question: Question) -> Iterable[Row]:
    """Yield the importance of each input for a metric on held-out rows of this server."""
    score, sign = _score(question)
    split = question.split()
    n_repeats, seed = question.count("n_repeats", 1, 1000), question.count("seed", 0, 2**32 - 1)
    question.answers(split)  # refuses a split without rows, and a trial whose answers are not finite
    served = restored(question.session, question.examined)
    if served.data.stored_split(split) != split:
        raise InvalidArgument(
            f"split: {split} rows of a dataset with folds have trained most models of the committee",
            hint="Ask for split => 'test'.",
        )
    served = replace(served, live=measurable_on(split, served.live))
    encoder = served.data.encoder
    features = features_of(encoder)
    n_rows = _count(question, "n_rows", (2, MOST_ROWS), bounded(encoder, len(features) * n_repeats, N_ROWS))
    fields, targets = sampled_rows(question.session, question.examined, split, n_rows, seed)
    positive = None if question.labels is None else question.positive(question.labels)

    def measured(outputs: Array, truth: Array) -> float:
        if question.labels is None:
            return sign * score_values([score], NumberAnswers(truth, outputs[:, 0]))[score.name]
        return sign * score_values([score], ClassAnswers(truth, outputs.astype(np.float64), positive))[score.name]

    return importance_rows(
        lambda mixed: paged_outputs(served, mixed),
        (fields, targets),
        features,
        measured,
        n_repeats=n_repeats,
        seed=seed,
    )


def _score(question: Question) -> tuple[Any, float]:
    """Return the requested score, by default the metric of the trial's run, and 1, or -1 if lower is better."""
    scores = {score.name: score for score in (regression if question.labels is None else classification).SCORES}
    name = question.options.get("metric") or question.examined.metric
    score = scores.get(name)
    if score is None or score.is_higher_better is None:
        legal = [ranking.name for ranking in scores.values() if ranking.is_higher_better is not None]
        raise InvalidArgument(
            f"metric: expected one that ranks, of easeml.evaluate, got {name!r}", hint=close_matches_hint(name, legal)
        )
    return score, 1.0 if score.is_higher_better else -1.0


class _Explained(NamedTuple):
    """Which answer is explained: its place among the outputs, what it is called, and its unit."""

    output: int
    label: str | None
    unit: str


def explained_row(question: Question) -> Iterator[Row]:
    """Yield the base without an input, then what each input of one row adds to the answer, the largest part first.

    Except for trials whose parts are exact, validation rows on this server stand in for unknown inputs.
    """
    seed = question.count("seed", 0, 2**32 - 1)
    served = restored(question.session, question.examined)
    encoder = served.data.encoder
    values = row_of_text(question.options["inputs"], encoder)
    row = fields_from_values(encoder, values)
    check_finite(encoder.inputs, row)
    features = features_of(encoder)
    n_orders = _count(question, "n_orders", (2, MOST_ORDERS), bounded(encoder, 2 * len(features) + 2, N_ORDERS))
    explained = _explained(question, served, row)
    additive = _exact(served)
    if additive is not None:
        attribution = _of_additive(served, additive, row, features, explained)
    else:
        background, _ = sampled_rows(question.session, question.examined, "validation", N_BACKGROUND_ROWS, seed)

        def answer(fields: Sequence[Array]) -> Array:
            return paged_outputs(served, fields)[:, explained.output].astype(np.float64)

        attribution = sampled_attribution(answer, (row, background), features, n_orders=n_orders, seed=seed)
    yield from _rows(attribution, features, explained, _shown(encoder, features, values))


def _explained(question: Question, served: Served, row: Sequence[Array]) -> _Explained:
    if question.labels is None:
        return _Explained(0, None, "value")
    label = question.options.get("label")
    if label is not None and label not in question.labels:
        raise NotFound(
            f"label: dataset {question.examined.dataset_name!r} has no class {label!r}",
            hint=close_matches_hint(str(label), question.labels),
        )
    output = int(paged_outputs(served, row)[0].argmax()) if label is None else question.labels.index(label)
    unit = "probability" if _exact(served) is None else "log odds"
    return _Explained(output, question.labels[output], unit)


def _exact(served: Served) -> AdditiveTrial | None:
    """Return the trial if it can decompose its own answers; None if mixed rows are needed."""
    return served.live if isinstance(served.live, AdditiveTrial) and served.live.is_additive else None


def _of_additive(
    served: Served, live: AdditiveTrial, row: Sequence[Array], features: Sequence[Feature], explained: _Explained
) -> Attribution:
    """Return the exact values of columns, added up by feature."""
    task, target = served.data.task(served.view), served.data.encoder.target
    margins = live.contributions(served.data.encode(served.view, row))[0]
    n_margins = len(margins)
    margin = margins[explained.output if n_margins > 1 else 0]
    if n_margins == 1 and task.n_outputs == 2 and explained.output == 0:
        margin = -margin
    parts: Array = np.bincount(feature_places(features, task.layout), weights=margin[:-1], minlength=len(features))
    base = float(margin[-1])
    if isinstance(target, NumberTarget):
        parts, base = parts * target.scale, base * target.scale + target.mean
    return Attribution(base, parts, None)


def _rows(
    attribution: Attribution, features: Sequence[Feature], explained: _Explained, values: Mapping[str, str | None]
) -> Iterator[Row]:
    subject = {"explained_label": explained.label, "unit": explained.unit}
    yield {"input": None, "value": None, "contribution": attribution.base, "standard_error": None, **subject}
    for k in np.argsort(-np.abs(attribution.parts), kind="stable").tolist():
        yield {
            "input": features[k].name,
            "value": values[features[k].name],
            "contribution": float(attribution.parts[k]),
            "standard_error": None if attribution.errors is None else float(attribution.errors[k]),
            **subject,
        }


def _shown(encoder: Encoder, features: Sequence[Feature], row: Mapping[str, JSON]) -> dict[str, str | None]:
    """Return what the row says of each feature, as text."""
    texts: dict[str, str | None] = {}
    for feature in features:
        field = encoder.inputs[feature.field]
        value: Any = row[field.source]
        if field.key is not None:
            value = value.get(field.key) if isinstance(value, Mapping) else None
        if feature.element is not None and isinstance(value, list):
            value = value[feature.element]
        if feature.patch is not None:
            value = None  # of many numbers
        texts[feature.name] = value if isinstance(value, str | None) else json.dumps(value)
    return texts
