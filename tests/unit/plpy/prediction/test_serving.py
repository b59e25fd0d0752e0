"""What bounds a session that predicts: its memory, and how many trials it keeps."""

from __future__ import annotations

from typing import Any

import pytest

from easeml_plpy.prediction.serving import (
    MEMORY_VARIABLE,
    RESTORED,
    SERVED_BYTES,
    Served,
    memory_limit_bytes,
    within_memory,
)
from easeml_plpy.server.errors import InvalidArgument, QuotaExceeded


def test_the_servers_environment_says_how_much_memory_a_prediction_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MEMORY_VARIABLE, raising=False)
    assert memory_limit_bytes() is None
    monkeypatch.setenv(MEMORY_VARIABLE, "3000000000")
    assert memory_limit_bytes() == 3_000_000_000
    for text in ("3GB", "-1", "²"):
        monkeypatch.setenv(MEMORY_VARIABLE, text)
        with pytest.raises(InvalidArgument, match="expected a number of bytes"):
            memory_limit_bytes()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("[enforce fail] ... can't allocate memory: you tried")])
def test_a_prediction_that_runs_out_of_memory_says_so(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, "3000000000")
    with pytest.raises(QuotaExceeded, match="a session may use 3000000000 bytes"), within_memory():
        raise error


def test_other_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match="shape"), within_memory():
        raise RuntimeError("shape")


@pytest.mark.parametrize(("n_bytes", "n_kept"), [(1, 8), (SERVED_BYTES // 3, 3), (2 * SERVED_BYTES, 1)])
def test_a_session_keeps_eight_trials_or_a_gigabyte(n_bytes: int, n_kept: int) -> None:
    store, nothing = RESTORED.make(), object()
    for number in range(20):
        store.put(number, Served(nothing, "standard", nothing, number, n_bytes))  # type: ignore[arg-type]
    made: list[Any] = []
    for number in range(20 - n_kept, 20):
        store.get(number, lambda: made.append(1))  # type: ignore[arg-type, return-value]
    assert not made
    store.get(19 - n_kept, lambda: made.append(1) or Served(nothing, "standard", nothing, 0, 1))  # type: ignore[arg-type, func-returns-value]
    assert made
