"""Linear predictors of scikit-learn that learn row by row: sgd, perceptron, passive_aggressive.

Rows arrive already shuffled, so the estimators' own shuffle is off.
"""

from __future__ import annotations

from collections.abc import Callable

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter, magnitude
from easeml_plpy.architectures.tables.incremental import Estimator, IncrementalEstimator
from easeml_plpy.architectures.tables.sparse_rows import incremental
from easeml_plpy.columns.task import Task

_SGD_LOSSES = {
    ("classification", "likelihood"): "log_loss",
    ("classification", "margin"): "hinge",
    ("classification", "robust"): "modified_huber",
    ("regression", "likelihood"): "squared_error",
    ("regression", "margin"): "epsilon_insensitive",
    ("regression", "robust"): "huber",
}


def build_sgd(task: Task, config: Config) -> IncrementalEstimator:
    """Build SGDClassifier or SGDRegressor."""
    return incremental(
        task,
        sgd_class(task)(
            loss=_SGD_LOSSES[task.kind, config.text("loss")],
            penalty=_penalty_of(config),
            alpha=config.number("alpha"),
            l1_ratio=config.number("l1_ratio"),
            learning_rate=config.text("schedule"),
            eta0=config.number("learning_rate"),
            power_t=config.number("power_t"),
            shuffle=False,
        ),
    )


def build_perceptron(task: Task, config: Config) -> IncrementalEstimator:
    """Build Perceptron: it steps only at mistakes, at a constant rate."""
    from sklearn.linear_model import Perceptron

    return incremental(
        task,
        Perceptron(
            penalty=_penalty_of(config),
            alpha=config.number("alpha"),
            eta0=config.number("learning_rate"),
            shuffle=False,
        ),
    )


def build_passive_aggressive(task: Task, config: Config) -> IncrementalEstimator:
    """Build PA-I of Crammer et al. (2006): under the name that the installed scikit-learn has for it."""
    import sklearn

    release = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
    build = _pa_by_learning_rate if release >= (1, 8) else _pa_by_class
    return incremental(task, build(task, config.number("aggressiveness")))


def _pa_by_learning_rate(task: Task, aggressiveness: float) -> Estimator:
    """Build it with scikit-learn 1.8 and newer."""
    loss = "hinge" if task.kind == "classification" else "epsilon_insensitive"
    build = sgd_class(task)
    return build(loss=loss, penalty=None, learning_rate="pa1", eta0=aggressiveness, shuffle=False)


def _pa_by_class(task: Task, aggressiveness: float) -> Estimator:
    """Build it with scikit-learn before 1.8."""
    from sklearn.linear_model import PassiveAggressiveClassifier, PassiveAggressiveRegressor

    pa_class = PassiveAggressiveClassifier if task.kind == "classification" else PassiveAggressiveRegressor
    estimator: Estimator = pa_class(C=aggressiveness, shuffle=False)
    return estimator


def sgd_class(task: Task) -> Callable[..., Estimator]:
    """Return SGDClassifier or SGDRegressor."""
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    chosen: Callable[..., Estimator] = SGDClassifier if task.kind == "classification" else SGDRegressor
    return chosen


def _penalty_of(config: Config) -> str | None:
    penalty = config.text("penalty")
    return None if penalty == "none" else penalty


def _penalty(default: str) -> Hyperparameter:
    return Hyperparameter(
        "penalty",
        "categorical",
        default,
        "what pulls weights towards zero",
        choices=("none", "l1", "l2", "elasticnet"),
    )


def _learning_rate(default: float) -> Hyperparameter:
    return magnitude(
        "learning_rate",
        default,
        "the size of a step; the schedule 'optimal' chooses its own",
        legal=(1e-8, 1e3),
        search=(default / 100, default * 10),
    )


_ALPHA = magnitude("alpha", 1e-4, "the strength of the penalty", legal=(1e-12, 1e3), search=(1e-6, 1e-1))

SGD = Architecture(
    name="sgd",
    trainer="partial_fit",
    summary="linear predictor, one stochastic gradient step per row",
    hyperparameters=(
        Hyperparameter(
            "loss",
            "categorical",
            "likelihood",
            "log or squared loss, hinge or epsilon-insensitive, modified or plain Huber",
            choices=("likelihood", "margin", "robust"),
            search=["likelihood", "margin", "robust"],
        ),
        _penalty("l2"),
        _ALPHA,
        Hyperparameter("l1_ratio", "float", 0.15, "the share of l1 in 'elasticnet'", low=0.0, high=1.0),
        Hyperparameter(
            "schedule",
            "categorical",
            "invscaling",
            "how steps shrink over the rows seen",
            choices=("constant", "invscaling", "optimal"),
            search=["invscaling", "optimal"],
        ),
        _learning_rate(0.01),
        Hyperparameter("power_t", "float", 0.25, "the exponent of 'invscaling'", low=0.0, high=2.0),
    ),
    build=build_sgd,
    view="sparse",
)

PERCEPTRON = Architecture(
    name="perceptron",
    trainer="partial_fit",
    tasks=("classification",),
    summary="linear, steps only at mistakes (Rosenblatt); its probabilities are uncalibrated scores",
    hyperparameters=(_penalty("none"), _ALPHA, _learning_rate(1.0)),
    build=build_perceptron,
    view="sparse",
)

PASSIVE_AGGRESSIVE = Architecture(
    name="passive_aggressive",
    trainer="partial_fit",
    summary="linear, the smallest step that mends each mistake; its probabilities are uncalibrated scores",
    hyperparameters=(
        magnitude("aggressiveness", 0.01, "the largest step (C in the paper)", legal=(1e-8, 1e4), search=(1e-5, 1.0)),
    ),
    build=build_passive_aggressive,
    view="sparse",
)
