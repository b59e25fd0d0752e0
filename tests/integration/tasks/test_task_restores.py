"""Examples of tasks lie in tables of their own: a dump brings them back with their rules, views, rights and numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

NUMBERS = "{input: {[Tensor[2]],[]}, output: {[Tensor[2]],[]}}"
WAYS = {
    "four jobs": ("-Fd", ["pg_restore", "-e", "-j4", "-d", "{to}", "{dump}"]),
    "plain": ("-Fp", ["psql", "{to}", "-q", "-v", "ON_ERROR_STOP=1", "-f", "{dump}"]),
}
EXAMPLES = "SELECT to_jsonb(e) FROM shed.odd_refine e ORDER BY example_id"


@pytest.fixture(scope="module")
def fay(module_database: Session) -> Session:
    """A tenant with a task, an example of which is switched off."""
    module_database.as_role("mallory", "easeml_tenant")
    fay = module_database.as_role("fay", "easeml_tenant")
    module_database.execute("CREATE SCHEMA shed AUTHORIZATION fay")
    fay.execute("SELECT easeml.create_task('odd', %s, 'shed', classes => '{no,yes}')", [NUMBERS])
    for number, output in enumerate(("no", "yes", "no")):
        fay.execute("SELECT easeml.feed('odd', ARRAY[%s, 0.5]::real[], %s)", [number, output])
    fay.execute("UPDATE shed.odd_refine SET is_on = false WHERE example_id = 2")
    return fay


@pytest.mark.parametrize("way", WAYS)
def test_a_task_goes_on_where_it_was(way: str, fay: Session, dsn: str, tmp_path: Path) -> None:
    form, restoring = WAYS[way]
    dump = str(tmp_path / "dump")
    subprocess.run(["pg_dump", make_conninfo(fay.dsn, user="postgres"), form, f"--file={dump}"], check=True)
    command = [part.format(to=dsn, dump=dump) for part in restoring]
    subprocess.run(command, check=True, capture_output=True)
    with type(fay).open(dsn) as restored:
        assert "all foreign keys hold" in restored.value("SELECT easeml.finish_restore()")
        again = restored.as_role("fay")
        assert len(fay.values(EXAMPLES)) == 3
        assert again.values(EXAMPLES) == fay.values(EXAMPLES)
        again.execute("SELECT easeml.feed('odd', '{7,8}'::real[], 'yes')")
        assert again.value("SELECT max(example_id) FROM shed.odd_refine") == 4
        for values in ("('{1,2,3}', 'no')", "('{1,2}', 'perhaps')"):
            with pytest.raises(psycopg.DatabaseError, match="expected") as refused:
                again.execute(f"INSERT INTO shed.odd (input, output) VALUES {values}")
            assert refused.value.sqlstate == "ML009"
        (place,) = restored.values("SELECT examples FROM easeml.tasks")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            restored.as_role("mallory").execute(f"SELECT FROM {place}")
        again.execute("SELECT easeml.drop_task('odd')")
        assert restored.value("SELECT to_regclass(%s) IS NULL", place)
