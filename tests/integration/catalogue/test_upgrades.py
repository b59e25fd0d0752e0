"""An extension of a former version becomes what a fresh installation is, object by object, and keeps its rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db import __version__
from easeml_db.errors import VersionMismatch
from easeml_db.local.preparation import prepare_database
from easeml_db.postgres.extension_files import sql_folder
from easeml_db.postgres.extension_scripts import upgrades
from easeml_db.postgres.versions import check_version

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from stored_rows.catalogue_rows import TINY, fill

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

    Coordinator = Callable[[Session], AbstractContextManager[Any]]

RELEASED = sorted(path.stem.removeprefix("easeml--") for path in (sql_folder() / "upgrades").glob("easeml--*.sql"))
# Columns of a table may stand in another order: a later version appends them. Those of a view never do.
OBJECTS = """
SELECT 'column ' || a.attrelid::regclass || '.' || a.attname AS object,
    concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated, a.attstorage,
        CASE c.relkind WHEN 'v' THEN a.attnum END, pg_get_expr(d.adbin, d.adrelid),
        (SELECT string_agg(x::text, ' ' ORDER BY x::text) FROM unnest(a.attacl) x),
        col_description(c.oid, a.attnum)) AS what
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'relation ' || c.oid::regclass, concat_ws(' ', c.relkind, c.relowner::regrole, c.relrowsecurity, c.reloptions,
    (SELECT string_agg(x::text, ' ' ORDER BY x::text) FROM unnest(c.relacl) x), obj_description(c.oid, 'pg_class'),
    CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) WHEN 'i' THEN pg_get_indexdef(c.oid) END,
    (SELECT t.reloptions FROM pg_class t WHERE t.oid = c.reltoastrelid))
FROM pg_class c WHERE c.relnamespace = 'easeml'::regnamespace
UNION ALL
SELECT 'constraint ' || c.conrelid::regclass || ' ' || c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint c
WHERE c.connamespace = 'easeml'::regnamespace
UNION ALL
SELECT 'trigger ' || t.tgrelid::regclass || ' ' || t.tgname, t.tgenabled::text || ' ' || pg_get_triggerdef(t.oid)
FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = 'easeml'::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT 'policy ' || p.polrelid::regclass || ' ' || p.polname, concat_ws(' ', p.polcmd, p.polpermissive,
    (SELECT string_agg(r::regrole::text, ' ' ORDER BY r::regrole::text) FROM unnest(p.polroles) r),
    pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))
FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid WHERE c.relnamespace = 'easeml'::regnamespace
UNION ALL
SELECT 'routine ' || p.oid::regprocedure, concat_ws(' ', p.proowner::regrole, pg_get_functiondef(p.oid),
    (SELECT string_agg(x::text, ' ' ORDER BY x::text) FROM unnest(p.proacl) x), obj_description(p.oid, 'pg_proc'))
FROM pg_proc p WHERE p.pronamespace = 'easeml'::regnamespace
UNION ALL
SELECT 'dumped ' || c.relation::regclass, c.condition
FROM pg_extension e, unnest(e.extconfig, e.extcondition) c(relation, condition) WHERE e.extname = 'easeml'
UNION ALL
SELECT 'member ' || pg_describe_object(d.classid, d.objid, d.objsubid), '' FROM pg_depend d
JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
WHERE e.extname = 'easeml' AND d.deptype = 'e' AND d.classid <> 'pg_type'::regclass
"""


@pytest.fixture
def former(request: pytest.FixtureRequest, database: Session, dsn: str) -> Iterator[Session]:
    """A database that has the released version of the parameter."""
    with type(database).open(dsn) as session:
        session.execute(f"CREATE EXTENSION easeml VERSION '{request.param}' CASCADE")
        yield session


def objects(session: Session) -> dict[str, str]:
    """What the extension consists of, by name."""
    return {row["object"]: row["what"] for row in session.rows(OBJECTS)}


def test_there_is_a_way_from_every_released_version() -> None:
    assert [f"{version}--{__version__}" for version in RELEASED] == upgrades(sql_folder())


@pytest.mark.parametrize("former", RELEASED, indirect=True)
def test_an_upgraded_extension_is_a_fresh_one(former: Session, database: Session) -> None:
    assert objects(former) != objects(database)
    former.execute("ALTER EXTENSION easeml UPDATE")
    upgraded, fresh = objects(former), objects(database)
    differing = {name for name in upgraded | fresh if upgraded.get(name) != fresh.get(name)}
    told = [f"{name}\n  upgraded: {upgraded.get(name)}\n  fresh:    {fresh.get(name)}" for name in sorted(differing)]
    assert not told, "say it in sql/upgrades:\n" + "\n".join(told)
    assert former.value("SELECT easeml.version()") == __version__


def rows_of(session: Session) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, but for the lease, which an upgrade takes away."""
    tables = "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'r'"
    names = set(session.values(tables)) - {"coordinator_lease"}
    return {name: session.values(f"SELECT to_jsonb(t) FROM easeml.{name} t ORDER BY t::text") for name in names}


METRICS = {"accuracy", "balanced_accuracy", "macro_f1", "log_loss", "rmse", "mae", "r2"}
GONE = {"unit_id", *METRICS}
"""Columns of former versions that this one does without."""


