"""Which hyperparameters mattered in a run: functional ANOVA over its measured trials (Hutter et al. 2014), by Optuna.

A forest predicts the metric from the hyperparameters of an architecture; the importance of one is the share of the
forest's variance over the searched values that it explains by itself. Optuna is there for procedures already, and its
forest is scikit-learn's. It takes a second to import, so it is imported where it is used.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from easeml_db.decisions.search_space.specs import HyperparameterSpec, parse_specs

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

FEWEST_TRIALS = 4
SEED = 0
Row = dict[str, object]


def hyperparameter_importances(trials_json: str, specifications_json: str) -> str:
    """Return rows of (architecture, hyperparameter, importance, n_values, n_trials) as JSON, important ones first.

    trials: [{"architecture", "config", "value"}, ...]; specifications: what architectures declare, by name. An
    architecture with fewer than four trials tells nothing, nor does a hyperparameter that never varied. Where all
    trials have the same metric, the importance of each is 0.
    """
    trials, specifications = json.loads(trials_json), json.loads(specifications_json)
    rows: list[Row] = []
    for architecture, raw in specifications.items():
        of_architecture = [trial for trial in trials if trial["architecture"] == architecture]
        if len(of_architecture) >= FEWEST_TRIALS:
            rows += _rows(architecture, of_architecture, parse_specs(raw, f"architectures.{architecture}"))
    return json.dumps(rows)


def _rows(architecture: str, trials: Sequence[Row], specs: Mapping[str, HyperparameterSpec]) -> Iterator[Row]:
    columns = {name: [_config(trial).get(name, spec.default) for trial in trials] for name, spec in specs.items()}
    varied = {name: values for name, values in columns.items() if len({_key(value) for value in values}) > 1}
    for name, share in _shares(varied, specs, [float(str(trial["value"])) for trial in trials]).items():
        yield {
            "architecture": architecture,
            "hyperparameter": name,
            "importance": share,
            "n_values": len({_key(value) for value in varied[name]}),
            "n_trials": len(trials),
        }


def _config(trial: Row) -> Mapping[str, object]:
    config = trial["config"]
    return config if isinstance(config, Mapping) else {}


def _key(value: object) -> str:
    """Return a text that is equal for equal values; lists are values, too."""
    return json.dumps(value, sort_keys=True)


def _shares(
    varied: Mapping[str, Sequence[object]], specs: Mapping[str, HyperparameterSpec], values: Sequence[float]
) -> dict[str, float]:
    """Return the importance of each hyperparameter, the largest first; none explains a metric that never varied."""
    if min(values) == max(values):
        return dict.fromkeys(varied, 0.0)
    import optuna
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.trial import create_trial

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {name: _distribution(specs[name], column) for name, column in varied.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of features that Optuna calls experimental
        study = optuna.create_study()
        for place, value in enumerate(values):
            params = {name: _internal(distributions[name], column[place]) for name, column in varied.items()}
            study.add_trial(create_trial(params=params, distributions=distributions, value=value))
        return FanovaImportanceEvaluator(seed=SEED).evaluate(study) if varied else {}


def _distribution(spec: HyperparameterSpec, values: Sequence[object]) -> BaseDistribution:
    """Return the range of numbers that were tried, else the values that were tried as choices."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) or spec.kind not in ("float", "integer"):
        return CategoricalDistribution(sorted({_key(value) for value in values}))
    return FloatDistribution(min(numbers), max(numbers), log=spec.log and min(numbers) > 0)


def _internal(distribution: BaseDistribution, value: object) -> object:
    from optuna.distributions import CategoricalDistribution

    return _key(value) if isinstance(distribution, CategoricalDistribution) else value
