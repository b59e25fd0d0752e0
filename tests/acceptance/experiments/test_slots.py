"""Slots that fail, and more slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.experiments.conftest import OutcomeOf


@pytest.mark.slow
def test_slots_that_fail_and_come_back_lose_and_repeat_nothing(outcome_of: OutcomeOf) -> None:
    outcome = outcome_of("fault-tolerance")
    measures = outcome.measures
    assert [each for each in measures if each["holds"] is False] == []
    found = {each["name"]: each["value"] for each in measures if each["setting"].startswith("real")}
    assert [found[name] for name in ("units lost", "units recorded twice", "trials failed")] == [0.0] * 3
    rows = outcome.table("epochs")
    assert {"before", "after"} < {row["phase"] for row in rows if row["setting"] == "simulated"}
    outcome.check_files({"epochs"})


@pytest.mark.slow
def test_more_slots_train_the_same_work_sooner(outcome_of: OutcomeOf) -> None:
    outcome = outcome_of("speedup")
    measures = outcome.measures
    efficiencies = [each for each in measures if each["name"].startswith("speed-up / slots")]
    assert len(efficiencies) == 5
    assert all(each["holds"] for each in efficiencies)
    rows = outcome.table("speedup")
    assert {row["setting"] for row in rows} == {"real", "simulated"}
    outcome.check_files({"speedup"})