@pytest.mark.parametrize("former", RELEASED, indirect=True)
def test_an_upgrade_keeps_all_rows_and_its_second_run_changes_nothing(former: Session) -> None:
    fill(former, TINY)
    before = rows_of(former)
    former.execute("ALTER EXTENSION easeml UPDATE")
    after = rows_of(former)
    for table, rows in before.items():
        columns = [name for name in rows[0] if name not in GONE] if rows else []
        kept, old = ([{name: row[name] for name in columns} for row in each] for each in (after[table], rows))
        assert sorted(map(str, kept)) == sorted(map(str, old)), table
    measured = "trial_id", "epoch", "split"
    values = {(*(row[name] for name in measured), row["metric"], row["value"]) for row in after["metric_values"]}
    assert len(values) == 4 * len(before["epoch_metrics"])
    assert values == {
        (*(row[name] for name in measured), metric, row[metric])
        for row in before["epoch_metrics"] for metric in METRICS if row[metric] is not None
    }  # fmt: skip
    for view in ("trial_metrics", "learning_curves"):
        metrics = f"SELECT DISTINCT round((accuracy - macro_f1)::numeric, 6)::float8 AS d, log_loss FROM easeml.{view}"
        assert former.rows(metrics) == [{"d": 0.02, "log_loss": 0.3}]
    counted = "SELECT round(sum(slot_seconds)::numeric, 3) FROM easeml.trials"
    used = """SELECT round(extract(epoch FROM sum(finished_at - started_at)), 3) FROM (
        SELECT started_at, finished_at FROM easeml.training_units
        UNION ALL SELECT started_at, finished_at FROM easeml.evaluations) u"""
    assert former.value(counted) == former.value(used) > 0
    recorded = "SELECT bool_and(record_bytes IS NOT DISTINCT FROM CASE WHEN is_open THEN NULL ELSE"
    assert former.value(f"{recorded} easeml.record_bytes(run_id) END) FROM easeml.runs"), "of old runs, too"
    curves = "SELECT DISTINCT round((training_loss * epoch)::numeric, 6), training_seconds FROM easeml.learning_curves"
    assert former.rows(curves) == [{"round": 1, "training_seconds": pytest.approx(0.7)}]
    trained = "SELECT DISTINCT round((training_seconds / 0.7 / max_epochs)::numeric, 6) FROM easeml.leaderboard"
    assert former.values(f"{trained} WHERE status = 'finished'") == [1]
    former.execute(f"UPDATE pg_extension SET extversion = '{RELEASED[0]}' WHERE extname = 'easeml'")
    former.execute("ALTER EXTENSION easeml UPDATE")
    assert rows_of(former) == after


STATES = """SELECT trial_number, epoch, position, partition_number, state_sha256
    FROM easeml.training_units JOIN easeml.trials USING (trial_id) ORDER BY 1, 2, 3"""


def start(session: Session) -> None:
    session.execute("SELECT easeml.set_slots(1)")
    session.execute("CREATE TABLE points AS SELECT i % 9 + sin(i) AS x, i % 3 AS y FROM generate_series(1, 300) i")
    session.execute("SELECT easeml.create_dataset('points', 'points', '{x}', 'y', n_partitions => 4)")
    session.execute(
        "SELECT easeml.select_models('points', '{linear}', procedure => 'random', n_configs => 4, max_epochs => 8,"
        " seed => 3)"
    )


def finished(session: Session) -> list[dict[str, Any]]:
    session.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.runs")
    assert session.value("SELECT status FROM easeml.runs") == "finished", session.rows("SELECT * FROM easeml.events")
    return session.rows(STATES)


def test_a_run_goes_on_to_the_same_bytes_when_the_server_is_upgraded_under_its_coordinator(
    database: Session, module_database: Session, coordinator: Coordinator
) -> None:
    start(module_database)
    with coordinator(module_database):
        undisturbed = finished(module_database)
    start(database)
    with coordinator(database):
        database.wait_until("SELECT count(*) > 20 FROM easeml.training_units")
        lease = database.value("SELECT lease_number FROM easeml.coordinator_lease")
        with database.transaction():
            database.execute("LOCK TABLE easeml.runs, easeml.trials")
            time.sleep(2)  # longer than a statement of the coordinator waits, as updates of large tables are
            database.execute(f"UPDATE pg_extension SET extversion = '{RELEASED[-1]}' WHERE extname = 'easeml'")
            database.execute("ALTER EXTENSION easeml UPDATE")
        assert finished(database) == undisturbed
        assert database.value("SELECT lease_number FROM easeml.coordinator_lease") > lease + 1


def test_a_package_older_or_newer_than_the_extension_is_refused_with_the_way_out(database: Session) -> None:
    for version, says in (
        ("99.0.0", r"has extension easeml 99\.0\.0, this package is"),
        ("0.0.1", r"has extension easeml 0\.0\.1, from which no way leads to"),
    ):
        database.execute("UPDATE pg_extension SET extversion = %s WHERE extname = 'easeml'", [version])
        with pytest.raises(VersionMismatch, match=says) as refused:
            prepare_database(database)
        assert refused.value.hint is not None
        assert ("pip install easeml-db==99.0.0" in refused.value.hint) == (version == "99.0.0")
        with pytest.raises(psycopg.Error, match=f"the extension easeml is {version}"):
            database.again().execute("SELECT easeml.preview_procedure('grid')")


def test_a_coordinator_refuses_an_extension_of_another_version() -> None:
    check_version(__version__)
    with pytest.raises(VersionMismatch, match="no extension easeml, this package is") as missing:
        check_version(None)
    with pytest.raises(VersionMismatch, match=r"extension easeml 0\.1\.0") as older:
        check_version("0.1.0")
    assert "easeml install" in str(missing.value.hint)
    assert "updates the extension" in str(older.value.hint)
    with pytest.raises(VersionMismatch) as newer:
        check_version("0.10.0")
    assert "pip install easeml-db==0.10.0" in str(newer.value.hint)
