"""max_seconds cuts a run short: its plan says so, does most of the search, and keeps every other limit."""

from __future__ import annotations

import numpy as np
import pytest

from easeml_db.decisions.planner.job import Cut, Job, TrialProfile, halving_job
from easeml_db.decisions.planner.planning import Goal, best_plan, make_plans
from easeml_db.decisions.planner.simulation import Simulator
from easeml_db.errors import InvalidArgument
from tests.unit.planner.jobs import plan, prices

SECONDS = 10.0  # of an epoch


def cut_short(cut: Cut | None) -> Simulator:
    """Four trials of two epochs, then two of two more: 120 s of work, 40 s at least; slots cost 1 a second."""
    job = halving_job((4, 2), (2, 2), TrialProfile({1: SECONDS}), "cuda")
    return Simulator(Job(job.stages, job.profiles, cut=cut), prices(max_instances=8), n_samples=3)


@pytest.mark.parametrize(
    ("sizes", "limit", "seconds", "cost", "done"),
    [
        ((4, 2), 100.0, 40.0, 120.0, 1.0),  # it ends before
        ((4, 2), 30.0, 30.0, 100.0, 100 / 120),
        ((4, 2), 10.0, 10.0, 40.0, 40 / 120),  # the second stage never begins
        ((1, 1), 30.0, 30.0, 30.0, 30 / 120),
    ],
)
def test_a_cut_plan_ends_then_and_costs_what_it_had_by_then(
    sizes: tuple[int, int], limit: float, seconds: float, cost: float, done: float
) -> None:
    predicted = cut_short(Cut(limit)).predict(plan(*sizes))
    assert predicted.seconds == pytest.approx(np.full(3, seconds))
    assert predicted.cost == pytest.approx(np.full(3, cost))
    assert predicted.done == pytest.approx(done)


def test_without_a_cut_nothing_changes() -> None:
    assert cut_short(None).predict(plan(2, 2)).done == 1.0
    assert cut_short(None).predict(plan(2, 2)).mean_cost == cut_short(Cut(1e6)).predict(plan(2, 2)).mean_cost


def test_the_plan_that_does_most_of_the_search_comes_before_cheaper_ones() -> None:
    found = best_plan(cut_short(Cut(30.0)), Goal(60.0))
    assert found is not None
    assert found.plan == plan(4, 2), "as much as is possible, and no slot that would be idle"
    whole = best_plan(cut_short(Cut(1000.0)), Goal(1000.0))
    assert whole is not None
    assert whole.prediction.mean_cost == min(cut_short(None).predict(plan(n, n)).mean_cost for n in (1, 2))


def test_the_tightest_limit_binds() -> None:
    by_deadline = make_plans(cut_short(Cut(300.0, latest_seconds=20.0)), Goal(20.0))[0]
    assert by_deadline.prediction.seconds.max() <= 20.0
    by_money = make_plans(cut_short(Cut(30.0)), Goal(60.0, 50.0))[0]
    assert by_money.prediction.cost.max() <= 50.0
    assert 0 < by_money.prediction.done < by_deadline.prediction.done + 1


def test_a_deadline_before_the_first_model_is_refused_with_what_would_do() -> None:
    with pytest.raises(InvalidArgument, match="expected at least 15 s, the fastest plan, got 5 s"):
        make_plans(cut_short(Cut(300.0, latest_seconds=5.0, least_seconds=15.0)), Goal(5.0))


def test_a_run_under_way_is_cut_from_now() -> None:
    ready = np.array([4.0, 8.0])
    assert Cut(30.0).moment(ready).tolist() == [34.0, 38.0]
    assert Cut(30.0, is_begun=True).moment(ready).tolist() == [30.0, 30.0]
    assert Cut(30.0, latest_seconds=20.0).moment(ready).tolist() == [20.0, 20.0]
