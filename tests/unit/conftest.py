"""What every unit test starts from."""

from __future__ import annotations

import pytest

from easeml_plpy.server.session import Session


@pytest.fixture(autouse=True)
def no_session_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of a server has one session and keeps it; here each test has its own, or none."""
    monkeypatch.setattr(Session, "_current", None)
