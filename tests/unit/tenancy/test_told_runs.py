"""Of many runs a decision tells of some, and of each run some decision tells soon."""

from __future__ import annotations

import pytest

from easeml_db.decisions.tenancy.recorded_standings import MAX_STANDINGS, ToldRuns
from tests.unit.tenancy.test_pool import Tables


def test_of_few_runs_all_are_told() -> None:
    assert ToldRuns().choose(dict.fromkeys(range(MAX_STANDINGS), 0.1), chosen=3) == set(range(MAX_STANDINGS))


def test_the_chosen_run_and_the_largest_gaps_are_always_told_and_the_others_by_turns() -> None:
    told, gaps = ToldRuns(), {run_id: run_id / 500 for run_id in range(500)}
    best, heard = set(range(500 - MAX_STANDINGS // 2, 500)), set()
    for decision in range(60):
        chosen = decision * 7 % 500
        kept = told.choose(gaps, chosen)
        assert kept == told.choose(gaps, chosen)
        assert len(kept) <= MAX_STANDINGS
        assert best | {chosen} <= kept
        told.told(kept)
        heard |= kept
    assert heard == set(gaps)


@pytest.mark.parametrize("policy", ["hybrid", "round_robin"])
def test_a_decision_among_many_runs_names_the_chosen_one(policy: str) -> None:
    tables = Tables(policy)
    for run_id in range(3 * MAX_STANDINGS):
        tables.put(run_id)
    for _ in range(2 * MAX_STANDINGS):
        opening = tables.pool.choose(0.0, n_slots=1)
        assert opening is not None
        assert len(opening.standings) == MAX_STANDINGS
        assert [each.run_id for each in opening.standings if each.is_chosen] == [opening.run_id]
        assert tables.step()
