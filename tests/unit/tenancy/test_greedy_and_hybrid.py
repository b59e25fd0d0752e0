"""Greedy's candidates and its rules among them; when hybrid freezes, and what thaws it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.tenancy.greedy import RULES, Greedy
from easeml_db.decisions.tenancy.hybrid import PATIENCE, Hybrid
from easeml_db.decisions.tenancy.standings import Standings
from easeml_db.errors import InvalidArgument

SEEDS = st.integers(0, 1000)
FREEZING = [(0, "random"), (4, "max_gap"), (4, "max_sigma"), (5, "random"), (7, "max_gap")]  # seeds of worlds that do


def standings(sig: list[float], gap: list[float], **columns: list) -> Standings:
    n = len(sig)
    others = {"can_open": [True] * n, "n_opened": [1.0] * n, "best": [0.5] * n, "score": gap, "weight": [1.0] * n}
    values = others | columns | {"sig": sig, "gap": gap}
    return Standings(**{name: np.array(value) for name, value in values.items()})


def test_more_weight_never_means_less_service_also_where_nothing_more_is_expected() -> None:
    """An estimated regret may be negative: the bound of an arm lies below the best that was seen."""
    negative = [-0.10, -0.15]
    alike, heavy = (standings(negative, negative, weight=weight) for weight in ([1.0, 1.0], [4.0, 1.0]))
    assert Greedy("max_sigma").candidates(alike).tolist() == [True, False]
    assert Greedy("max_sigma").candidates(heavy).tolist() == [True, False]
    one_and_ten = standings([-0.15] * 11, [-0.15] * 11, weight=[1.0] + [0.1] * 10)
    assert Greedy("max_gap").choose(one_and_ten).place == 0, "ten runs of a tenant are no more than one"


@pytest.mark.parametrize("rule", RULES)
@given(seed=SEEDS)
def test_candidates_are_those_at_or_above_the_mean_of_all_that_can_open_an_arm(new_world, rule: str, seed: int) -> None:
    world = new_world(lambda: Greedy(rule, seed=seed), 5, seed=seed)
    world.steps(5)
    while True:
        sigs = {key: bandit.sig for key, bandit in world.selector.bandits.items() if bandit.can_open}
        if (decision := world.step()) is None:
            break
        mean = np.mean(list(sigs.values()))
        assert decision.candidates == {key for key, sig in sigs.items() if sig >= mean - 1e-15}
        assert decision.run in decision.candidates


@given(SEEDS)
def test_the_largest_gap_among_the_candidates_is_served(new_world, seed: int) -> None:
    world = new_world("greedy", 5, seed=seed)
    world.steps(5)
    while True:
        gaps = {key: bandit.gap for key, bandit in world.selector.bandits.items()}
        if (decision := world.step()) is None:
            break
        assert decision.gap == gaps[decision.run] == max(gaps[key] for key in decision.candidates)


def test_max_sigma_serves_the_largest_sig_and_random_every_candidate() -> None:
    columns = standings([0.1, 0.5, 0.6, 0.2], [0.9, 0.8, 0.3, 0.9])  # mean sig 0.35
    assert Greedy().choose(columns).place == 1
    assert Greedy("max_sigma").choose(columns).place == 2
    random = Greedy("random", seed=1)
    served = [random.choose(columns).place for _ in range(200)]
    assert set(served) == {1, 2}
    assert 70 < served.count(1) < 130


def test_sig_keeps_its_sign_in_the_mean() -> None:
    choice = Greedy().choose(standings([-0.5, -0.1, 0.0], [1.0, 0.1, 0.2]))
    assert choice.candidates.tolist() == [False, True, True]
    assert choice.place == 2


def test_equal_sigs_are_all_candidates_in_spite_of_rounding() -> None:
    choice = Greedy().choose(standings([0.1] * 3 + [0.1] * 7, [0.2] * 10))
    assert choice.candidates.all()
    assert choice.place == 0


@pytest.mark.parametrize("rule", RULES)
def test_a_tenant_whose_first_play_is_under_way_waits_while_others_have_results(rule: str) -> None:
    choice = Greedy(rule).choose(standings([np.nan, 0.2], [0.9, 0.1]))
    assert (choice.place, choice.candidates.tolist()) == (1, [False, True])
    nobody = Greedy(rule).choose(standings([np.nan, np.nan], [0.1, 0.9]))
    assert nobody.candidates.all()
    assert rule == "random" or nobody.place == 1


@pytest.mark.parametrize("rule", ["max_gap", "max_sigma"])
def test_weights_scale_sig_and_gap(rule: str) -> None:
    alike = {"sig": [0.3, 0.3], "gap": [0.3, 0.3]}
    assert Greedy(rule).choose(standings(**alike)).place == 0
    assert Greedy(rule).choose(standings(**alike, weight=[1.0, 2.0])).place == 1
    assert Greedy(rule).choose(standings([0.3, 0.2], [0.3, 0.2], weight=[1.0, 2.0])).candidates.tolist() == [
        False,
        True,
    ]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="expected one of max_gap, max_sigma, random, got 'min_gap'"):
        Greedy("min_gap")


@pytest.mark.parametrize(("seed", "rule"), FREEZING)
def test_hybrid_freezes_after_exactly_ten_decisions_without_a_change(new_world, seed: int, rule: str) -> None:
    world = new_world(lambda: Hybrid(greedy=Greedy(rule, seed=1)), 3, seed=seed, allow_replays=True)
    world.steps(3)
    counter, candidates, total, phases = 0, None, None, []
    for _ in range(150):
        expected = "round_robin" if counter >= PATIENCE else "greedy"
        before = sum(bandit.best for bandit in world.selector.bandits.values())
        decision = world.step()
        phases.append(decision.phase)
        assert decision.phase == expected
        total = sum(bandit.best for bandit in world.selector.bandits.values())
        if expected == "greedy":
            counter = counter + 1 if decision.candidates == candidates and total <= before else 0
            candidates = decision.candidates
    assert phases.count("greedy") > PATIENCE
    assert phases[-1] == "round_robin"
    assert world.selector.policy.n_freezes == 1


@pytest.mark.parametrize(("change", "n_greedy"), [("nothing", 4), ("a quality", 6), ("candidates", 7)])
def test_a_better_quality_or_other_candidates_begin_the_count_again(change: str, n_greedy: int) -> None:
    same = standings([0.3, 0.1], [0.3, 0.1])
    others = {
        "nothing": same,
        "a quality": standings([0.3, 0.1], [0.3, 0.1], best=[0.5, 0.6]),  # the third decision brought it
        "candidates": standings([0.1, 0.3], [0.3, 0.1]),  # of the fourth decision
    }
    hybrid = Hybrid(patience=3)
    phases = [hybrid.choose(each).phase for each in [same] * 3 + [others[change]] * 5]
    assert phases == ["greedy"] * n_greedy + ["round_robin"] * (8 - n_greedy)


@pytest.mark.parametrize("event", ["join", "leave", "replace"])
def test_an_arrival_a_departure_and_other_arms_thaw_hybrid(new_world, event: str) -> None:
    world = new_world(Hybrid, 3, seed=4, allow_replays=True)
    world.steps(40)
    assert world.step().phase == "round_robin"
    if event == "join":
        world.join()
        assert world.step().phase == "first_service"
    elif event == "leave":
        world.leave(1)
    else:
        world.selector.replace(1, world.selector.bandits[1])
    assert world.step().phase == "greedy"


def test_frozen_hybrid_takes_turns(new_world) -> None:
    world = new_world(Hybrid, 3, seed=4, allow_replays=True)
    world.steps(40)
    assert world.selector.policy.is_frozen
    served = world.steps(9)
    assert sorted(served[:3]) == [0, 1, 2]
    assert served == served[:3] * 3


def test_a_patience_below_one_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="patience: expected at least 1, got 0"):
        Hybrid(0)


def test_hybrid_that_is_frozen_again_goes_on_with_the_turns_of_those_that_stayed() -> None:
    same = standings([0.3, 0.1, 0.1], [0.3, 0.1, 0.1], weight=[0.5, 1.0, 1.0])
    hybrid = Hybrid(patience=1)
    served = [hybrid.choose(same).place for _ in range(4)]
    assert served == [0, 0, 0, 1]  # two of greedy, then turns: 0, whose turn counts twice, and 1
    fewer = standings([0.3, 0.1], [0.3, 0.1])
    hybrid.renew(0)
    assert [hybrid.choose(fewer).place for _ in range(4)] == [0, 0, 1, 0]  # it was the turn of the former tenant 2
