"""Multi-tenant selection on matrices: strategies, oracles, curves, repeats, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from easeml_db.cli import commands
from easeml_db.decisions.bandits.priors import DEFAULT as PRIOR
from easeml_db.decisions.bandits.priors import make_prior
from easeml_db.decisions.tenancy.policies import DEFAULT
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.errors import InvalidArgument, InvalidData
from easeml_experiments.contract import Options
from easeml_experiments.registry import EXPERIMENTS, TENANT_PRESETS
from easeml_experiments.tenants.curves import Curves, draws_of, interval, ratio, ratios, thinned, time_ratio
from easeml_experiments.tenants.experiment import run
from easeml_experiments.tenants.histories import told
from easeml_experiments.tenants.matrices import Matrices, read_matrices
from easeml_experiments.tenants.oracle import ORACLES, gain_oracle, hull_oracle
from easeml_experiments.tenants.presets import PRESETS
from easeml_experiments.tenants.protocol import Cell, Replayed, repeat_of, replay_cell
from easeml_experiments.tenants.replay import log_slope, regret_of, replay
from easeml_experiments.tenants.servers import DefaultServer, PolicyServer
from easeml_experiments.tenants.strategies import (
    MOST_CITED,
    MOST_RECENT,
    NAMES,
    STRATEGIES,
    ordered,
    strategy,
    theorem,
)
from easeml_experiments.tenants.synthetic import synthetic
from easeml_experiments.tenants.workers import workers

SMALL = synthetic(0.5, 1.0, seed=1, n_users=24, n_models=8)
FOLDED = Curves(
    [np.array([0.0, 0.1, 0.3]), np.array([0.0, 0.2, 0.4])], [np.array([0.5, 0.2, 0.0]), np.array([0.3, 0.1, 0.0])]
)


@pytest.fixture(scope="module")
def replayed() -> Replayed:
    """All strategies on a small matrix."""
    with workers(in_process=True) as here:
        return replay_cell(SMALL, Cell("small", 5), map(strategy, NAMES), 4, 7, here)


# Regret


@pytest.mark.parametrize(("plays", "expected"), [([(0, 0), (0, 1)], 2.15), ([(0, 0), (1, 0)], 1.50)])
def test_regret_counts_every_tenant_at_the_quality_played_last(plays: list[tuple[int, int]], expected: float) -> None:
    quality = np.array([[0.90, 0.95, 1.0], [0.70, 0.95, 1.0]])
    assert regret_of(quality, np.ones((2, 3)), plays)[-1] == pytest.approx(expected)


def test_the_slope_of_linear_regret_is_one() -> None:
    assert log_slope(3.0 * np.arange(1.0, 1001)) == pytest.approx(1.0)
    assert log_slope(np.sqrt(np.arange(1.0, 1001))) == pytest.approx(0.5)


# Curves


def test_mean_and_worst_are_of_all_repeats_at_the_same_cost() -> None:
    grid = np.array([0.0, 0.1, 0.25, 0.4])
    assert FOLDED.mean(grid) == pytest.approx([0.4, 0.25, 0.15, 0.0])
    assert FOLDED.worst(grid) == pytest.approx([0.5, 0.3, 0.2, 0.0])


def test_the_cost_to_a_loss_is_where_the_curve_first_reaches_it() -> None:
    levels = np.array([0.4, 0.25, 0.2, 0.15, 0.05, 0.0])
    assert FOLDED.cost_to(levels) == pytest.approx([0.0, 0.1, 0.2, 0.2, 0.3, 0.4])
    assert FOLDED.cost_to(np.array([0.2, 0.0]), worst=True) == pytest.approx([0.2, 0.4])
    assert replace(FOLDED, budget=0.3).cost_to(np.array([0.05, 0.0])).tolist() == [0.3, np.inf]


def test_a_line_reaches_losses_between_its_points() -> None:
    line = Curves([np.array([0.0, 0.5, 1.0])], [np.array([1.0, 0.5, 0.0])], is_linear=True)
    assert line.cost_to(np.array([0.75, 0.25])) == pytest.approx([0.25, 0.75])


def test_ratios_compare_costs_and_times_between_losses() -> None:
    twice = Curves([2 * cost for cost in FOLDED.costs], FOLDED.values)
    draws = draws_of(2, 0, 50)
    found = ratio(twice, FOLDED, 0.1, draws)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert time_ratio(twice, FOLDED, (0.25, 0.05), draws).value == pytest.approx(2.0)
    assert ratios(twice, FOLDED, np.array([0.2, 0.1])) == pytest.approx([2.0, 2.0])


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_bootstrap_intervals_hold_the_cost_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = [np.append(0.0, np.sort(rng.uniform(0.001, 1, 20))) for _ in range(30)]
    curves = Curves(costs, [np.linspace(0.5, 0.0, 21)] * 30)
    levels = np.array([0.2, 0.1])
    for worst in (False, True):
        samples = curves.resampled(levels, draws_of(30, seed, 300), worst=worst)
        for place, cost in enumerate(curves.cost_to(levels, worst=worst)):
            low, high = interval(samples[:, place])
            assert low - 1e-9 <= cost <= high + 1e-9


def test_thinned_points_keep_both_ends() -> None:
    points = np.append(0.0, np.geomspace(1e-5, 0.7, 5000))
    kept = thinned(points, 200)
    assert len(kept) <= 200
    assert (kept[0], kept[-1]) == (0.0, points[-1])


# Oracles


def test_the_hull_oracle_takes_steps_by_falling_slope() -> None:
    cost, loss = hull_oracle(np.array([[0.5, 0.9, 0.6]]), np.array([[1.0, 3.0, 6.0]]))
    assert cost == pytest.approx([0.0, 0.1, 0.3])
    assert loss == pytest.approx([0.9, 0.4, 0.0])


def test_the_gain_oracle_pays_for_every_play() -> None:
    cost, loss = gain_oracle(np.array([[0.5, 0.9, 0.6]]), np.array([[1.0, 3.0, 6.0]]))
    assert cost == pytest.approx([0.0, 0.1, 0.4])
    assert loss == pytest.approx([0.9, 0.4, 0.0])


def test_nobody_goes_below_the_bound_in_any_repeat(replayed: Replayed) -> None:
    bound = replayed.losses("oracle_bound")
    for name in (*NAMES, *ORACLES):
        curves = replayed.losses(name)
        assert (curves.at(curves.points) >= bound.at(curves.points) - 1e-9).all(), name


def test_no_strategy_beats_the_hull_oracle_in_the_mean(replayed: Replayed) -> None:
    hull, levels = replayed.losses("oracle_hull"), np.array([0.2, 0.1, 0.05, 0.02])
    for name in NAMES:
        assert (replayed.losses(name).cost_to(levels) >= hull.cost_to(levels) - 1e-9).all(), name


# Strategies and repeats


def test_orders_put_unnamed_models_last_as_they_stand() -> None:
    assert ordered(("b", "a"), ("x", "a", "y", "b")) == [3, 1, 0, 2]
    assert sorted(MOST_CITED) == sorted(MOST_RECENT)


def test_a_fixed_order_is_kept_for_every_tenant() -> None:
    quality = np.tile([0.1, 0.2, 0.3], (6, 1))
    matrices = Matrices("three", tuple("abcdef"), ("ResNet-18", "AlexNet", "VGG-16"), quality, np.ones((6, 3)))
    with workers(in_process=True) as here:
        found = replay_cell(matrices, Cell("three", 1), [STRATEGIES["mostcited"]], 1, 0, here)
    # AlexNet, then VGG-16: the third is worse and changes nothing
    assert found.losses("mostcited").at(np.array([0.0, 0.34, 0.67, 1.0])) == pytest.approx(
        np.array([[0.3, 0.1, 0.0, 0.0]])
    )


def test_every_strategy_tries_everything_in_the_end(replayed: Replayed) -> None:
    for name in NAMES:
        assert replayed.losses(name).worst(np.array([1.0]))[0] == pytest.approx(0.0, abs=1e-9)
        assert replayed.shortfalls(name).worst(np.array([1.0]))[0] == pytest.approx(0.0, abs=1e-9)


def test_a_repeat_depends_on_its_seed_and_number_alone() -> None:
    first, again = (repeat_of(SMALL, Cell("small", 5), 3, 2) for _ in range(2))
    assert np.array_equal(first.quality, again.quality)
    assert not np.array_equal(first.quality, repeat_of(SMALL, Cell("small", 5), 3, 1).quality)
    assert len(first.training) == 19
    assert len(repeat_of(SMALL, Cell("small", 5, train_share=0.5), 3, 2).training) == 10
    assert np.nanmean(SMALL.cost) * first.cost.mean() == pytest.approx(
        repeat_of(replace(SMALL, cost=2 * SMALL.cost), Cell("small", 5), 3, 2).cost.mean() * np.nanmean(SMALL.cost)
    )


@settings(deadline=None, max_examples=20)
@given(st.sampled_from([-1.0, -0.5, 0.0, 0.7]), st.integers(0, 100))
def test_a_history_ranks_the_models_as_it_is_asked(correlation: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    training = np.linspace(0.2, 0.9, 30)[rng.permutation(30)] + 0.01 * rng.normal(size=(40, 30))
    name = "reversed" if correlation == -1.0 else f"correlation={correlation}"
    found = told(training, name, rng)
    assert spearmanr(training.mean(axis=0), found.mean(axis=0)).statistic == pytest.approx(correlation, abs=0.02)
    assert np.array_equal(np.sort(found, axis=1), np.sort(training, axis=1))
    assert (told(training, "shifted", rng) >= np.clip(training, 0, 0.95)).all()


def test_the_default_strategy_is_what_a_new_server_does() -> None:
    """With one prior and costs in the same unit, the pool decides as the policy over bandits does."""
    repeat = repeat_of(SMALL, Cell("small", 5), 3, 2)
    prior = make_prior(PRIOR, repeat.training)
    default = STRATEGIES["default"]
    assert (default.policy, default.prior, default.is_default) == (DEFAULT, PRIOR, True)
    cost = repeat.cost / repeat.cost.mean()
    bare = PolicyServer(
        5, lambda tenant: RunBandit(prior, cost[tenant], is_robust=True), default.make_policy(0),
        default.make_arm_rule(repeat.models),
    )  # fmt: skip
    whole = DefaultServer(repeat.quality, cost, repeat.training)
    of_pool, of_policy = (replay(server, repeat.quality, cost) for server in (whole, bare))
    assert of_pool.tenants == of_policy.tenants
    assert of_pool.arms == of_policy.arms


def test_workers_in_processes_find_what_one_process_finds(replayed: Replayed) -> None:
    with workers() as many:
        found = replay_cell(SMALL, Cell("small", 5), [strategy("ours")], 4, 7, many)
    for one, other in zip(found.runs["ours"], replayed.runs["ours"], strict=True):
        assert np.array_equal(one.loss, other.loss)


def test_the_theorems_strategy_plays_arms_again() -> None:
    assert theorem("greedy").is_theorem
    assert not strategy("greedy").is_theorem


# What is refused


def test_the_listed_presets_are_those_that_there_are() -> None:
    assert tuple(PRESETS) == TENANT_PRESETS


def test_an_unknown_preset_is_refused_with_the_others_named() -> None:
    with pytest.raises(InvalidArgument, match="alchemy") as raised:
        run(Options(values={"preset": "9,alchemy"}))
    assert "fifty" in str(raised.value.hint)


def _files(folder: Path, quality: str, cost: str | None = None) -> list[str]:
    (folder / "q.csv").write_text(quality, encoding="utf-8")
    if cost is None:
        return ["--quality", str(folder / "q.csv")]
    (folder / "c.csv").write_text(cost, encoding="utf-8")
    return ["--quality", str(folder / "q.csv"), "--cost", str(folder / "c.csv")]


ROWS = "".join(f"u{n},0.{n}1,0.{9 - n}\n" for n in range(8))
COSTS = "user,a,b\n" + "".join(f"u{n},1,2\n" for n in range(8))


@pytest.mark.parametrize(
    ("quality", "cost", "options", "said"),
    [
        (ROWS, None, ["--policies", "hybrid,alchemy"], "alchemy"),
        (ROWS, None, ["--tested", "7"], "1 to 6"),
        (ROWS, None, ["--tested", "2", "--budget", "0"], "--budget"),
        (ROWS, None, ["--tested", "2", "--budget", "1.5"], "--budget"),
        (ROWS, None, ["--tested", "2", "--repeats", "0"], "--repeats"),
        (ROWS, None, ["--tested", "2", "--history", "upside down"], "--history"),
        (ROWS, None, ["--tested", "2", "--history", "correlation=2"], "--history"),
        (ROWS.replace("0.01", "1.01"), None, ["--tested", "2"], "from 0 to 1"),
        (ROWS.replace("0.01", "good"), None, ["--tested", "2"], "numbers"),
        (ROWS, COSTS.replace(",2", ",-2"), ["--tested", "2"], "positive"),
        (ROWS, "user,a\n" + "".join(f"u{n},1\n" for n in range(8)), ["--tested", "2"], "one shape"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    tmp_path: Path, quality: str, cost: str | None, options: list[str], said: str
) -> None:
    files = _files(tmp_path, "user,a,b\n" + quality, cost)
    result = CliRunner().invoke(commands, ["experiments", "tenants", *files, *options])
    assert isinstance(result.exception, InvalidArgument | InvalidData)
    assert said in str(result.exception)
    assert "repeats of" not in result.stderr


def test_strategies_are_compared_on_matrices_of_ones_own(tmp_path: Path) -> None:
    options = ["--policies", "ours,ei_rate,round_robin", "--tested", "2", "--budget", "1", "--quick", "--json"]
    files = _files(tmp_path, "user,a,b\n" + ROWS, COSTS)
    result = CliRunner().invoke(commands, ["experiments", "tenants", *files, *options])
    assert result.exit_code == 0, result.output
    found = {each["name"]: each["value"] for each in json.loads(result.stdout)["measures"]}
    assert found["ours / oracle_hull, cost to loss 0.02"] == found["ei_rate / oracle_hull, cost to loss 0.02"] >= 1


def test_costs_that_are_not_given_are_drawn(tmp_path: Path) -> None:
    files = _files(tmp_path, "user,a,b\n" + ROWS)
    matrices = read_matrices("own", Path(files[1]), None, seed=5)
    assert ((matrices.cost > 0) & (matrices.cost < 1)).all()


def test_presets_say_where_their_matrices_are_missing() -> None:
    measures = run(Options(values={"preset": "13"})).measures
    assert [one.value for one in measures] == ["no data: --data DIR"]


def test_the_command_takes_the_experiments_own_parameters() -> None:
    text = CliRunner().invoke(commands, ["experiments", "tenants", "--help"]).stdout
    assert all(f"--{each.name}" in text for each in EXPERIMENTS["tenants"].parameters)
    assert "EASEML_MATRICES" in text
