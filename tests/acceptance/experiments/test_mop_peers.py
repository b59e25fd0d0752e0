"""Model hopping beside its peers, trained by all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.experiments.conftest import OutcomeOf


@pytest.mark.slow
def test_model_hopping_and_its_peers_train_the_same(outcome_of: OutcomeOf) -> None:
    outcome = outcome_of("mop-peers")
    found = outcome.by_name()
    assert found["trials with the same bytes"]["holds"]
    assert found["storage of a worker, MOP / task parallel"]["holds"]
    assert found["ray-tune - sequential SGD, best validation error"]["value"] == 0.0
    rows = outcome.table("methods")
    methods = {row["method"] for row in rows}
    assert methods == {"mop", "ray-tune", "tasks", "sequential", "data-parallel", "model-averaging", "replay"}
    assert all(float(row["seconds"]) > float(row["training_seconds"]) > 0 for row in rows)
    assert all(int(row["peak_memory_bytes"]) > 2**20 for row in rows)
    errors = outcome.table("errors")
    assert len(errors) == len(rows) * 4 * 2  # trials, epochs
    assert min(float(row["validation_error"]) for row in errors) < 0.2  # chance: 0.9
    outcome.check_files({"times", "learning_curves"})
