"""Arms of a run: their age and their end, counted as units begin and end, against a look at all trials."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.hopper.work.open_arms import OpenArms
from easeml_db.simulated import new_run

NAMES = ("a", "b", "c")
RUN = new_run(1, n_trials=6, n_partitions=2, max_epochs=1, architectures=NAMES)
ARMS = [arm.arm_id for arm in RUN.arms]


def trials_of(arm_id):
    return [trial_id for trial_id, arm in RUN.arm_of.items() if arm == arm_id]


def test_an_arm_ends_once_its_trials_are_over_and_answered():
    arms = OpenArms(RUN)
    assert arms.renew(RUN, ()) == {}
    assert (arms.is_fresh(), arms.n_to_come(), arms.close_ended()) == (True, 6, [])
    first, second = arms.open(ARMS[1], 5)
    assert (arms.age(), arms.n_to_come(), arms.close_ended()) == (5, 4, [])
    arms.unit_begun(first)
    arms.trial_over(first)
    arms.trial_over(second)
    assert arms.close_ended() == []
    arms.unit_over(first)
    assert arms.close_ended() == [ARMS[1]]
    assert arms.close_ended() == []
    arms.not_closed(ARMS[1])
    assert arms.close_ended() == [ARMS[1]]
    assert not arms.is_complete()


def test_an_arm_whose_procedure_goes_on_is_not_over():
    run = replace(RUN, search=object())
    arms = OpenArms(run)
    arms.renew(run, ())
    for trial_id in arms.open(ARMS[0], 1):
        arms.trial_over(trial_id)
    assert arms.close_ended() == []
    arms.end_search(ARMS[0])
    assert arms.close_ended() == [ARMS[0]]
    arms.renew(run, ())
    assert arms.close_ended() == []  # it has trials again, as the tables say


steps = st.lists(st.tuples(st.sampled_from(["open", "begin", "end", "over"]), st.integers(0, 5)), max_size=60)


@given(steps)
def test_ages_and_ends_are_those_of_a_look_at_all_trials(acts):
    arms, opening, trials, busy, closed = OpenArms(RUN), {}, set(), set(), set()
    arms.renew(RUN, ())
    ids = list(RUN.arm_of)
    for number, (act, k) in enumerate(acts, start=1):
        if act == "open" and ARMS[k % 3] not in opening:
            opening[ARMS[k % 3]] = number
            trials |= set(arms.open(ARMS[k % 3], number))
        elif act == "begin" and ids[k] in trials - busy:
            arms.unit_begun(ids[k])
            busy.add(ids[k])
        elif act == "end" and ids[k] in busy:
            arms.unit_over(ids[k])
            busy.discard(ids[k])
        elif act == "over" and ids[k] in trials:
            arms.trial_over(ids[k])
            trials.discard(ids[k])
        live = {RUN.arm_of[trial_id] for trial_id in trials | busy}
        over = {arm_id for arm_id in opening if arm_id not in live | closed}
        assert set(arms.close_ended()) == over
        closed |= over
        assert arms.age() == min((opening[RUN.arm_of[trial_id]] for trial_id in trials), default=0)
