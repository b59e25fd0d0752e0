"""Longest remaining against its rule, written down as a walk through all idle trials."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.decisions.hopper.schedulers.contract import Candidate, Placement
from easeml_db.decisions.hopper.schedulers.longest_remaining import LongestRemaining

N_PARTITIONS = 3
SLOTS = (10, 11, 12, 13)
HOLDERS = (None, (frozenset({1}), frozenset({1, 2}), frozenset({2})))


def placement_of(slots, holders):
    return Placement(N_PARTITIONS, {slot: 1 + slot % 2 for slot in slots}, holders)


def load(idle, placement, partition):
    known = [each for each in idle.values() if partition in each.partition_numbers]
    seconds = [
        1.0 / len(c.partition_numbers) if c.remaining_seconds == float("inf") else
        c.remaining_seconds / len(c.partition_numbers) for c in known
    ]  # fmt: skip
    return sum(seconds) / max(len(placement.slots_for((partition,))), 1)


def expected(idle, arrival, placement, slot, cached):
    """The next trial and partition of one slot, or None."""
    held = [q for q in range(N_PARTITIONS) if placement.can_run(slot, q)]
    able = list(idle.values())
    if placement.holders is not None:
        loaded = sorted(held, key=lambda q: (-load(idle, placement, q), q))
        over = ([c for c in able if q in c.partition_numbers] for q in loaded)
        able = next((found for found in over if found), [])
    if not able:
        return None
    first = min((c.rank, c.lead, -c.remaining_seconds) for c in able)
    tied = [c for c in able if (c.rank, c.lead, -c.remaining_seconds) == first]
    if placement.holders is None:
        tied = [c for c in tied if cached.intersection(c.partition_numbers)] or tied
    turn, n = placement.slots.index(slot), len(placement.slots)
    chosen = min(tied, key=lambda c: ((c.trial_number - turn) % n, arrival.index(c.trial_id)))
    open_ = [q for q in chosen.partition_numbers if q in held]
    if placement.holders is not None:
        return chosen.trial_id, max(open_, key=lambda q: load(idle, placement, q))
    return chosen.trial_id, next((q for q in open_ if q in cached), open_[0])


candidates = st.builds(
    Candidate,
    trial_id=st.integers(1, 9),
    trial_number=st.integers(-2, 12),
    round_number=st.just(0),
    partition_numbers=st.lists(st.integers(0, N_PARTITIONS - 1), min_size=1, unique=True).map(tuple),
    remaining_seconds=st.sampled_from([0.0, 6.0, 12.0, float("inf")]),
    rank=st.integers(0, 1),
    lead=st.integers(0, 1),
    # Sums of these are exact, so the order in which loads add up does not show: an unknown time counts as a second.
).filter(lambda c: c.remaining_seconds < float("inf") or len(c.partition_numbers) < 3)
in_service = st.lists(st.sampled_from(SLOTS), min_size=1, unique=True)
moves = st.one_of(
    candidates,
    st.integers(1, 9),
    in_service,
    st.tuples(st.sampled_from(SLOTS), st.frozensets(st.integers(0, N_PARTITIONS - 1))),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(HOLDERS), st.lists(moves, max_size=60))
def test_every_choice_is_what_the_rule_says_whatever_came_before(holders, history):
    placement = placement_of(SLOTS, holders)
    scheduler, idle, arrival = LongestRemaining(placement), {}, []
    for move in history:
        match move:
            case Candidate():
                scheduler.put(move)
                idle[move.trial_id] = move
                arrival += [move.trial_id] if move.trial_id not in arrival else []
            case int():
                scheduler.take(move)
                idle.pop(move, None)
            case list():
                placement = placement_of(move, holders)
                assert scheduler.serve(placement)
            case (slot, cached) if slot in placement.segment_of:
                wanted = expected(idle, arrival, placement, slot, cached)
                found = scheduler.choose([slot], {slot: cached})
                assert [(each.trial_id, each.partition_number) for each in found] == ([wanted] if wanted else [])
                if wanted:
                    del idle[wanted[0]]
        assert len(scheduler) == len(idle)


def test_trials_that_come_and_go_leave_nothing_behind():
    scheduler = LongestRemaining(Placement.shared([1], 1))
    first = Candidate(1, 1, 0, (0,), 1e9)
    scheduler.put(first)
    for seconds in range(10_000):
        scheduler.put(replace(first, trial_id=2, trial_number=2, remaining_seconds=float(seconds)))
    assert len(scheduler._anywhere._first) < 1_000
    assert [each.trial_id for each in scheduler.choose([1])] == [1]


def test_slots_without_a_home_for_partitions_are_served_by_another_scheduler():
    scheduler = LongestRemaining(placement_of(SLOTS, None))
    assert not scheduler.serve(placement_of(SLOTS, HOLDERS[1]))
