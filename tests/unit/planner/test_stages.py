"""The stages of procedures: declared ones, and what comes of playing the others on past learning curves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from easeml_db.decisions.planner.declared import UNDECLARED, declared_stages, declares_stages
from easeml_db.decisions.planner.envelope import MAX_PLAYED_EPOCHS, MAX_PLAYED_TRIALS, Past, envelopes
from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.proposal import preview
from easeml_db.errors import InvalidArgument, NotReady
from easeml_db.words.run import Search
from tests.unit.procedures.conftest import RATE


def search_of(
    procedure: str, n_arms: int = 1, max_epochs: int = 9, n_configs: int | None = None, **options: Any
) -> Search:
    specs = [{"architecture": f"net{k}", "hyperparameters": [RATE]} for k in range(n_arms)]
    return Search(json.dumps(specs), None, procedure, n_configs, max_epochs, 5, json.dumps(options))


def rungs(search: Search) -> list[tuple[int, float]]:
    return [(stage.n_trials, stage.n_epochs) for stage in declared_stages(search)]


def test_the_papers_halving_has_four_stages() -> None:
    search = search_of("successive_halving", max_epochs=50, n_configs=32, increments=True)
    assert rungs(search) == [(32, 1), (10, 3), (3, 9), (1, 37)]
    assert [stage.is_continued for stage in declared_stages(search)] == [False, True, True, True]


def test_who_trains_to_the_last_epoch_is_tested() -> None:
    halving = declared_stages(search_of("successive_halving", max_epochs=9, n_configs=9))
    assert [stage.loads[0].is_tested for stage in halving] == [False, False, True]
    assert all(load.is_tested for load in declared_stages(search_of("random", n_configs=4))[0].loads)
    (played,) = envelopes(search_of("asha", max_epochs=9, n_configs=12, n_parallel=3), RISING)
    loads = [load for some in played.alternatives for load in some]
    assert {load.is_tested for load in loads} == {False, True}
    assert all(load.is_tested is (load.n_epochs == 9) for load in loads)


def test_hyperband_is_its_brackets_one_after_the_other() -> None:
    assert rungs(search_of("hyperband")) == [(9, 1), (3, 2), (1, 6), (5, 3), (1, 6), (3, 9)]
    assert rungs(search_of("sync_bohb")) == rungs(search_of("hyperband"))


def overlapped(procedure: str, n_parallel: int) -> list[tuple[int, bool]]:
    stages = declared_stages(search_of(procedure, max_epochs=9, n_parallel=n_parallel))
    return [(stage.n_trials, stage.is_overlapped) for stage in stages]


def test_the_next_bracket_begins_while_few_trials_of_a_bracket_are_left() -> None:
    sizes = [9, 3, 1, 5, 1, 3]
    assert overlapped("hyperband", 2) == list(zip(sizes, [n == 1 for n in sizes], strict=True))
    assert overlapped("hyperband", 4) == list(zip(sizes, [False, True, True, False, True, False], strict=True))
    stages = declared_stages(search_of("sync_bohb", max_epochs=9))
    assert not any(stage.is_overlapped for stage in stages)


@pytest.mark.parametrize("procedure", ["random", "grid"])
def test_one_shot_procedures_are_one_stage_of_all_architectures(procedure: str) -> None:
    space = json.dumps({"rate": [0.1, 0.2, 0.3]})
    search = Search(search_of(procedure, n_arms=2).architectures_json, space, procedure, 6, 9)
    (stage,) = declared_stages(search)
    assert [(load.architecture, load.n_trials, load.n_epochs) for load in stage.loads] == [
        ("net0", 3, 9),
        ("net1", 3, 9),
    ]


def test_a_search_inside_every_arm_is_arm_after_arm() -> None:
    search = search_of("successive_halving", n_arms=2, max_epochs=9, n_configs=9)
    stages = declared_stages(search)
    assert [stage.loads[0].architecture for stage in stages] == ["net0"] * 3 + ["net1"] * 3


def test_in_a_joint_search_each_architecture_may_be_the_last() -> None:
    search = search_of("successive_halving", n_arms=2, max_epochs=9, n_configs=9, joint=True)
    first, _, last = declared_stages(search)
    assert sorted(load.n_trials for load in first.loads) == [4, 5]
    assert {loads[0].architecture for loads in last.alternatives} == {"net0", "net1"}


@pytest.mark.parametrize("procedure", sorted(set(PROCEDURES) - set(UNDECLARED)))
def test_declared_stages_hold_the_work_that_the_preview_shows(procedure: str) -> None:
    options = {"n_parallel": 2} if "n_parallel" in PROCEDURES[procedure].description.options else {}
    search = Search(
        search_of(procedure).architectures_json, '{"rate": [0.1, 0.2, 0.3]}', procedure, None, 9, 5, json.dumps(options)
    )
    shown = json.loads(
        preview(search.architectures_json, search.search_space_json, procedure, None, 9, 5, search.options_json)
    )
    work = sum(stage.n_trials * stage.n_epochs for stage in declared_stages(search))
    assert declares_stages(procedure)
    assert work == pytest.approx(sum(row["total_epochs"] for row in shown))


RISING = Past({"net0": [[0.1 * k, 0.1 * k + 0.05, 0.1 * k + 0.09] for k in range(8)]}, {"net0": 2.0})


@pytest.mark.parametrize("procedure", UNDECLARED)
def test_other_procedures_are_played_on_past_curves(procedure: str) -> None:
    (stage,) = envelopes(search_of(procedure, max_epochs=9, n_configs=12, n_parallel=3), RISING)
    assert len(stage.alternatives) > 1
    for loads in stage.alternatives:
        assert 1 <= sum(load.n_trials for load in loads) <= 12
        assert all(1 <= load.n_epochs <= 9 for load in loads)
    (again,) = envelopes(search_of(procedure, max_epochs=9, n_configs=12, n_parallel=3), RISING)
    assert again == stage


@pytest.mark.parametrize("procedure", UNDECLARED)
def test_a_play_says_how_many_trials_train_at_once(procedure: str) -> None:
    (stage,) = envelopes(search_of(procedure, max_epochs=9, n_configs=12, n_parallel=3), RISING)
    assert len(stage.turns) == len(stage.alternatives)
    for loads, turns in zip(stage.alternatives, stage.turns, strict=True):
        assert sum(n_trials * n for n_trials, n in turns.items()) == sum(
            each.n_trials * each.n_epochs for each in loads
        )
        assert max(turns) <= 12
        assert procedure != "asha" or max(turns) == 3


def test_stages_say_what_their_trials_have_trained_before() -> None:
    stages = declared_stages(search_of("successive_halving", max_epochs=9, n_configs=9))
    assert [(stage.loads[0].n_before, stage.loads[0].n_epochs) for stage in stages] == [(0, 1), (1, 2), (3, 6)]


def test_asha_trains_less_than_all_trials_to_the_end() -> None:
    (stage,) = envelopes(search_of("asha", max_epochs=9, n_configs=12, n_parallel=3), RISING)
    work = [sum(load.n_trials * load.n_epochs for load in loads) for loads in stage.alternatives]
    assert max(work) < 12 * 9


def test_trials_that_are_played_on_few_curves_differ_from_one_another() -> None:
    """On one curve alone no trial would ever be promoted that another one overtakes: there are no others."""
    flat = Past({"net0": [[0.5, 0.5]]}, {"net0": 2.0})
    (stage,) = envelopes(search_of("asha", max_epochs=9, n_configs=16, n_parallel=2), flat)
    work = {sum(load.n_trials * load.n_epochs for load in loads) for loads in stage.alternatives}
    assert len(work) > 2


def test_of_many_trials_a_sample_is_played_and_stands_for_all() -> None:
    few, many = (
        [
            sum(load.n_trials * load.n_epochs for load in loads)
            for stage in envelopes(search_of("asha", max_epochs=9, n_configs=n, n_parallel=40), RISING)
            for loads in stage.alternatives
        ]
        for n in (MAX_PLAYED_TRIALS, 50 * MAX_PLAYED_TRIALS)
    )
    assert sum(many) == pytest.approx(50 * sum(few), rel=0.02)


def test_without_curves_nobody_knows_what_they_would_do() -> None:
    with pytest.raises(NotReady, match="no learning curves"):
        envelopes(search_of("asha"), Past({}, {}))


def test_what_would_take_too_long_to_play_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=str(MAX_PLAYED_EPOCHS)):
        envelopes(search_of("asha", max_epochs=MAX_PLAYED_EPOCHS, n_configs=60, n_parallel=50, min_epochs=5000), RISING)
