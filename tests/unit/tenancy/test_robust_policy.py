"""The default policy: what other tenants' results change, what a hostile one can, and that nobody is far behind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.bandits.robust import WEIGHTS
from easeml_db.decisions.tenancy.arm_rules import ARM_RULES
from easeml_db.decisions.tenancy.policies import DEFAULT, make_policy
from easeml_db.decisions.tenancy.pool import Pool
from easeml_db.decisions.tenancy.robust import SHARE, Robust
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import Selector
from easeml_db.decisions.tenancy.standings import Standings
from easeml_db.decisions.tenancy.trust import MOST_VOTES, Trust
from easeml_db.errors import InvalidArgument
from easeml_db.words.run import Arm, Run
from easeml_db.words.tenant import Tenancy

AGAINST, FOR = np.array([-40.0, -2.0, 0.0]), np.array([0.0, -40.0, -40.0])  # logarithms of evidence
SEEDS = st.integers(0, 1000)


def trust_of(*runs: tuple[str, np.ndarray | None]) -> Trust:
    """Trust among runs of tenants, with the evidence of those that have a result."""
    trust = Trust()
    for tenant, _ in runs:
        trust.join(tenant)
    for place, (_, evidence) in enumerate(runs):
        if evidence is not None:
            trust.put(place, evidence, 1)
    return trust


# Trust


def test_a_run_without_a_result_begins_with_the_base_and_with_what_others_have_shown() -> None:
    assert trust_of(("ada", None)).weights()[:, 0] == pytest.approx(WEIGHTS)
    one, many = (trust_of(("ada", None), *((f"t{k}", AGAINST) for k in range(n))).weights()[0, 0] for n in (1, 9))
    assert 0.9 > one > many
    assert one == pytest.approx(0.9 / 2, rel=0.01)


def test_a_tenant_has_one_vote_however_many_runs_it_has() -> None:
    one = trust_of(("ada", None), ("eve", AGAINST)).weights()[:, 0]
    many = trust_of(("ada", None), *([("eve", AGAINST)] * 2000)).weights()[:, 0]
    assert many == pytest.approx(one)


@settings(max_examples=50)
@given(st.integers(0, 60), st.integers(0, 60))
def test_hostile_tenants_move_what_a_run_begins_with_by_their_votes_at_most(n_honest: int, n_hostile: int) -> None:
    honest = [(f"h{k}", FOR) for k in range(n_honest)]
    hostile = [(f"e{k}", AGAINST) for k in range(n_hostile)]
    before, after = (trust_of(("ada", None), *runs).weights()[0, 0] for runs in (honest, honest + hostile))
    votes = min(n_honest + n_hostile, MOST_VOTES)
    share = n_hostile / max(n_honest + n_hostile, 1)
    assert before - after <= votes * share / (1 + votes) + 1 / 256  # the rounding of many votes
    assert after >= 0.9 / (1 + MOST_VOTES) - 1 / 256


def test_a_runs_own_results_outweigh_all_others() -> None:
    trust = trust_of(("ada", FOR), *((f"e{k}", AGAINST) for k in range(500)))
    assert trust.weights()[0, 0] > 0.999


def test_a_tenants_own_runs_count_fully_for_it() -> None:
    own = trust_of(("ada", None), ("ada", AGAINST), ("ada", AGAINST)).weights()[0, 0]
    others = trust_of(("ada", None), ("eve", AGAINST), ("eve", AGAINST)).weights()[0, 0]
    assert own == pytest.approx(0.9 / 3, rel=0.01)
    assert own < others


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abc"), SEEDS), min_size=2, max_size=8), st.data())
def test_weights_are_a_function_of_the_runs_that_are_open(runs, data: st.DataObject) -> None:
    evidence = [(tenant, np.random.default_rng(seed).normal(0, 3, 3)) for tenant, seed in runs]
    trust = trust_of(*evidence)
    left = data.draw(st.integers(0, len(runs) - 1))
    trust.leave(left)
    assert np.array_equal(trust.weights(), trust_of(*(evidence[:left] + evidence[left + 1 :])).weights())


def test_a_run_without_a_history_neither_votes_nor_listens() -> None:
    trust = trust_of(("ada", np.array([-1.0])), ("eve", AGAINST), ("bob", None))
    assert trust.weights()[:, 0] == pytest.approx([1.0, 0.0, 0.0])
    assert np.array_equal(trust.weights()[:, 2], trust_of(("eve", AGAINST), ("bob", None)).weights()[:, 1])


# Turns


def test_turns_get_their_share_of_all_cost_and_the_fewest_arms_come_first() -> None:
    policy = Robust(0.25)
    standings = Standings()
    for _ in range(3):
        standings.grow()
    standings.can_open[:] = True
    standings.score[:] = (9.0, 1.0, 2.0)
    spent = {"ei_rate": 0.0, "turn": 0.0}
    for _ in range(400):
        choice = policy.choose(standings)
        assert choice.phase == "turn" or choice.place == 0
        policy.charge(choice.phase, cost := 0.5 + choice.place)
        spent[choice.phase] += cost
        standings.n_opened[choice.place] += 1
    assert spent["turn"] == pytest.approx(0.25 * sum(spent.values()), abs=3.0)
    assert standings.n_opened[1] == pytest.approx(standings.n_opened[2], abs=1)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InvalidArgument, match="share: expected a number from 0 to 1"):
        Robust(share)


def ranked(seed: int, n_tenants: int = 6, n_arms: int = 10) -> tuple[np.ndarray, np.ndarray, Prior]:
    """Qualities and costs of tenants, and a prior by which the worst arms are the best."""
    rng = np.random.default_rng(seed)
    latent = np.linspace(-0.5, 1.5, n_arms) + 0.15 * rng.normal(size=(n_tenants, n_arms))
    prior = Prior(np.linspace(1.5, -0.5, n_arms), 0.03 * np.eye(n_arms) + 0.02, 1e-3, "logit", 8.0)
    return 1 / (1 + np.exp(-latent)), rng.uniform(0.2, 2.0, (n_tenants, n_arms)), prior


def served(quality: np.ndarray, cost: np.ndarray, prior: Prior, policy: str) -> list[tuple[int, int, float]]:
    """Tenant and arm, and what all have cost by then."""
    selector: Selector[int] = Selector(make_policy(policy), ARM_RULES["robust_ei_rate"])
    for tenant in range(len(quality)):
        selector.join(tenant, RunBandit(prior, cost[tenant], is_robust=True))
    total, found = 0.0, []
    while (decision := selector.choose()) is not None:
        selector.begin(decision)
        selector.finish(decision.run, decision.arm, float(quality[decision.run, decision.arm]))
        total += decision.cost
        found.append((decision.run, decision.arm, total))
    return found


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_every_run_has_as_many_arms_as_round_robin_gives_it_for_a_third_of_the_cost(seed: int) -> None:
    quality, cost, prior = ranked(seed)
    ours, in_turns = (served(quality, cost, prior, policy) for policy in (DEFAULT, "round_robin"))
    n_tenants, n_arms = quality.shape
    largest = float(cost.max())
    for n_turns in range(1, n_arms):
        spent = in_turns[n_turns * n_tenants - 1][2]
        n_opened = np.zeros(n_tenants)
        for tenant, _, total in ours:
            if total > (spent + n_tenants * largest) / SHARE:
                break
            n_opened[tenant] += 1
        else:
            continue
        assert n_opened.min() >= n_turns


def test_a_reversed_history_costs_far_less_than_without_the_guard() -> None:
    def cost_to(policy: str, rule: str, is_robust: bool, seed: int) -> float:
        quality, cost, prior = ranked(seed)
        selector: Selector[int] = Selector(make_policy(policy), ARM_RULES[rule])
        for tenant in range(len(quality)):
            selector.join(tenant, RunBandit(prior, cost[tenant], is_robust=is_robust))
        best, total = np.zeros(len(quality)), 0.0
        while (quality.max(axis=1) - best).mean() > 0.02:
            decision = selector.choose()
            assert decision is not None
            selector.begin(decision)
            selector.finish(decision.run, decision.arm, float(quality[decision.run, decision.arm]))
            best[decision.run] = max(best[decision.run], quality[decision.run, decision.arm])
            total += decision.cost
        return total / cost.sum()

    guarded = np.mean([cost_to(DEFAULT, "robust_ei_rate", True, seed) for seed in range(6)])
    unguarded = np.mean([cost_to("ei_rate", "ei_rate", False, seed) for seed in range(6)])
    assert guarded < 0.4
    assert guarded < 0.6 * unguarded


def test_a_new_policy_makes_the_bandits_anew_from_what_the_runs_have_tried() -> None:
    arms = (Arm(1, "a", opening=1, bound=0.9, closing=2, quality=0.6, cost_seconds=1.0), Arm(2, "b"), Arm(3, "c"))
    run = Run(7, 0, "running", None, None, (), {}, tenant="ada", arms=arms)
    prior = Prior(np.array([1.0, 0.0, -1.0]), 0.3 * np.eye(3), 0.01, "logit")
    pools = [Pool(Tenancy(policy="hybrid")), Pool(Tenancy())]
    for pool in pools:
        pool.put_run(run, prior)
    pools[0].set_tenancy(Tenancy())
    before, after = (pool.choose(0.0, n_slots=1) for pool in pools)
    assert before is not None
    assert after is not None
    assert before.decision.history_weight is not None
    assert before.decision == after.decision
