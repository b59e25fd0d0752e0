"""Procedures on model hopping and on Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.experiments.conftest import OutcomeOf


@pytest.mark.slow
def test_procedures_take_the_same_decisions_on_both_sides(outcome_of: OutcomeOf) -> None:
    outcome = outcome_of("procedures")
    found = outcome.by_name()
    assert found["trials with the same config and number of epochs"]["holds"]
    assert found["trials with the same bytes"]["holds"]
    assert found["storage, MOP / Ray"]["holds"]
    assert found["Hyperband, MOP - Ray, best validation error"]["value"] == 0.0
    rows = outcome.table("searches")
    sides = {"hyperband": "ray", "tpe": "tasks", "asha": "tasks"}
    assert {(row["procedure"], row["method"]) for row in rows} == {
        (procedure, method) for procedure, other in sides.items() for method in ("mop", other)
    }
    assert all(float(row["seconds_with_start"]) > float(row["makespan_seconds"]) > 0 for row in rows)
    # How many trials of ASHA fit into its second is up to the machine.
    assert all(int(row["n_trials"]) > 0 for row in rows if row["procedure"] != "asha")
    assert {row["kind"] for row in outcome.table("units")} == {"train", "validate", "test"}
    plots = {"makespans", "best_errors", "curves_by_time", "curves_by_epoch", "rungs"}
    outcome.check_files(plots)
