"""When a run of a task begins by itself."""

import pytest

from easeml_db.decisions.templates.starting import run_reason


@pytest.mark.parametrize(
    ("n_pending", "minutes", "is_wanted", "after_examples", "after_minutes", "reason"),
    [
        (0, 0.0, False, 100, 5.0, None),
        (99, 4.9, False, 100, 5.0, None),
        (100, 0.0, False, 100, 5.0, "examples"),
        (1, 5.0, False, 100, 5.0, "minutes"),
        (1, 5.0, False, 100, None, None),
        (1000, 50.0, False, None, None, None),
        (0, 0.0, True, None, None, "by hand"),
        (0, 60.0, False, 100, 5.0, None),
    ],
)
def test_the_rule_of_the_owner_decides(n_pending, minutes, is_wanted, after_examples, after_minutes, reason):
    assert run_reason(n_pending, minutes, True, is_wanted, 0, after_examples, after_minutes) == reason


def test_a_new_architecture_is_tried_where_runs_begin_by_themselves_and_one_has_ended():
    assert run_reason(0, 0.0, True, False, 1, 100, None) == "new architecture"
    assert run_reason(0, 0.0, False, False, 1, 100, None) is None
    assert run_reason(0, 0.0, True, False, 1, None, None) is None
