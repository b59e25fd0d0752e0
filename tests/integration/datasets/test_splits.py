"""Which row is in which split: rare classes, a column that says it, time, groups, and the names of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

SPLITS = ("train", "validation", "test")


def create(database: Session, target: str = "y", name: str = "data", source: str = "t", **options: Any) -> int:
    options.setdefault("n_folds", 0)  # small tables have no validation rows of their own otherwise
    named = "".join(f", {key} => %({key})s" for key in options)
    statement = f"SELECT easeml.create_dataset(%(name)s, %(source)s, '{{x}}', %(target)s{named}) AS id"
    return int(database.rows(statement, name=name, source=source, target=target, **options)[0]["id"])


def table(database: Session, n_rows: int, label: str, more: str = "", name: str = "t") -> None:
    """Table t(id, x, y ...) with labels, and more columns, by expressions of i = 0..."""
    database.execute(
        f"CREATE TABLE {name} AS SELECT i AS id, i * 0.5 AS x, ({label}) AS y{more}"
        f" FROM generate_series(0, {n_rows - 1}) i"
    )
    database.execute(f"ALTER TABLE {name} ADD PRIMARY KEY (id)")


def splits(database: Session, name: str = "data") -> dict[int, str]:
    """The split of each row by its primary key, each row once."""
    found = database.rows("SELECT row_key, split FROM easeml.dataset_rows(%s)", name)
    assert len({row["row_key"] for row in found}) == len(found)
    return {int(row["row_key"]): row["split"] for row in found}


def sizes(database: Session, name: str = "data") -> dict[str, int]:
    counts = Counter(splits(database, name).values())
    return {split: counts[split] for split in SPLITS}


@contextmanager
def heard(database: Session) -> Iterator[list[str]]:
    notices: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        notices.append(notice.message_primary or "")

    database.add_notice_handler(hear)
    try:
        yield notices
    finally:
        database.remove_notice_handler(hear)


def refused(database: Session, **options: Any) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught, database.transaction():
        create(database, **options)
    assert (caught.value.sqlstate or "").startswith("ML")
    return caught.value


# Rare classes


@pytest.mark.parametrize("n_rare", [3, 4, 5, 20])
def test_a_class_with_three_rows_is_in_every_split_and_the_sizes_stay(scratch: Session, n_rare: int) -> None:
    table(scratch, 10_000, f"CASE WHEN i % 500 = 7 AND i < {500 * n_rare} THEN 'fraud' ELSE 'ok' END")
    with heard(scratch) as notices:
        create(scratch)
    assert notices == []
    of_fraud = Counter(splits(scratch)[500 * i + 7] for i in range(n_rare))
    assert set(of_fraud) == set(SPLITS)
    assert of_fraud["train"] >= of_fraud["test"]
    assert sizes(scratch) == {"train": 7000, "validation": 1500, "test": 1500}


def test_many_small_classes_are_each_in_every_split(scratch: Session) -> None:
    table(scratch, 360, "'class ' || i % 120")
    create(scratch)
    found = splits(scratch)
    for label in range(120):
        assert {found[label + 120 * i] for i in range(3)} == set(SPLITS)


def test_classes_with_too_few_rows_are_named_in_a_notice(scratch: Session) -> None:
    table(scratch, 200, "CASE WHEN i = 5 THEN 'once' WHEN i IN (10, 20) THEN 'twice' ELSE 'often' END")
    with heard(scratch) as (notices):
        create(scratch)
    (notice,) = notices
    assert "2 of the 3 classes of 'y'" in notice
    assert "'once' (1 row, none in validation, test)" in notice
    assert "'twice' (2 rows, none in " in notice
    assert splits(scratch)[5] == "train"
    assert "train" in {splits(scratch)[10], splits(scratch)[20]}


def test_the_names_of_many_rare_classes_are_cut_short(scratch: Session) -> None:
    table(scratch, 400, "CASE WHEN i < 30 THEN 'only ' || i ELSE 'common ' || i % 2 END")
    with heard(scratch) as notices:
        create(scratch)
    assert "30 of the 32 classes" in notices[0]
    assert notices[0].endswith("; and 20 more")


# A column that says it


def test_a_column_says_the_split_of_each_row(scratch: Session) -> None:
    said = "CASE WHEN i % 10 < 7 THEN ' Train' WHEN i % 10 = 7 THEN 'VALIDATION' ELSE 'test' END"
    table(scratch, 200, "i % 3", f", {said} AS part")
    create(scratch, split_column="part", n_partitions=3)
    found = splits(scratch)
    for i in range(200):
        assert found[i] == ("train" if i % 10 < 7 else "validation" if i % 10 == 7 else "test")
    info = scratch.rows("SELECT split_options, row_key FROM easeml.dataset_info")[0]
    assert info == {"split_options": {"split_column": "part"}, "row_key": "id::text"}


def test_an_enum_says_the_split_too(scratch: Session) -> None:
    scratch.execute("CREATE TYPE part AS ENUM ('train', 'validation', 'test')")
    table(scratch, 90, "i % 3", ", (enum_range(NULL::part))[1 + i % 3] AS part")
    create(scratch, split_column="part")
    assert splits(scratch) == {i: SPLITS[i % 3] for i in range(90)}


def test_unknown_words_are_refused_by_name(scratch: Session) -> None:
    table(scratch, 90, "i % 3", ", CASE i % 3 WHEN 0 THEN 'train' WHEN 1 THEN 'dev' ELSE 'holdout' END AS part")
    error = str(refused(scratch, split_column="part"))
    assert "'dev', 'holdout'" in error
    assert "expected train, validation, test" in error


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("CASE WHEN i < 80 THEN 'train' WHEN i < 85 THEN 'test' END", "is NULL in 5 rows"),
        ("CASE WHEN i < 80 THEN 'train' ELSE 'test' END", "none of 90 rows says 'validation'"),
        ("CASE WHEN i < 80 THEN 'train' WHEN i < 88 THEN 'test' ELSE 'validation' END", "too few for 4 partitions"),
        ("ARRAY['train']", "has type _text"),
    ],
)
def test_a_column_that_leaves_rows_or_splits_out_is_refused(scratch: Session, part: str, words: str) -> None:
    table(scratch, 90, "i % 3", f", {part} AS part")
    assert words in str(refused(scratch, split_column="part"))


def test_a_class_that_only_later_splits_have_is_named(scratch: Session) -> None:
    table(scratch, 90, "CASE WHEN i > 80 THEN 'new' ELSE 'old' END", ", CASE WHEN i < 60 THEN 'train' WHEN i < 75"
          " THEN 'validation' ELSE 'test' END AS part")  # fmt: skip
    with heard(scratch) as notices:
        create(scratch, split_column="part")
    assert "'new' (9 rows, none in train, validation)" in notices[0]


def test_the_split_must_not_be_an_input_or_the_target(scratch: Session) -> None:
    table(scratch, 90, "i % 3")
    assert "is the target" in str(refused(scratch, group_column="y"))
    assert "is among the inputs" in str(refused(scratch, split_column="x"))
    assert "no column 'when'" in str(refused(scratch, time_column="when"))
    assert "exclude each other" in str(refused(scratch, time_column="id", group_column="id"))


# By time


@pytest.mark.parametrize("label", ["i % 2", "i / 3.0"])
def test_the_newest_rows_test_and_the_oldest_train(scratch: Session, label: str) -> None:
    table(scratch, 400, label, ", timestamptz '2020-01-01' + (i * 37 % 400) * interval '1 hour' AS at")
    create(scratch, time_column="at", test_fraction=0.1, validation_fraction=0.2)
    found = splits(scratch)
    for i in range(400):
        hour = i * 37 % 400
        assert found[i] == ("train" if hour < 280 else "validation" if hour < 360 else "test")


def test_partitions_are_shuffled_within_a_split_by_time(scratch: Session) -> None:
    table(scratch, 400, "i % 2", ", current_date + i AS at")
    create(scratch, time_column="at")
    rows = scratch.rows("SELECT row_key::int AS id, partition_number AS part FROM easeml.dataset_rows('data')")
    for part in range(4):
        ids = [row["id"] for row in rows if row["part"] == part]
        assert min(ids) < 60
        assert max(ids) > 340


def test_rows_without_a_time_are_refused_with_what_to_do(scratch: Session) -> None:
    table(scratch, 90, "i % 3", ", CASE WHEN i % 9 > 0 THEN current_date + i END AS at, i::text AS word")
    error = refused(scratch, time_column="at")
    assert "column 'at' is NULL in 10 rows" in str(error)
    assert "view" in (error.diag.message_hint or "")
    assert "has type text" in str(refused(scratch, time_column="word"))


# By group


def grouped(database: Session, **options: Any) -> dict[str, Counter[str]]:
    """The splits of each group, counted by rows."""
    create(database, group_column="patient", **options)
    places: dict[str, Counter[str]] = {}
    joined = (
        "SELECT t.patient::text AS patient, r.split FROM t JOIN easeml.dataset_rows('data') r ON r.row_key = t.id::text"
    )
    for row in database.rows(joined):
        places.setdefault(row["patient"], Counter())[row["split"]] += 1
    return places


@pytest.mark.parametrize("label", ["(i / 7) % 11 = 0", "i / 3.0"])
def test_rows_of_a_group_are_never_in_two_splits(scratch: Session, label: str) -> None:
    table(scratch, 1000, label, ", i / 7 AS patient")
    places = grouped(scratch)
    assert len(places) == 143
    assert all(len(found) == 1 for found in places.values())
    for split, share in (("train", 0.7), ("validation", 0.15), ("test", 0.15)):
        assert abs(sizes(scratch)[split] - 1000 * share) <= 21


def test_groups_of_a_rare_class_reach_every_split(scratch: Session) -> None:
    table(scratch, 2000, "CASE WHEN i / 10 IN (3, 77, 150) THEN 'rare' ELSE 'common' END", ", i / 10 AS patient")
    places = grouped(scratch)
    assert {next(iter(places[group])) for group in ("3", "77", "150")} == set(SPLITS)


def test_groups_larger_than_a_split_are_told_and_the_largest_trains(scratch: Session) -> None:
    table(scratch, 1000, "i % 2", ", CASE WHEN i < 600 THEN 'giant' ELSE 'small ' || i / 10 END AS patient")
    with heard(scratch) as notices:
        places = grouped(scratch)
    assert set(places["giant"]) == {"train"}
    assert "'giant' (600 rows, in train)" in notices[0]
    assert abs(sizes(scratch)["test"] - 150) <= 20


def test_few_groups_fill_every_split(scratch: Session) -> None:
    table(scratch, 300, "i % 2", ", i % 3 AS patient")
    places = grouped(scratch)
    assert {next(iter(found)) for found in places.values()} == set(SPLITS)


def test_two_groups_and_missing_groups_are_refused(scratch: Session) -> None:
    table(scratch, 300, "i % 2", ", i / 150 AS patient, CASE WHEN i > 9 THEN i END AS holes")
    assert "makes 2 groups, and 3 splits need one each" in str(refused(scratch, group_column="patient"))
    assert "is NULL in 10 rows" in str(refused(scratch, group_column="holes"))


@pytest.mark.parametrize("option", ["group_column", "time_column", "none"])
def test_splits_do_not_depend_on_the_order_of_rows(scratch: Session, option: str) -> None:
    scratch.execute(
        "CREATE TABLE t AS SELECT i AS id, i % 5 AS x, i % 2 AS y, i / 7 AS part FROM generate_series(1, 500) i"
    )
    scratch.execute("CREATE TABLE other AS SELECT * FROM t ORDER BY id DESC")
    options = {} if option == "none" else {option: "part"}
    for name in ("t", "other"):
        create(scratch, name=name, source=name, seed=3, key_columns=["id"], **options)
    assert splits(scratch, "t") == splits(scratch, "other")
    create(scratch, name="again", source="t", seed=4, key_columns=["id"], **options)
    assert splits(scratch, "t") != splits(scratch, "again") or option == "time_column"


def test_a_refresh_keeps_how_rows_are_split_and_named(scratch: Session) -> None:
    table(scratch, 300, "i % 2", ", i / 7 AS patient")
    grouped(scratch)
    before = splits(scratch)
    scratch.execute("INSERT INTO t SELECT i, i, i % 2, 5 FROM generate_series(300, 310) i")
    scratch.execute("SELECT easeml.refresh_dataset('data')")
    after = splits(scratch)
    assert {after[i] for i in range(300, 311)} == {after[35]}
    (old,) = scratch.rows("SELECT count(*) AS n FROM easeml.dataset_rows('data', 1)")
    assert (old["n"], len(before), len(after)) == (300, 300, 311)


# The names of rows


def test_keys_of_several_columns_are_rows(scratch: Session) -> None:
    scratch.execute("CREATE TABLE t (x int, y int, a int, b text, PRIMARY KEY (b, a))")
    scratch.execute("INSERT INTO t SELECT i, i % 2, i / 10, 'k, ' || i % 10 FROM generate_series(0, 99) i")
    create(scratch)
    key = scratch.value("SELECT row_key FROM easeml.dataset_info")
    assert key == "ROW(b, a)::text"
    joined = f"SELECT count(*) FROM t s JOIN easeml.dataset_rows('data') r ON r.row_key = {key}"
    assert scratch.value(joined) == 100


def test_without_a_key_the_values_name_the_rows(scratch: Session) -> None:
    scratch.execute("CREATE TABLE t AS SELECT i / 2 * 0.1 AS x, i / 2 % 3 AS y FROM generate_series(0, 199) i")
    create(scratch)
    key = scratch.value("SELECT row_key FROM easeml.dataset_info")
    missing = f"SELECT count(*) FROM t WHERE ({key}) NOT IN (SELECT row_key FROM easeml.dataset_rows('data'))"
    assert scratch.value(missing) == 0
    assert scratch.value("SELECT count(*) FROM easeml.dataset_rows('data')") == 200
    assert scratch.value("SELECT count(DISTINCT row_key) FROM easeml.dataset_rows('data')") == 100


def test_key_columns_name_the_rows_of_a_view(scratch: Session) -> None:
    table(scratch, 120, "i % 3", ", i / 2 AS pair")
    scratch.execute("CREATE VIEW v AS SELECT * FROM t")
    create(scratch, source="v", key_columns=["id"])
    assert sorted(splits(scratch)) == list(range(120))
    assert "should name one row each, but 2 rows have" in str(
        refused(scratch, name="b", source="v", key_columns=["pair"])
    )
    assert "no column 'nothing'" in str(refused(scratch, name="b", source="v", key_columns=["nothing"]))


def test_names_of_rows_are_for_their_tenant_alone(database: Session) -> None:
    anna, mallory = (database.as_role(role, "easeml_tenant") for role in ("anna", "mallory"))
    database.execute("GRANT CREATE ON SCHEMA public TO anna")
    table(anna, 90, "i % 3")
    create(anna)
    anna.execute("SELECT easeml.grant_use('data', 'mallory')")
    assert len(splits(anna)) == 90
    with pytest.raises(psycopg.Error, match="there is no dataset 'data'"):
        splits(mallory)
    with pytest.raises(psycopg.Error, match="has no version 7"):
        anna.execute("SELECT * FROM easeml.dataset_rows('data', 7)")
    assert mallory.rows("SELECT row_keys FROM easeml.blocks") == []
