"""Naive Bayes of scikit-learn: counts and moments per class, so the order of rows hardly matters.

MultinomialNB needs non-negative features, but inputs arrive standardised. So each feature x becomes two, max(x, 0) and
max(-x, 0): this loses nothing, needs no stored state, and makes a row's features independent of other rows. Visiting
rows again multiplies all counts alike, so it only weakens the smoothing.
"""

from __future__ import annotations

import numpy as np

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter, magnitude
from easeml_plpy.architectures.tables.incremental import IncrementalEstimator
from easeml_plpy.columns.task import Task
from easeml_plpy.server.value_types import Array


def build_gaussian_nb(task: Task, config: Config) -> IncrementalEstimator:
    """Build GaussianNB, in float64 because variances are updated by differences."""
    from sklearn.naive_bayes import GaussianNB

    return IncrementalEstimator(GaussianNB(var_smoothing=config.number("var_smoothing")), widen)


def build_multinomial_nb(task: Task, config: Config) -> IncrementalEstimator:
    """Build MultinomialNB over ramp features, twice as many as the input has."""
    from sklearn.naive_bayes import MultinomialNB

    estimator = MultinomialNB(alpha=config.number("alpha"), fit_prior=config.flag("fit_prior"))
    return IncrementalEstimator(estimator, ramp)


def widen(rows: Array) -> Array:
    """Return the rows in float64."""
    return rows.astype(np.float64)


def ramp(rows: Array) -> Array:
    """Turn (n, n_features) of any sign into (n, 2 * n_features): positive parts, then sizes of negative parts."""
    return np.concatenate([np.maximum(rows, 0), np.maximum(-rows, 0)], axis=1)


GAUSSIAN_NB = Architecture(
    name="gaussian_nb",
    trainer="partial_fit",
    tasks=("classification",),
    summary="naive Bayes with a normal distribution per class and feature",
    hyperparameters=(
        magnitude(
            "var_smoothing",
            1e-9,
            "the share of the largest variance added to all variances",
            legal=(1e-15, 1e3),
            search=(1e-9, 1.0),
        ),
    ),
    build=build_gaussian_nb,
)

MULTINOMIAL_NB = Architecture(
    name="multinomial_nb",
    trainer="partial_fit",
    tasks=("classification",),
    summary="naive Bayes over counts; a standardised feature x becomes max(x, 0) and max(-x, 0)",
    hyperparameters=(
        magnitude(
            "alpha", 1.0, "the count added to every feature of every class", legal=(1e-9, 1e6), search=(1e-2, 1e2)
        ),
        Hyperparameter(
            "fit_prior",
            "categorical",
            True,
            "whether frequent classes are more likely beforehand",
            choices=(True, False),
        ),
    ),
    build=build_multinomial_nb,
)
