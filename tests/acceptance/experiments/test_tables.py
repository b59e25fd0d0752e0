"""Small real tables, with ours and a rival on the same rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.experiments.conftest import OutcomeOf


@pytest.mark.slow
def test_ours_and_the_rivals_are_scored_on_the_test_rows_of_the_dataset(outcome_of: OutcomeOf) -> None:
    outcome = outcome_of("tables")
    rows = {(row["table"], row["by"]): row for row in outcome.table("results")}
    assert set(rows) == {(table, by) for table in ("diabetes", "wine") for by in ("ours", "hgb")}
    for table in ("diabetes", "wine"):
        ours, theirs = rows[table, "ours"], rows[table, "hgb"]
        assert ours["n_scored_rows"] == theirs["n_scored_rows"]
        assert ours["split"] == theirs["split"]
        # Predictions for the rows that were found to be test rows score what the product measured on its test rows.
        assert float(ours["score"]) == pytest.approx(float(ours["test_metric"]), rel=1e-5)
        assert json.loads(ours["arguments"])["max_epochs"] == 2
    assert 40 < float(rows["diabetes", "hgb"]["score"]) < 77  # the standard deviation of the target
    scores = {row["table"]: row for row in outcome.table("scores")}
    assert scores["wine"]["best"] == "hgb"
    assert {row["table"] for row in outcome.table("curves")} == {"diabetes", "wine"}
    assert outcome.by_name()["runs whose predictions score as the product's test"]["holds"]
    outcome.check_files({"scores"})
