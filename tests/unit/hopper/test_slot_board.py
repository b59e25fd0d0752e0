"""The board of slots, against a board that is looked at as a whole every time."""

from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import TrainingUnit


def unit(trial_id, partition=0, run_id=1):
    return TrainingUnit(run_id, trial_id, trial_id, 0, "train", 1, 0, partition)


def board_of(n):
    board = SlotBoard()
    board.keep([Slot(i, f"slot-{i}", 1) for i in range(1, n + 1)])
    for slot_id in range(1, n + 1):
        board.ready(slot_id)
    return board


def test_a_slot_is_idle_once_its_session_is_open_and_busy_until_its_unit_is_answered():
    board = SlotBoard()
    board.keep([Slot(1, "slot-1", 1), Slot(2, "slot-2", 1)])
    assert (list(board.idle()), board.in_service(), board.n_active(), board.n_working()) == ([], [], 2, 2)
    board.ready(2)
    board.ready(1)
    assert list(board.idle()) == [1, 2]
    assert list(board.idle(without={1})) == [2]
    board.begin([unit(7, 3)], [1])
    assert (list(board.idle()), list(board.slots_of(1)), board.units_of(1)) == ([2], [1], {7: 1})
    assert (set(board.cached(1)[1]), set(board.cached(1)[2]), set(board.cached(9)[1])) == ({3}, set(), set())
    assert board.answered(1) == [unit(7, 3)]
    assert (list(board.idle()), list(board.slots_of(1)), list(board.busy_runs())) == ([1, 2], [], [])


def test_a_run_that_is_over_leaves_nothing_behind():
    board = board_of(2)
    board.begin([unit(7, 3)], [1])
    board.begin([unit(8, 4, run_id=2)], [2])
    board.forget(1)
    assert [set(board.cached(run_id)[slot_id]) for run_id, slot_id in ((1, 1), (2, 2))] == [set(), {4}]
    assert board.answered(1) == [unit(7, 3)]
    assert [run_id for run_id, _ in board.busy_runs()] == [2]


def test_a_gang_is_answered_by_its_first_slot_and_frees_all():
    board = board_of(3)
    gang = [unit(7, 0), unit(7, 1)]
    board.begin(gang, [3, 1])
    assert (list(board.gang_of(3)), list(board.idle())) == ([3, 1], [2])
    assert board.answered(3) == gang
    assert (list(board.gang_of(3)), list(board.idle())) == ([3], [1, 2, 3])


def test_a_slot_without_session_gets_nothing_and_is_waited_for_unless_it_cannot_be_opened():
    board = board_of(2)
    board.begin([unit(7)], [1])
    board.gone(1)
    board.answered(1)
    assert (list(board.idle()), board.working(), board.n_working()) == ([2], {1, 2}, 2)
    board.waiting(1)
    assert (board.working(), board.n_working()) == ({2}, 1)
    board.ready(1)
    assert (list(board.idle()), board.n_working(), set(board.cached(1)[1])) == ([1, 2], 2, set())


def test_a_draining_slot_keeps_its_session_until_its_unit_is_answered_and_gets_no_other():
    board = board_of(2)
    board.begin([unit(7)], [1])
    draining = [Slot(1, "slot-1", 1, status="draining"), Slot(2, "slot-2", 1)]
    assert [slot.slot_id for slot in board.keep(draining)] == [1, 2]
    assert (1 in board.active(), board.n_active()) == (False, 1)
    board.answered(1)
    assert list(board.idle()) == [2]
    assert [slot.slot_id for slot in board.keep(draining)] == [2]


def test_word_of_a_slot_that_was_taken_away_meanwhile_comes_too_late():
    board = board_of(1)
    board.ready(2)
    board.keep([Slot(1, "slot-1", 1), Slot(2, "slot-2", 1)])
    assert list(board.idle()) == [1]


acts = st.tuples(st.sampled_from(["ready", "gone", "begin", "answered", "shrink", "grow"]), st.integers(1, 4))


@given(st.lists(acts, max_size=40))
def test_idle_slots_are_those_that_are_active_in_session_and_without_a_unit(steps):
    board, active, sessions, busy = SlotBoard(), set(), set(), set()
    for number, (act, slot_id) in enumerate(steps):
        if act == "begin" and slot_id in board.idle():
            board.begin([unit(number)], [slot_id])
            busy.add(slot_id)
        elif act == "answered" and slot_id in busy:
            board.answered(slot_id)
            busy.discard(slot_id)
        elif act == "ready" and slot_id in active:
            board.ready(slot_id)
            sessions.add(slot_id)
        elif act == "gone":
            board.gone(slot_id)
            sessions.discard(slot_id)
        elif act in ("shrink", "grow"):
            active = set(range(1, slot_id + 1))
            board.keep([Slot(i, f"slot-{i}", 1) for i in sorted(active)])
            sessions &= active
        assert list(board.idle()) == sorted((active & sessions) - busy)
        assert {slot.slot_id for slot in board.in_service()} == active & sessions
        assert set(board.slots_of(1)) == busy
