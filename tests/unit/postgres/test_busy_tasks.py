"""A task that somebody holds is looked at again later, and not in every round."""

from __future__ import annotations

from easeml_db.postgres.stores.task_store import due_now


def test_tasks_that_are_held_wait_for_their_time_whether_they_are_listed_or_not() -> None:
    held = {2: (9.0, 1.0), 3: (10.0, 1.0), 4: (11.0, 2.0), 5: (99.0, 8.0)}
    assert due_now([1, 3, 4], held, 10.0) == [1, 3, 2]
    assert due_now([], {}, 10.0) == []
