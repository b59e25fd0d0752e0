"""Attempts that failed: counted by trial, and the slot of the last one avoided."""

from easeml_db.decisions.hopper.work.attempts import Attempts


def test_attempts_count_by_trial_and_the_last_slot_is_avoided():
    attempts = Attempts()
    assert not attempts
    attempts.failed(7, 1)
    attempts.failed(7, 2)
    attempts.failed(8, 3)
    assert (attempts.count(7), attempts.count(8), attempts.count(9)) == (2, 1, 0)
    assert (attempts.avoided(7), attempts.avoided(8), attempts.avoided(9)) == (2, 3, None)


def test_another_slot_is_one_only_and_the_avoided_one_where_there_is_no_other():
    attempts = Attempts()
    assert attempts.another_of(7, [1, 2, 3]) == (1,)
    attempts.failed(7, 1)
    assert attempts.another_of(7, [1, 2, 3]) == (2,)
    assert attempts.another_of(7, [1]) == (1,)
    assert attempts.another_of(7, []) == ()


def test_what_is_forgotten_counts_from_the_beginning_and_others_stay():
    attempts = Attempts()
    attempts.failed(7, 1)
    attempts.failed(8, 1)
    for trial_id in attempts:
        if trial_id == 7:
            attempts.forget(trial_id)
    assert (attempts.count(7), attempts.avoided(7), list(attempts)) == (0, None, [8])
    attempts.forget(8)
    attempts.forget(8)
    assert not attempts
