"""Columns of texts on a real server: what they become, what is told of it, and that all ways to predict agree."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fixtures.sessions import Session

N_SLOTS = 1
NOTES = """
CREATE TABLE notes AS
SELECT i AS id, i % 3 > 0 AS is_kept,
    CASE WHEN i % 41 > 0 THEN (ARRAY['delete this old draft', 'keep this version', 'we want to keep it'])[1 + i % 3]
        || ' number ' || i || ' of ' || md5(i::text) END AS note,
    'doc-' || chr(97 + i % 26) || chr(97 + i / 26 % 26) || CASE WHEN i % 3 > 0 THEN '.txt' ELSE '.tmp' END || i AS file,
    'user ' || i % 90 AS writer, gen_random_uuid() AS key, 'N' || i AS number, i % 7 AS weekday
FROM generate_series(1, 600) i
"""


@pytest.fixture(scope="module")
def shop(module_coordinated: Session) -> Session:
    """A database with notes, and a dataset of them."""
    module_coordinated.execute(NOTES)
    return module_coordinated


@pytest.fixture(scope="module")
def notes(shop: Session) -> list[str]:
    """The dataset, packed: what was told meanwhile."""
    told: list[str] = []

    def hear(diagnostic: psycopg.errors.Diagnostic) -> None:
        told.append(diagnostic.message_primary or "")

    shop.add_notice_handler(hear)
    shop.execute(
        "SELECT easeml.create_dataset('notes', 'notes', '{note,file,writer,number}', 'is_kept', n_partitions => 2)"
    )
    shop.remove_notice_handler(hear)
    return told


def fields(shop: Session, name: str) -> dict[str, Any]:
    stored = shop.value("SELECT encoder FROM easeml.datasets WHERE dataset_name = %s", name)
    return {field["column"]: field for field in stored["inputs"]}


def test_texts_become_words_pieces_or_categories_and_identifiers_are_left_out(shop: Session, notes: list[str]) -> None:
    found = fields(shop, "notes")
    kinds = {name: (field["kind"], field.get("analyzer")) for name, field in found.items()}
    assert kinds == {"note": ("text", "words"), "file": ("text", "characters"), "writer": ("categorical", None)}
    assert len(found["writer"]["categories"]) == 90
    assert found["note"]["missing"] == [0]
    assert [each for each in notes if "'number'" in each] == [
        "input 'number' is left out: each row has another text, and they look like identifiers"
    ]


def test_what_became_of_inputs_is_told(shop: Session, notes: list[str]) -> None:
    told = shop.value("SELECT explanations FROM easeml.dataset_info WHERE dataset_name = 'notes'")
    assert {name: text.split(":")[0] for name, text in told.items()} == {
        "note": "words",
        "file": "pieces of 2 to 4 characters",
        "writer": "categories",
        "number": "left out",
    }


def test_inputs_that_tell_nothing_are_named(shop: Session) -> None:
    told: list[str] = []

    def hear(diagnostic: psycopg.errors.Diagnostic) -> None:
        told.append(diagnostic.message_primary or "")

    with shop.transaction(force_rollback=True):
        shop.execute("CREATE VIEW dull AS SELECT id, weekday, 7 AS seven, NULL::float8 AS nothing, is_kept FROM notes")
        shop.add_notice_handler(hear)
        inputs = "{id,weekday,seven,nothing}"
        shop.execute("SELECT easeml.create_dataset('dull', 'dull', %s, 'is_kept', n_folds => 0)", [inputs])
        shop.remove_notice_handler(hear)
    assert told == [
        "input 'nothing' is NULL in all training rows: nothing can be learnt from that",
        "input 'seven' is the same in all training rows: nothing can be learnt from that",
        "input 'id' has another whole number in each row: leave out what only names rows, new rows have others",
    ]


@pytest.mark.parametrize(
    ("inputs", "sqlstate", "message"),
    [("{key}", "ML001", "'key' is a uuid: it names rows"), ("{number}", "ML002", "'number' only names rows")],
)
def test_an_identifier_alone_is_refused(shop: Session, inputs: str, sqlstate: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as refused:
        shop.execute("SELECT easeml.create_dataset('bad', 'notes', %s, 'is_kept')", [inputs])
    assert refused.value.sqlstate == sqlstate


def test_texts_train_a_linear_model_and_all_ways_to_predict_agree(shop: Session, notes: list[str]) -> None:
    run_id = shop.value(
        "SELECT easeml.select_models('notes', '{sgd}', procedure => 'grid', max_epochs => 3, search_space => %s)",
        '{"loss": "margin", "alpha": 0.0001, "schedule": "optimal"}',
    )
    shop.wait_until("SELECT status = 'finished' FROM easeml.run_status WHERE run_id = %s", run_id)
    assert shop.value("SELECT validation_metric FROM easeml.leaderboard WHERE run_id = %s", run_id) > 0.95
    with shop.transaction(force_rollback=True):
        long = {"file": "x.tmp", "writer": None, "note": "delete " + "x " * 5_000_000}
        odd = {"file": "", "writer": "nobody before", "note": ""}
        for k, row in enumerate((long, odd)):
            shop.execute(
                "INSERT INTO notes (id, file, writer, note, number) VALUES (%s, %s, %s, %s, '')",
                [1000 + k, row["file"], row["writer"], row["note"]],
            )
        shop.execute("SELECT easeml.predict_table('notes', 'notes', 'answers')")
        rows = shop.rows("""
            SELECT a.predicted_label, a.probability, p.label, p.probability AS by_json, n.is_kept
            FROM (SELECT DISTINCT ON (number, id) * FROM answers) a JOIN notes n USING (id, number),
                LATERAL easeml.predict_row('notes', jsonb_build_object('note', note, 'file', file, 'writer', writer)) p
            WHERE id % 10 = 0 OR id > 600
        """)
    assert len(rows) == 62
    for row in rows:
        assert row["predicted_label"] == row["label"]
        assert row["probability"] == pytest.approx(row["by_json"], rel=1e-4)
    known = [row for row in rows if row["is_kept"] is not None]
    assert sum(row["label"] == str(row["is_kept"]).lower() for row in known) >= 57


@pytest.mark.parametrize(
    ("values", "options", "task"),
    [
        ("i % 31", "", "regression"),
        ("i % 30", "", "classification"),
        ("i % 31", ", task => 'classification'", "classification"),
        ("i % 20", "", "classification"),
        ("(i % 31)::text", "", "classification"),
    ],
)
def test_many_whole_numbers_are_a_number_to_predict(shop: Session, values: str, options: str, task: str) -> None:
    told: list[str] = []

    def hear(diagnostic: psycopg.errors.Diagnostic) -> None:
        told.append(diagnostic.message_primary or "")

    with shop.transaction(force_rollback=True):
        shop.execute(f"CREATE TABLE points AS SELECT i AS x, {values} AS y FROM generate_series(1, 620) i")  # type: ignore[arg-type]
        shop.add_notice_handler(hear)
        shop.execute(f"SELECT easeml.create_dataset('points', 'points', '{{x}}', 'y', n_partitions => 1{options})")  # type: ignore[arg-type]
        shop.remove_notice_handler(hear)
        assert shop.value("SELECT task FROM easeml.dataset_info WHERE dataset_name = 'points'") == task
    said = any("31 different whole numbers in 620 rows" in each and "task => 'classification'" in each for each in told)
    assert said == (task == "regression")


DOCUMENTS = """
CREATE TABLE offers AS
SELECT i AS id, jsonb_build_object('price', i % 17, 'new', i % 2 = 0,
        'colour', (ARRAY['red', 'blue', 'green'])[1 + i % 3], 'it''s', CASE WHEN i % 5 > 0 THEN i % 4 END,
        'mixed', CASE WHEN i % 2 = 0 THEN '"x"' ELSE '1' END::jsonb,
        'deep', jsonb_build_array(i))
    - CASE WHEN i % 10 = 0 THEN 'price' ELSE '' END AS about,
    3.5 * (i % 17) + 10 * (i % 3) AS value
