"""What a run under way has left, and when it will be done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from easeml_db.decisions.planner.envelope import Past
from easeml_db.decisions.planner.forecast import SlotsHeld, forecast
from easeml_db.decisions.planner.forecast_documents import make_forecast
from easeml_db.decisions.planner.job import Load, Stage, TrialProfile
from easeml_db.decisions.planner.remaining import ArmState, TrialState, remaining_stages
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.errors import NotReady
from easeml_db.words.run import Search
from easeml_experiments.planner.coverage import coverage
from tests.unit.procedures.conftest import RATE

NOBODY = Past({}, {})
P = 2


def search_of(procedure: str, max_epochs: int, n_configs: int, **options: Any) -> Search:
    specs = [{"architecture": "net", "hyperparameters": [RATE]}]
    return Search(json.dumps(specs), None, procedure, n_configs, max_epochs, 5, json.dumps(options))


def trial(n_epochs: float, target: float, *, is_open: bool = True) -> TrialState:
    return TrialState("net", "net", 0, n_epochs, target, is_open)


def left(search: Search | None, trials: list[TrialState]) -> list[list[tuple[int, float]]]:
    stages = remaining_stages(search, [ArmState("net", trials)], NOBODY)
    return [sorted((load.n_trials, load.n_epochs) for load in stage.loads) for stage in stages]


HALVING = search_of("successive_halving", 9, 9)


def test_before_it_begins_all_rungs_are_left() -> None:
    assert left(HALVING, []) == [[(9, 1)], [(3, 2)], [(1, 6)]]


def test_in_the_first_rung_its_trials_have_what_they_lack() -> None:
    trials = [trial(1, 1)] * 3 + [trial(0.5, 1)] * 2 + [trial(0, 1)] * 4
    assert left(HALVING, trials) == [[(2, 0.5), (4, 1)], [(3, 2)], [(1, 6)]]


def test_in_a_later_rung_those_who_dropped_out_have_nothing_left() -> None:
    trials = [trial(1, 1, is_open=False)] * 6 + [trial(3, 3), trial(2, 3), trial(1, 3)]
    assert left(HALVING, trials) == [[(1, 1), (1, 2)], [(1, 6)]]


def test_in_the_last_rung_one_trial_is_left_and_then_nothing() -> None:
    others = [trial(1, 1, is_open=False)] * 6 + [trial(3, 3, is_open=False)] * 2
    assert left(HALVING, [*others, trial(5, 9)]) == [[(1, 4)]]
    assert left(HALVING, [*others, trial(9, 9, is_open=False)]) == []


def test_of_a_one_shot_run_open_trials_have_their_epochs_left() -> None:
    assert left(None, [trial(5, 5, is_open=False), trial(2, 5), trial(0, 5), trial(0, 5)]) == [[(1, 3), (2, 5)]]
    assert left(None, []) == []


def test_asha_is_played_on_from_where_it_stands() -> None:
    search = search_of("asha", 9, 6, n_parallel=2)
    past = Past({"net": [[0.1 * k, 0.2 * k] for k in range(5)]}, {"net": 1.0})
    history = [TrialHistory(k + 1, {"architecture": "net", "rate": 0.1}, "running", (0.5,), 1) for k in range(3)]
    (fresh,), (later,) = (remaining_stages(search, [ArmState("net", (), some)], past) for some in ((), tuple(history)))

    def work(stage: Stage) -> float:
        return sum(load.n_trials * load.n_epochs for loads in stage.alternatives for load in loads)

    assert 0 < work(later) < work(fresh)


def test_asha_with_many_trials_goes_on_from_a_sample_of_them() -> None:
    past = Past({"net": [[0.1 * k, 0.2 * k] for k in range(5)]}, {"net": 1.0})
    scores = [0.1 * (k // 20 % 5) for k in range(3000)]

    def work_left(n_configs: int, done: list[float]) -> int:
        config = {"architecture": "net", "rate": 0.1}
        history = [TrialHistory(k, config, "running", (score,), 1) for k, score in enumerate(done, 1)]
        search = search_of("asha", 9, n_configs, n_parallel=40)
        (stage,) = remaining_stages(search, [ArmState("net", (), history)], past)
        return round(sum(load.n_trials * load.n_epochs for loads in stage.alternatives for load in loads))

    assert work_left(4000, scores) == 20 * work_left(200, scores[::20])


def test_what_is_left_ends_with_the_tests_of_those_who_train_to_the_end() -> None:
    def tested(search: Search | None, trials: list[TrialState]) -> list[bool]:
        return [
            load.is_tested
            for stage in remaining_stages(search, [ArmState("net", trials)], NOBODY)
            for load in stage.loads
        ]

    assert tested(HALVING, [trial(1, 1), trial(0, 1)]) == [False, False, False, True]
    assert tested(None, [trial(2, 5)]) == [True]


def test_a_time_limit_ends_the_run() -> None:
    stages, profiles = (Stage((Load("net", 4, 10),)),), {("net", "cpu"): TrialProfile({1: 3.0})}
    held = SlotsHeld("cpu", 2, 3600.0)
    free, limited, over = (forecast(stages, profiles, held, seconds_to_limit=limit) for limit in (None, 30.0, -1.0))
    assert (free.seconds, free.cost) == (pytest.approx(60), pytest.approx(120))
    assert (limited.seconds, limited.cost) == (pytest.approx(30), pytest.approx(60))
    assert over.seconds == over.cost == 0
    assert forecast((), profiles, held).seconds == 0


def standing(**other: Any) -> str:
    """How a run over two architectures stands, of which only one was ever timed."""
    row = {"architecture": "net", "device_kind": "cpu", "n_slots": 1, "is_same": True, "scale": 1, "n_epochs": 2,
           "epoch_seconds": 10.0, "sd_seconds": 1.0}  # fmt: skip
    trials = [
        {"architecture": name, "trial_number": k, "bracket": 0, "n_epochs": 0.0, "target_epochs": 3, "is_open": True,
         "config": None, "scores": None}
        for k, name in enumerate(("net", "tree"), 1)
    ]  # fmt: skip
    state = {
        "dataset": "flowers", "seed": 0, "device_kind": "cpu", "n_slots": 1, "price_per_hour": 1.0, "search": None,
        "allocation": "hopping",
        "seconds_to_limit": None, "arms": [{"name": "net|tree", "trials": trials}],
        "knowledge": {"trials": [row], "speedups": None, "whole": ["tree"], "joint": [], "n_partitions": P,
                      "curves": None},
    }  # fmt: skip
    return json.dumps({**state, **other})


def test_an_architecture_that_was_never_timed_is_taken_to_be_like_the_others_and_uncertain() -> None:
    found = json.loads(make_forecast(standing()))
    assert found["seconds"] == pytest.approx(60, rel=0.2)
    assert found["seconds_most"] > 80
    assert found["note"] == "tree was never timed: it is taken to be like the other architectures"


def test_trials_that_have_all_slots_are_known_by_their_epochs_on_several() -> None:
    known = json.loads(standing())["knowledge"]
    wide = known["trials"][0] | {"n_slots": 2, "epoch_seconds": 8.0, "sd_seconds": 0.5}
    both = {"knowledge": known | {"trials": [*known["trials"], wide]}, "n_slots": 2, "arms": []}
    arm = {"name": "net", "trials": json.loads(standing())["arms"][0]["trials"][:1]}
    alone, parallel = (
        json.loads(make_forecast(standing(**both | {"arms": [arm], "allocation": allocation})))["seconds"]
        for allocation in ("hopping", "data_parallel")
    )
    # A trial of three epochs: 10 seconds each on one slot; on two they took 8, as busy as 16 on one.
    assert alone == pytest.approx(30, rel=0.1)
    assert parallel == pytest.approx(24, rel=0.1)


def test_where_nothing_is_known_the_time_limit_is_all_there_is_to_say() -> None:
    nothing = json.loads(standing())["knowledge"] | {"trials": []}
    with pytest.raises(NotReady, match="nothing is known of how long net and tree take"):
        make_forecast(standing(knowledge=nothing))
    found = json.loads(make_forecast(standing(knowledge=nothing, seconds_to_limit=90.0, n_slots=2)))
    assert (found["seconds"], found["seconds_least"], found["seconds_most"]) == (90, 0, 90)
    assert found["cost"] == pytest.approx(180 / 3600)
    assert "nothing is known of how long net and tree take" in found["note"]


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """The two hundred runs of `easeml experiments planner`."""
    covered = sum(row["holds"] for row in coverage(0, 200)) / 200
    assert 0.85 <= covered <= 0.95
