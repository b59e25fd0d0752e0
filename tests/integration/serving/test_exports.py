"""Trials as files between servers: the same bytes of answers, for the tenant alone, within limits.

`tests/unit/plpy/files/test_model_files.py` asks all architectures, and holds what hostile files meet.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner

import easeml_model
from easeml_db.cli import commands

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

N_SLOTS = 1
# Every kind of input, with values missing; seven digits, so that JSON and SQL say the same.
SETUP = """
CREATE TABLE things AS SELECT i AS id,
    CASE WHEN i % 11 = 0 THEN NULL ELSE (hashint4(i) % 1000) / 100.0::float8 END AS size,
    (hashint4(i + 1) % 50)::int AS age, (ARRAY['red', 'green', 'blue', NULL])[1 + abs(hashint4(i + 2)) % 4] AS color,
    date '2020-01-01' + abs(hashint4(i + 3)) % 900 AS day, ARRAY[i % 7, i % 5]::float8[] AS parts,
    'word' || abs(hashint4(i + 4)) % 90 || ' and term' || abs(hashint4(i + 5)) % 80 || ' then' AS story,
    CASE WHEN hashint4(i + 1) % 50 > 10 THEN 'old' WHEN i % 3 = 0 THEN 'odd' ELSE 'new' END AS kind,
    (hashint4(i) % 1000) / 50.0::float8 + (hashint4(i + 1) % 50) AS price
