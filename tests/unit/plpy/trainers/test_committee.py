"""A committee: each member is blind to its fold, alone answers for it, and all of it is one state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from easeml_plpy.architectures import complete
from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import mean_over_folds, measure, values
from easeml_plpy.server.errors import CorruptCheckpoint
from easeml_plpy.server.value_types import Array
from easeml_plpy.trainers import architecture, resume_trial, resumed_member, trainer_for
from easeml_plpy.trainers.committee import Committee, begin_committee, member_seed, single
from easeml_plpy.trainers.contract import Blueprint
from easeml_plpy.trainers.ensemble import EnsembleTrial, Member

N_FOLDS = 3
TASK = Task("classification", (4,), 2, n_folds=N_FOLDS)
NAMES = ["linear", "sgd", "gaussian_nb"]


def rows(n: int = 90) -> tuple[torch.Tensor, torch.Tensor, Array]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(n, 4)).astype(np.float32)
    targets = (inputs[:, 0] > 0).astype(np.int64)
    return torch.from_numpy(inputs), torch.from_numpy(targets), np.arange(n) % N_FOLDS


def begin(name: str, seed: int = 7) -> Committee:
    chosen = architecture(name)
    sizes = {"train_rows": (30, 30, 30), "n_epochs": 2}
    return begin_committee(trainer_for(chosen.trainer), chosen, {}, TASK, **sizes, seed=seed, device="cpu")


def pause() -> None:
    pass


@pytest.mark.parametrize("name", NAMES)
def test_a_member_is_what_a_trial_on_the_other_folds_would_be(name: str) -> None:
    inputs, targets, folds = rows()
    committee, chosen = begin(name), architecture(name)
    for fold in range(N_FOLDS):
        own = folds == fold
        done = committee.train_in_folds(inputs[own], targets[own], folds[own], seed=11 + fold, pause=pause)
        assert done.n_rows == 30
    trainer, config = trainer_for(chosen.trainer), complete(chosen, {})
    for blind in range(N_FOLDS):
        steps = trainer.count_steps(config, (30, 30), 2)
        seed = member_seed(7, blind)
        alone = trainer.start(chosen, config, single(TASK), n_steps_total=steps, seed=seed, device="cpu")
        for fold in set(range(N_FOLDS)) - {blind}:
            own = folds == fold
            alone.train(inputs[own], targets[own], seed=member_seed(11 + fold, blind), pause=pause)
        own = folds == blind
        answers = committee.held_out_outputs(inputs, folds)[own]
        assert np.array_equal(answers, alone.outputs(inputs[own]))


def test_what_a_row_says_changes_nothing_of_its_own_answer() -> None:
    inputs, targets, folds = rows()
    changed = targets.clone()
    changed[folds == 1] = 1 - changed[folds == 1]
    answers = []
    for told in (targets, changed):
        committee = begin("linear")
        committee.train_in_folds(inputs, told, folds, seed=3, pause=pause)
        answers.append(committee.held_out_outputs(inputs, folds))
    assert np.array_equal(answers[0][folds == 1], answers[1][folds == 1])
    assert not np.array_equal(answers[0][folds == 0], answers[1][folds == 0])


@pytest.mark.parametrize("name", NAMES)
def test_a_dumped_committee_goes_on_as_if_nothing_had_happened(name: str) -> None:
    inputs, targets, folds = rows()
    committee = begin(name)
    committee.train_in_folds(inputs, targets, folds, seed=3, pause=pause)
    chosen = architecture(name)
    again = resume_trial(chosen, complete(chosen, {}), TASK, committee.dump())
    assert isinstance(again, Committee)
    assert np.array_equal(again.outputs(inputs), committee.outputs(inputs))
    for each in (committee, again):
        each.train_in_folds(inputs, targets, folds, seed=4, pause=pause)
    assert again.dump() == committee.dump()
    with pytest.raises(CorruptCheckpoint, match="3 members, expected 4"):
        resume_trial(chosen, complete(chosen, {}), Task("classification", (4,), 2, n_folds=4), committee.dump())


def test_other_rows_are_answered_by_the_mean_of_all_members() -> None:
    inputs, targets, folds = rows()
    committee = begin("linear")
    committee.train_in_folds(inputs, targets, folds, seed=3, pause=pause)
    by_member = [committee.held_out_outputs(inputs, np.full(len(folds), fold)) for fold in range(N_FOLDS)]
    assert np.allclose(committee.outputs(inputs), np.mean(by_member, axis=0), atol=1e-7)


def test_the_metric_is_the_mean_over_folds_with_its_standard_error() -> None:
    rng, task = np.random.default_rng(1), Task("regression", (1,), 1)
    folds = [measure(task, rng.normal(size=(20, 1)), rng.normal(size=20)) for _ in range(5)]
    found = mean_over_folds(task, folds)
    for name, (mean, error) in found.items():
        each = [values(task, fold)[name] for fold in folds]
        assert mean == pytest.approx(np.mean(each))
        assert error == pytest.approx(np.std(each, ddof=1) / np.sqrt(5))


def test_an_ensemble_of_committees_answers_out_of_fold_too() -> None:
    inputs, targets, folds = rows()
    committees = [begin("linear", seed) for seed in (1, 2)]
    for each in committees:
        each.train_in_folds(inputs, targets, folds, seed=3, pause=pause)
    members = [
        Member("linear", {}, TASK, weight, 0, each.dump())
        for weight, each in zip((0.25, 0.75), committees, strict=True)
    ]
    blueprint = Blueprint(architecture("ensemble"), complete(architecture("ensemble"), {}), TASK)
    ensemble = EnsembleTrial(blueprint, members, resumed_member)
    first, second = (each.held_out_outputs(inputs, folds) for each in committees)
    assert np.allclose(ensemble.held_out_outputs(inputs, folds), 0.25 * first + 0.75 * second, atol=1e-6)
    again = resume_trial(architecture("ensemble"), complete(architecture("ensemble"), {}), TASK, ensemble.dump())
    assert again.dump() == ensemble.dump()
    assert isinstance(again, EnsembleTrial)
    assert np.array_equal(again.held_out_outputs(inputs, folds), ensemble.held_out_outputs(inputs, folds))
