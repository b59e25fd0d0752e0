"""The partial_fit trainer: what scikit-learn does, resumed byte for byte, without its warnings."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from easeml_plpy.architectures import fits
from easeml_plpy.architectures.tables.naive_bayes import ramp
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import InvalidArgument, InvalidData, NotReady, ShapeMismatch, TrialFailed
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers import ARCHITECTURES
from easeml_plpy.trainers.partial_fit import PartialFitTrainer, PartialFitTrial, probabilities_of_scores
from tests.unit.plpy.trainers.training_rows import no_pause, rows

TRAINER = PartialFitTrainer()
TWO, THREE = Task("classification", (2, 3), 2), Task("classification", (6,), 3)
NUMBERS = Task("regression", (6,), 1)

CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {}),
    ("sgd", {"loss": "margin", "schedule": "optimal", "penalty": "elasticnet"}),
    ("sgd", {"loss": "robust", "schedule": "constant", "penalty": "none", "learning_rate": 0.001}),
    ("sgd", {"penalty": "l1"}),
    ("perceptron", {}),
    ("perceptron", {"penalty": "l2"}),
    ("passive_aggressive", {}),
    ("gaussian_nb", {}),
    ("gaussian_nb", {"var_smoothing": 0.1}),
    ("multinomial_nb", {}),
    ("multinomial_nb", {"alpha": 0.01, "fit_prior": False}),
]
CASES = [
    pytest.param(name, config, task, id=f"{name}-{'-'.join(map(str, config.values()))}-{task.kind}{task.n_outputs}")
    for name, config in CONFIGS
    for task in (TWO, THREE, NUMBERS)
    if fits(ARCHITECTURES[name], task) is None
]


def start(name: str, config: dict[str, Any], task: Task) -> PartialFitTrial:
    return TRAINER.start(ARCHITECTURES[name], config, task, n_steps_total=0, seed=0)


@pytest.mark.parametrize(("name", "config", "task"), CASES)
def test_a_resumed_trial_continues_byte_for_byte(name: str, config: dict[str, Any], task: Task) -> None:
    first, second = rows(task, 700), rows(task, 600, seed=1)
    whole = start(name, config, task)
    whole.train(*first, seed=5, pause=no_pause)
    hopped = TRAINER.resume(ARCHITECTURES[name], config, task, whole.dump())
    assert hopped.dump() == whole.dump()
    assert np.array_equal(hopped.outputs(first[0]), whole.outputs(first[0]))
    assert hopped.train(*second, seed=6, pause=no_pause) == whole.train(*second, seed=6, pause=no_pause)
    assert hopped.dump() == whole.dump()
    assert np.array_equal(hopped.outputs(first[0]), whole.outputs(first[0]))


@pytest.mark.parametrize(("name", "config", "task"), CASES)
def test_it_learns(name: str, config: dict[str, Any], task: Task) -> None:
    inputs, targets = rows(task, 1100)
    trial = start(name, config, task)
    first, _, training = (trial.train(inputs, targets, seed=seed, pause=no_pause) for seed in range(3))
    outputs = trial.outputs(inputs)
    assert outputs.shape == (1100, task.n_outputs)
    assert outputs.dtype == np.float32
    assert math.isfinite(training.loss_mean)
    assert (training.n_rows, training.n_steps) == (1100, 3)
    if task.kind == "regression":
        assert np.square(outputs[:, 0] - targets.numpy()).mean() == pytest.approx(training.loss_mean)
        assert training.loss_mean < max(first.loss_mean * 0.9, 0.01)
    else:
        np.testing.assert_allclose(outputs.sum(axis=1), 1, rtol=1e-5)
        assert (outputs.argmax(axis=1) == targets.numpy()).mean() > 0.75


@pytest.mark.parametrize(("name", "config", "task"), CASES)
def test_every_attribute_that_fitting_leaves_is_stored_or_rebuilt(
    name: str, config: dict[str, Any], task: Task
) -> None:
    """An attribute that a new scikit-learn adds must not be lost in silence."""
    trial = start(name, config, task)
    before = set(vars(trial._estimator))
    trial.train(*rows(task, 20), seed=0, pause=no_pause)
    added = {each for each in set(vars(trial._estimator)) - before if not each.startswith("_")}
    state = checkpoint.load(trial.dump())
    stored = {each.partition("/")[2] for each in state.tensors} | set(state.attributes["estimator"])
    assert added - stored <= {"loss_function_"}


def test_it_is_what_scikit_learn_does() -> None:
    from sklearn.linear_model import SGDClassifier

    inputs, targets = rows(THREE, 1000)
    trial = start("sgd", {}, THREE)
    trial.train(inputs, targets, seed=3, pause=no_pause)
    expected = SGDClassifier(loss="log_loss", learning_rate="invscaling", power_t=0.25, eta0=0.01, shuffle=False)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(3))
    for batch in torch.split(order, 512):
        expected.partial_fit(inputs[batch].numpy(), targets[batch].numpy(), classes=[0, 1, 2])
    np.testing.assert_array_equal(trial.outputs(inputs), expected.predict_proba(inputs.numpy()))


@pytest.mark.parametrize("task", [TWO, THREE, NUMBERS], ids=lambda task: f"{task.kind}{task.n_outputs}")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_both_spellings_of_passive_aggressive_learn_the_same(task: Task) -> None:
    import sklearn

    from easeml_plpy.architectures.tables import stochastic_gradient

    if tuple(int(part) for part in sklearn.__version__.split(".")[:2]) not in ((1, 8), (1, 9)):
        pytest.skip("only scikit-learn 1.8 and 1.9 have both")
    inputs, targets = rows(task, 300)
    flat = inputs.reshape(300, -1).numpy()
    classes = {} if task.kind == "regression" else {"classes": np.arange(task.n_outputs)}
    new = stochastic_gradient._pa_by_learning_rate(task, 0.1).partial_fit(flat, targets.numpy(), **classes)
    old = stochastic_gradient._pa_by_class(task, 0.1).partial_fit(flat, targets.numpy(), **classes)
    np.testing.assert_array_equal(new.coef_, old.coef_)


@pytest.mark.parametrize("name", ["sgd", "perceptron", "passive_aggressive", "gaussian_nb", "multinomial_nb"])
def test_classes_that_have_not_been_seen_yet_do_no_harm(name: str) -> None:
    inputs, targets = rows(THREE, 30)
    trial = start(name, {}, THREE)
    only = targets == 1
    trial.train(inputs[only], targets[only], seed=0, pause=no_pause)
    assert np.isfinite(trial.outputs(inputs)).all()
    trial.train(inputs, targets, seed=1, pause=no_pause)
    assert np.isfinite(trial.outputs(inputs)).all()


def test_ramp_keeps_everything_and_is_never_negative() -> None:
    given = np.array([[1.5, -2.0, 0.0]], dtype=np.float32)
    assert ramp(given).tolist() == [[1.5, 0, 0, 0, 2.0, 0]]
    assert ramp(given).dtype == np.float32


def test_uncalibrated_probabilities_rank_as_their_scores() -> None:
    scores = np.array([[1e4, -1e4, 0.0], [0.0, 0.0, 1.0]])
    assert probabilities_of_scores(scores).argmax(axis=1).tolist() == [0, 2]
    assert np.isfinite(probabilities_of_scores(scores)).all()
    pairs = probabilities_of_scores(np.array([-1e4, 0.0, 2.0]))
    np.testing.assert_allclose(pairs[:, 1], [0, 0.5, 1 / (1 + math.exp(-2))])
    np.testing.assert_allclose(pairs.sum(axis=1), 1)


def test_an_untrained_trial_is_not_ready_but_can_hop() -> None:
    trial = start("sgd", {}, THREE)
    with pytest.raises(NotReady):
        trial.outputs(rows(THREE, 3)[0])
    assert TRAINER.resume(ARCHITECTURES["sgd"], {}, THREE, trial.dump()).dump() == trial.dump()


def test_no_rows_change_nothing() -> None:
    trial = start("sgd", {}, THREE)
    inputs, targets = rows(THREE, 3)
    before = trial.dump()
    assert trial.train(inputs[:0], targets[:0], seed=0, pause=no_pause).n_rows == 0
    assert trial.dump() == before
    trial.train(inputs, targets, seed=0, pause=no_pause)
    assert trial.outputs(inputs[:0]).shape == (0, 3)


def cancelled_after(n_calls: int) -> Callable[[], None]:
    left = iter(range(n_calls))

    def pause() -> None:
        if next(left, None) is None:
            raise ValueError("overflow: not a trial's fault")

    return pause


@pytest.mark.parametrize("n_calls", [0, 1, 2, 3])
def test_what_pause_raises_passes_through(n_calls: int) -> None:
    with pytest.raises(ValueError, match="not a trial's fault"):
        start("sgd", {}, THREE).train(*rows(THREE, 1000), seed=0, pause=cancelled_after(n_calls))


def test_overflow_is_the_trials_own_fault() -> None:
    inputs, targets = rows(NUMBERS, 600)
    trial = start("sgd", {"learning_rate": 1e3, "schedule": "constant"}, NUMBERS)
    with pytest.raises(TrialFailed, match=r"sgd .* with learning rate 1000$"):
        trial.train(inputs * 1e15, targets, seed=0, pause=no_pause)


def test_wrong_rows_are_refused() -> None:
    inputs, targets = rows(THREE, 3)
    with pytest.raises(ShapeMismatch):
        start("sgd", {}, THREE).train(inputs[:, :2], targets, seed=0, pause=no_pause)
    with pytest.raises(InvalidData, match="classes 0 to 2"):
        start("sgd", {}, THREE).train(inputs, targets + 5, seed=0, pause=no_pause)
    with pytest.raises(InvalidData, match="not finite"):
        start("sgd", {}, THREE).train(inputs * math.nan, targets, seed=0, pause=no_pause)
    with pytest.raises(InvalidArgument, match="not regression"):
        start("gaussian_nb", {}, NUMBERS)


def test_seeds_of_any_size_are_welcome() -> None:
    start("sgd", {}, THREE).train(*rows(THREE, 9), seed=2**63 - 1, pause=no_pause)


def test_steps_are_batches_of_partitions() -> None:
    assert TRAINER.count_steps({}, [512, 513, 0], n_epochs=2) == 6


def test_scikit_learn_is_imported_only_when_it_trains() -> None:
    code = "import sys, easeml_plpy.trainers, easeml_plpy.architectures; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