FROM generate_series(1, 400) i
"""


def test_keys_of_json_become_inputs_and_all_ways_to_predict_agree(shop: Session) -> None:
    shop.execute(DOCUMENTS)
    shop.execute("SELECT easeml.create_dataset('offers', 'offers', '{about}', 'value', n_partitions => 1)")
    found = fields(shop, "offers")
    assert {name: (field["kind"], field["missing"]) for name, field in found.items()} == {
        "about.price": ("numeric", [0]),
        "about.new": ("numeric", []),
        "about.colour": ("categorical", []),
        "about.it's": ("numeric", [0]),
        "about.mixed": ("categorical", []),
    }
    assert set(found["about.mixed"]["categories"]) == {"x", "1"}
    run_id = shop.value(
        "SELECT easeml.select_models('offers', '{linear}', procedure => 'grid', max_epochs => 30, search_space => %s)",
        '{"learning_rate": 0.03, "batch_size": 16}',
    )
    shop.wait_until("SELECT status = 'finished' FROM easeml.run_status WHERE run_id = %s", run_id)
    with shop.transaction(force_rollback=True):
        for k, document in enumerate(('{"price": "dear", "colour": ["red"]}', "{}", "[1]", "7", None)):
            shop.execute("INSERT INTO offers VALUES (%s, %s)", [1000 + k, document])
        shop.execute("SELECT easeml.predict_table('offers', 'offers', 'answers')")
        rows = shop.rows(
            "SELECT a.predicted_value, o.value, o.id > 400 AS odd,"
            " easeml.predict_value('offers', to_jsonb(o)) AS by_json"
            " FROM answers a JOIN offers o USING (id) WHERE id % 7 = 0 OR id > 400"
        )
    for row in rows:
        assert row["predicted_value"] == pytest.approx(row["by_json"], rel=1e-4, abs=1e-3)
        assert row["odd"] or abs(row["predicted_value"] - float(row["value"])) < 25
    assert len({round(row["by_json"], 3) for row in rows if row["odd"]}) == 1


@pytest.mark.parametrize("document", ["'[1, 2]'", "'7'", "NULL", '\'{"deep": {"a": 1}}\''])
def test_json_without_a_flat_key_is_refused(shop: Session, document: str) -> None:
    with shop.transaction(force_rollback=True):
        shop.execute(f"CREATE TABLE odd AS SELECT {document}::json AS d, i % 2 AS y FROM generate_series(1, 60) i")  # type: ignore[arg-type]
        with pytest.raises(psycopg.Error, match="'d' holds no json objects") as refused, shop.transaction():
            shop.execute("SELECT easeml.create_dataset('odd', 'odd', '{d}', 'y', n_partitions => 1)")
    assert refused.value.sqlstate == "ML002"


def test_an_array_of_five_thousand_numbers_beside_others_keeps_the_encoder_small(shop: Session) -> None:
    with shop.transaction(force_rollback=True):
        shop.execute(
            "CREATE TABLE wide AS SELECT i % 2 AS y, i AS x,"
            " (SELECT array_agg(sin(i * j)) FROM generate_series(1, 5000) j) AS v FROM generate_series(1, 40) i"
        )
        shop.execute("SELECT easeml.create_dataset('wide', 'wide', '{v,x}', 'y', n_partitions => 1)")
        (vector, _) = fields(shop, "wide").values()
        assert len(vector["knots"]) == 5000
        assert max(map(len, vector["knots"])) <= 16


@pytest.mark.parametrize(("n", "message"), [(340, None), (1595, "expected at most 1590 columns and keys, got 1595")])
def test_hundreds_of_texts_are_packed_and_more_than_the_server_holds_are_refused(
    shop: Session, n: int, message: str | None
) -> None:
    columns = ", ".join(f"'a' || i % 3 AS c{k}" for k in range(n))
    inputs = ",".join(f"c{k}" for k in range(n))
    with shop.transaction(force_rollback=True):
        shop.execute(f"CREATE TABLE wide AS SELECT i % 2 AS y, {columns} FROM generate_series(1, 40) i")  # type: ignore[arg-type]
        call = f"SELECT easeml.create_dataset('wide', 'wide', '{{{inputs}}}', 'y', n_partitions => 1)"
        if message is None:
            shop.execute(call)  # type: ignore[arg-type]
            assert len(fields(shop, "wide")) == n
        else:
            with pytest.raises(psycopg.Error, match=message), shop.transaction():
                shop.execute(call)  # type: ignore[arg-type]


def wide(shop: Session, n: int, value: str) -> Any:
    """Pack a table of so many numbers, each NULL-free; return how many inputs were packed."""
    columns = ", ".join(f"{value} AS c{k}" for k in range(n))
    inputs = ",".join(f"c{k}" for k in range(n))
    shop.execute(f"CREATE TABLE wide AS SELECT i % 2 AS y, {columns} FROM generate_series(1, 40) i")  # type: ignore[arg-type]
    shop.execute(f"SELECT easeml.create_dataset('wide', 'wide', '{{{inputs}}}', 'y', n_partitions => 1)")  # type: ignore[arg-type]
    return len(fields(shop, "wide"))


@pytest.mark.parametrize("value", ["sin(i)::real", "i", "i::smallint"])
def test_every_row_of_narrow_numbers_that_fits_into_a_page_is_packed(shop: Session, value: str) -> None:
    with shop.transaction(force_rollback=True):
        assert wide(shop, 1500, value) == 1500


def test_a_row_that_does_not_fit_into_a_page_is_refused_with_the_way_out(shop: Session) -> None:
    with (
        shop.transaction(force_rollback=True),
        pytest.raises(psycopg.Error, match="1500 inputs does not fit into a page") as refused,
    ):
        wide(shop, 1500, "i::numeric")
    assert refused.value.sqlstate == "ML002"
    assert "real[]" in str(refused.value)
