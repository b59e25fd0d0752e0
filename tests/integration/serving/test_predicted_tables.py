"""Predictions that are added to a table by key: new rows, new values, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.sessions import Session

N_SLOTS = 1
SETUP = """
CREATE TABLE houses AS SELECT i AS id, i * 1.5 AS area, i * 3.0 + 1 AS price FROM generate_series(1, 60) i;
ALTER TABLE houses ADD PRIMARY KEY (id);
CREATE VIEW seen AS SELECT * FROM houses WHERE id <= 40;
CREATE VIEW bare AS SELECT area FROM houses;
SELECT easeml.create_dataset('houses', 'houses', '{area}', 'price', n_partitions => 1, task => 'regression');
SELECT easeml.select_models('houses', '{sgd}', n_configs => 2, max_epochs => 1);
CREATE TABLE marks AS SELECT i AS id, nullif(i, 7) * 1.0 AS x, i % 5 AS few, md5((i % 9)::text) AS words,
    decode(lpad(to_hex(i), 4, '0'), 'hex') AS pair, ARRAY[i, nullif(i % 3, 0)]::real[] AS two,
    (ARRAY['', E'\\x01\\x030\\x02', E'a\\x010\\x02b', 'ä "x", \\n', 'NULL'])[i % 5 + 1] AS mark