FROM generate_series(1, {n}) i;
ALTER TABLE things ADD PRIMARY KEY (id);
"""
INPUTS = "{size,age,color,day,parts,story}"
LABELS, NUMBERS = "{mlp,lightgbm,random_forest,sgd}", "{tabm}"
ROWS = "SELECT to_jsonb(t) FROM things t ORDER BY id LIMIT 500"
ANSWERS = "SELECT to_jsonb(o)::text FROM {} o ORDER BY id"


def made(session: Session, n_rows: int) -> None:
    for statement in SETUP.format(n=n_rows).strip().split(";\n"):
        session.execute(statement)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained(module_coordinated: Session) -> Session:
    """A database with trials of every trainer, for labels, for numbers and for images."""
    session = module_coordinated
    made(session, 900)
    session.execute("SELECT easeml.create_dataset('kinds', 'things', %s, 'kind', n_partitions => 1)", [INPUTS])
    session.execute("SELECT easeml.create_dataset('prices', 'things', %s, 'price', n_partitions => 1)", [INPUTS])
    session.execute(
        "CREATE TABLE images AS SELECT i AS id, decode(repeat(lpad(to_hex(i % 200), 2, '0'), 64), 'hex') AS image,"
        " i % 2 AS label FROM generate_series(1, 300) i"
    )
    session.execute("SELECT easeml.create_dataset('images', 'images', '{image}', 'label', 1, input_shape => '{8,8}')")
    for dataset, names in (("kinds", LABELS), ("prices", NUMBERS), ("images", "{lenet}")):
        space = {"trees_per_epoch": 5, "mlp": {"hidden_units": [[16]]}} if dataset == "kinds" else None
        session.execute(
            "SELECT easeml.select_models(%s, %s, n_configs => %s, max_epochs => 1, search_space => %s)",
            [dataset, names, names.count(",") + 1, json.dumps(space) if space else None],
        )
    session.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    return session


@pytest.fixture(scope="module")
def elsewhere(server: Embedded, open_session: Any) -> Any:
    """A session on another server, with rows to predict for."""
    with open_session(server.dsn()) as session:
        made(session, 10_000)
        yield session
        session.execute("DROP TABLE things")


def test_every_trial_answers_the_same_bytes_on_another_server_and_in_python(
    trained: Session, elsewhere: Session, tmp_path: Path
) -> None:
    made_here = trained.rows(
        "SELECT DISTINCT ON (dataset_name, architecture) dataset_name, trial_id, architecture FROM easeml.leaderboard"
        " WHERE test_metric IS NOT NULL AND dataset_name <> 'images'"
    )
    assert {row["architecture"] for row in made_here} == {
        *f"{LABELS},{NUMBERS}".replace("{", "").replace("}", "").split(",")
    }
    trained.execute("ALTER TABLE things RENAME TO fewer; ")
    made(trained, 10_000)
    n_rows = 10_000
    for row in made_here:
        dataset, trial_id = row["dataset_name"], row["trial_id"]
        contents = trained.value("SELECT easeml.export_trial(%s, %s)", dataset, trial_id)
        name = f"{dataset} {trial_id}"
        elsewhere.execute("SELECT easeml.import_trial(%s, %s)", [contents, name])
        trained.execute("SELECT easeml.predict_table(%s, 'things', 'o', %s)", [dataset, trial_id])
        elsewhere.execute("SELECT easeml.predict_table(%s, 'things', 'o')", [name])
        expected = trained.values(ANSWERS.format("o"))
        assert len(expected) == n_rows
        assert elsewhere.values(ANSWERS.format("o")) == expected, row["architecture"]
        path = tmp_path / "trial.safetensors"
        path.write_bytes(contents)
        model = easeml_model.load(path)
        told = model.predict(trained.values(ROWS))
        column = "predicted_value" if dataset == "prices" else "predicted_label"
        in_sql = trained.values(f"SELECT {column} FROM o ORDER BY id LIMIT 500")
        wanted = pytest.approx(in_sql, rel=1e-4, abs=1e-4) if dataset == "prices" else in_sql
        assert told == wanted, row["architecture"]
        for session in (trained, elsewhere):
            session.execute("DROP TABLE o")
            session.execute("DELETE FROM things WHERE id > 2000")  # one architecture answers for all of them
        n_rows = 2_000
        elsewhere.execute("SELECT easeml.drop_dataset(%s, cascade => true)", [name])
    trained.execute("DROP TABLE things; ALTER TABLE fewer RENAME TO things")


def test_a_convolutional_network_of_images_is_imported_too(trained: Session, elsewhere: Session) -> None:
    elsewhere.execute("SELECT easeml.import_trial(%s)", [trained.value("SELECT easeml.export_trial('images')")])
    image = bytes(range(64))
    asked = "SELECT (easeml.predict_row('images', %s::bytea)).probability"
    assert elsewhere.value(asked, image) == trained.value(asked, image)
    assert elsewhere.value("SELECT easeml.drop_dataset('images', cascade => true)") == ""


def refused(session: Session, statement: str, values: list[Any], sqlstate: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as caught:
        session.execute(statement, values)  # type: ignore[arg-type]
    assert caught.value.sqlstate == sqlstate
    assert caught.value.diag.context is None
    assert caught.value.diag.message_hint


@pytest.fixture
def imported(trained: Session) -> Any:
    """`trained` with an imported dataset `kept`."""
    contents = trained.value("SELECT easeml.export_trial('prices')")
    trial_id = trained.value("SELECT easeml.import_trial(%s, 'kept')", contents)
    yield trial_id
    trained.execute("SELECT easeml.drop_dataset('kept', cascade => true)")


def test_an_imported_trial_is_a_trial_like_any_other(trained: Session, imported: int) -> None:
    found = trained.rows("SELECT * FROM easeml.leaderboard WHERE trial_id = %s", imported)[0]
    origin = trained.rows(
        "SELECT * FROM easeml.leaderboard WHERE trial_id = (easeml.predict_row('prices', %s::jsonb)).serving_trial_id",
        json.dumps(trained.value(ROWS.replace("500", "1"))),
    )[0]
    for column in ("architecture", "config", "validation_metric", "test_metric", "best_epoch", "metric"):
        assert found[column] == origin[column], column
    assert (found["status"], found["rank"]) == ("finished", 1)
    assert trained.value("SELECT source FROM easeml.dataset_info WHERE dataset_name = 'kept'") == "imported"
    assert (
        trained.value(
            "SELECT count(*) FROM easeml.run_summary((SELECT run_id FROM easeml.trials WHERE trial_id = %s))", imported
        )
        > 0
    )
    trained.execute("SELECT easeml.deploy(%s)", [imported])
    # What leaves again is what came.
    assert trained.value("SELECT easeml.export_trial('kept')") == trained.value(
        "SELECT easeml.export_trial('kept', %s)", imported
    )
    guest = trained.as_role("file_guest")
    trained.execute("SELECT easeml.grant_use('kept', 'file_guest')")
    row = json.dumps(trained.value(ROWS.replace("500", "1")))
    assert guest.value("SELECT easeml.predict_value('postgres.kept', %s::jsonb)", row) is not None


def test_an_imported_trial_is_done_and_has_no_units(trained: Session, imported: int) -> None:
    asked = "SELECT n_units, n_units_done, percent_done FROM easeml.run_status WHERE procedure = 'import'"
    assert trained.rows(asked) == [{"n_units": 0, "n_units_done": 0, "percent_done": 100}]


def test_an_imported_dataset_is_not_trained_packed_or_replayed(trained: Session, imported: int) -> None:
    refused(trained, "SELECT easeml.select_models('kept')", [], "ML004", "was imported: it has no rows to train on")
    refused(trained, "SELECT easeml.refresh_dataset('kept')", [], "ML004", "was imported: it has no source to pack")
    for call in ("easeml.drift('kept')", "easeml.drift('kept', 'prices')"):
        refused(trained, f"SELECT * FROM {call}", [], "ML004", "'kept' was imported: it has no training rows")
    with pytest.raises(psycopg.Error, match="no recorded training unit"):
        trained.execute("CALL easeml.replay(%s)", [imported])


def test_a_name_that_exists_is_refused_and_nothing_is_stored(trained: Session) -> None:
    contents = trained.value("SELECT easeml.export_trial('prices')")
    before = trained.value("SELECT count(*) FROM easeml.trials")
    refused(trained, "SELECT easeml.import_trial(%s)", [contents], "ML001", "you have a dataset 'prices' already")
    refused(trained, "SELECT easeml.import_trial(%s, '')", [contents], "ML001", "name: expected 1 to 200 characters")
    # The first version of a task would find its name taken, and the task would never train.
    trained.execute("SELECT easeml.create_task('early', 'Input = [2] Output = [2]', 'public')")
    refused(trained, "SELECT easeml.import_trial(%s, 'early')", [contents], "ML004", "'early' is a task")
    trained.execute("SELECT easeml.drop_task('early')")
    assert trained.value("SELECT count(*) FROM easeml.trials") == before


def test_what_is_no_file_of_ours_is_refused(trained: Session) -> None:
    contents = bytearray(trained.value("SELECT easeml.export_trial('prices')"))
    at = "SELECT easeml.import_trial(%s, 'x')"
    refused(trained, at, [b""], "ML002", "got one of 0 bytes")
    refused(trained, at, [None], "ML001", "got NULL")
    refused(trained, at, [b"\x80\x04\x95 a pickle"], "ML002", "got something else")
    contents[len(contents) // 2] ^= 1
    refused(trained, at, [bytes(contents)], "ML005", "does not match its digest")
    refused(trained, "SELECT * FROM easeml.export_trial('prices', 999)", [], "ML003", "no measured trial 999")


def test_only_the_tenant_exports(trained: Session) -> None:
    user = trained.as_role("file_user")
    trained.execute("SELECT easeml.grant_use('prices', 'file_user')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        user.execute("SELECT easeml.export_trial('postgres.prices')")
    reader = trained.as_role("file_reader", "easeml_reader", "easeml_tenant")
    trial_id = trained.value("SELECT max(trial_id) FROM easeml.leaderboard WHERE dataset_name = 'prices'")
    refused(reader, "SELECT easeml.export_trial('prices', %s)", [trial_id], "ML003", "no dataset 'prices'")
    told = reader.rows("SELECT * FROM easeml.export_file('prices', %s)", trial_id)[0]
    assert told["contents"] is None
    assert told["failure"]["sqlstate"] == "ML003"


def test_nothing_is_stored_that_was_not_checked_and_limits_hold(trained: Session) -> None:
    tenant = trained.as_role("file_tenant", "easeml_tenant")
    told = tenant.rows("SELECT * FROM easeml.store_import()")[0]
    assert told["trial_id"] is None
    assert "cannot be called directly" in told["failure"]["message"]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        tenant.execute("SELECT easeml.begin_import('postgres', 'x', '{}', 1, '', '')")
    contents = trained.value("SELECT easeml.export_trial('prices')")
    trained.execute("SELECT easeml.create_tenant('file_tenant', max_bytes => 100)")
    refused(tenant, "SELECT easeml.import_trial(%s, 'x')", [contents], "ML015", "max_bytes: file_tenant")
    trained.execute("SELECT easeml.alter_tenant('file_tenant', max_bytes => 100000000)")
    trial_id = tenant.value("SELECT easeml.import_trial(%s, 'x')", contents)
    assert trained.value("SELECT tenant::text FROM easeml.trials WHERE trial_id = %s", trial_id) == "file_tenant"
    tenant.execute("SELECT easeml.drop_dataset('x', cascade => true)")


def test_a_large_state_is_kept_in_chunks(trained: Session, elsewhere: Session) -> None:
    statement = "SELECT easeml.select_models('prices', '{mlp}', n_configs => 1, max_epochs => 1, search_space => %s)"
    run_id = trained.value(statement, json.dumps({"hidden_units": [[600, 600]]}))
    trained.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)
    (trial_id,) = trained.values("SELECT trial_id FROM easeml.trials WHERE run_id = %s", run_id)
    imported = elsewhere.value(
        "SELECT easeml.import_trial(%s)", trained.value("SELECT easeml.export_trial('prices', %s)", trial_id)
    )
    chunks = "SELECT count(*) FROM easeml.checkpoint_chunks k JOIN easeml.checkpoints USING (checkpoint_id)"
    chunks += " WHERE trial_id = %s"
    assert elsewhere.value(chunks, imported) == trained.value(chunks, trial_id) > 4
    row = json.dumps(trained.value(ROWS.replace("500", "1")))
    asked = "SELECT easeml.predict_value('prices', %s::jsonb, %s)"
    assert elsewhere.value(asked, row, imported) == trained.value(asked, row, trial_id)
    elsewhere.execute("SELECT easeml.drop_dataset('prices', cascade => true)")


def test_the_commands_write_and_read_a_file(trained: Session, tmp_path: Path) -> None:
    path = tmp_path / "kept.safetensors"
    shell = CliRunner()
    done = shell.invoke(commands, ["export", "prices", "--out", str(path), "--dsn", trained.dsn])
    assert done.exit_code == 0, done.output
    assert f"{path}: {path.stat().st_size} bytes" in done.stdout
    again = shell.invoke(commands, ["export", "prices", "--out", str(path), "--dsn", trained.dsn])
    assert "exists already" in str(again.exception)
    done = shell.invoke(commands, ["import", str(path), "--name", "from shell", "--json", "--dsn", trained.dsn])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["dataset_name"] == "from shell"
    trained.execute("SELECT easeml.drop_dataset('from shell', cascade => true)")
