"""What easeml coordinator says of a server that is not there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from easeml_db.cli import main
from easeml_db.local import service
from easeml_db.local.journal import Journal


def test_what_is_no_connection_string_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["coordinator", "--dsn", "nonsense"])
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert "--dsn: expected a connection string" in told
    assert "Traceback" not in told


def test_a_server_that_is_away_is_told_of_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    n_tries = 0

    async def count(stopping: asyncio.Event) -> None:
        nonlocal n_tries
        n_tries += 1
        if n_tries == 5:
            stopping.set()

    monkeypatch.setattr(service, "_pause", count)
    asyncio.run(service.serve(f"host={tmp_path} dbname=none", Journal()))
    (line,) = capsys.readouterr().err.splitlines()
    assert n_tries == 5
    assert "cannot be reached" in line
