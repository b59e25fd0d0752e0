"""Which members an ensemble has, and that it answers as they do together."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from easeml_plpy.architectures import complete, fits
from easeml_plpy.catalogue.catalog import ARCHITECTURES
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.trainers import architecture, resumed_member, trainer_for
from easeml_plpy.trainers.contract import Blueprint
from easeml_plpy.trainers.ensemble import EnsembleTrial, Member
from easeml_plpy.units.greedy_ensemble import select
from easeml_plpy.units.outputs import measurable_on

TARGETS = np.linspace(-1.0, 1.0, 40)[:, None]


def error(outputs):
    return -float(((outputs - TARGETS) ** 2).mean()), 0.0


def noisy(seed, scale):
    return TARGETS + np.random.default_rng(seed).normal(0.0, scale, TARGETS.shape)


def mean_of(outputs, weights):
    return sum(weight * outputs[k] for k, weight in weights.items())


def test_errors_that_cancel_out_are_averaged():
    above, below = TARGETS + 1.0, TARGETS - 1.0
    assert select([above, below], error) == {0: 0.5, 1: 0.5}


def test_one_that_is_better_than_any_mean_stays_alone():
    assert select([TARGETS + 3.0, TARGETS, TARGETS + 2.0], error) == {1: 1.0}
    assert select([TARGETS], error) == {0: 1.0}, "an ensemble of one"


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0.1, 2.0)), min_size=1, max_size=6))
def test_the_mean_is_never_worse_than_the_best_member(makers):
    outputs = [noisy(seed, scale) for seed, scale in makers]
    weights = select(outputs, error)
    assert sum(weights.values()) == pytest.approx(1.0)
    assert error(mean_of(outputs, weights))[0] >= max(map(error, outputs))[0] - 1e-12


def test_scores_that_are_no_number_choose_nothing_bad():
    assert select([TARGETS, TARGETS + 1.0], lambda outputs: (-np.inf, -np.inf)) == {0: 1.0}


def test_members_that_only_lower_the_loss_are_taken_too():
    def share_right(outputs):
        return float(((outputs > 0) == (TARGETS > 0)).mean()), error(outputs)[0]

    assert select([TARGETS * 3.0, TARGETS * 0.1], share_right) != {0: 1.0}, "both are right everywhere"


def member(name, task, weight, start, seed):
    chosen = architecture(name)
    live = trainer_for(chosen.trainer).start(chosen, {}, task, n_steps_total=1, seed=seed)
    rows = torch.rand(30, 2, generator=torch.Generator().manual_seed(seed))
    live.train(rows, (rows[:, 0] > 0.5).long(), seed=seed, pause=lambda: None)
    return live, Member(name, complete(chosen, {}), task, weight, start, live.dump())


def test_an_ensemble_answers_as_its_members_do_and_comes_back_from_its_state():
    task, both = Task("classification", (2,), 2), Task("classification", (4,), 2, "float64")
    (first, one), (second, other) = member("linear", task, 0.25, 0, 1), member("linear", task, 0.75, 2, 2)
    chosen = architecture("ensemble")
    ensemble = EnsembleTrial(Blueprint(chosen, complete(chosen, {}), both), [one, other], resumed_member)
    rows = torch.rand(7, 4, generator=torch.Generator().manual_seed(0)).double()
    outputs = ensemble.outputs(rows)
    expected = 0.25 * first.outputs(rows[:, :2].float()) + 0.75 * second.outputs(rows[:, 2:].float())
    assert outputs == pytest.approx(expected, abs=1e-6)
    again = trainer_for("ensemble").resume(chosen, {"members": [{"trial": 1, "weight": 1.0}]}, both, ensemble.dump())
    assert np.array_equal(again.outputs(rows), outputs)
    assert again.dump() == ensemble.dump()


def test_nobody_asks_for_an_ensemble_and_none_is_drawn():
    chosen = ARCHITECTURES["ensemble"]
    task = Task("classification", (4,), 2, "float64")
    assert fits(chosen, task) is None
    with pytest.raises(NotAllowed, match="made of the trials of a run"):
        trainer_for("ensemble").start(chosen, {}, task, n_steps_total=1, seed=0)


def test_a_member_that_was_trained_again_answers_except_for_validation_rows():
    task, both = Task("classification", (2,), 2), Task("classification", (2,), 2, "float64")
    (first, one), (second, other) = member("linear", task, 1.0, 0, 1), member("linear", task, 1.0, 0, 2)
    chosen = architecture("ensemble")
    refit = replace(one, refit=other.state)
    ensemble = EnsembleTrial(Blueprint(chosen, complete(chosen, {}), both), [refit], resumed_member)
    again = trainer_for("ensemble").resume(chosen, {}, both, ensemble.dump())
    rows = torch.rand(7, 2, generator=torch.Generator().manual_seed(0)).double()
    for live in (ensemble, again):
        assert np.array_equal(live.outputs(rows), second.outputs(rows.float()))
        assert np.array_equal(measurable_on("test", live).outputs(rows), second.outputs(rows.float()))
        assert np.array_equal(measurable_on("validation", live).outputs(rows), first.outputs(rows.float()))
