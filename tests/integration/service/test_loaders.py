"""Loaders against a real server: what is in the table, and that a failed load leaves nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg import sql

from easeml_db.cli.data.load import load
from easeml_db.errors import (
    InvalidArgument,
    InvalidData,
    NotAllowed,
    NotFound,
    ServerUnavailable,
)
from easeml_loaders import (
    BUNDLED_NAMES,
    Column,
    IfExists,
    Source,
    Values,
    bundled_source,
    column_types,
    csv_source,
    load_table,
    numpy_source,
)


def query(dsn: str, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement, parameters or None).fetchall()  # type: ignore[arg-type]


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(statement)  # type: ignore[arg-type]


def command(dsn: str, *arguments: str) -> Result:
    return CliRunner().invoke(load, [*arguments, "--dsn", dsn])


def csv_at(folder: Path, text: str) -> Path:
    path = folder / "data.csv"
    path.write_text(text)
    return path


def test_every_type_and_null_arrives(dsn: str, tmp_path: Path) -> None:
    file = csv_at(tmp_path, 'whole,real,flag,word\n1,0.1,true,ä\n,,,\n-9223372036854775808,-inf,f,"x\ny"\n')
    load_table(dsn, csv_source(file), "t")
    assert query(dsn, "SELECT * FROM t ORDER BY id") == [
        (1, 1, 0.1, True, "ä"),
        (2, None, None, None, None),
        (3, -(2**63), float("-inf"), False, "x\ny"),
    ]


def test_table_has_key_comment_and_goes_on_counting(dsn: str, tmp_path: Path) -> None:
    file = csv_at(tmp_path, "a\n5\n6\n")
    load_table(dsn, csv_source(file), "t")
    execute(dsn, "INSERT INTO t (a) VALUES (7)")
    load_table(dsn, csv_source(file), "t", if_exists="append")
    assert query(dsn, "SELECT id, a FROM t ORDER BY id") == [(1, 5), (2, 6), (3, 7), (4, 5), (5, 6)]
    assert query(dsn, "SELECT obj_description('t'::regclass)") == [(f"Loaded by easeml from {file}",)]
    assert query(dsn, "SELECT contype FROM pg_constraint WHERE conrelid = 't'::regclass") == [("p",)]


def test_a_file_whose_name_is_no_text_is_loaded(dsn: str, tmp_path: Path) -> None:
    file = csv_at(tmp_path, "a\n5\n").rename(tmp_path / os.fsdecode(b"caf\xe9.csv"))
    result = command(dsn, "csv", str(file), "--table", "t")
    assert result.exit_code == 0, result.output
    assert query(dsn, "SELECT obj_description('t'::regclass)") == [(f"Loaded by easeml from {tmp_path}/caf?.csv",)]


def test_own_id_column_is_kept(dsn: str, tmp_path: Path) -> None:
    load_table(dsn, csv_source(csv_at(tmp_path, "x,id\n1,b\n2,b\n")), "t")
    assert query(dsn, "SELECT * FROM t ORDER BY x") == [(1, "b"), (2, "b")]


HOSTILE_NAMES = [
    'x" bigint); DROP TABLE victim; --',
    "%s",
    "{}",
    "Capital Letters",
    "select",
    "'",
    "ä\u2028",
    "\\",
    "ID",
    "a.b",
]


def test_names_are_kept_whatever_they_hold(dsn: str) -> None:
    execute(dsn, "CREATE TABLE victim ()")
    columns = tuple(Column(name, "bigint") for name in HOSTILE_NAMES)
    chunk = [Values(np.array([i])) for i in range(len(columns))]
    source = Source(columns, 1, lambda: iter([chunk]), "x'; DROP TABLE victim; --")
    loaded = load_table(dsn, source, '"T""; DROP TABLE victim; --"')
    assert loaded.table == 'public."T""; DROP TABLE victim; --"'
    assert list(column_types(dsn, loaded.table)) == ["id", *HOSTILE_NAMES]
    assert query(dsn, "SELECT count(*) FROM victim") == [(0,)]
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier('T"; DROP TABLE victim; --')))
        assert rows.fetchall() == [(1, *range(len(HOSTILE_NAMES)))]


def test_arrays_arrive_with_shape_and_bounds(dsn: str, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    np.savez(tmp_path / "a.npz", x=x, pixels=pixels, flags=x[:, 0] > 0, word=np.array(["ä", "long"]))
    loaded = load_table(dsn, numpy_source(tmp_path / "a.npz"), "t")
    assert dict(loaded.columns)["x"] == "real[3][4]"
    rows = query(dsn, "SELECT x, pixels, flags, word, array_dims(x) FROM t ORDER BY id")
    np.testing.assert_array_equal(np.array([row[0] for row in rows], np.float32), x)
    assert [row[1] for row in rows] == [image.tobytes() for image in pixels]
    assert [row[2] for row in rows] == (x[:, 0] > 0).tolist()
    assert [row[3] for row in rows] == ["ä", "long"]
    assert rows[0][4] == "[1:3][1:4]"


@pytest.mark.parametrize("name", BUNDLED_NAMES)
def test_bundled_data_sets_load(dsn: str, name: str) -> None:
    result = command(dsn, name.replace("_", "-"), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document) == {"table", "n_rows", "n_columns", "columns", "seconds", "n_bytes"}
    assert document["table"] == f"public.{name}"
    assert query(dsn, f"SELECT count(*), max(id) FROM {name}") == [(document["n_rows"],) * 2]
    assert document["n_columns"] == len(document["columns"]) == len(column_types(dsn, name))


def test_existing_table_is_refused_with_the_way_out(dsn: str) -> None:
    assert command(dsn, "iris").exit_code == 0
    refused = command(dsn, "iris")
    assert isinstance(refused.exception, NotAllowed)
    assert "already exists" in str(refused.exception)
    assert "--replace" in str(refused.exception.hint)
    assert command(dsn, "iris", "--replace").exit_code == 0
    assert command(dsn, "iris", "--append").exit_code == 0
    assert query(dsn, "SELECT count(*), max(id) FROM iris") == [(300, 300)]


@pytest.mark.parametrize("if_exists", ["refuse", "append", "replace"])
def test_failure_half_way_leaves_what_was_there(dsn: str, if_exists: IfExists) -> None:
    def broken() -> Any:
        yield [Values(np.arange(100_000))]
        raise InvalidData("the file ends here")

    source = Source((Column("a", "bigint"),), None, broken, "a broken file")
    before = []
    if if_exists != "refuse":
        execute(dsn, "CREATE TABLE t (a bigint); INSERT INTO t VALUES (1)")
        before = [(1,)]
    with pytest.raises(InvalidData, match="ends here"):
        load_table(dsn, source, "t", if_exists=if_exists)
    is_there = query(dsn, "SELECT to_regclass('t') IS NOT NULL") == [(True,)]
    assert is_there == bool(before)
    assert not is_there or query(dsn, "SELECT a FROM t") == before


def test_wrong_csv_is_refused_before_a_table_is_replaced(dsn: str, tmp_path: Path) -> None:
    execute(dsn, "CREATE TABLE t (a bigint)")
    file = csv_at(tmp_path, "a,b\n1,2\n3\n")
    result = command(dsn, "csv", str(file), "--table", "t", "--replace")
    assert isinstance(result.exception, InvalidData)
    assert str(result.exception) == f"{file}, line 3: expected 2 fields, got 1"
    assert column_types(dsn, "t") == {"a": "bigint"}


def test_appended_csv_takes_the_types_of_the_table(dsn: str, tmp_path: Path) -> None:
    execute(dsn, "CREATE TABLE t (code varchar(9), x double precision, n smallint)")
    result = command(dsn, "csv", str(csv_at(tmp_path, "x,n,code\n1,2,3\n")), "--table", "t", "--append")
    assert result.exit_code == 0, result.output
    assert query(dsn, "SELECT * FROM t") == [("3", 1.0, 2)]
    result = command(dsn, "csv", str(csv_at(tmp_path, "x,n\n1,2\n1,x\n")), "--table", "t", "--append")
    assert "line 3: column 'n' is smallint, got 'x'" in str(result.exception)


def test_a_missing_package_is_told_with_the_way_to_it(dsn: str, tmp_path: Path) -> None:
    refused = command(dsn, "fashion-mnist", "--folder", str(tmp_path)).exception
    assert isinstance(refused, NotFound)
    assert "apt-get install dataset-fashion-mnist" in str(refused.hint)


def test_append_of_other_columns_or_types_is_refused(dsn: str) -> None:
    execute(dsn, "CREATE TABLE t (a integer)")
    for name, message in (("b", "has no column 'b'"), ("a", "is integer in table public.t and bigint")):
        source = Source((Column(name, "bigint"),), 0, lambda: iter([]), "x")
        with pytest.raises(InvalidData, match=message):
            load_table(dsn, source, "t", if_exists="append")


def test_schema_must_exist_and_is_used(dsn: str) -> None:
    iris = bundled_source("iris")
    with pytest.raises(NotFound, match="schema 'elsewhere' does not exist"):
        load_table(dsn, iris, "elsewhere.t")
    execute(dsn, 'CREATE SCHEMA "Else where"')
    assert load_table(dsn, iris, '"Else where".T').table == '"Else where".t'


@pytest.mark.parametrize("name", ["", "a b", "a.b.c", "a;", 'x"', "t" * 64, "a\0"])
def test_odd_table_names_are_refused(dsn: str, name: str) -> None:
    with pytest.raises(InvalidArgument, match="is no table name"):
        load_table(dsn, bundled_source("iris"), name)


def test_view_is_never_replaced(dsn: str) -> None:
    execute(dsn, "CREATE VIEW v AS SELECT 1")
    with pytest.raises(NotAllowed, match="is no table"):
        load_table(dsn, bundled_source("iris"), "v", if_exists="replace")


def test_table_with_dependents_is_not_replaced(dsn: str) -> None:
    execute(dsn, "CREATE TABLE t (); CREATE VIEW v AS SELECT count(*) FROM t")
    with pytest.raises(NotAllowed, match="depend"):
        load_table(dsn, bundled_source("iris"), "t", if_exists="replace")


def test_system_names_and_too_many_columns_are_our_errors(dsn: str) -> None:
    with pytest.raises(InvalidArgument, match="system column"):
        load_table(dsn, Source((Column("ctid", "bigint"),), 0, lambda: iter([]), "x"), "t")
    columns = tuple(Column(f"c{i}", "bigint") for i in range(1601))
    with pytest.raises(InvalidData, match="1600 columns"):
        load_table(dsn, Source(columns, 0, lambda: iter([]), "x"), "t")


def test_types_never_reach_sql_unchecked(dsn: str) -> None:
    with pytest.raises(InvalidArgument, match="no type"):
        load_table(dsn, Source((Column("a", "bigint); --"),), 0, lambda: iter([]), "x"), "t")


def test_no_right_to_create_is_not_allowed(dsn: str) -> None:
    execute(dsn, "CREATE SCHEMA closed; GRANT USAGE ON SCHEMA closed TO pg_monitor")
    as_monitor = psycopg.conninfo.make_conninfo(dsn, options="-c role=pg_monitor")
    with pytest.raises(NotAllowed, match="permission denied"):
        load_table(as_monitor, bundled_source("iris"), "closed.t")


def test_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable):
        load_table(f"host={tmp_path} dbname=x", bundled_source("iris"), "t")


def test_progress_counts_to_the_total(dsn: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    file = csv_at(tmp_path, "a\n" + "1\n" * 20_000)
    source = csv_source(file, progress=lambda done, total: seen.append((done, total)))
    load_table(dsn, source, "t", progress=lambda done, total: seen.append((done, total)))
    assert (20_000, None) in seen
    assert seen[-1] == (20_000, 20_000)


def test_dates_times_and_numerics_arrive_as_the_server_would_read_them(dsn: str, tmp_path: Path) -> None:
    fields = ["1969-12-31,1969-12-31 23:59:58.5,2030-02-28T23:59+05:30,-1234567890.12345678901", "NA,NA,NA,NA"]
    file = csv_at(tmp_path, "Date Egg,at,zoned,exact\n" + "\n".join(fields) + "\n")
    done = command(dsn, "csv", str(file), "--table", "t", "--types", "Date Egg=date")
    assert done.exit_code == 0, done.output
    assert "notice: column 'exact' is numeric: 'NA' (1) read as NULL" in done.stderr
    assert column_types(dsn, "t") == {
        "id": "bigint", "Date Egg": "date", "at": "timestamp without time zone", "zoned": "timestamp with time zone",
        "exact": "numeric",
    }  # fmt: skip
    same = (
        "SELECT count(*) FILTER (WHERE (\"Date Egg\", at, zoned, exact) = ('1969-12-31', '1969-12-31 23:59:58.5',"
        " '2030-02-28T23:59+05:30', -1234567890.12345678901)), count(exact) FROM t"
    )
    assert query(dsn, same) == [(1, 1)]
    command(dsn, "csv", str(file), "--table", "t", "--append")
    assert query(dsn, same) == [(2, 2)]
