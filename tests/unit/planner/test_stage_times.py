"""How long stages take: compared with the paper's rule, and with the scheduler that really serves a run."""

from __future__ import annotations

import numpy as np
import pytest

from easeml_db.decisions.hopper.schedulers.contract import Placement, Workload
from easeml_db.decisions.hopper.schedulers.longest_remaining import LongestRemaining
from easeml_db.decisions.hopper.schedulers.makespan_simulation import simulate
from easeml_db.decisions.planner.job import Job, Load, Stage, TrialProfile, halving_job
from tests.unit.planner.jobs import prices, simulator


def makespan(trial_epochs: list[int], n_slots: int, n_partitions: int) -> float:
    """The real scheduler on units of equal length, a partition an epoch long in all; trials end after their epochs."""
    placement = Placement.shared(range(n_slots), n_partitions)
    n_rounds = max(trial_epochs)
    assert all(n_rounds == epochs for epochs in trial_epochs)
    workload = Workload(((1.0 / n_partitions,) * n_partitions,) * len(trial_epochs), placement, "cyclic", n_rounds)
    return simulate(workload, LongestRemaining(placement)).makespan_seconds


@pytest.mark.parametrize("n_slots", [1, 2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize(("n_trials", "n_epochs", "n_partitions"), [(8, 1, 4), (10, 2, 3), (9, 3, 1), (5, 4, 8)])
def test_hopping_trials_take_as_long_as_under_the_real_scheduler(
    n_trials: int, n_epochs: int, n_partitions: int, n_slots: int
) -> None:
    profile = TrialProfile({1: 1.0}, units_per_epoch=n_partitions)
    job = halving_job((n_trials,), (n_epochs,), profile, "cuda")
    sim = simulator(job)
    found = float(sim.times.of(0, sim.prices.types[0], n_slots).seconds[0])
    assert found == pytest.approx(makespan([n_epochs] * n_trials, n_slots, n_partitions))


def test_uneven_trials_take_within_a_unit_of_the_real_scheduler() -> None:
    n_partitions, n_slots = 4, 3
    sim = simulator(halving_job((8,), (3,), TrialProfile({1: 1.0}, 0, 0.4, units_per_epoch=4), "cuda"), n_samples=20)
    found = sim.times.of(0, sim.prices.types[0], n_slots).seconds
    trials = sim.times._at_width(0, sim.prices.types[0], 1).seconds
    placement = Placement.shared(range(n_slots), n_partitions)
    for sample in range(20):
        rows = tuple((float(seconds) / 3 / n_partitions,) * n_partitions for seconds in trials[sample])
        real = simulate(Workload(rows, placement, "cyclic", 3), LongestRemaining(placement)).makespan_seconds
        assert abs(real - found[sample]) <= max(row[0] for row in rows)


def test_trials_that_keep_their_slots_wait_for_one_another() -> None:
    sim = simulator(halving_job((10,), (1,), TrialProfile({1: 1.0}, units_per_epoch=8), "cuda", is_hopping=False))
    times = [float(sim.times.of(0, sim.prices.types[0], n).seconds[0]) for n in (1, 3, 4, 5, 9, 10, 25)]
    assert times == [10, 4, 3, 2, 2, 1, 1]


def test_a_trial_leaves_slots_idle_that_would_slow_it_down() -> None:
    profile = TrialProfile({1: 8.0, 2: 5.0, 4: 6.0})
    assert [profile.width(n) for n in (1, 2, 3, 4, 9)] == [1, 2, 2, 2, 2]
    assert [profile.seconds(n) for n in (1, 2, 4, 9)] == pytest.approx([8, 5, 5, 5])
    sim = simulator(halving_job((2,), (1,), profile, "cuda"))
    assert float(sim.times.of(0, sim.prices.types[0], 8).busy_seconds[0]) == pytest.approx(2 * 2 * 5)


def test_widths_between_and_beyond_those_measured_follow_a_line_in_logarithms() -> None:
    known = {1: 8.0, 4: 2.0}
    assert TrialProfile(known).seconds(2) == pytest.approx(4)
    assert TrialProfile(known).seconds(16) == pytest.approx(2)
    assert TrialProfile(known, is_extrapolated=True).seconds(16) == pytest.approx(0.5)


def test_a_stage_of_several_architectures_ends_with_the_slowest() -> None:
    stage = Stage((Load("fast", 3, 2), Load("slow", 1, 2)))
    profiles = {("fast", "cuda"): TrialProfile({1: 1.0}), ("slow", "cuda"): TrialProfile({1: 10.0})}
    sim = simulator(Job((stage,), profiles))
    times = [float(sim.times.of(0, sim.prices.types[0], n).seconds[0]) for n in (1, 2, 4)]
    assert times[0] == pytest.approx(26, rel=0.3)
    assert times[1:] == pytest.approx([20, 20])


def test_trials_that_have_trained_to_the_end_are_tested() -> None:
    """Four trials of two epochs of 10 s, and a test of 3 s each, on two slots."""
    profile = {("net", "cuda"): TrialProfile({1: 10.0}, units_per_epoch=10, test_epochs=0.3)}
    seconds = [
        float(
            simulator(Job((Stage((Load("net", 4, 2, tested),)),), profile)).times.of(0, prices().types[0], 2).seconds[0]
        )
        for tested in (False, True)
    ]
    assert seconds == pytest.approx([40, 46])


def waiting(n_slots: int, **options: float) -> tuple[float, float]:
    """Seconds and paid slot seconds of four trials of two epochs of 10 s in five units, each waited for for 1 s."""
    profile = TrialProfile({1: 10.0, 2: 5.0}, units_per_epoch=5, turn_seconds=1.0, **options)  # type: ignore[arg-type]
    sim = simulator(Job((Stage((Load("net", 4, 2, is_tested=True),)),), {("net", "cuda"): profile}))
    time = sim.times.of(0, sim.prices.types[0], n_slots)
    return float(time.seconds[0]), float(time.busy_seconds[0])


def test_slots_wait_before_each_unit_of_training_validation_and_test_and_only_work_is_paid() -> None:
    assert waiting(4) == pytest.approx((20 + 2 * 2 * 5 + 5, 80))
    assert waiting(2) == pytest.approx((2 * 45, 80))
    assert waiting(8) == pytest.approx((10 + (2 * 2 + 1) * 3, 80))  # five units of two slots: three turns


def test_where_trials_follow_from_others_a_turn_takes_an_epoch_at_least() -> None:
    """Three trials at once for two turns, then one alone for four: on three slots as long as on ten."""
    profile = {("net", "cuda"): TrialProfile({1: 1.0})}
    stage = Stage((Load("net", 2, 2), Load("net", 1, 6)), turns=({3: 2, 1: 4},))
    sim = simulator(Job((stage,), profile))
    seconds = [float(sim.times.of(0, sim.prices.types[0], n).seconds[0]) for n in (1, 2, 3, 10)]
    assert seconds == pytest.approx([10, 7, 6, 6])


def test_epochs_of_a_trial_that_grows_take_longer_the_more_there_were() -> None:
    """The first epoch takes 10 s, the k-th 10 + 2 (k - 1); the test half of the last."""
    profile = {("trees", "cuda"): TrialProfile({1: 10.0}, growth=0.2, test_epochs=0.5, test_growth=0.2)}

    def seconds(*load: float) -> float:
        sim = simulator(Job((Stage((Load("trees", 1, *load),)),), profile))  # type: ignore[arg-type]
        return float(sim.times.of(0, sim.prices.types[0], 1).seconds[0])

    assert seconds(4) == pytest.approx(10 + 12 + 14 + 16)
    assert seconds(2, False, 2) == pytest.approx(14 + 16)
    assert seconds(2, True, 2) == pytest.approx(14 + 16 + 8)


def test_alternatives_are_as_likely_as_one_another() -> None:
    one, other = (Load("a", 4, 1.0),), (Load("a", 1, 8.0),)
    sim = simulator(Job((Stage(one, alternatives=(one, other)),), {("a", "cuda"): TrialProfile({1: 1.0})}), n_samples=6)
    assert sim.times.of(0, sim.prices.types[0], 4).seconds.tolist() == [1, 8, 1, 8, 1, 8]


def test_the_spread_of_epochs_evens_out_over_many_and_that_of_trials_does_not() -> None:
    def spread(epochs: int, **options: float) -> float:
        job = halving_job((1,), (epochs,), TrialProfile({1: 1.0}, **options), "cuda")  # type: ignore[arg-type]
        sim = simulator(job, n_samples=1000)
        seconds = sim.times.of(0, prices().types[0], 1).seconds
        return float(seconds.std() / seconds.mean())

    assert spread(1, spread=0.4) == pytest.approx(0.4, rel=0.15)
    assert spread(100, spread=0.4) == pytest.approx(0.04, rel=0.15)
    assert spread(100, trial_spread=0.4) == pytest.approx(0.4, rel=0.15)
    assert spread(100, uncertainty=0.4) == pytest.approx(0.4, rel=0.15)


def test_what_is_uncertain_of_all_trials_moves_them_together() -> None:
    job = halving_job((50,), (1,), TrialProfile({1: 1.0}, uncertainty=0.3), "cuda")
    sim = simulator(job, n_samples=50)
    trials = sim.times._at_width(0, sim.prices.types[0], 1).seconds
    assert np.allclose(trials, trials[:, :1])
