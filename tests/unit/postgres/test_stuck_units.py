"""What a silence of a unit calls for."""

import pytest

from easeml_db.postgres.sessions.stuck_units import escalation


@pytest.mark.parametrize(
    ("silent", "lease", "action"),
    [
        (59.9, 60.0, None),
        (60.0, 60.0, "cancel"),
        (64.9, 60.0, "cancel"),
        (65.0, 60.0, "terminate"),
        (70.0, 60.0, "give up"),
        (3.9, 2.0, "cancel"),
        (4.0, 2.0, "terminate"),
        (6.0, 2.0, "give up"),
    ],
)
def test_a_silent_unit_is_cancelled_then_terminated_then_given_up(silent, lease, action):
    assert escalation(silent, lease) == action
