"""What a user would run outside: scikit-learn's and LightGBM's defaults, FLAML for the same time, a line for texts.

All have the same rows (those that the product trains and validates on, and its test rows) and as many threads as the
product has slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easeml_experiments.tables import encoding
from easeml_experiments.tables.scoring import score_of
from easeml_experiments.tables.sources import version_of
from easeml_experiments.tables.table import Frame, Table

Fit = Callable[["Work"], Any]
Mask = NDArray[np.bool_]
N_FOLDS = 5


@dataclass(frozen=True)
class Work:
    """A table, split: the rows to fit and to measure, as `Rival.encode` has made them."""

    table: Table
    inputs: Any
    target: NDArray[Any]
    seed: int
    n_threads: int
    seconds: float

    @property
    def is_regression(self) -> bool:
        """Whether numbers are predicted."""
        return self.table.task == "regression"


@dataclass(frozen=True)
class Rival:
    """A library's way: `package` is what has to be installed, `view` how it takes the rows, `fit` returns something
    that predicts. One that is `for_texts` runs only where there is free text."""

    name: str
    title: str
    package: str
    view: str
    fit: Fit
    is_timed: bool = False
    for_texts: bool = False


def _boosting(work: Work) -> Any:
    ensemble = import_module("sklearn.ensemble")
    kind = ensemble.HistGradientBoostingRegressor if work.is_regression else ensemble.HistGradientBoostingClassifier
    return kind(random_state=work.seed).fit(work.inputs, work.target)


def _forest(work: Work) -> Any:
    ensemble = import_module("sklearn.ensemble")
    kind = ensemble.RandomForestRegressor if work.is_regression else ensemble.RandomForestClassifier
    return kind(random_state=work.seed, n_jobs=work.n_threads).fit(work.inputs, work.target)


def _lightgbm(work: Work) -> Any:
    library = import_module("lightgbm")
    kind = library.LGBMRegressor if work.is_regression else library.LGBMClassifier
    return kind(random_state=work.seed, n_jobs=work.n_threads, verbose=-1).fit(work.inputs, work.target)


def _flaml(work: Work) -> Any:
    search = import_module("flaml.automl.automl").AutoML()
    task = "regression" if work.is_regression else "classification"
    search.fit(
        work.inputs, work.target, task=task, metric=work.table.metric, time_budget=work.seconds,
        n_jobs=work.n_threads, seed=work.seed, verbose=0,
    )  # fmt: skip
    return search


def _line(work: Work) -> Any:
    linear = import_module("sklearn.linear_model")
    kind = linear.Ridge() if work.is_regression else linear.SGDClassifier(random_state=work.seed)
    pipeline = import_module("sklearn.pipeline")
    return pipeline.make_pipeline(encoding.for_lines(work.table, work.inputs), kind).fit(work.inputs, work.target)


RIVALS: dict[str, Rival] = {
    each.name: each
    for each in (
        Rival("hgb", "HistGradientBoosting", "scikit-learn", "native", _boosting),
        Rival("rf", "RandomForest", "scikit-learn", "codes", _forest),
        Rival("lightgbm", "LightGBM", "lightgbm", "native", _lightgbm),
        Rival("flaml", "FLAML", "flaml", "native", _flaml, is_timed=True),
        Rival("line", "TF-IDF and SGD", "scikit-learn", "plain", _line, for_texts=True),
    )
}
DEFAULTS = ("hgb", "rf", "lightgbm")  # the best of them is what ours has to reach


def measure(
    rival: Rival, table: Table, frame: Frame, splits: NDArray[np.str_], *, seed: int, n_threads: int, seconds: float
) -> dict[str, Any]:
    """Fit a rival to training and validation rows, and score it on the test rows.

    HistGradientBoosting is also fitted to the training rows alone: its score on the validation rows says when the
    product, which validates there, is as good. Where the product has folds, it is fitted and scored in folds, too.
    """

    def fitted(fit: Mask, scored: Mask) -> dict[str, Any]:
        return _fitted(rival, table, frame, (fit, scored), seed=seed, n_threads=n_threads, seconds=seconds)

    is_test = splits == "test"
    result = {
        "rival": rival.name,
        "version": version_of(rival.package),
        "view": rival.view,
        **fitted(~is_test, is_test),
    }
    if rival.name == "hgb":
        alone = [fitted(*masks) for masks in _validations(splits, seed)]
        result |= {
            "validation_score": float(np.mean([each["score"] for each in alone])),
            "validation_fit_seconds": float(np.mean([each["fit_seconds"] for each in alone])),
        }
    return result


def _validations(splits: NDArray[np.str_], seed: int) -> Iterator[tuple[Mask, Mask]]:
    """Yield the rows to fit and to score, once, or once for each fold where no rows validate only."""
    if (splits == "validation").any():
        yield splits == "train", splits == "validation"
        return
    folds = np.random.default_rng(seed).permutation(len(splits)) % N_FOLDS
    for fold in range(N_FOLDS):
        yield (splits == "train") & (folds != fold), (splits == "train") & (folds == fold)


def _fitted(
    rival: Rival, table: Table, frame: Frame, masks: tuple[Mask, Mask], *, seed: int,
    n_threads: int, seconds: float,
) -> dict[str, Any]:  # fmt: skip
    inputs, truth = encoding.plain(table, frame), frame[table.target].to_numpy()
    if table.task == "classification":
        truth = truth.astype(str)
    started, cpu = time.perf_counter(), time.process_time()
    fitted, (others,) = _encoded(rival, table, inputs[masks[0]], [inputs[masks[1]]], seed)
    encoded = time.perf_counter()
    estimator = rival.fit(Work(table, fitted, truth[masks[0]], seed, n_threads, seconds))
    ended = time.perf_counter()
    used = time.process_time() - cpu
    score = score_of(table.metric, truth[masks[1]], np.asarray(estimator.predict(others)))
    return {
        "score": score.value,
        "standard_error": score.standard_error,
        "n_rows": int(masks[0].sum()),
        "n_scored_rows": int(masks[1].sum()),
        "fit_seconds": ended - started,
        "encoding_seconds": encoded - started,
        "processor_seconds": used,
    }


def _encoded(rival: Rival, table: Table, fitted: Frame, others: list[Frame], seed: int) -> tuple[Frame, list[Frame]]:
    if rival.view == "plain":
        return fitted, others
    fitted, others = encoding.for_trees(table, fitted, others, seed)
    return encoding.with_native_categories(table, fitted, others) if rival.view == "native" else (fitted, others)
