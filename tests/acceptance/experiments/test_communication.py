"""Bytes that each way of training sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.experiments.conftest import OutcomeOf


@pytest.mark.slow
def test_counted_bytes_are_those_of_the_formulas(outcome_of: OutcomeOf) -> None:
    outcome = outcome_of("communication")
    measures = outcome.measures
    assert [each for each in measures if each["holds"] is False] == []
    assert sum(each["holds"] is True for each in measures) == 5
    counts = outcome.table("counts")
    assert {row["method"] for row in counts if row["counted_bytes"]} == {
        "model hopping", "model hopping, shared store", "task parallel", "model averaging", "data parallel, all-reduce",
    }  # fmt: skip
    outcome.check_files({"bytes"})
