"""What arms take, from the trials that have been timed."""

from __future__ import annotations

from easeml_db.decisions.hopper.work.arm_times import MAX_TIMED, ArmTimes
from easeml_db.simulated import new_run
from easeml_db.words.trial import Trial


def seconds_by_number(trial: Trial) -> float:
    return float(trial.trial_number)


def test_an_arm_takes_the_mean_of_its_timed_trials_for_all_of_them() -> None:
    run = new_run(1, n_trials=4, n_partitions=2, max_epochs=1, architectures=("linear", "mlp", "linear", "mlp"))
    numbers = {trial.trial_number: trial.trial_id for trial in run.trials}
    times = ArmTimes(run, {numbers[1]})
    first, second = run.arm_of[numbers[1]], run.arm_of[numbers[2]]
    assert times.seconds(seconds_by_number) == {first: 2.0}
    times.timed(numbers[3])
    times.timed(numbers[4])
    assert times.seconds(seconds_by_number) == {first: 4.0, second: 8.0}


def test_no_more_than_a_few_trials_of_an_arm_are_looked_at() -> None:
    run = new_run(1, n_trials=10_000, n_partitions=2, max_epochs=1)
    times, looked_at = ArmTimes(run, run.arm_of), list[Trial]()

    def seconds(trial: Trial) -> float:
        looked_at.append(trial)
        return 2.0

    (arm_id,) = set(run.arm_of.values())
    assert times.seconds(seconds) == {arm_id: 20_000.0}
    assert len(looked_at) == MAX_TIMED
