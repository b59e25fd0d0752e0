"""A further allocation is a file and a line: a toy serves a run that SQL asked for, on a real server.

Whoever adds one installs the package again. Here the file and the line are executed in the two processes that use the
registry: the session that asks for the run, and the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests import toy_allocation

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

PRELUDE = Path(toy_allocation.__file__).read_text(encoding="utf-8") + toy_allocation.REGISTER
SOURCE = """
CREATE TABLE dots AS SELECT i AS id, sin(i * 12.9898) AS x, cos(i * 78.233) AS y, i % 2 AS kind
FROM generate_series(1, 200) i;
SELECT easeml.create_dataset('dots', 'dots', '{x,y}', 'kind', n_partitions => 2);
"""
SELECT_MODELS = """
SELECT easeml.select_models('dots', '{linear}', procedure => 'grid', max_epochs => 1, allocation => %s,
    search_space => '{"learning_rate": [0.001, 0.01, 0.1]}')
"""


def test_a_further_allocation_serves_a_run_of_sql(
    database: Session, coordinator: Callable[..., AbstractContextManager[Any]]
) -> None:
    database.execute(SOURCE)
    with pytest.raises(psycopg.Error, match="no allocation 'one_after_another'"):
        database.value(SELECT_MODELS, toy_allocation.NAME)
    database.execute(f"DO LANGUAGE plpython3u $toy$\n{PRELUDE}\n$toy$".encode())
    run_id = database.value(SELECT_MODELS, toy_allocation.NAME)
    with coordinator(database, prelude=PRELUDE):
        database.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.runs WHERE run_id = %s", run_id)
    assert database.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
    units = database.rows(
        "SELECT trial_number, slot_id FROM easeml.training_timeline WHERE run_id = %s ORDER BY started_at", run_id
    )
    assert [unit["trial_number"] for unit in units] == [number for number in (3, 2, 1) for _ in range(6)]
    assert {unit["slot_id"] for unit in units} == {2}, "the toy holds slot 1 back"