FROM generate_series(1, 200) i;
ALTER TABLE marks ADD PRIMARY KEY (id);
SELECT easeml.create_dataset('marks', 'marks', '{x,few,two,words}', 'mark', n_partitions => 1);
SELECT easeml.create_dataset('pairs', 'marks', '{x,pair}', 'mark', n_partitions => 1, input_shape => '{2}');
SELECT easeml.select_models('marks', '{sgd}', n_configs => 1, max_epochs => 2);
SELECT easeml.select_models('pairs', '{sgd}', n_configs => 1, max_epochs => 2);
"""


@pytest.fixture(scope="module")
def prepared(module_coordinated: Session) -> Session:
    """A database with two trained trials."""
    for statement in SETUP.strip().split(";\n"):
        module_coordinated.execute(statement)
    module_coordinated.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    return module_coordinated


@pytest.fixture
def session(prepared: Session) -> Iterator[Session]:
    with prepared.transaction(force_rollback=True):
        yield prepared


def predict(session: Session, source: str, further: str = "") -> int:
    return int(session.value(f"SELECT easeml.predict_table('houses', '{source}', 'public.answers'{further})"))


def trials(session: Session) -> list[int]:
    return session.values("SELECT trial_id FROM easeml.trials WHERE run_id = (SELECT min(run_id) FROM easeml.runs)")


def test_append_predicts_only_for_keys_that_are_not_there(session: Session) -> None:
    first, second = trials(session)
    assert predict(session, "seen", f", {first}, key => '{{id}}'") == 40
    assert predict(session, "houses", f", {second}, 'append'") == 20
    assert predict(session, "houses", f", {second}, 'append'") == 0
    rows = session.rows(
        "SELECT a.predicted_value, easeml.predict_value('houses', to_jsonb(h), CASE WHEN id <= 40 THEN %(first)s"
        " ELSE %(second)s END::bigint) AS value FROM answers a JOIN houses h USING (id)",
        first=first,
        second=second,
    )
    assert len(rows) == 60
    assert all(row["predicted_value"] == pytest.approx(row["value"]) for row in rows)


def test_update_writes_new_values_and_new_rows_and_leaves_other_columns(session: Session) -> None:
    first, second = trials(session)
    predict(session, "seen", f", {first}, key => '{{id}}'")
    session.execute(
        "ALTER TABLE answers ADD note text; UPDATE answers SET note = 'read'; INSERT INTO answers VALUES (99, 7)"
    )
    assert predict(session, "houses", f", {second}, 'update'") == 60
    assert session.value("SELECT count(*) FROM answers WHERE note = 'read'") == 40
    assert session.value("SELECT predicted_value FROM answers WHERE id = 99") == 7
    predict_all = f"SELECT easeml.predict_table('houses', 'houses', 'public.fresh', {second})"
    session.execute(predict_all)
    assert session.value("SELECT count(*) FROM answers JOIN fresh USING (id, predicted_value)") == 60


def test_a_table_that_is_not_there_is_made(session: Session) -> None:
    assert predict(session, "houses", ", if_exists => 'append'") == 60
    assert session.value("SELECT count(DISTINCT id) FROM answers") == 60


def test_a_source_without_a_primary_key_is_asked_for_one(session: Session) -> None:
    notices: list[str] = []
    session.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    predict(session, "seen")
    assert any("no primary key" in notice and "key =>" in notice for notice in notices)
    assert session.values("SELECT attname FROM pg_attribute WHERE attrelid = 'answers'::regclass AND attnum > 0") == [
        "id", "price", "predicted_value",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "further", "message"),
    [
        ("seen", ", if_exists => 'append'", "key: expected columns that tell rows apart"),
        ("(SELECT 1)", ", if_exists => 'append'", "source: expected the name of a table or view"),
        ("houses", ", if_exists => NULL", "if_exists: expected refuse, append or update, got NULL"),
        ("houses", ", if_exists => 'update', key => '{}'", "key: expected columns of the source"),
        ("twice", ", if_exists => 'update', key => '{id}'", "1 rows with NULL and 2 that repeat one"),
    ],
)
def test_rows_that_cannot_be_told_apart_are_refused(session: Session, source: str, further: str, message: str) -> None:
    predict(session, "seen", ", key => '{id}'")
    session.execute("CREATE TABLE twice AS SELECT nullif(least(id, 58), 1) AS id, area FROM houses")
    before = session.values("SELECT a::text FROM answers a ORDER BY 1")
    with pytest.raises(psycopg.Error, match=message.replace("(", "[(]")) as caught, session.transaction():
        predict(session, source, further)
    assert caught.value.diag.context is None
    assert session.values("SELECT a::text FROM answers a ORDER BY 1") == before


def test_a_role_that_may_not_write_the_table_is_refused(session: Session) -> None:
    predict(session, "houses")
    session.execute(
        "CREATE ROLE visitor; SELECT easeml.grant_use('houses', 'visitor'); GRANT SELECT ON houses TO visitor"
    )
    session.execute("SET LOCAL ROLE visitor")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="answers"), session.transaction():
        session.execute("SELECT easeml.predict_table('postgres.houses', 'houses', 'answers', if_exists => 'update')")


def test_triggers_of_the_table_run_when_nothing_is_predicted_any_more(session: Session) -> None:
    predict(session, "seen", ", key => '{id}'")
    session.execute(
        "CREATE FUNCTION peek() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM easeml.predict_packed('houses', NULL, 1, '', NULL); RETURN NEW; END $$;"
        " CREATE TRIGGER peek BEFORE INSERT ON answers FOR EACH ROW EXECUTE FUNCTION peek()"
    )
    with pytest.raises(psycopg.Error, match="cannot be called directly"), session.transaction():
        predict(session, "houses", ", if_exists => 'append'")


@pytest.mark.parametrize("dataset", ["marks", "pairs"])
def test_a_row_of_a_table_is_answered_like_a_row_alone(session: Session, dataset: str) -> None:
    assert session.value("SELECT easeml.predict_table(%s, 'marks', 'public.answers')", dataset) == 200
    rows = session.rows(
        "SELECT a.predicted_label, a.probability, p.label, p.probability AS alone"
        " FROM answers a JOIN marks m USING (id), LATERAL easeml.predict_row(%(dataset)s, to_jsonb(m)) p",
        dataset=dataset,
    )
    assert len(rows) == 200
    assert all(row["predicted_label"] == row["label"] for row in rows)
    assert all(row["probability"] == pytest.approx(row["alone"], rel=1e-5) for row in rows)
    assert len({row["label"] for row in rows}) > 1


def test_probabilities_of_all_classes_are_those_of_a_row_alone(session: Session) -> None:
    sql = "SELECT easeml.predict_table('marks', 'marks', 'public.answers', if_exists => %s, probabilities => true)"
    assert [session.value(sql, mode) for mode in ("refuse", "update", "append")] == [200, 200, 0]
    rows = session.rows(
        "SELECT a.*, easeml.predict_probabilities('marks', to_jsonb(m)) AS alone FROM answers a JOIN marks m USING (id)"
    )
    labels = set(session.values("SELECT mark FROM marks"))
    assert len(rows) == 200
    for row in rows:
        every = row["probabilities"]
        assert set(every) == labels
        assert every == pytest.approx(row["alone"], abs=1e-5)
        assert sum(every.values()) == pytest.approx(1, abs=1e-5)
        assert max(every.values()) == row["probability"] == every[row["predicted_label"]]


def test_a_table_that_has_no_probabilities_gets_none(session: Session) -> None:
    session.execute("SELECT easeml.predict_table('marks', 'marks', 'public.answers')")
    with pytest.raises(psycopg.Error, match="has no column probabilities"), session.transaction():
        session.execute("SELECT easeml.predict_table('marks', 'marks', 'public.answers', NULL, 'append', NULL, true)")
    with pytest.raises(psycopg.Error, match="'houses' is a regression, which has no probabilities") as caught:
        session.execute("SELECT easeml.predict_table('houses', 'houses', 'public.fresh', probabilities => true)")
    assert caught.value.diag.message_hint == "Leave out probabilities => true."


def test_a_table_of_one_row_whose_label_is_empty_gets_it(session: Session) -> None:
    session.execute("SELECT easeml.predict_table('marks', 'marks', 'public.answers')")
    session.execute(
        "CREATE VIEW one AS SELECT m.* FROM marks m JOIN answers USING (id) WHERE predicted_label = '' LIMIT 1"
    )
    assert session.value("SELECT easeml.predict_table('marks', 'one', 'public.single', key => '{id}')") == 1
    assert session.values("SELECT predicted_label FROM single") == [""]


@pytest.mark.parametrize(
    ("dataset", "change"),
    [
        (
            "pairs",
            "UPDATE marks SET pair = CASE id WHEN 1 THEN '\\x00'::bytea WHEN 2 THEN '\\x000102'::bytea ELSE pair END",
        ),
        ("pairs", "UPDATE marks SET pair = NULL WHERE id = 3"),
        ("marks", "UPDATE marks SET two = '{1}' WHERE id = 3"),
        ("marks", "UPDATE marks SET two = '{{1,2}}' WHERE id = 3"),
    ],
)
def test_rows_of_another_shape_are_refused_also_where_their_lengths_add_up(
    session: Session, dataset: str, change: str
) -> None:
    session.execute(change)
    with pytest.raises(psycopg.Error, match="do not all have the declared shape"), session.transaction():
        session.execute("SELECT easeml.predict_table(%s, 'marks', 'public.answers')", [dataset])


@pytest.mark.parametrize("numbers", ["{}", "{1.5}", "{NaN,-Infinity,0.1,-0}"])
def test_bytes_of_numbers_become_these_numbers(prepared: Session, numbers: str) -> None:
    there_and_back = "SELECT easeml.numbers_of(substr(easeml.array_bytes(%s::float8[]), 21))::text"
    assert prepared.value(there_and_back, numbers) == numbers


@pytest.mark.parametrize("n_bytes", [1, 7, 9, 4095])
def test_bytes_that_are_no_numbers_are_refused(prepared: Session, n_bytes: int) -> None:
    with pytest.raises(psycopg.Error, match=f"numbers: expected 8 bytes for each, got {n_bytes} bytes"):
        prepared.execute("SELECT easeml.numbers_of(decode(repeat('ff', %s), 'hex'))", [n_bytes])


def test_any_bytes_make_a_legal_array(prepared: Session) -> None:
    numbers = "easeml.numbers_of(decode(repeat('ff00017f', 2000), 'hex'))"
    assert prepared.value(f"SELECT array_ndims({numbers}) = 1 AND cardinality({numbers}) = 1000") is True
    assert prepared.value("SELECT proacl::text FROM pg_proc WHERE proname = 'bytes_as_numbers'").count("=X/") == 2
