"""A further engine is a folder and a line: segments of a toy are added and looked at, and train, on real servers.

Whoever adds one installs the package again. Here the files and the line are executed in the processes that use the
registry: the session that adds the segment, the coordinator, and the command line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests import toy_engine
from tests.fixtures.databases import temporary_database
from tests.fixtures.sessions import Session
from tests.nodes import NODE_ROLE, service_file

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

FOLDER = Path(toy_engine.__file__).parent
LOAD = """
import sys, types
module = sys.modules["toy_engine.{name}"] = types.ModuleType("toy_engine.{name}")
exec({text!r}, module.__dict__)
"""
DOTS = "CREATE TABLE dots AS SELECT i AS id, sin(i * 12.9898) AS x, i % 2 AS kind FROM generate_series(1, 200) i"
BOUND = "SELECT easeml.create_dataset('dots', 'dots', '{x}', 'kind', n_partitions => 2, placement => 'bound')"
SELECT_MODELS = """
SELECT easeml.select_models('dots', '{linear}', procedure => 'grid', max_epochs => 1,
    search_space => '{"learning_rate": [0.1]}')
"""
ADD = "SELECT easeml.add_segment('bear', service => 'pg_bear', engine => 'toy', content => %s)"


def prelude(*names: str) -> str:
    """What executes files of the folder, and the line."""
    return "".join(LOAD.format(name=name, text=(FOLDER / f"{name}.py").read_text()) for name in names) + (
        toy_engine.REGISTER
    )


def done(*arguments: str) -> str:
    """Return what a command prints, which succeeds."""
    command = [sys.executable, "-c", f"{prelude('place', 'engine')}\nimport easeml_db.__main__", *arguments]
    # Not in the source tree: `python -c` would import from there.
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_further_engine_trains(
    database: Session,
    private_server: Embedded,
    coordinator: Callable[..., AbstractContextManager[Any]],
    tmp_path: Path,
) -> None:
    with pytest.raises(psycopg.Error, match="engine: expected postgres, citus or greenplum, got 'toy'"):
        database.execute(ADD, [0])
    with temporary_database(private_server) as dsn, Session.open(dsn) as bear:
        services = {"pg_bear": make_conninfo(dsn, user=NODE_ROLE), "pg_bear_admin": dsn}
        with service_file(tmp_path, services):
            bear.as_role(NODE_ROLE).close()
            told = done("segment", "install", "pg_bear_admin", "--engine", "toy", "--grant", NODE_ROLE)
            assert "--engine toy --content 0" in told
            database.execute(f"DO LANGUAGE plpython3u $toy$\n{prelude('place')}\n$toy$".encode())
            with pytest.raises(psycopg.Error, match="content: expected an even number of a toy, got 1"):
                database.execute(ADD, [1])
            database.execute(ADD, [0])
            assert '"packages"' in done("segment", "check", "bear", "--dsn", database.dsn)
            database.execute("SELECT easeml.remove_slot(slot_id, force => true) FROM easeml.slots")
            database.execute("SELECT easeml.add_slots(1, 'bear')")
            database.execute(DOTS)
            database.execute(BOUND)
            with coordinator(database, prelude=prelude("place", "engine")):
                run_id = database.value(SELECT_MODELS)
                database.execute("CALL easeml.wait(%s)", [run_id])
            assert database.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
            calls = bear.rows("SELECT procedure FROM toy_calls")
    procedures = [call["procedure"] for call in calls]
    assert procedures == ["pilot_unit", *["train_unit"] * 2, *["evaluate_unit"] * 4]
